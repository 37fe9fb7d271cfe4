"""StoreDifference of two stores, or of two epochs of one."""

from tussock.jobs.compare.compare import ComparisonOptions, StoreAt, compare_stores
from tussock.jobs.compare.record import StoreDifference
from tussock.jobs.operations.store import PipelineStore, open_branch
from tussock.statestore.meta.errors import EpochExpiredError
from tussock.statestore.progress import Progress


def compare_pipelines(
    before: PipelineStore,
    after: PipelineStore,
    wanted: ComparisonOptions,
    since: int | None,
    until: int | None,
    *,
    progress: Progress,
) -> StoreDifference:
    """Compare the rows of two stores as readers see them, or at the epochs `since` and `until`.

    Raises, warns, cost: as `compare_stores`.
    """
    return compare_stores(_state_of(before, since), _state_of(after, until), wanted, progress)


def compare_with_branch(
    parent: PipelineStore,
    branch: PipelineStore,
    wanted: ComparisonOptions,
    until: int | None = None,
    *,
    progress: Progress,
) -> StoreDifference:
    """Compare a store with one of its branches, at equal input if the branch follows.

    Args:
        until: an epoch of the branch; None: what its readers see.

    Raises, warns, cost: as `compare_stores`. EpochExpiredError if the parent no longer keeps the epoch with this input.
    """
    since = _epoch_of_parent(parent, branch, until)
    try:
        return compare_pipelines(parent, branch, wanted, since, until, progress=progress)
    except EpochExpiredError as err:
        if err.epoch == since:
            name = branch.pipeline.branch
            err.add_note(f"Branch {name!r} is behind its parent. `tussock epoch --branch {name}` takes further epochs.")
        raise


def compare_for_merge(parent: PipelineStore, name: str, progress: Progress) -> StoreDifference:
    """Compare the newest rows of a store with those of its branch, which readers see after the merge."""
    branch = open_branch(parent, name)
    return compare_with_branch(parent, branch, ComparisonOptions(), branch.meta.read_latest().epoch, progress=progress)


def _epoch_of_parent(parent: PipelineStore, branch: PipelineStore, until: int | None) -> int | None:
    """The parent's newest epoch that a following branch has taken; None: what readers of the parent see."""
    origin, newest = branch.meta.settings.origin, branch.meta.read_latest()
    if origin is None or not origin.follows:
        return None
    taken = until or newest.published
    if taken >= origin.epoch:  # perhaps an epoch of the branch's own statements, between two of the parent
        version = newest if newest.epoch == taken else branch.meta.version_when(taken)
        taken = parent.meta.read_version(version.followed).epoch
    return None if taken == parent.meta.read_latest().published else taken


def _state_of(store: PipelineStore, epoch: int | None) -> StoreAt:
    pipeline = store.pipeline
    return StoreAt(store.meta, pipeline.title if pipeline.name else pipeline.branch or pipeline.store, epoch)
