"""Readers: a relation's rows at a committed epoch, as a Spark DataFrame partitioned by vnode, or as Arrow batches."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.catalog.definition import output_of
from tussock.jobs.chunks.chunk import WEIGHT, decode_tables, encode_table
from tussock.jobs.chunks.failure import carried_by_spark
from tussock.jobs.executors.base import net_chunk, numbered_columns
from tussock.jobs.logical.months import carried_name, columns_of_carried
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.plan.fragments import Output
from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.shared_buffer import SharedBuffer
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.hummock.version import part_of
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind, TableSchema
from tussock.statestore.meta.version import HummockVersion, VersionPart
from tussock.statestore.months import carried_rows
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.table.key_order import EVERY_KEY, KeyBounds
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

if TYPE_CHECKING:  # reads in this process need no Spark
    from pyspark.sql import DataFrame, SparkSession

FEW_ROWS, FEW_BYTES = 50_000, 4 * 2**20
"""The most stored rows, old versions included, and bytes of SSTs of a relation that the driver reads for Spark.

A Python worker that reads costs 2 CPU s, once per application. The driver reads these rows in less."""

_DECODED_BYTES = 4 * FEW_BYTES  # of the rows in memory; text may be much smaller in SSTs

_UNHASHED = re.compile(r"\b(map<|variant\b)")  # types that Spark does not partition by; a field's name may match too

CHANGE = "_change_type"  # the column of changes with "insert" or "delete"; Delta's name for it


class NoStoredRowsError(InputError, hides_row_values=True):
    """A source, plain view or function was read as if it were a table."""

    name: str
    kind: str = RelationKind.SOURCE

    def __str__(self) -> str:
        if self.kind == RelationKind.FUNCTION:
            return f"{self.name!r} is a function and has no rows. Call it in the SELECT of a materialized view."
        if self.kind != RelationKind.SOURCE:
            return f"{self.name!r} is a {self.kind}: it names a query and has no stored rows. Query it with SQL."
        return (
            f"{self.name!r} is a source: views read its files in each epoch, and none of its rows are stored. Query a "
            "view over it."
        )


@dataclass(frozen=True, slots=True)
class ViewPart:
    """The rows of an ordered view to read, and their order."""

    bounds: KeyBounds = EVERY_KEY
    limit: int | None = None  # maximum number of rows
    reverse: bool = False  # from the largest key downwards; the limit counts from there
    in_order: bool = True  # in one order; otherwise each unit's rows, in parallel


ALL = ViewPart()


@dataclass(frozen=True, slots=True)
class RowsInFlight:
    """Changes of an epoch in flight that a read includes: by state table, the encoded rows of a `SealedBatch`."""

    epoch: int = 0
    sealed: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)

    @staticmethod
    def of(epoch: int, sealed: Mapping[int, pa.Table]) -> "RowsInFlight":
        """Return the rows in a form that workers can receive."""
        return RowsInFlight(epoch, {table: tuple(map(bytes, encode_table(rows))) for table, rows in sealed.items()})

    def only_table(self, table_id: int) -> "RowsInFlight":
        """Return the changes of one state table."""
        return RowsInFlight(self.epoch, {t: chunks for t, chunks in self.sealed.items() if t == table_id})

    @property
    def nbytes(self) -> int:
        """The bytes of the encoded rows."""
        return sum(len(chunk) for chunks in self.sealed.values() for chunk in chunks)

    def buffer(self) -> SharedBuffer:
        """Return the changes for a HummockStore."""
        return SharedBuffer(
            {table: [(self.epoch, partial(_decode_sealed, table, c))] for table, c in self.sealed.items()}
        )


def _decode_sealed(table_id: int, chunks: Sequence[bytes]) -> SealedBatch | None:
    rows = decode_tables(chunks)
    return None if rows is None else SealedBatch(table_id, rows)


NOTHING_IN_FLIGHT = RowsInFlight()


def stored_output(relation: Relation) -> Output:
    """Return how the relation's rows are stored. Raises NoStoredRowsError for a source."""
    if (output := output_of(relation)) is None:
        raise NoStoredRowsError(relation.name, relation.kind)
    return output


def stored_table(relation: Relation) -> TableSchema:
    """Return the state table of the relation's rows. Raises NoStoredRowsError for a source."""
    output = stored_output(relation)
    return next(t for t in relation.state_tables if t.table_id == output.table_id)


