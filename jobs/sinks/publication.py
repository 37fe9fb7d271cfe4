"""Publishing beyond the store: each published relation's table is brought to an epoch, and the epoch's manifest names what they are then.

Runs after the published epoch has moved, so after the quality gate. Each table commits by itself, keyed by epoch (jobs/sinks/base.py); the
manifest comes last, and where it stands, the epoch is done. Cut off anywhere, the same call goes on; two at once end as one.

A table is brought on only from an epoch of this store's own history (jobs/sinks/lineage.py). Any other table of the store is replaced,
with a line that says why: it was published before the store was put back from a copy, or by a release that did not record histories.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tussock.jobs.lake.location import Location, folder_name, location_of
from tussock.jobs.reading.reader import relation_frame
from tussock.jobs.reading.stored_rows import changes_between, rows_at
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.pipeline import PublishSettings
from tussock.jobs.sinks.base import REMOVE, BeatenError, Difference, Outline, Sink, SinkBusyError, SinkState
from tussock.jobs.sinks.difference import difference_of
from tussock.jobs.sinks.lineage import StoreHistory
from tussock.jobs.sinks.manifest import (
    Manifest,
    TableState,
    drop_manifests,
    forget_manifests,
    newest_manifest,
    read_manifest,
    write_manifest,
)
from tussock.jobs.sinks.outline import outline_of
from tussock.jobs.sinks.records import forget_records
from tussock.statestore.errors import InputError, MustStopError, RetryableError, TussockError, did_you_mean
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.meta.epoch import COUNTER_BITS
from tussock.statestore.meta.readable import check_readable
from tussock.statestore.meta.sight import Sight, published_sight, sight_until
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 20  # of one table, each lost to a commit of somebody else

SinkOf = Callable[[Location, Outline], Sink]


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table at an epoch. `changed`: this publish wrote it."""

    relation: str
    state: TableState
    changed: bool


class TablesNotPublishedError(InputError):
    """Some relations could not be published; all others were."""

    def __init__(self, failures: Mapping[str, str], published: int) -> None:
        super().__init__(dict(failures), published)
        self.failures, self.published = failures, published

    def __str__(self) -> str:
        lines = "".join(f"\n  {reason}" for reason in self.failures.values())
        return f"{len(self.failures)} of {len(self.failures) + self.published} tables were not published:{lines}"


class UnknownPublishedError(InputError):
    """`[publish]` names a relation that does not exist."""

    def __init__(self, name: str, existing: tuple[str, ...]) -> None:
        super().__init__(name, existing)
        self.name, self.existing = name, existing

    def __str__(self) -> str:
        near = did_you_mean(self.name, self.existing)
        return (
            f"`relations` of [publish] names it, and there is no such view or table; those that exist: "
            f"{', '.join(self.existing) or 'none yet'}{near and '.'}{near} Correct the name in pipeline.toml, remove it, or create "
            "the view again. The table that was published under this name stays as it is."
        )


class NotPublishedError(InputError):
    """Tables were to show an epoch that readers of the store do not see yet."""

    def __init__(self, epoch: int, published: int) -> None:
        super().__init__(epoch, published)
        self.epoch, self.published = epoch, published

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} is committed, and readers still see epoch {self.published}: tables never show more than they. Publish it "
            "first; where suites hold it, `tussock inspect epochs` and their report say why."
        )


