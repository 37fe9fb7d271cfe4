"""Publish to one sink: bring the table of each of its relations to an epoch, and write the epoch's manifest.

This runs after the published epoch has moved, and so after the quality check. Each table commits separately, keyed by
epoch (jobs/sinks/base.py), unless its place commits all of them together. The manifest comes last: once it exists, the
epoch is done. After an interruption, the same call continues; two concurrent calls have the same result as one.

A table is only updated from an epoch of this store's own history (jobs/sinks/lineage.py). Any other table of the store
is replaced, and a progress line contains the reason: it was published before the store was restored from a copy, or by
a release that did not record histories.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tussock.jobs.logical.relation_names import relation_key
from tussock.jobs.reading.keyed_rows import RowsWithKeys, keyed_changes_between, keyed_rows_at
from tussock.jobs.reading.reader import relation_frame
from tussock.jobs.reading.stored_rows import changes_between, rows_at
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.settings.home import Home, home_of
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.settings.shared_reasons import shared_reasons
from tussock.jobs.sinks.base import (
    REMOVE,
    BeatenError,
    LocatingSink,
    Publisher,
    Sink,
    SinkBusyError,
    SinkPlace,
    SinkState,
)
from tussock.jobs.sinks.difference import difference_of
from tussock.jobs.sinks.kinds import open_place
from tussock.jobs.sinks.ledger import ledger_of
from tussock.jobs.sinks.lineage import StoreHistory
from tussock.jobs.sinks.manifest import (
    PublishManifest,
    TableState,
    TableUpkeep,
    drop_manifests,
    forget_manifests,
    newest_manifest,
    read_manifest,
    read_upkeep,
    write_manifest,
    write_upkeep,
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

TRIES = 20  # attempts per table, each lost to another writer's commit


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of a sink at an epoch. `changed`: this publish wrote it."""

    sink: str
    relation: str
    state: TableState
    changed: bool


class TablesNotPublishedError(InputError):
    """Some relations could not be published; all others were."""

    def __init__(self, failures: Mapping[str, str], published: int) -> None:
        super().__init__(dict(failures), published)
        self.failures, self.published = failures, published

    def __str__(self) -> str:
        reasons = shared_reasons(self.failures)
        lines = [f"{', '.join(tables)}: {reason}" for tables, reason in reasons.groups]
        failed = f"{len(self.failures)} of {len(self.failures) + self.published} tables were not published:"
        return "\n  ".join(filter(None, (failed, *lines, reasons.ending)))


class UnknownPublishedError(InputError, hides_row_values=True):
    """`[publish]` names a relation that does not exist."""

    name: str
    existing: tuple[str, ...]

    def __str__(self) -> str:
        near = did_you_mean(self.name, self.existing)
        return (
            "`relations` of [publish] names it, but no view or table has this name; existing ones: "
            f"{', '.join(self.existing) or 'none yet'}{near and '.'}{near} Correct the name in pipeline.toml, remove "
            "it, or create the view again. The table that was published under this name is unchanged."
        )


class NotPublishedError(InputError, hides_row_values=True):
    """An epoch to publish is not yet visible to the store's readers."""

    epoch: int
    published: int

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} is committed, but readers still see epoch {self.published}, and tables never show a "
            "later epoch than readers see. Publish the epoch first: run `tussock epoch`. If suites hold it, correct "
            "the rows or the suite; their report contains the reason."
        )


def publish_tables(
    meta: MetaStore,
    settings: PublishSettings,
    epoch: int | None = None,
    progress: Progress = no_progress,
    spark: "SparkSession | None" = None,
) -> tuple[PublishedTable, ...]:
    """Bring the tables of one sink to a published epoch.

    Args:
        epoch: None, or an epoch that is no longer readable, means the published one.
        progress: called with one line per table.
        spark: for a sink that needs it.

    Returns: the tables, in catalog order, without tables that are already at a later epoch. Empty if the epoch was
    already done.

    Raises:
        CopiedStoreError: see `home_of`.
        ForeignTableError: the place belongs to another store.
        EpochNotCommittedError, NotPublishedError: `epoch` cannot be published yet.
        TablesNotPublishedError: some tables are broken, or the settings name missing relations. The others were
            published; no manifest was written.
        RetryableError: the place is unavailable.

    Cost: for each relation, its changes since its table was last written. All its rows for a new table, a sink that
    does not support differences, or a table that does not follow the store's history.
    """
    epoch = epoch_to_publish(meta.read_latest(), epoch)
    if epoch == 0:
        return ()
    home = home_of(meta.objects)
    ledger = ledger_of(settings, meta.objects, home)
    with meta.open_for_reading(epoch) as version:
        for _ in range(TRIES):
            run = _Publish(meta, settings, home, ledger, StoreHistory(meta, home, ledger), version, epoch, progress)
            try:
                return run.bring_tables_on(spark)
            except BeatenError:
                continue
    raise SinkBusyError(settings.to, TRIES)


