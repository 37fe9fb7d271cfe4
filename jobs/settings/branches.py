"""The branch of a pipeline's store that a command works on."""

import dataclasses
from typing import TYPE_CHECKING

from tussock.jobs.settings.process import open_meta

if TYPE_CHECKING:
    from tussock.jobs.settings.pipeline import Pipeline

VARIABLE = "TUSSOCK_BRANCH"


def branch_address(store: str, name: str) -> str:
    """Return the address of an open branch of a store. Raises BranchGoneError, NotInitialisedError."""
    return open_meta(store).branch(name).objects.uri


def on_branch(pipeline: "Pipeline", name: str) -> "Pipeline":
    """Return the pipeline with the branch as its store. It publishes no tables, because these are the parent's.

    Raises as `branch_address`.
    """
    return dataclasses.replace(pipeline, store=branch_address(pipeline.store, name), publish=(), branch=name)
