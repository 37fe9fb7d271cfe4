"""The health of a pipeline whatever can be read of it: the definition, the store, or only the reason why not."""

from collections.abc import Sequence

from tussock.jobs.facts.health import Trouble, unopened
from tussock.jobs.facts.status import Status, status_of
from tussock.jobs.operations.folder import FolderEntry
from tussock.jobs.operations.store import PipelineStore, open_pipeline
from tussock.statestore.errors import TussockError

EPOCHS = 5  # the newest, in which a stuck epoch finds how long others took


def health_of_store(at: PipelineStore) -> Status:
    """Return the status of an opened pipeline. Cost, and errors of the store: as tussock.jobs.facts.status.status."""
    return status_of(at.pipeline, at.meta, at.now, last=EPOCHS)


def health_of(found: FolderEntry) -> Sequence[Trouble]:
    """Return the troubles of a pipeline of the folder. Raises nothing that a user or a server causes."""
    if found.pipeline is None:
        return () if found.error is None else (unopened(found.error, None),)
    try:
        return health_of_store(open_pipeline(found.pipeline)).troubles
    except (TussockError, OSError) as err:
        return (unopened(err, found.pipeline),)
