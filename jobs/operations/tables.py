"""Tables outside the store, copies of published views: bring them to an epoch, tidy them, list their states."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tussock.jobs.lake.location import location_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import PipelineError, PublishSettings
from tussock.jobs.sinks import publication
from tussock.jobs.sinks.kinds import opened_sinks
from tussock.jobs.sinks.manifest import TableState, read_manifest
from tussock.statestore.progress import Progress, no_progress


def publish_tables(
    at: PipelineStore, epoch: int | None, progress: Progress = no_progress
) -> tuple[publication.PublishedTable, ...]:
    """Bring the tables of `[publish]` to a published epoch; tables that hold a later one stay.

    Args:
        epoch: None: the epoch that readers see.

    Raises: PipelineError for a pipeline without `[publish]`; as `tussock.jobs.sinks.publication.publish_tables`.
    """
    with _sinks(at) as (settings, sink_of):
        return publication.publish_tables(at.meta, settings, sink_of, epoch, progress)


def tidy_tables(at: PipelineStore, progress: Progress = no_progress) -> None:
    """Merge the small files of those tables, and remove states that are too old. Raises as `publish_tables`."""
    with _sinks(at) as (settings, sink_of):
        publication.tidy_tables(at.meta, settings, sink_of, at.clock_ms(), progress)


@contextmanager
def _sinks(at: PipelineStore) -> Iterator[tuple[PublishSettings, publication.SinkOf]]:
    if (settings := at.pipeline.publish) is None:
        raise PipelineError(
            str(at.pipeline.folder / "pipeline.toml"), "publish", "nothing", "a table [publish] with a key `to`"
        )
    with opened_sinks(settings, f"tussock publish {at.pipeline.name}", at.pipeline.spark) as sink_of:
        yield settings, sink_of


def tables_at(at: PipelineStore, epoch: int) -> Mapping[str, TableState]:
    """The state of each table at `epoch`, by relation; none if that epoch was not published to them. One GET."""
    settings = at.pipeline.publish
    manifest = None if settings is None else read_manifest(location_of(settings.to).objects, epoch)
    return {} if manifest is None else manifest.tables


def tables_published(at: PipelineStore, told: Callable[[str], int]) -> tuple[int, dict[str, TableState]]:
    """The epoch that readers see, and the tables that were written since `told` says, or hold rows of an epoch that the store lacks.

    Args:
        told: of a relation, the epoch of the newest report of its table, 0 if there is none.

    Cost: two GETs, and a HEAD per table.
    """
    epoch = at.meta.latest().published
    tables: dict[str, TableState] = {}
    for relation, state in tables_at(at, epoch).items():
        known = told(relation)
        if int(state.written) > known or not (
            known == 0 or at.meta.has_epoch(known)
        ):  # a restored store lacks those after the copy
            tables[relation] = state
    return epoch, tables