def publish_tables(
    meta: MetaStore,
    settings: PublishSettings,
    sink_of: SinkOf,
    epoch: int | None = None,
    progress: Progress = no_progress,
) -> tuple[PublishedTable, ...]:
    """Bring the tables of all relations that the settings name to a published epoch.

    Args:
        sink_of: makes the sink of a relation (tussock.jobs.sinks.kinds).
        epoch: the published one when None, or when it cannot be read any more.
        progress: called with one line per table.

    Returns: the tables, in the order of the catalog; those that hold a later epoch already are left out, and all where the epoch is done.
    Raises: CopiedStoreError; ForeignTableError for a folder of another store;
        EpochNotCommittedError, NotPublishedError; TablesNotPublishedError for tables that are broken, and for names in the settings that
        no relation has, when the others are done, and no manifest was written; RetryableError if the bucket or disk is away.
    Cost: of each relation what has changed since its table was written; all of it the first time, where a sink takes no changes, and where
        the table does not follow the store's history.
    """
    epoch = _published_epoch(meta.latest(), epoch)
    location = location_of(settings.to)
    if epoch == 0:
        return ()
    home = home_of(meta.objects)
    done: list[PublishedTable | None] = []
    failures: dict[str, Exception] = {}
    with meta.reading(epoch) as version:
        sight = _sight_of(meta, version, epoch)
        held = {name: str(at) for name, at in sight.held.items()}
        lineage = StoreHistory(meta, home, location.objects)
        lineage.require_owned()
        strangers = lineage.strangers()
        unclean = (
            bool(strangers) or not lineage.records
        )  # states of other histories may be there, also of before there were records
        there = read_manifest(location.objects, epoch)
        is_done = there is not None and there.held == held and there.digest == lineage.digest(epoch) and not strangers
        if there is not None and is_done and all(_is_there(location, name) for name in there.tables):
            return ()
        known = newest_manifest(location.objects, version.min_readable_epoch, epoch, lineage.digest)
        relations, unknown = chosen(version, sight, settings)
        failures |= {error.name: error for error in unknown}
        for relation in relations:
            try:
                sink = sink_of(location, outline_of(relation, home))
                rows = _Rows(meta.objects, version, relation, sight.epoch_of(relation.name))
                done.append(_Copying(rows, sink, lineage, known, progress).bring_on())
                if unclean:
                    sink.forget(lineage.has)
            except MustStopError:
                raise
            except Exception as err:  # one table holds up no other, whatever library found it broken
                failures[relation.name] = err
    tables = tuple(table for table in done if table is not None)
    require_none(failures, len(tables))
    if len(tables) == len(done):  # else a later publish has gone ahead, and this epoch is no state of all tables
        states = {table.relation: table.state for table in tables}
        manifest = Manifest(str(epoch), settings.kind, states, held, lineage.digest(epoch))
        write_manifest(location.objects, manifest, there)
        if unclean:
            drop_manifests(location.objects, lineage.has)
        forget_records(
            location.objects, lineage.settled(epoch, frozenset(int(state.written) for state in states.values()))
        )
    return tables


def require_none(failures: Mapping[str, Exception], published: int) -> None:
    """Raises the first of several failures if each may be gone at the next call, else TablesNotPublishedError, which names them all."""
    if failures and all(isinstance(error, RetryableError) for error in failures.values()):
        raise next(iter(failures.values()))
    if failures:
        raise TablesNotPublishedError({name: _reason(name, error) for name, error in failures.items()}, published)


def _reason(name: str, error: Exception) -> str:
    text = (
        str(error)
        if isinstance(error, TussockError)
        else f"its files cannot be read or written: {cause_of(error)}. {REMOVE}"
    )
    return f"{name}: {text}"


def _is_there(location: Location, relation: str) -> bool:
    """Whether a table's folder holds anything. Cost: a LIST."""
    return next(iter(location.objects.list(f"{folder_name(relation)}/")), None) is not None


def _published_epoch(latest: HummockVersion, epoch: int | None) -> int:
    if epoch is None or epoch < latest.min_readable_epoch:
        return latest.published
    check_readable(latest, epoch)
    if epoch > latest.published:
        raise NotPublishedError(epoch, latest.published)
    return epoch


def _sight_of(meta: MetaStore, version: HummockVersion, epoch: int) -> Sight:
    """What readers saw when `epoch` was published; where another was published over it at once, as the version says."""
    if version.published > epoch:
        later = bisect_right(range(version.id + 1), epoch, key=lambda number: meta.version(number).published)
        if (then := meta.version(later - 1)).published == epoch:
            return published_sight(then)
    return sight_until(version, epoch)


def tidy_tables(
    meta: MetaStore, settings: PublishSettings, sink_of: SinkOf, now_ms: int, progress: Progress = no_progress
) -> None:
    """Merge the small files that publishing leaves, and remove what no state of `settings.keep_ms` needs, manifests included.

    Safe while others publish and read, and to stop anywhere. Raises as `publish_tables`; a table that somebody writes is left
    alone.
    """
    location, version = location_of(settings.to), meta.latest()
    home = home_of(meta.objects)
    relations, unknown = chosen(version, published_sight(version), settings)
    failures: dict[str, Exception] = {error.name: error for error in unknown}
    for relation in relations:
        try:
            sink = sink_of(location, outline_of(relation, home))
            progress(f"{relation.name}: {sink.tidy(settings.keep_ms, now_ms)}")
        except BeatenError:
            progress(f"{relation.name}: somebody writes it; left alone")
        except MustStopError:
            raise
        except Exception as err:
            failures[relation.name] = err
    forgotten = forget_manifests(location.objects, min(version.published, now_ms - settings.keep_ms << COUNTER_BITS))
    progress(f"removed {forgotten} manifests of epochs before")
    require_none(failures, len(relations) - len(failures) + len(unknown))


