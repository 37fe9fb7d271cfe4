"""The branch of a pipeline's store that a command works on."""

import dataclasses
from typing import TYPE_CHECKING

from tussock.jobs.settings.process import open_meta
from tussock.statestore.errors import InputError
from tussock.statestore.meta.errors import NotInitialisedError
from tussock.statestore.objectstore.branch import SCHEME

if TYPE_CHECKING:
    from tussock.jobs.settings.pipeline import Pipeline

VARIABLE = "TUSSOCK_BRANCH"


class ParentGoneError(InputError):
    """The store of a branch does not exist at its address."""

    branch: str
    store: str

    def __str__(self) -> str:
        return (
            f"{self.store} contains no store, so it has no branch {self.branch!r}. A branch is a part of its store, "
            "and goes and moves with it. If the store has moved, correct `store` in pipeline.toml, or the address in "
            "--store."
        )


def branch_address(store: str, name: str) -> str:
    """Return the address of an open branch of a store. Raises BranchGoneError, ParentGoneError."""
    meta = open_meta(store)
    try:
        return meta.branch(name).objects.uri
    except NotInitialisedError as err:
        raise ParentGoneError(name, err.uri) from err


def parent_environment(store: str) -> str | None:
    """The environment in `store = "branch:prod"` of an environment; None for other stores."""
    name = store.removeprefix(SCHEME)
    return name if name != store and name.isidentifier() else None


def branch_of_environment(pipeline: "Pipeline", parent: "Pipeline") -> "Pipeline":
    """Return the pipeline on the branch of another environment's store that has this environment's name.

    The branch begins if it does not exist. Raises as MetaStore.open_branch.
    """
    meta = open_meta(parent.store)
    if all(branch.name != pipeline.environment for branch in meta.read_latest().branches):
        meta.open_branch(pipeline.environment)
    return on_branch(dataclasses.replace(pipeline, store=parent.store), pipeline.environment)


def on_branch(pipeline: "Pipeline", name: str) -> "Pipeline":
    """Return the pipeline with the branch as its store. It publishes no tables, because these are the parent's.

    Raises as `branch_address`.
    """
    return dataclasses.replace(pipeline, store=branch_address(pipeline.store, name), publish=(), branch=name)
