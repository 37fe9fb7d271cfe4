"""StoreDifference of two stores, or of two epochs of one."""

from tussock.jobs.compare.compare import StoreAt, Wanted, compare_stores
from tussock.jobs.compare.record import StoreDifference
from tussock.jobs.operations.store import PipelineStore
from tussock.statestore.progress import Progress


def compare_pipelines(
    before: PipelineStore,
    after: PipelineStore,
    wanted: Wanted,
    since: int | None = None,
    until: int | None = None,
    *,
    progress: Progress,
) -> StoreDifference:
    """Compare the rows of two stores as readers see them, or at the epochs `since` and `until`.

    Raises, warns, cost: as `compare_stores`.
    """
    return compare_stores(_state_of(before, since), _state_of(after, until), wanted, progress)


def _state_of(at: PipelineStore, epoch: int | None) -> StoreAt:
    pipeline = at.pipeline
    return StoreAt(at.meta, pipeline.title if pipeline.name else pipeline.branch or pipeline.store, epoch)
