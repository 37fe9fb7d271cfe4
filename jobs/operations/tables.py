"""Sinks: copies of published views outside of the store. Update them, tidy them, list and read their states."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tussock.jobs.delta.delta_packages import require_delta_release, with_delta
from tussock.jobs.operations.runners import spark_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.home import BranchWritesOutsideError, home_of, recorded_home
from tussock.jobs.settings.publishing import PublishSettings, writes_with_spark
from tussock.jobs.settings.values import PipelineError
from tussock.jobs.sinks import everywhere, publication
from tussock.jobs.sinks.base import Publisher
from tussock.jobs.sinks.kinds import open_place
from tussock.jobs.sinks.ledger import ledger_of
from tussock.jobs.sinks.manifest import TableState, read_manifest
from tussock.jobs.sinks.outline import outline_of
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tussock.jobs.sinks.check import TableCheck


class UnknownSinkError(InputError, hides_row_values=True):
    """No sink of the pipeline has this name."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"no sink is named {self.name!r}; the sinks in [[publish]] are: {', '.join(self.known)}."
            f"{did_you_mean(self.name, self.known)} A sink has its `name`, or else its `kind`."
        )


def publish_tables(
    store: PipelineStore, epoch: int | None, progress: Progress = no_progress, sink: str | None = None
) -> tuple[publication.PublishedTable, ...]:
    """Update the tables of all sinks, or of one, to a published epoch. A table with a later epoch is not changed.

    Args:
        epoch: None means the epoch that readers see.

    Raises: PipelineError if the pipeline has no `[publish]`; UnknownSinkError; as `publish_sinks`.
    """
    chosen = sinks_of(store, sink)
    with _spark_for(store, chosen) as spark:
        return everywhere.publish_sinks(store.meta, store.pipeline.publish, chosen, epoch, progress, spark)


def tidy_tables(store: PipelineStore, progress: Progress = no_progress, sink: str | None = None) -> None:
    """Run the upkeep of all sinks, or of one. Raises as `publish_tables`."""
    chosen = sinks_of(store, sink)
    with _spark_for(store, chosen) as spark:
        everywhere.tidy_sinks(store.meta, chosen, store.clock_ms(), progress, spark)


@contextmanager
def read_published(store: PipelineStore, sink: str, relation: str) -> "Iterator[pa.RecordBatchReader]":
    """Yield a relation's rows from a sink, at the epoch that the sink has.

    Raises: UnknownSinkError, UnreadableSinkError, UnknownPublishedError, and the errors of the sink's kind.
    """
    (settings,) = sinks_of(store, sink)
    version = store.meta.read_latest()
    relations, _ = publication.chosen_relations(version, published_sight(version), settings)
    known = {one.name: one for one in relations}
    if relation.lower() not in known:
        raise publication.UnknownPublishedError(relation, tuple(known))
    home = home_of(store.meta.objects)
    with open_place(settings, Publisher(store.meta, home, lambda _: "")) as place:
        yield place.sink_of(outline_of(known[relation.lower()], home)).read_rows()


def check_published(store: PipelineStore) -> "tuple[TableCheck, ...]":
    """Compare the tables of all sinks with the store. Raises as `publish_tables`."""
    from tussock.jobs.sinks.check import check_tables

    return tuple(check for settings in sinks_of(store, None) for check in check_tables(store.meta, settings))


def sinks_of(store: PipelineStore, name: str | None) -> Sequence[PublishSettings]:
    """Return all sinks of the pipeline, or the one of this name.

    Raises: PipelineError, UnknownSinkError; BranchWritesOutsideError, because the tables are those of the parent.
    """
    if store.pipeline.branch:
        raise BranchWritesOutsideError(store.pipeline.branch)
    if not (sinks := store.pipeline.publish):
        raise PipelineError(
            str(store.pipeline.folder / "pipeline.toml"), "publish", "nothing", "a table [publish] with a key `to`"
        )
    if name is None:
        return sinks
    if not (chosen := [sink for sink in sinks if sink.title == name]):
        raise UnknownSinkError(name, tuple(sink.title for sink in sinks))
    return chosen


@contextmanager
def _spark_for(store: PipelineStore, sinks: Sequence[PublishSettings]) -> "Iterator[SparkSession | None]":
    """Yield a Spark application that runs during the block, or None if no sink needs it."""
    if not any(map(writes_with_spark, sinks)):
        yield None
        return
    from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours

    require_delta_release()
    with jvm_errors_as_ours(), spark_of(store.pipeline, "publish", with_delta(store.pipeline.spark)) as spark:
        yield spark


def tables_at(store: PipelineStore, sink: PublishSettings, epoch: int) -> Mapping[str, TableState]:
    """Return a sink's tables at `epoch` by relation; empty if the epoch was not published to the sink. One GET."""
    manifest = read_manifest(ledger_of(sink, store.meta.objects, recorded_home(store.meta.objects)), epoch)
    return {} if manifest is None else manifest.tables


def tables_published(
    store: PipelineStore, sink: PublishSettings, reported: Callable[[str], int]
) -> tuple[int, dict[str, TableState]]:
    """Return the published epoch and the tables of a sink that changed since their last report.

    A table also counts as changed if its reported epoch does not exist in the store, which was then restored.

    Args:
        reported: a function from a relation to the epoch of its newest report, 0 without a report.

    Cost: two GETs, and a HEAD per table.
    """
    epoch = store.meta.read_latest().published
    tables: dict[str, TableState] = {}
    for relation, state in tables_at(store, sink, epoch).items():
        known = reported(relation)
        if int(state.written) > known or not (
            known == 0 or store.meta.has_epoch(known)
        ):  # a restored store lacks the epochs after its backup
            tables[relation] = state
    return epoch, tables
