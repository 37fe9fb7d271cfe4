"""Tables outside of the store that copy published views: update them, tidy them, list their states."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tussock.jobs.delta.delta_packages import require_delta_release, with_delta
from tussock.jobs.delta.location import location_of
from tussock.jobs.operations.runners import spark_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.tables import PublishSettings
from tussock.jobs.settings.values import PipelineError
from tussock.jobs.sinks import publication
from tussock.jobs.sinks.kinds import needs_spark, sinks_on_spark, sinks_without_spark
from tussock.jobs.sinks.manifest import TableState, read_manifest
from tussock.statestore.progress import Progress, no_progress


def publish_tables(
    at: PipelineStore, epoch: int | None, progress: Progress = no_progress
) -> tuple[publication.PublishedTable, ...]:
    """Update the tables of `[publish]` to a published epoch. A table with a later epoch is not changed.

    Args:
        epoch: None means the epoch that readers see.

    Raises: PipelineError if the pipeline has no `[publish]`; as `tussock.jobs.sinks.publication.publish_tables`.
    """
    with _open_sinks(at) as (settings, sink_of):
        return publication.publish_tables(at.meta, settings, sink_of, epoch, progress)


def tidy_tables(at: PipelineStore, progress: Progress = no_progress) -> None:
    """Merge the tables' small files, and remove states older than `[publish] keep`. Raises as `publish_tables`."""
    with _open_sinks(at) as (settings, sink_of):
        publication.tidy_tables(at.meta, settings, sink_of, at.clock_ms(), progress)


@contextmanager
def _open_sinks(at: PipelineStore) -> Iterator[tuple[PublishSettings, publication.SinkOf]]:
    """Yield `[publish]` and a factory of its sinks; a Spark application runs during the block if they need it."""
    if (settings := at.pipeline.publish) is None:
        raise PipelineError(
            str(at.pipeline.folder / "pipeline.toml"), "publish", "nothing", "a table [publish] with a key `to`"
        )
    if not needs_spark(settings):
        yield settings, sinks_without_spark(settings)
        return
    from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours

    require_delta_release()
    with jvm_errors_as_ours(), spark_of(at.pipeline, "publish", with_delta(at.pipeline.spark)) as spark:
        yield settings, sinks_on_spark(spark)


def tables_at(at: PipelineStore, epoch: int) -> Mapping[str, TableState]:
    """Return the table states at `epoch` by relation; empty if `epoch` was not published to tables. Cost: one GET."""
    settings = at.pipeline.publish
    manifest = None if settings is None else read_manifest(location_of(settings.to).objects, epoch)
    return {} if manifest is None else manifest.tables


def tables_published(at: PipelineStore, reported: Callable[[str], int]) -> tuple[int, dict[str, TableState]]:
    """Return the published epoch and the tables that changed since their last report.

    A table also counts as changed if its reported epoch does not exist in the store, which was then restored.

    Args:
        reported: a function from a relation to the epoch of its newest report, 0 without a report.

    Cost: two GETs, and a HEAD per table.
    """
    epoch = at.meta.read_latest().published
    tables: dict[str, TableState] = {}
    for relation, state in tables_at(at, epoch).items():
        known = reported(relation)
        if int(state.written) > known or not (
            known == 0 or at.meta.has_epoch(known)
        ):  # a restored store lacks the epochs after its backup
            tables[relation] = state
    return epoch, tables