def key_of(relation: Relation) -> tuple[int, ...]:
    """Return the columns that identify a stored row, without the order columns of an ordered view.

    Raises NoStoredRowsError.
    """
    return stored_output(relation).key


def open_table(
    objects: ObjectStore,
    version: HummockVersion,
    schema: TableSchema,
    epoch: int | None = None,
    buffer: SharedBuffer | None = None,
) -> StorageTable:
    """Open a state table at `epoch` (None: the version's own), to read it in this process.

    Args:
        buffer: of the epochs in flight to include.
    """
    store = HummockStore(objects, version, process_cache(), buffer=buffer)
    return StorageTable(schema, store, version.epoch if epoch is None else epoch, version.mapping.vnode_count)


def scan_relation(
    objects: ObjectStore,
    version: HummockVersion,
    relation: Relation,
    epoch: int,
    vnodes: Sequence[int] | None = None,
    in_flight: RowsInFlight = NOTHING_IN_FLIGHT,
) -> Iterator[pa.Table]:
    """Read the relation's visible columns at `epoch`, batch by batch, of all or some vnodes.

    Args:
        version: any version that contains `epoch` (committed at or after it, floor not above it).
        in_flight: changes to include, if `epoch` is in flight.

    Requires: the version's SSTs stay during the scan: the version came from `MetaStore.open_for_reading` or
    `pinned_version`, or it is the base of an open barrier. Otherwise compaction and vacuum may remove them, which
    raises MissingSstError; a wrong row is never returned.
    """
    table = open_table(objects, version, stored_table(relation), epoch, in_flight.buffer())
    names = [c.name for c in relation.columns]
    for rows in table.scan(columns=tuple(range(len(names))), vnodes=vnodes):
        yield rows.rename_columns(names)


