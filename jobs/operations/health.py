"""The health of a pipeline whatever can be read of it: the definition, the store, or only the reason why not."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tussock.jobs.barriers.columns import takes_new_columns
from tussock.jobs.driver.run_record import record_end, record_failure
from tussock.jobs.facts.history import epochs_of_run
from tussock.jobs.facts.status import Status
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.facts.trouble import Trouble
from tussock.jobs.facts.unopened import trouble_of_unopened
from tussock.jobs.operations.folder import FolderEntry
from tussock.jobs.operations.quality import find_refusal
from tussock.jobs.operations.store import PipelineStore, open_pipeline
from tussock.statestore.errors import TussockError

EPOCHS = 5  # the newest, in which a stuck epoch finds how long others took


def health_of_store(store: PipelineStore) -> Status:
    """Return the status of an opened pipeline. Cost, and errors of the store: as `read_status`."""
    return read_status(store.meta, store.now, store.pipeline, last=EPOCHS)


def health_after_run(
    store: PipelineStore,
    run: Mapping[str, str],
    began: datetime,
    failure: str,
    epoch: int | None,
    undone: Sequence[str],
) -> Status:
    """Record how a scheduler's run of epochs ended, and return the status.

    The outcome of the run and the health of the pipeline are two things: a run can leave something undone that a later
    run has done since, and a healthy run can end while an older trouble remains.

    Args:
        run: the name of the run, as in barriers.
        failure: its failed tasks, for everyone who sees the pipeline; empty if none failed.
        epoch: the one that it committed; None if it did not get so far.
        undone: what it left undone, one text each.

    Cost: as `health_of_store`, and the cost of `record_end` or `record_failure`; with a failure, two GETs more.
    """
    start = int(began.timestamp() * 1000)
    refused = find_refusal(store, epoch) if failure and epoch is not None else None
    if refused is not None:  # the status shows why, and the input of the run is committed
        record_end(store.meta, "epoch", run, start, (refused, *undone))
    elif failure:
        record_failure(store.meta, "epoch", run, start, failure)
    else:
        record_end(store.meta, "epoch", run, start, undone)
    return health_of_store(store)


def columns_of_run(store: PipelineStore, run: Mapping[str, str], epoch: int) -> tuple[str, ...]:
    """Return the columns that files brought to sources in the epochs of a run, a line for each source and epoch.

    Args:
        epoch: the newest one of the run.

    Cost: none if no source takes new columns; else as `epochs_of_run`.
    """
    if not takes_new_columns(store.meta.read_latest().catalog):
        return ()
    epochs = epochs_of_run(store.meta, run, epoch, EPOCHS)
    return tuple(line for one in reversed(epochs) for line in one.columns)


def health_of(entry: FolderEntry) -> Sequence[Trouble]:
    """Return the troubles of a pipeline of the folder. Raises nothing that a user or a server causes."""
    if entry.pipeline is None:
        return () if entry.error is None else (trouble_of_unopened(entry.error, None),)
    try:
        return health_of_store(open_pipeline(entry.pipeline)).troubles
    except (TussockError, OSError) as err:
        return (trouble_of_unopened(err, entry.pipeline),)
