"""Rows and changes of views and tables as Arrow, read in this process without SQL or JVM."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import pyarrow as pa

from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.catalog.statement_log import PendingCatalog
from tussock.jobs.logical.relation_names import relation_key
from tussock.jobs.reading.moment import epoch_at, require_before
from tussock.jobs.reading.read import BackwardsError, NotThereYetError, UnknownColumnError, relation_at, warn_of_age
from tussock.jobs.reading.reader import (
    CHANGE,
    NOTHING_IN_FLIGHT,
    RowsInFlight,
    has_whole_key,
    net_of_changes,
    open_table,
    scan_changes,
    stored_output,
    stored_table,
)
from tussock.jobs.settings.process import clock_ms
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.errors import EpochExpiredError
from tussock.statestore.meta.readable import check_readable
from tussock.statestore.meta.sight import Sight, published_sight, sight_until
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.months import given_rows, given_schema
from tussock.statestore.nested import copy_sliced
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.types import arrow_type


class StoredRows:
    """The readable rows of one store. Needs only read permission on its objects."""

    def __init__(self, meta: MetaStore, pending: PendingCatalog | None = None) -> None:
        self._meta, self._pending = meta, pending or PendingCatalog(meta)

    def read(self, relation: str, columns: Sequence[str] | None = None, epoch: int | Sight | None = None) -> pa.Table:
        """Read the rows of a view or table.

        Args:
            columns: names, in output order; None: all.
            epoch: None: the published one.

        Returns: (rows, columns), in the order of the view's ORDER BY, ties by its key; otherwise unordered.

        Warns: PausedViewWarning for a paused view, whose rows are older; HeldViewWarning for a view that is held back.
        Raises: UnknownRelationError, NotThereYetError, NeverPassedError, UnknownColumnError; NoStoredRowsError for a
            source; EpochNotCommittedError, EpochExpiredError.
        Cost: a scan of the whole relation. Blocks contain all columns, so fewer columns save memory, not requests.
        """
        with self.reader(relation, columns, epoch) as batches:
            rows = copy_sliced(batches.read_all())
        # One chunk per column, because Spark's createDataFrame fails on none.
        return rows if rows.num_rows else rows.schema.empty_table()

    @contextmanager
    def reader(
        self, relation: str, columns: Sequence[str] | None = None, epoch: int | Sight | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Read as `read` does, batch by batch, for relations larger than memory.

        Batches must be read inside the block.
        """
        with self.open_sight(epoch) as (version, sight):
            visible_relation = self.find_visible(version, sight, relation)
            yield rows_at(self._meta.objects, version, visible_relation, sight.epoch_of(visible_relation.name), columns)

    @contextmanager
    def open_sight(self, epoch: int | Sight | None = None) -> Iterator[tuple[HummockVersion, Sight]]:
        """Yield the sight at an epoch, at a moment (`seen_at`), or as published, and the version to read it on.

        Raises EpochNotCommittedError, EpochExpiredError.
        """
        if epoch is not None:
            sight = epoch if isinstance(epoch, Sight) else Sight(epoch)
            with self._meta.open_for_reading(sight.epoch) as version:
                yield version, sight
            return
        while True:
            with self._meta.reading_published() as (at, version):
                if version.published != at:
                    continue  # another epoch was published meanwhile, and held-back views are known only for the newest
                yield version, published_sight(version)
                return

    def changes(
        self, relation: str, since: int, until: int | Sight | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the net changes of a view or table between two epochs: rows to delete and rows to insert.

        Args:
            since, until: readable epochs, since <= until. `until` None: the epoch as of which readers see the relation.
            columns: names, in output order; None: all. Changes only in other columns are omitted.

        Returns: (changes, columns and then CHANGE: "insert" or "delete"), unordered. An update is one of each. Equal
            rows that are deleted and inserted cancel, as rows of a file that was read again.

        Raises: as `read`; BackwardsError; NotThereYetError if the relation was created or replaced after `since`: read
        all its rows instead.
        Cost: the rows written in between, not of the relation.
        """
        with self.open_changes(relation, since, until) as (version, visible_relation, last):
            return changes_between(self._meta.objects, version, visible_relation, since, last, columns)

    @contextmanager
    def open_changes(
        self, relation: str, since: int, until: int | Sight | None
    ) -> Iterator[tuple[HummockVersion, Relation, int]]:
        """Yield the relation, the last epoch of its changes since `since`, and the version to read them on.

        Raises as `changes`.
        """
        with self._meta.open_for_reading(since) as version:
            # A pin keeps the rows of `since`, but not the changes after it.
            if since < (floor := self._meta.read_latest().min_readable_epoch):
                raise EpochExpiredError(since, floor)
            sight = published_sight(version) if until is None else until if isinstance(until, Sight) else Sight(until)
            visible_relation, last = self.changes_of(version, relation, since, sight)
            yield version, visible_relation, last

    def changes_of(self, version: HummockVersion, relation: str, since: int, until: Sight) -> tuple[Relation, int]:
        """Return the relation and the last epoch of its requested changes. Raises as `changes`."""
        last = until.epoch_of(relation_key(relation))
        check_readable(version, since)
        check_readable(version, last)
        if last < since:
            raise BackwardsError(since, last)
        self.find_visible(version, Sight(since), relation)
        visible_relation = self.find_visible(version, until, relation)
        if visible_relation.created > since:
            raise NotThereYetError(visible_relation.name, since, visible_relation.created)
        stored_table(visible_relation)
        return visible_relation, last

    def version_of(self, version: HummockVersion, epoch: int) -> HummockVersion:
        """Return the version on which a statement reads another epoch.

        It is the statement's own version, or a pin's version once the floor is above the epoch.

        Raises EpochNotCommittedError, EpochExpiredError.
        """
        try:
            check_readable(version, epoch)
        except EpochExpiredError:
            return self._meta.version_at(epoch)
        return version

    def seen_at(self, moment: datetime) -> Sight:
        """Return the readers' sight at a moment, from the newest epoch published then.

        Args:
            moment: without an offset, local time in the store's time zone.

        Raises BadMomentError, also if the version no longer lists that epoch, but lists an older one that readers see.
        """
        version = self._meta.read_latest()
        zone = version.catalog.resolve_zone(self._meta.settings.time_zone)
        epoch = epoch_at(version, moment, zone, clock_ms())
        if (lost := self._epoch_lost_after(version, epoch)) is not None:
            require_before(moment, zone, lost, version.epochs[version.epochs.index(epoch) + 1])
        return sight_until(version, epoch)

    def _epoch_lost_after(self, version: HummockVersion, epoch: int) -> int | None:
        """The epoch that followed a published one, if the version does not list it. Cost: a GET, or a few."""
        if epoch == version.published:
            return None
        sealed = self._meta.read_manifest(version.epochs[version.epochs.index(epoch) + 1])
        if sealed is None or sealed.prev_epoch == epoch:
            return None
        barrier = self._meta.barrier_after(epoch)
        return sealed.prev_epoch if barrier is None else barrier.epoch

    def refuse_if_late(self, name: str, epoch: int, version: HummockVersion, unknown: InputError) -> None:
        """Raise NotThereYetError for a relation that a later epoch contains or will contain."""
        known = {r.name: r for r in self._pending.read_catalog(version).live_relations()}
        if (later := known.get(relation_key(name))) is not None:
            since = later.created if later.created <= version.epoch else None
            raise NotThereYetError(later.name, epoch, since, later.created <= version.published) from unknown

    def find_visible(self, version: HummockVersion, sight: Sight, name: str) -> Relation:
        """Return the visible relation of this name. Warns PausedViewWarning, HeldViewWarning.

        Raises UnknownRelationError, NotThereYetError, NeverPassedError.
        """
        try:
            relation = relation_at(version, sight, name)
        except UnknownRelationError as err:
            self.refuse_if_late(name, sight.epoch, version, err)
            raise
        warn_of_age(relation, sight)
        return relation


def rows_at(
    objects: ObjectStore,
    version: HummockVersion,
    relation: Relation,
    epoch: int,
    columns: Sequence[str] | None = None,
    in_flight: RowsInFlight = NOTHING_IN_FLIGHT,
) -> pa.RecordBatchReader:
    """Return the relation's rows, batch by batch. Requires: the version's SSTs stay while batches are read.

    `in_flight`: changes to include, if `epoch` is in flight in `version`.

    Raises NoStoredRowsError, UnknownColumnError.
    """
    places, schema = _select_columns(relation, columns)
    table = open_table(objects, version, stored_table(relation), epoch, in_flight.buffer())
    scan = table.scan_in_order if stored_output(relation).is_ordered else table.scan

    def scan_batches() -> Iterator[pa.RecordBatch]:
        for part in scan(columns=places):
            yield from given_rows(part.rename_columns(schema.names)).to_batches()

    return pa.RecordBatchReader.from_batches(given_schema(schema), scan_batches())


def changes_between(
    objects: ObjectStore,
    version: HummockVersion,
    relation: Relation,
    since: int,
    until: int,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the relation's net changes; see `StoredRows.changes`.

    Requires: the relation exists at `since`; the version's SSTs stay meanwhile. Raises NoStoredRowsError,
    UnknownColumnError, EpochExpiredError.
    """
    places, schema = _select_columns(relation, columns)
    empty = schema.append(pa.field(CHANGE, pa.string())).empty_table()
    changes = pa.concat_tables([empty, *scan_changes(objects, version, relation, since, until, places)])
    return copy_sliced(given_rows(changes if has_whole_key(relation, places) else net_of_changes(changes)))


def _select_columns(relation: Relation, columns: Sequence[str] | None) -> tuple[tuple[int, ...], pa.Schema]:
    """Return the indices and the schema of the named columns. Raises UnknownColumnError."""
    known = {c.name.lower(): i for i, c in enumerate(relation.columns)}
    wanted = [c.name for c in relation.columns] if columns is None else list(columns)
    if unknown := [name for name in wanted if name.lower() not in known]:
        raise UnknownColumnError(relation.name, unknown[0], tuple(c.name for c in relation.columns))
    places = tuple(known[name.lower()] for name in wanted)
    return places, pa.schema([(relation.columns[i].name, arrow_type(relation.columns[i].type)) for i in places])
