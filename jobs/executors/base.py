"""Code that all executors share: netting, and the error for changes that contradict stored rows.

An executor gets all input of its epoch in one `apply`; the order of the rows has no meaning. The deletes of an epoch
apply before its inserts. The output is netted: at most one -old and one +new per stream key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, some_rows
from tussock.jobs.executors.operator import show_row
from tussock.statestore import stacked
from tussock.statestore.errors import DamagedError
from tussock.statestore.hummock.key import encode_identities, encode_keys
from tussock.statestore.hummock.same_rows import same_rows as same_rows
from tussock.statestore.hummock.sorted_keys import differs_from_previous
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.nested import bits_of, is_nested
from tussock.statestore.table.columns import take_columns
from tussock.statestore.table.state_table import LocatedKeys, StateTable
from tussock.statestore.types import UnsupportedTypeError
from tussock.statestore.vnode import normalise_floats, one_array, xxhash64

Positions = npt.NDArray[np.int64]

TWO_ROWS = "two live rows with one key"
NO_ROW = "a delete of a row that does not exist"


class ChangeError(DamagedError):
    """A change does not fit the stored rows. `problem` is TWO_ROWS or NO_ROW."""

    table: str
    problem: str
    key: str

    def __str__(self) -> str:
        return (
            f"state table {self.table!r}, key ({self.key}): {self.problem}. Changes and stored rows contradict each "
            "other, so one of them is wrong. Nothing of this epoch was committed. Drop the view and create it again. "
            "Keep a copy of the store to find the cause."
        )


def change_error(table: str, problem: str, keys: pa.Table, row: int) -> ChangeError:
    """The error for one row of `keys`, which has the columns of the key."""
    return ChangeError(table, problem, show_row(keys, row))


def numbered_columns(types: Sequence[str]) -> tuple[ColumnSpec, ...]:
    """Columns c0, c1, … of a state table."""
    return tuple(ColumnSpec(f"c{i}", t) for i, t in enumerate(types))


def state_table(name: str, types: Sequence[str], key: Sequence[KeyColumn], distribution: Sequence[int]) -> TableSchema:
    """A state table's layout with id 0. The planner assigns the number."""
    return TableSchema(0, name, numbered_columns(types), tuple(key), tuple(distribution))


def weights_of(chunk: pa.Table) -> npt.NDArray[np.int64]:
    """(n,) the weights of a chunk."""
    return chunk[WEIGHT].to_numpy()  # type: ignore[no-any-return]


def only_inserts(chunk: pa.Table) -> bool:
    """Whether each row of the chunk has weight 1."""
    return all(bool((part.to_numpy() == 1).all()) for part in chunk[WEIGHT].chunks)


def net_chunk(chunk: pa.Table) -> pa.Table:
    """Reduce a change to as few rows as possible: merge equal rows and add their weights.

    Rows are equal if all columns are equal, floats by their bits. If all weights have the same sign, no rows can
    cancel, and the chunk is returned as it is, with repeated rows. Cost: one grouping of the rows if signs differ, else
    none.
    """
    if chunk.num_rows == 0:
        return chunk
    weights = weights_of(chunk)
    if weights.min() > 0 or weights.max() < 0:
        return chunk
    if any(is_nested(kind) for kind in chunk.schema.types):
        return _net_nested(chunk, weights)
    names = chunk.column_names[:-1]
    grouped = chunk.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")])
    grouped = grouped.select([*names, f"{WEIGHT}_sum"]).rename_columns([*names, WEIGHT])
    return some_rows(grouped, weights_of(grouped) != 0)


def _net_nested(chunk: pa.Table, weights: npt.NDArray[np.int64]) -> pa.Table:
    """`net_chunk` for rows with arrays, maps or structs. Arrow cannot group by these, so their bytes identify them."""
    columns = [encode_identities(c) if is_nested(c.type) else bits_of(one_array(c)) for c in chunk.columns[:-1]]
    ids, first = key_ids(columns, chunk.num_rows)
    sums = np.zeros(len(first), np.int64)
    np.add.at(sums, ids, weights)
    remains = sums != 0
    rows = chunk.drop_columns([WEIGHT]).take(pa.array(first[remains]))
    return rows.append_column(WEIGHT, pa.array(sums[remains]))


