"""Undo: return a store to the rows and relations of an earlier epoch, as a new epoch."""

from collections.abc import Mapping

from tussock.jobs.barriers.undo import inject_undo
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import EpochSummary, barrier_text
from tussock.jobs.operations.publish import publish_newest
from tussock.jobs.operations.store import PipelineStore
from tussock.statestore.progress import Progress


def undo_epochs(
    store: PipelineStore, to: int, *, keeps_input: bool | None, run: Mapping[str, str], progress: Progress
) -> EpochSummary:
    """Return a store to epoch `to`, and publish the new epoch to readers and sinks, as far as its quality check passes.

    Arguments and errors: as `inject_undo` and `publish_newest`.
    """
    barrier = inject_undo(store.meta, to, keeps_input=keeps_input, run=run)
    progress(barrier_text(barrier, store.meta.read_latest().catalog))
    summary = run_epoch(LocalRunner(), store.meta, barrier, progress)
    publish_newest(store, progress)
    return summary
