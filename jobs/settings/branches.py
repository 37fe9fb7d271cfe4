"""The branch of a pipeline's store that a command works on."""

import dataclasses

from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.statestore.errors import InputError
from tussock.statestore.meta.errors import BranchedBranchError, NotInitialisedError
from tussock.statestore.objectstore.branch import SCHEME

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


def at_its_store(pipeline: Pipeline, branch: str = "") -> Pipeline:
    """Return the pipeline on a branch of its store, or at its store if `branch` is empty.

    If the pipeline's environment is a branch of another one, this branch is its store. It has the name of the
    environment, and begins if it does not exist.

    Raises: BranchedBranchError if such an environment is combined with another branch; as `branch_address`, as
        `load_pipeline` for the other environment, and as MetaStore.open_branch.
    """
    if (environment := parent_environment(pipeline.store)) is None:
        return on_branch(pipeline, branch) if branch else pipeline
    if branch not in ("", pipeline.environment):
        raise BranchedBranchError(pipeline.environment)
    parent = load_pipeline(pipeline.folder, environment)
    meta = open_meta(parent.store)
    if all(branch.name != pipeline.environment for branch in meta.read_latest().branches):
        meta.open_branch(pipeline.environment)
    return on_branch(dataclasses.replace(pipeline, store=parent.store), pipeline.environment)


def on_branch(pipeline: Pipeline, name: str) -> Pipeline:
    """Return the pipeline with the branch as its store. It publishes no tables, because these are the parent's.

    Raises as `branch_address`.
    """
    return dataclasses.replace(pipeline, store=branch_address(pipeline.store, name), publish=(), branch=name)