@dataclass(frozen=True, slots=True)
class _Publish:
    """One publish of one sink. See `publish_tables`."""

    meta: MetaStore
    settings: PublishSettings
    home: Home
    ledger: ObjectStore
    lineage: StoreHistory
    version: HummockVersion
    epoch: int
    progress: Progress

    def bring_tables_on(self, spark: "SparkSession | None") -> tuple[PublishedTable, ...]:
        """See `publish_tables`. Raises BeatenError if the place lost all changes to another writer."""
        lineage, ledger, epoch = self.lineage, self.ledger, self.epoch
        sight = _sight_of(self.meta, self.version, epoch)
        held_epochs = {name: str(at) for name, at in sight.held.items()}
        lineage.require_owned()
        strangers = lineage.strangers()
        # States of other histories may exist, also from before records existed.
        unclean = bool(strangers) or not lineage.records
        relations, unknown = chosen_relations(self.version, sight, self.settings)
        there = read_manifest(ledger, epoch)
        is_done = (
            there is not None
            and there.held == held_epochs
            and there.digest == lineage.digest_of(epoch)
            and there.tables.keys() == {relation.name for relation in relations}
            and not strangers
            and not unknown
        )
        with open_place(self.settings, Publisher(self.meta, self.home, lineage.digest_of, spark)) as place:
            if there is not None and is_done and all(place.has_table(*table) for table in there.tables.items()):
                return ()
            done, failures = self._bring_each_on(place, relations, sight, unclean=unclean)
            failures |= {error.name: error for error in unknown}
            tables = tuple(table for table in done if table is not None)
            states = {table.relation: table.state for table in tables}
            # A later publish may have overtaken this one, so that some tables are at another epoch.
            is_complete = not failures and len(tables) == len(done)
            place.finish_epoch(epoch, states, complete=is_complete)
        require_none(failures, len(tables))
        if is_complete:
            self._write_manifest(states, held_epochs, there, unclean=unclean)
        return tables

    def _bring_each_on(
        self, place: SinkPlace, relations: tuple[Relation, ...], sight: Sight, *, unclean: bool
    ) -> tuple[list[PublishedTable | None], dict[str, Exception]]:
        """Bring each relation's sink on. Returns the tables, and the error of each relation that failed."""
        lineage = self.lineage
        known = newest_manifest(self.ledger, self.version.min_readable_epoch, self.epoch, lineage.digest_of)
        failures: dict[str, Exception] = {}
        done: list[PublishedTable | None] = []
        for relation in relations:
            try:
                sink = place.sink_of(outline_of(relation, self.home))
                rows = _Rows(self.meta.objects, self.version, relation, sight.epoch_of(relation.name))
                done.append(_Copying(self.settings.title, rows, sink, lineage, known, self.progress).bring_on())
                if unclean:
                    sink.forget(lineage.has_epoch)
            except MustStopError:
                raise
            except Exception as err:  # a broken table does not block the others, whichever library raised the error
                failures[relation.name] = err
        return done, failures

    def _write_manifest(
        self,
        states: dict[str, TableState],
        held_epochs: dict[str, str],
        there: PublishManifest | None,
        *,
        unclean: bool,
    ) -> None:
        lineage, ledger, epoch = self.lineage, self.ledger, self.epoch
        manifest = PublishManifest(str(epoch), self.settings.kind, states, held_epochs, lineage.digest_of(epoch))
        write_manifest(ledger, manifest, there)
        if unclean:
            drop_manifests(ledger, lineage.has_epoch)
        settled = lineage.settled_records(epoch, frozenset(int(state.written) for state in states.values()))
        forget_records(ledger, settled)


def require_none(failures: Mapping[str, Exception], published: int) -> None:
    """Raise the first failure if all are retryable; otherwise TablesNotPublishedError with all of them."""
    if failures and all(isinstance(error, RetryableError) for error in failures.values()):
        raise next(iter(failures.values()))
    if failures:
        raise TablesNotPublishedError({name: _reason_of(error) for name, error in failures.items()}, published)