def chosen(
    version: HummockVersion, sight: Sight, settings: PublishSettings
) -> tuple[tuple[Relation, ...], tuple[UnknownPublishedError, ...]]:
    """The relations to publish, as they are seen: those that the settings name, else all materialized views; and an error for each name
    that no relation has."""
    there = {r.name: r for r in sight.relations(version.catalog) if r.kind in (RelationKind.TABLE, RelationKind.VIEW)}
    if settings.relations is None:
        return tuple(r for r in there.values() if r.kind is RelationKind.VIEW and not r.internal), ()
    wanted = {name.lower() for name in settings.relations}
    unknown = sorted(wanted - there.keys() - sight.held.keys())  # one that has never passed is not there yet
    return tuple(r for r in there.values() if r.name in wanted), tuple(
        UnknownPublishedError(name, tuple(there)) for name in unknown
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """See WholeRows."""

    objects: ObjectStore
    version: HummockVersion
    relation: Relation
    epoch: int

    def batches(self) -> pa.RecordBatchReader:
        return rows_at(self.objects, self.version, self.relation, self.epoch)

    def frame(self, spark: "SparkSession") -> "DataFrame":
        return relation_frame(spark, self.objects.uri, self.version, self.relation, self.epoch)


@dataclass(frozen=True, slots=True)
class _Copying:
    """One relation on its way into its sink. `known`: the newest manifest of an epoch before."""

    rows: _Rows
    sink: Sink
    lineage: StoreHistory
    known: Manifest | None
    progress: Progress

    def bring_on(self) -> PublishedTable | None:
        """The sink at the epoch; None: it holds a later one. Raises SinkBusyError, and what the sink raises."""
        for _ in range(TRIES):
            held = self.sink.held()
            objection = (
                None
                if held is None
                else self.lineage.objection(held.epoch, confirmed=self._confirmed(held) is not None)
            )
            if held is not None and objection is None and held.epoch > self.rows.epoch:
                self._say(f"{self.sink.place} holds a later epoch already")
                return None
            self.lineage.claim(self.rows.epoch)
            try:
                if held is None or objection is None:
                    return self._written(held)
                return self._replaced(f": the table was replaced, since {objection}")
            except BeatenError:
                continue
        raise SinkBusyError(self.sink.place, TRIES)

    def _written(self, held: SinkState | None) -> PublishedTable:
        """The sink brought on from what it holds. Requires: that is an epoch of the store's history."""
        if held is not None and held.epoch == self.rows.epoch:
            return self._unchanged(held)
        changes = None if held is None else self._changes(held)
        if held is not None and changes is not None:
            if changes.num_rows == 0:
                self._say("nothing has changed")
                return self._unchanged(held)
            difference = difference_of(changes, self.sink.key)
            if (version := self.sink.apply(difference, self.rows.epoch)) is not None:
                self._say(f"{_counted(difference)}, version {version} of {self.sink.place}")
                return self._published(version, self.rows.epoch, changed=True)
        return self._replaced("")

    def _replaced(self, why: str) -> PublishedTable:
        version = self.sink.replace(self.rows, self.rows.epoch)
        self._say(f"all rows, version {version} of {self.sink.place}{why}")
        return self._published(version, self.rows.epoch, changed=True)

    def _changes(self, held: SinkState) -> pa.Table | None:
        """The net changes since the sink was right; None: they cannot be told, and the sink has to be replaced."""
        rows, since = self.rows, self._right_until(held)
        if not held.fits or rows.relation.created > since or since < rows.version.min_readable_epoch:
            return None
        return changes_between(rows.objects, rows.version, rows.relation, since, rows.epoch)

    def _right_until(self, held: SinkState) -> int:
        """The last epoch known whose rows the sink holds: those of its own, unless a manifest says that nothing changed after it."""
        return max(held.epoch, self._confirmed(held) or 0)

    def _confirmed(self, held: SinkState) -> int | None:
        """The epoch of the newest manifest, if that names the sink as it is."""
        state = None if self.known is None else self.known.tables.get(self.rows.relation.name)
        if self.known is None or state is None or state.written != str(held.epoch):
            return None
        return self.known.holds(self.rows.relation.name)

    def _unchanged(self, held: SinkState) -> PublishedTable:
        return self._published(held.version, held.epoch, changed=False)

    def _published(self, version: str, written: int, *, changed: bool) -> PublishedTable:
        return PublishedTable(self.rows.relation.name, TableState(self.sink.place, version, str(written)), changed)

    def _say(self, what: str) -> None:
        self.progress(f"{self.rows.relation.name}: {what}")


def _counted(difference: Difference) -> str:
    removed = f", {difference.removed.num_rows:,} removed" if difference.removed.num_rows else ""
    return f"{difference.written.num_rows:,} rows written{removed}"
