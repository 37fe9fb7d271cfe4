"""Branches of a store: create, list and end them."""

from tussock.jobs.facts.branches import BranchFacts, facts_of_branch, list_branches
from tussock.jobs.operations.store import PipelineStore
from tussock.statestore.meta.branch import KEEP_MS, find_branch

__all__ = ["BranchFacts", "branches_of", "create_branch", "end_branch"]


def create_branch(
    at: PipelineStore, name: str, epoch: int | None = None, keep_ms: int = KEEP_MS, *, follows: bool = True
) -> BranchFacts:
    """Begin a branch of a store. It copies no row: its first version refers to the store's objects.

    Args:
        epoch: a readable epoch; None: the committed one.
        keep_ms: its age, after which retention of the store ends it.
        follows: it takes the epochs of the store, and no other input than statements on views.

    Raises as MetaStore.open_branch.
    """
    meta = at.meta.open_branch(name, keep_ms, epoch, follows=follows)
    version = at.meta.read_latest()
    return facts_of_branch(find_branch(version, name), version, meta)


def branches_of(at: PipelineStore) -> tuple[BranchFacts, ...]:
    """The open branches of a store, in order of creation."""
    return list_branches(at.meta)


def end_branch(at: PipelineStore, name: str) -> None:
    """End a branch. The next vacuum of the store removes its objects. Raises BranchGoneError."""
    at.meta.end_branch(name)
