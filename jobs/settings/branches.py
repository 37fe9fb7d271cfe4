"""The branch of a pipeline's store that a command works on."""

import dataclasses

from tussock.jobs.settings.pipeline import FILE, Pipeline, load_pipeline, parent_environment
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.errors import InputError
from tussock.statestore.meta.errors import BranchedBranchError, NotInitialisedError
from tussock.statestore.meta.store import MetaStore

VARIABLE = "TUSSOCK_BRANCH"


class ParentGoneError(InputError, hides_row_values=True):
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


def parent_of(pipeline: Pipeline) -> Pipeline | None:
    """The pipeline in the environment of which its store is a branch; None if `store` is an address.

    Raises: as `load_pipeline` for that environment; PipelineError if its store is a branch too.
    """
    if (environment := parent_environment(pipeline.store)) is None:
        return None
    parent = load_pipeline(pipeline.folder, environment)
    if parent.branch:
        expected = f"an environment whose store is an address; that of {environment} is a branch too"
        raise PipelineError(
            str(pipeline.folder / FILE), f"env.{pipeline.environment}.store", repr(pipeline.store), expected
        )
    return parent


def at_its_store(pipeline: Pipeline, branch: str = "") -> Pipeline:
    """Return the pipeline on a branch of its store, or at its store if `branch` is empty.

    If the pipeline's environment is a branch of another one, this branch is its store. It has the name of the
    environment, and begins if it does not exist. A repetition has no effect.

    Raises: BranchedBranchError if such an environment is combined with another branch; ParentGoneError; as `parent_of`
        and MetaStore.open_branch.
    """
    if (parent := parent_of(pipeline)) is None:
        return pipeline if branch in ("", pipeline.branch) else on_branch(pipeline, branch)
    if branch not in ("", pipeline.branch):
        raise BranchedBranchError(pipeline.branch)
    meta = open_meta(parent.store)
    try:
        meta.branch_or_new(pipeline.branch)
    except NotInitialisedError as err:
        raise ParentGoneError(pipeline.branch, err.uri) from err
    return on_branch_of(pipeline, meta)


def on_branch_of(pipeline: Pipeline, parent: MetaStore) -> Pipeline:
    """Return a pipeline whose environment is a branch, at its branch of the parent. Raises BranchGoneError."""
    return dataclasses.replace(pipeline, store=parent.branch(pipeline.branch).objects.uri)


def on_branch(pipeline: Pipeline, name: str) -> Pipeline:
    """Return the pipeline with the branch as its store. It publishes no tables, because these are the parent's.

    Raises as `branch_address`.
    """
    return dataclasses.replace(pipeline, store=branch_address(pipeline.store, name), publish=(), branch=name)
