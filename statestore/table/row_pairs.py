"""Rows of two tables side by side, by key: of one table at two epochs, or of tables of two stores."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.unshared import count_through
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.vnode import byte_spans

Mask = npt.NDArray[np.bool_]

_TABLE_ID = 4  # the bytes with which a storage key begins


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two tables, and the positions of the columns to read."""

    table: StorageTable
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowPairs:
    """The rows of some keys on both sides. Where a side has no row, all its columns are NULL."""

    one: pa.Table  # (n,)
    in_one: Mask  # (n,) whether the key has a row
    other: pa.Table  # (n,)
    in_other: Mask  # (n,)


def read_pairs(one: Side, other: Side) -> Iterator[RowPairs]:
    """The rows of all keys whose rows may differ, in key order. Each key comes once.

    Requires: the keys of both tables encode the same columns in the same order, and hash the same ones to as many
    vnodes.

    Cost: see `UnsharedKeys` if both sides have the same table id and share most of it: the blocks with the other keys,
    and two batched reads. Else a scan of both sides.
    """
    unshared = one.table.find_unshared(other.table)
    if unshared is None or unshared.are_most:
        yield from _scan_pairs(one, other)
        return
    for keys in unshared.read():
        first, second = (side.table.read_keys(keys, side.columns, once=True) for side in (one, other))
        yield RowPairs(first.rows, _to_mask(first.found), second.rows, _to_mask(second.found))


def _to_mask(is_found: pa.BooleanArray) -> Mask:
    return np.asarray(is_found.to_numpy(zero_copy_only=False), np.bool_)


def _scan_pairs(one: Side, other: Side) -> Iterator[RowPairs]:
    """All keys of both sides, by merging two scans."""
    scans = [_scan_keyed(side, one.table.layout.schema.table_id) for side in (one, other)]
    rows_by_side = [next(scan, None) for scan in scans]
    empty = [_no_rows(side) for side in (one, other)]
    while any(rows is not None for rows in rows_by_side):
        frontier = min(rows.column(0)[-1].as_py() for rows in rows_by_side if rows is not None)
        taken = []
        for number, rows in enumerate(rows_by_side):
            if rows is None:
                taken.append(empty[number])
                continue
            keys = rows.column(0)
            end = count_through(keys, frontier)
            taken.append(rows.slice(0, end))
            rows_by_side[number] = rows.slice(end) if end < rows.num_rows else next(scans[number], None)
        yield _pair_by_key(*taken)


def _scan_keyed(side: Side, table_id: int) -> Iterator[pa.Table]:
    """All rows with their keys, as if the table had this id."""
    layout = side.table.layout
    for rows in side.table.read_range(*layout.range_of(0, layout.vnode_count), side.columns):
        keyed = rows.combine_chunks()
        if layout.schema.table_id != table_id:
            keyed = keyed.set_column(0, "key", _with_table_id(keyed.column(0).chunk(0), table_id))
        yield keyed


def _with_table_id(keys: pa.BinaryArray, table_id: int) -> pa.BinaryArray:
    data, starts, _ = byte_spans(keys)
    changed = data.copy()
    for place, byte in enumerate(table_id.to_bytes(_TABLE_ID, "big")):
        changed[starts + place] = byte
    ends = np.append(starts, len(changed)).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(ends), pa.py_buffer(changed)])


def _no_rows(side: Side) -> pa.Table:
    rows = side.table.layout.rows
    return pa.schema([pa.field("key", pa.binary()), *(rows.field(column) for column in side.columns)]).empty_table()


def _pair_by_key(one: pa.Table, other: pa.Table) -> RowPairs:
    """Align two tables that begin with distinct keys."""
    keys, others = _key_column(one), _key_column(other)
    if keys.equals(others):
        every = np.ones(len(keys), np.bool_)
        return RowPairs(one.remove_column(0), every, other.remove_column(0), every)
    at = pc.index_in(keys, value_set=others)
    alone = np.flatnonzero(~_to_mask(pc.is_in(others, value_set=keys)))
    in_other = np.append(_to_mask(at.is_valid()), np.ones(len(alone), np.bool_))
    in_one = np.append(np.ones(len(keys), np.bool_), np.zeros(len(alone), np.bool_))
    first = pa.concat_arrays([pa.array(np.arange(len(keys))), pa.nulls(len(alone), pa.int64())])
    second = pa.concat_arrays([at.cast(pa.int64()), pa.array(alone)])
    return RowPairs(one.remove_column(0).take(first), in_one, other.remove_column(0).take(second), in_other)


def _key_column(rows: pa.Table) -> pa.BinaryArray:
    keys = rows.column(0)
    return keys.chunk(0) if keys.num_chunks == 1 else keys.combine_chunks()