@dataclass(frozen=True, slots=True)
class Halves:
    """The netted changes of a keyed stream as deleted and inserted rows, without weights.

    No key occurs twice in either.
    """

    gone: pa.Table
    come: pa.Table
    gone_id: Positions  # the number of each row's key; equal numbers mean equal keys, in both halves
    come_id: Positions

    @property
    def is_replaced(self) -> npt.NDArray[np.bool_]:
        """(gone,) True if a row with the same key is inserted."""
        return _is_contained(self.gone_id, self.come_id)

    @property
    def is_replacing(self) -> npt.NDArray[np.bool_]:
        """(come,) True if a row with the same key is deleted."""
        return _is_contained(self.come_id, self.gone_id)

    def write_to(self, table: StateTable) -> None:
        """Apply the changes to a table. A put replaces the row with its key, so only unreplaced rows are deleted."""
        table.delete_rows(some_rows(self.gone, ~self.is_replaced))
        table.insert_rows(self.come)


def split_halves(chunk: pa.Table, table: str, key: Sequence[int]) -> Halves:
    """Split the changes of a keyed stream into deletes and inserts, netted.

    Args:
        chunk: rows with weights, netted or not.
        table: name of the state table that stores the rows, for errors.
        key: the columns of that table's key.

    Raises: ChangeError if a key is deleted or inserted more than once after netting.
    Cost: one hash pass over the keys, and a comparison of deleted rows with their replacements. A grouping of whole
        rows only if a key has more than one row of the same sign.
    """
    parts, repeated = _split_by_sign(chunk, key)
    if repeated is not None:
        chunk = net_chunk(chunk)
        parts, repeated = _split_by_sign(chunk, key)
        if repeated is not None:
            problem = NO_ROW if weights_of(chunk)[repeated] < 0 else TWO_ROWS
            raise change_error(table, problem, chunk.select(list(key)), repeated)
    return _without_idle(parts)


def write_changes(chunk: pa.Table, table: StateTable, key: Sequence[int]) -> pa.Table | None:
    """Apply the changes of a keyed stream to its table.

    Args:
        chunk, key: see `split_halves`. Requires: `key` is the table's key.

    Returns: the inserted rows in the table's order, if `located_rows` has sorted them.
    Raises: ChangeError if a key is deleted or inserted more than once after netting.
    Cost: as `located_rows`, or else of `split_halves`.
    """
    if (located := located_rows(chunk, table, key)) is None:
        split_halves(chunk, table.name, key).write_to(table)
        return None
    none, every = np.zeros(chunk.num_rows, np.bool_), np.ones(chunk.num_rows, np.bool_)
    table.replace_located(*located, none, every)
    return located[1]


def located_rows(chunk: pa.Table, table: StateTable, key: Sequence[int]) -> tuple[LocatedKeys, pa.Table] | None:
    """The rows of an insert-only chunk with distinct keys, and their keys, in the table's order. None for other chunks.

    Requires: `key` is the table's key and is not empty. Cost: an encoding and a sort of the keys, which a write needs
    anyway. Rows that are already in order are not copied, and stay in as many pieces as the chunk has.
    """
    if not key or not only_inserts(chunk):
        return None
    rows = chunk.drop_columns([WEIGHT])
    located = table.locate_keys(rows.select(list(key)).combine_chunks())
    if not differs_from_previous(located.keys).all():
        return None
    return located, rows if located.as_given else take_columns([rows], pa.array(located.order))


@dataclass(frozen=True, slots=True)
class WithStored:
    """Stored and new rows together, in the table's order."""

    rows: pa.Table
    stored: npt.NDArray[np.bool_]  # (n,) False for new rows
    _located: LocatedKeys
    _table: StateTable

    @staticmethod
    def from_rows(table: StateTable, key: Sequence[int], stored: pa.Table, coming: pa.Table) -> "WithStored":
        """`key`: the columns of the table's key.

        Raises ChangeError if a new row already exists. Cost: an encoding and a sort.
        """
        rows = pa.concat_tables([stored, coming])
        located = table.locate_keys(rows.select(list(key)))
        in_order = located.reorder_rows(rows)
        new = differs_from_previous(located.keys)
        if not new.all():
            raise change_error(table.name, TWO_ROWS, in_order.select(list(key)), int(np.argmin(new)))
        return WithStored(in_order, located.order < stored.num_rows, located, table)

    def keep_rows(self, stays: npt.NDArray[np.bool_]) -> None:
        """Write to the table: keep or insert the rows in `stays`, delete the others."""
        self._table.replace_located(self._located, self.rows, self.stored & ~stays, stays & ~self.stored)


