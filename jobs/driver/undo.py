"""Runs the epoch that returns a store to an earlier one: writes the difference as rows.

The rows of the earlier epoch are still in the SSTs. The new epoch could refer to them by hiding the epochs between, but
then every read, merge and cache would have to skip a range of epochs, and the changes from the epochs between would
have no rows to name. As rows, the return is an ordinary epoch: changes, sinks, compaction and vacuum need no rule for
it. It costs the rows written since the earlier epoch.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.barriers.undo import records_files, restored_relations, taken_table_of
from tussock.jobs.catalog.definition import output_of
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sorted_keys import sort_order
from tussock.statestore.hummock.sst_format import DELETE, PUT
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Relation, TableSchema
from tussock.statestore.meta.manifest import RowCounts
from tussock.statestore.meta.names import data_prefix
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SstInfo
from tussock.statestore.table.schema import table_layout

_HELD_BYTES = 256 << 20  # of rows in memory, before they become SSTs


class UndoneRows(NamedTuple):
    """The rows of the epoch."""

    ssts: tuple[SstInfo, ...]
    rows: Mapping[str, RowCounts]  # by relation


class _Part(NamedTuple):
    """Changes of some keys of a table, as the store wrote them: the rows before and after."""

    before: pa.Table  # key, then the row's columns
    after: pa.Table


def write_undone_rows(meta: MetaStore, version: HummockVersion, barrier: Barrier) -> UndoneRows:
    """Write the SSTs of an undo barrier. A repetition writes the same rows.

    Args:
        version: of the barrier's previous epoch. Its SSTs stay while the barrier is open.

    Raises EpochExpiredError if the earlier epoch is no longer readable.
    Cost: the rows written since the earlier epoch. Memory: _HELD_BYTES.
    """
    undo = barrier.mutation.undo
    assert undo is not None, "it is an undo barrier"
    catalog = version.catalog if barrier.catalog is None else barrier.catalog
    before = meta.version_when(undo.to)
    store = HummockStore(meta.objects, version, process_cache())
    counts: dict[str, RowCounts] = {}
    ssts, batches = list[SstInfo](), list[SealedBatch]()

    def write_held() -> None:
        ssts.extend(batch_ingest(meta.objects, batches, barrier.epoch, data_prefix(barrier.epoch)))
        batches.clear()

    for relation in restored_relations(catalog, barrier.epoch):
        counted = 0, 0
        output = output_of(relation)
        for table in relation.state_tables:
            keeps = undo.keeps_input and table == taken_table_of(relation)
            for part in _read_parts(store, version, table, undo.to):
                if output is not None and table.table_id == output.table_id:
                    same = _count_same(part, len(output.types))
                    counted = counted[0] + part.before.num_rows - same, counted[1] + part.after.num_rows - same
                batch = _kept_input(table, part) if keeps else _batch_of(table, part, version)
                if batch is not None:
                    batches.append(batch)
                if sum(one.rows.nbytes for one in batches) > _HELD_BYTES:
                    write_held()
        counts[relation.name] = _counts_of(relation, version, before, *counted)
    write_held()
    return UndoneRows(tuple(ssts), counts)


def _read_parts(store: HummockStore, version: HummockVersion, table: TableSchema, to: int) -> Iterator[_Part]:
    layout = table_layout(table, version.mapping.vnode_count)
    if layout.shape is not None:
        store.read_as(table.table_id, layout.shape)
    for changed in store.read_changes(table.table_id, None, None, to, version.epoch, schema=layout.rows):
        weights = changed.column(1)
        rows = changed.remove_column(1)
        yield _Part(rows.filter(pc.less(weights, 0)), rows.filter(pc.greater(weights, 0)))


def _count_same(part: _Part, width: int) -> int:
    """The keys whose rows are equal in their first columns, which are those of the relation."""
    if part.before.num_columns == width + 1:
        return 0
    at = pc.index_in(part.before.column(0), value_set=part.after.column(0).combine_chunks())
    columns = range(1, width + 1)
    before = part.before.filter(at.is_valid()).select(columns)
    return int(same_rows(before, part.after.take(at.drop_null()).select(columns)).sum())


def _batch_of(table: TableSchema, part: _Part, version: HummockVersion) -> SealedBatch:
    """The rows before the changes: puts of these, and deletes of keys that had none."""
    came = part.after.filter(pc.invert(pc.is_in(part.after.column(0), value_set=part.before.column(0))))
    keys = set(table_layout(table, version.mapping.vnode_count).key_columns)
    blank = [
        column if place in keys else pa.chunked_array([pa.nulls(came.num_rows, column.type)])
        for place, column in enumerate(came.columns[1:])
    ]
    gone = pa.table([came.column(0), *blank], schema=came.schema)
    return _seal_rows(table, [(part.before, PUT), (gone, DELETE)])


def _kept_input(table: TableSchema, part: _Part) -> SealedBatch | None:
    """Records of taken files whose rows no longer count. None for positions in a log, which stay.

    A file that was taken since is recorded as unread. A file that was taken before and has changed since is recorded
    as before, with the present content accepted.
    """
    if not records_files(table):
        return None
    names = [column.name for column in table.columns]
    unread, size, etag, accepted, copy = (
        names.index(name) + 1 for name in ("unread", "size", "etag", "accepted", "kept")
    )
    known = pc.is_in(part.after.column(0), value_set=part.before.column(0))
    fresh = part.after.filter(pc.invert(known))
    fresh = fresh.set_column(unread, fresh.schema.field(unread), pa.array(np.ones(fresh.num_rows, np.bool_)))
    none = pa.repeat(pa.scalar("", pa.string()), fresh.num_rows)  # no delivery may bring their rows back
    fresh = fresh.set_column(copy, fresh.schema.field(copy), none)
    present = part.after.take(pc.index_in(part.before.column(0), value_set=part.after.column(0).combine_chunks()))
    mark = pc.binary_join_element_wise(pc.cast(present.column(size), pa.string()), present.column(etag), " ")
    same = pc.and_(
        pc.equal(present.column(size), part.before.column(size)),
        pc.equal(present.column(etag), part.before.column(etag)),
    )
    old_mark = part.before.column(accepted)
    marks = pc.if_else(pc.fill_null(pc.invert(same), False), mark, old_mark)
    before = part.before.set_column(accepted, part.before.schema.field(accepted), marks)
    return _seal_rows(table, [(before, PUT), (fresh, PUT)])


def _seal_rows(table: TableSchema, parts: Sequence[tuple[pa.Table, int]]) -> SealedBatch:
    rows = pa.concat_tables([rows for rows, _ in parts]).combine_chunks()
    ops = pa.array(np.concatenate([np.full(part.num_rows, op, np.uint8) for part, op in parts]))
    order = pa.array(sort_order(rows.column(0).combine_chunks()))
    return SealedBatch(table.table_id, rows.add_column(1, "op", ops).take(order).combine_chunks())


def _counts_of(
    relation: Relation, version: HummockVersion, before: HummockVersion, returned: int, left: int
) -> RowCounts:
    """The rows of a relation in the epoch: those that return, and those that leave."""
    stays = any(r.id == relation.id for r in before.catalog.relations)
    net: int | None
    if not stays:  # it begins again, under another id
        (old,) = (r for r in before.catalog.live_relations() if r.name == relation.name)
        net = before.rows.get(old.id)
    elif output_of(relation) is not None:
        net = returned - left
    else:
        net = before.rows.get(relation.id, 0) - version.rows.get(relation.id, 0)
    return RowCounts(0, returned + left, net)