def _reason_of(error: Exception) -> str:
    if isinstance(error, TussockError):
        return str(error)
    return f"its files cannot be read or written: {cause_of(error)}. {REMOVE}"


def epoch_to_publish(latest: HummockVersion, epoch: int | None) -> int:
    """Return a published epoch that is readable: `epoch`, or the newest one. Raises as `publish_tables`."""
    if epoch is None or epoch < latest.min_readable_epoch:
        return latest.published
    check_readable(latest, epoch)
    if epoch > latest.published:
        raise NotPublishedError(epoch, latest.published)
    return epoch


def _sight_of(meta: MetaStore, version: HummockVersion, epoch: int) -> Sight:
    """Return the readers' sight when `epoch` was published.

    If a later epoch replaced it at once, the sight at `epoch`.
    """
    if version.published > epoch:
        later = bisect_right(range(version.id + 1), epoch, key=lambda number: meta.read_version(number).published)
        if (then := meta.read_version(later - 1)).published == epoch:
            return published_sight(then)
    return sight_until(version, epoch)


def tidy_tables(
    meta: MetaStore,
    settings: PublishSettings,
    now_ms: int,
    progress: Progress = no_progress,
    spark: "SparkSession | None" = None,
) -> None:
    """Merge the small files that publishing leaves, and remove objects that no state of `settings.keep_ms` needs.

    Removes old manifests too. Safe while others publish and read, and safe to interrupt. A table that another writer
    changes is skipped. Raises: as `publish_tables`.
    """
    version = meta.read_latest()
    home = home_of(meta.objects)
    ledger = ledger_of(settings, meta.objects, home)
    relations, unknown = chosen_relations(version, published_sight(version), settings)
    failures: dict[str, Exception] = {error.name: error for error in unknown}
    done = read_upkeep(ledger)
    with open_place(settings, Publisher(meta, home, StoreHistory(meta, home, ledger).digest_of, spark)) as place:
        for relation in relations:
            try:
                sink = place.sink_of(outline_of(relation, home))
                progress(f"{relation.name}: {sink.tidy(settings.keep_ms, now_ms)}")
                if (state := sink.read_state()) is not None:
                    done[relation.name] = TableUpkeep(now_ms, state.version, str(state.epoch), sink.measure())
            except BeatenError:
                progress(f"{relation.name}: skipped, another process is writing it")
            except MustStopError:
                raise
            except Exception as err:
                failures[relation.name] = err
    forgotten = forget_manifests(ledger, min(version.published, now_ms - settings.keep_ms << COUNTER_BITS))
    progress(f"removed {forgotten} manifests of earlier epochs")
    write_upkeep(ledger, {relation.name: done[relation.name] for relation in relations if relation.name in done})
    require_none(failures, len(relations) - len(failures) + len(unknown))


def chosen_relations(
    version: HummockVersion, sight: Sight, settings: PublishSettings
) -> tuple[tuple[Relation, ...], tuple[UnknownPublishedError, ...]]:
    """Return the visible relations to publish, and an error for each name in the settings that no relation has.

    Without names in the settings, these are all materialized views.
    """
    there = {
        r.name: r for r in sight.visible_relations(version.catalog) if r.kind in (RelationKind.TABLE, RelationKind.VIEW)
    }
    if settings.relations is None:
        return tuple(r for r in there.values() if r.kind is RelationKind.VIEW and not r.is_internal), ()
    wanted = {relation_key(name) for name in settings.relations}
    # A view that has never passed its suite is held, and not visible yet.
    unknown = sorted(wanted - there.keys() - sight.held.keys())
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

    def keyed(self) -> Iterator[RowsWithKeys]:
        return keyed_rows_at(self.objects, self.version, self.relation, self.epoch)

    def frame(self, spark: "SparkSession") -> "DataFrame":
        return relation_frame(spark, self.objects.uri, self.version, self.relation, self.epoch)