def scan_ordered(
    objects: ObjectStore,
    version: HummockVersion,
    relation: Relation,
    epoch: int,
    part: ViewPart,
    vnodes: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """See `scan_relation`; the rows of all these vnodes are in one order, the stored key's."""
    table = open_table(objects, version, stored_table(relation), epoch)
    names = [c.name for c in relation.columns]
    for rows in table.scan_in_order(part.bounds, part.limit, part.reverse, tuple(range(len(names))), vnodes):
        yield rows.rename_columns(names)


def scan_stored(
    objects: ObjectStore,
    version: HummockVersion,
    relation: Relation,
    epoch: int,
    vnodes: Sequence[int] | None = None,
    in_flight: RowsInFlight = NOTHING_IN_FLIGHT,
) -> Iterator[pa.Table]:
    """See `scan_relation`; the hidden columns follow the visible ones."""
    yield from open_table(objects, version, stored_table(relation), epoch, in_flight.buffer()).scan(vnodes=vnodes)


def relation_rows(
    objects: ObjectStore, version: HummockVersion, relation: Relation, epoch: int, most: int
) -> pa.Table | None:
    """Read the rows of `relation_frame` in this process, in its order; None if more than `most`, or `most` is 0."""
    if most == 0:
        return None
    columns = relation.columns
    parts = [pa.schema([(c.name, arrow_type(c.type)) for c in columns]).empty_table()]
    row_count = 0
    for vnodes in _vnodes_by_unit(version):
        for rows in scan_relation(objects, version, relation, epoch, vnodes):
            parts.append(rows)
            if (row_count := row_count + rows.num_rows) > most:
                return None
    return pa.concat_tables(parts)


def _vnodes_by_unit(version: HummockVersion) -> list[list[int]]:
    units = np.asarray(version.mapping.unit_of_vnode)
    return [np.flatnonzero(units == unit).tolist() for unit in np.unique(units)]


def scan_changes(
    objects: ObjectStore,
    version: HummockVersion,
    relation: Relation,
    since: int,
    until: int,
    columns: Sequence[int] | None = None,
    vnodes: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Read the relation's net changes by key between two epochs: its visible columns, or `columns`, then CHANGE.

    Rows that differ only in columns that are not read are returned as they are, as an equal delete and insert: the
    caller nets them over all vnodes (`net_of_changes`), unless `has_whole_key`.

    Requires: as `scan_relation`. Cost: only the amount of changes counts.
    """
    table = open_table(objects, version, stored_table(relation), until)
    places = tuple(range(len(relation.columns))) if columns is None else tuple(columns)
    names = [relation.columns[i].name for i in places]
    for changed in table.read_changes(since, columns=places, vnodes=vnodes):
        change = pc.if_else(pc.greater(changed.weights, 0), "insert", "delete")
        yield changed.rows.rename_columns(names).append_column(CHANGE, change)


def has_whole_key(relation: Relation, columns: Sequence[int] | None = None) -> bool:
    """Whether these columns, or the visible ones, contain the key by which the rows are stored.

    The rows of a source without a key are stored by hidden numbers, for example. A file that is read again has the
    same rows with other numbers.
    """
    places = range(len(relation.columns)) if columns is None else columns
    return {key.column for key in stored_table(relation).key} <= set(places)


def net_of_changes(changes: pa.Table) -> pa.Table:
    """Cancel equal rows that are deleted and inserted. A row that remains n times is repeated n times.

    Args:
        changes: any columns, then CHANGE.

    Cost: one grouping of the rows.
    """
    weights = pc.if_else(pc.equal(changes[CHANGE], "insert"), pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    left = net_chunk(changes.drop_columns([CHANGE]).append_column(WEIGHT, weights))
    times = left[WEIGHT].to_numpy()
    rows = left.take(pa.array(np.repeat(np.arange(left.num_rows), np.abs(times))))
    change = pc.if_else(pc.greater(rows[WEIGHT], 0), "insert", "delete")
    return rows.drop_columns([WEIGHT]).append_column(CHANGE, change)


def relation_frame(
    spark: "SparkSession",
    store_uri: str,
    version: HummockVersion,
    relation: Relation,
    epoch: int,
    hidden: bool = False,
    in_flight: RowsInFlight = NOTHING_IN_FLIGHT,
) -> "DataFrame":
    """Return the relation at `epoch` as a DataFrame.

    The driver reads the rows of a small relation now (FEW_ROWS), into one partition. Workers read the rows of others
    when the frame is used, with one partition per parallel unit.

    Args:
        hidden: also return the hidden columns, after the others; all are named c0, c1, …
        in_flight: changes to include, if `epoch` is in flight.

    Requires: the version's SSTs stay until the last action on the frame is done, as for `scan_relation`; keep
    `MetaStore.open_for_reading` open.
    """
    stored = stored_table(relation)
    columns = numbered_columns([c.type for c in stored.columns]) if hidden else relation.columns
    changes = in_flight.only_table(stored.table_id)
    rows_at = scan_stored if hidden else scan_relation

    def scan(objects: ObjectStore, at: HummockVersion, vnodes: Sequence[int]) -> Iterator[pa.Table]:
        return rows_at(objects, at, relation, epoch, vnodes, changes)

    return _scan_frame(spark, store_uri, version, relation, columns, scan, more_bytes=changes.nbytes)


def ordered_frame(
    spark: "SparkSession", store_uri: str, version: HummockVersion, relation: Relation, epoch: int, part: ViewPart
) -> "DataFrame":
    """Return rows of an ordered view in the order of its key, in one partition or one per unit.

    Otherwise as `relation_frame`.
    """
    groups = [list(range(version.mapping.vnode_count))] if part.in_order else None

    def scan(objects: ObjectStore, at: HummockVersion, vnodes: Sequence[int]) -> Iterator[pa.Table]:
        return scan_ordered(objects, at, relation, epoch, part, vnodes)

    return _scan_frame(spark, store_uri, version, relation, relation.columns, scan, groups)


def changes_frame(
    spark: "SparkSession", store_uri: str, version: HummockVersion, relation: Relation, since: int, until: int
) -> "DataFrame":
    """Return the relation's net changes between two readable epochs, then CHANGE. Otherwise as `relation_frame`.

    If the visible columns do not contain the key, equal rows may lie in different vnodes, so the rows are shuffled.
    """
    columns = (*relation.columns, ColumnSpec(CHANGE, "string"))

    def scan(objects: ObjectStore, at: HummockVersion, vnodes: Sequence[int]) -> Iterator[pa.Table]:
        return scan_changes(objects, at, relation, since, until, None, vnodes)

    at, groups = part_of(version, {stored_table(relation).table_id}), _vnodes_by_unit(version)
    if (few := _few_rows(store_uri, at, columns, scan, groups)) is not None:
        return _frame_of_few(spark, few if has_whole_key(relation) else net_of_changes(few), columns)
    read = _carried_frame(spark, store_uri, at, relation, columns, scan, groups)
    if not has_whole_key(relation):
        by = [c.name for c in relation.columns if not _UNHASHED.search(c.type)]
        shuffled = read.repartition(*map(quote_name, by)) if by else read.repartition(1)
        read = shuffled.mapInArrow(_net_partition, _carried_schema(columns))
    return _with_types(read, columns)


def _net_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if changed_batches := [batch for batch in batches if batch.num_rows]:
        yield from net_of_changes(pa.Table.from_batches(changed_batches)).to_batches()


#: Scans some vnodes on a worker.
_Scan = Callable[[ObjectStore, HummockVersion, Sequence[int]], Iterator[pa.Table]]


def _scan_frame(
    spark: "SparkSession",
    store_uri: str,
    version: HummockVersion,
    relation: Relation,
    columns: Sequence[ColumnSpec],
    scan: _Scan,
    vnodes: list[list[int]] | None = None,
    more_bytes: int = 0,
) -> "DataFrame":
    """The rows of a scan.

    Args:
        vnodes: those of each partition; None: one partition per unit, with its vnodes.
        more_bytes: of rows that the scan reads and `version` lacks.
    """
    at = part_of(version, {stored_table(relation).table_id})
    groups = _vnodes_by_unit(version) if vnodes is None else vnodes
    if (few := _few_rows(store_uri, at, columns, scan, groups, more_bytes)) is not None:
        return _frame_of_few(spark, few, columns)
    return _with_types(_carried_frame(spark, store_uri, at, relation, columns, scan, groups), columns)


def _few_rows(
    store_uri: str,
    at: VersionPart,
    columns: Sequence[ColumnSpec],
    scan: _Scan,
    groups: Sequence[Sequence[int]],
    more_bytes: int = 0,
) -> pa.Table | None:
    """The rows of a scan, read in this process. None if there may be too many.

    Args:
        at: the part of a version for one state table.
        groups: vnodes; their rows come group by group.
    """
    sections = [s for level in at.levels for sst in level for s in sst.sections if s.table_id in at.tables]
    if sum(s.rows for s in sections) > FEW_ROWS or sum(s.bytes for s in sections) + more_bytes > FEW_BYTES:
        return None
    names = [c.name for c in columns]
    parts = [pa.schema([(c.name, arrow_type(c.type)) for c in columns]).empty_table()]
    objects, byte_count = open_object_store(store_uri), 0
    for group in groups:
        for rows in scan(objects, at, group):
            parts.append(rows.rename_columns(names))
            if (byte_count := byte_count + rows.nbytes) > _DECODED_BYTES:
                return None
    return pa.concat_tables(parts)


def _frame_of_few(spark: "SparkSession", rows: pa.Table, columns: Sequence[ColumnSpec]) -> "DataFrame":
    """One partition, which Spark aggregates, sorts and joins without a shuffle."""
    from tussock.jobs.spark.collected import frame_of_carried

    return _with_types(frame_of_carried(spark, carried_rows(rows), _carried_schema(columns)).coalesce(1), columns)


def _carried_frame(
    spark: "SparkSession",
    store_uri: str,
    at: VersionPart,
    relation: Relation,
    columns: Sequence[ColumnSpec],
    scan: _Scan,
    groups: Sequence[Sequence[int]],
) -> "DataFrame":
    """The rows of a scan, which workers read: a partition per group of vnodes. Months are in their carried form."""
    pinned = spark.sparkContext.broadcast(msgspec.json.encode(at))

    def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        objects = open_object_store(store_uri)
        part = decode_json(pinned.value, VersionPart)
        for batch in batches:
            for group in batch.column(0).to_pylist():
                with carried_by_spark(relation.name):
                    for rows in scan(objects, part, groups[group]):
                        yield from carried_rows(rows).to_batches()

    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(rows_of, _carried_schema(columns))


def typed_frame(
    frame: "DataFrame",
    rows_of: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    columns: Sequence[ColumnSpec],
) -> "DataFrame":
    """Map a frame's batches on the workers, to these columns.

    `rows_of` returns intervals of months in their carried form.
    """
    return _with_types(frame.mapInArrow(rows_of, _carried_schema(columns)), columns)


def _carried_schema(columns: Sequence[ColumnSpec]) -> str:
    return ", ".join(f"{quote_name(c.name)} {carried_name(c.type)}" for c in columns)


def _with_types(carried: "DataFrame", columns: Sequence[ColumnSpec]) -> "DataFrame":
    texts = columns_of_carried([(c.name, c.type) for c in columns])
    return carried if texts is None else carried.selectExpr(*texts)
