"""The health of a pipeline whatever can be read of it: the definition, the store, or only the reason why not."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tussock.jobs.driver.run_record import record_failure, record_recovery
from tussock.jobs.facts.health import Trouble, TroubleKind, unopened
from tussock.jobs.facts.moment import moment
from tussock.jobs.facts.status import Status, status_of
from tussock.jobs.operations.folder import FolderEntry
from tussock.jobs.operations.store import PipelineStore, open_pipeline
from tussock.statestore.errors import TussockError

EPOCHS = 5  # the newest, in which a stuck epoch finds how long others took


def health_of_store(at: PipelineStore) -> Status:
    """Return the status of an opened pipeline. Cost, and errors of the store: as tussock.jobs.facts.status.status."""
    return status_of(at.pipeline, at.meta, at.now, last=EPOCHS)


def health_after_run(
    at: PipelineStore, run: Mapping[str, str], began: datetime, failure: str, epoch: int | None
) -> Status:
    """Record how a scheduler's run of epochs ended, as far as the store does not show it, and return the status.

    Args:
        run: the name of the run, as in barriers.
        failure: its failed tasks, for everyone who sees the pipeline; empty if none failed.
        epoch: the one that it committed; None if it did not get so far.

    Cost: as `health_of_store`, twice if a failure is recorded; a GET, and a PUT if the record changes.
    """
    if not failure:
        record_recovery(at.meta, run)
    found = health_of_store(at)
    if not failure or _is_refused(found, epoch):
        return found
    record_failure(at.meta, "epoch", run, int(began.timestamp() * 1000), failure)
    return health_of_store(at)


def _is_refused(found: Status, epoch: int | None) -> bool:
    """Whether the status shows that suites refused this epoch, which is why a task failed."""
    refused = [trouble.since for trouble in found.troubles if trouble.kind is TroubleKind.EPOCH_REFUSED]
    return epoch is not None and moment(epoch) in refused


def health_of(found: FolderEntry) -> Sequence[Trouble]:
    """Return the troubles of a pipeline of the folder. Raises nothing that a user or a server causes."""
    if found.pipeline is None:
        return () if found.error is None else (unopened(found.error, None),)
    try:
        return health_of_store(open_pipeline(found.pipeline)).troubles
    except (TussockError, OSError) as err:
        return (unopened(err, found.pipeline),)