@dataclass(frozen=True, slots=True)
class _Copying:
    """Copies one relation into its sink. `known`: the newest manifest of an earlier epoch."""

    name: str  # of the sink
    rows: _Rows
    sink: Sink
    lineage: StoreHistory
    known: PublishManifest | None
    progress: Progress

    def bring_on(self) -> PublishedTable | None:
        """Bring the sink to the epoch; None if it is at a later one. Raises SinkBusyError, and the sink's errors."""
        for _ in range(TRIES):
            state = self.sink.read_state()
            objection = (
                None
                if state is None
                else self.lineage.objection_to(
                    state.epoch, confirmed=self._confirmed_epoch(state) is not None, digest=state.digest
                )
            )
            if state is not None and objection is None and state.epoch > self.rows.epoch:
                self._say(f"{self.sink.place} is already at a later epoch")
                return None
            self.lineage.claim(self.rows.epoch)
            try:
                if state is None or objection is None:
                    return self._update_sink(state)
                return self._replace_rows(f": the table was replaced, because {objection}")
            except BeatenError:
                continue
        raise SinkBusyError(self.sink.place, TRIES)

    def _update_sink(self, state: SinkState | None) -> PublishedTable:
        """Update the sink from its state. Requires: the state's epoch belongs to the store's history."""
        if state is not None and state.epoch == self.rows.epoch:
            return self._keep_state(state)
        if state is not None and isinstance(self.sink, LocatingSink) and self.sink.locating:
            return self._apply_keyed(self.sink, state)
        changes = None if state is None else self._net_changes(state)
        if state is not None and changes is not None:
            if changes.num_rows == 0:
                self._say("nothing has changed")
                return self._keep_state(state)
            difference = difference_of(changes, self.sink.key)
            if (version := self.sink.apply(difference, self.rows.epoch)) is not None:
                counts = _count_text(difference.written.num_rows, difference.removed.num_rows, "removed")
                self._say(f"{counts}, version {version} of {self.sink.place}")
                return self._published_table(version, self.rows.epoch, changed=True)
        return self._replace_rows("")

    def _apply_keyed(self, sink: LocatingSink, state: SinkState) -> PublishedTable:
        """Update a sink that finds its rows by their stored keys."""
        if (since := self._readable_since(state)) is not None:
            rows = self.rows
            changes = keyed_changes_between(rows.objects, rows.version, rows.relation, since, rows.epoch)
            if changes.is_empty:
                self._say("nothing has changed")
                return self._keep_state(state)
            if (version := sink.apply_keyed(changes, rows.epoch)) is not None:
                counts = _count_text(changes.written.rows.num_rows, changes.removed.num_rows, "marked as deleted")
                self._say(f"{counts}, version {version} of {self.sink.place}")
                return self._published_table(version, rows.epoch, changed=True)
        return self._replace_rows("")

    def _replace_rows(self, why: str) -> PublishedTable:
        version = self.sink.replace(self.rows, self.rows.epoch)
        self._say(f"all rows, version {version} of {self.sink.place}{why}")
        return self._published_table(version, self.rows.epoch, changed=True)

    def _net_changes(self, state: SinkState) -> pa.Table | None:
        """Return the net changes since the sink was up to date; None if it has to be replaced."""
        rows = self.rows
        if (since := self._readable_since(state)) is None:
            return None
        return changes_between(rows.objects, rows.version, rows.relation, since, rows.epoch)

    def _readable_since(self, state: SinkState) -> int | None:
        """Return the epoch since which the sink lacks changes; None if they are unknown or do not fit."""
        rows, since = self.rows, self._right_until(state)
        if not state.fits or rows.relation.created > since or since < rows.version.min_readable_epoch:
            return None
        return since

    def _right_until(self, state: SinkState) -> int:
        """Return the last epoch whose rows the sink contains: its own, or a later manifest's without changes since."""
        return max(state.epoch, self._confirmed_epoch(state) or 0)

    def _confirmed_epoch(self, held: SinkState) -> int | None:
        """Return the epoch of the newest manifest, if it lists the sink in its current state."""
        state = None if self.known is None else self.known.tables.get(self.rows.relation.name)
        if self.known is None or state is None or state.written != str(held.epoch):
            return None
        return self.known.holds(self.rows.relation.name)

    def _keep_state(self, state: SinkState) -> PublishedTable:
        return self._published_table(state.version, state.epoch, changed=False)

    def _published_table(self, version: str, written: int, *, changed: bool) -> PublishedTable:
        state = TableState(self.sink.place, version, str(written), self.sink.measure())
        return PublishedTable(self.name, self.rows.relation.name, state, changed)

    def _say(self, what: str) -> None:
        self.progress(f"{self.rows.relation.name}: {what}")


def _count_text(written: int, removed: int, how: str) -> str:
    gone = f", {removed:,} {how}" if removed else ""
    return f"{written:,} row{'' if written == 1 else 's'} written{gone}"