def _split_by_sign(chunk: pa.Table, key: Sequence[int]) -> tuple[Halves, int | None]:
    """Split a chunk by sign.

    Also returns the first row whose key repeats within its sign (or whose weight is not ±1), or None.
    """
    weights = weights_of(chunk)
    rows = chunk.drop_columns([WEIGHT])
    if (weights == 1).all() and _hash_apart([chunk.column(k) for k in key]):
        return Halves(rows.slice(0, 0), rows, np.empty(0, np.int64), np.arange(len(weights))), None
    goes = weights < 0
    ids, first = key_ids([chunk.column(k) for k in key], chunk.num_rows)
    for sign in (-1, 1):
        of_key = np.bincount(ids[weights * sign > 0], minlength=len(first))
        if (of_key > 1).any() or (weights * sign > 1).any():
            bad = np.flatnonzero((weights * sign > 0) & ((of_key[ids] > 1) | (weights * sign > 1)))
            return Halves(rows.slice(0, 0), rows.slice(0, 0), ids[:0], ids[:0]), int(bad[0])
    if not goes.any():
        return Halves(rows.slice(0, 0), rows, ids[:0], ids), None
    return Halves(some_rows(rows, goes), some_rows(rows, ~goes), ids[goes], ids[~goes]), None


def _hash_apart(key: Sequence[pa.ChunkedArray]) -> bool:
    """Whether all keys have different hashes, and are therefore distinct. False means unknown.

    This costs a fraction of numbering the keys, which would dominate a first load.
    """
    try:
        hashes = np.sort(xxhash64(list(key))) if key else np.zeros(2, np.uint64)
    except UnsupportedTypeError:
        return False
    return bool((hashes[1:] != hashes[:-1]).all())


def _without_idle(parts: Halves) -> Halves:
    """Remove the rows that are deleted and inserted unchanged."""
    if not len(parts.gone_id) or not len(parts.come_id):
        return parts
    place = np.full(int(max(parts.gone_id.max(), parts.come_id.max())) + 1, -1, np.int64)
    place[parts.come_id] = np.arange(len(parts.come_id))
    partner = place[parts.gone_id]
    paired = np.flatnonzero(partner >= 0)
    same = same_rows(take_rows(parts.gone, paired), take_rows(parts.come, partner[paired]))
    if not same.any():
        return parts
    stays, comes = np.ones(len(parts.gone_id), np.bool_), np.ones(len(parts.come_id), np.bool_)
    stays[paired[same]] = False
    comes[partner[paired[same]]] = False
    return Halves(
        some_rows(parts.gone, stays),
        some_rows(parts.come, comes),
        parts.gone_id[stays],
        parts.come_id[comes],
    )


def _is_contained(ids: Positions, others: Positions) -> npt.NDArray[np.bool_]:
    """(ids,) whether `others` contains the number. Requires: the numbers are small and dense."""
    if len(ids) == 0 or len(others) == 0:
        return np.zeros(len(ids), np.bool_)
    has = np.zeros(max(int(ids.max()), int(others.max())) + 1, np.bool_)
    has[others] = True
    return has[ids]


def key_ids(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> tuple[Positions, Positions]:
    """Number the distinct keys by first appearance.

    Args:
        columns: the key's columns, not necessarily normalised. NULLs are equal to each other.
        rows: the number of rows. Without columns, they all have the same empty key.

    Returns: (rows,) the number of each row's key; (distinct keys,) the first row of each key.
    Cost: one hash pass; for keys of several columns, one encoding pass before it.
    """
    if rows == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if not columns:
        return np.zeros(rows, np.int64), np.zeros(1, np.int64)
    if len(columns) == 1 and not is_nested(columns[0].type):
        single = normalise_floats(columns[0])
    else:
        single = encode_keys(
            0, np.zeros(rows, np.uint16), [one_array(c) for c in columns], [KeyColumn(i) for i in range(len(columns))]
        )
    ids = pc.dictionary_encode(single, null_encoding="encode").indices.to_numpy().astype(np.int64)
    first = np.empty(int(ids.max()) + 1, np.int64)
    first[ids[::-1]] = np.arange(rows - 1, -1, -1)  # NumPy keeps the last write to a position: the first row
    return ids, first


def take_rows(rows: pa.Table, places: Positions) -> pa.Table:
    """Rows by position. Unlike Arrow's `take`, it keeps the row count of a table without columns."""
    return stacked.take_rows(rows, places) if rows.num_columns else no_columns(len(places))


def no_columns(rows: int) -> pa.Table:
    """A table with `rows` rows and no columns: the keys of a singleton."""
    return pa.table({"": pa.nulls(rows)}).select([])
