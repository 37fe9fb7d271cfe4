"""Materialize: store a view's rows for readers, and pass the changes on.

State: `order columns | stream key -> row`. Without an ORDER BY there are no order columns. If a row's order columns
change, it is deleted under one key and inserted under another.

Deleted and inserted rows are paired by key. Executors that work in key order, such as HashAgg, emit both in the table's
order. These are then paired by a search, and written without another sort. Insert-only chunks, as in a first load, are
sorted here, which a write requires anyway. In other chunks, keys are hashed (base.split_halves).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT, chunk_of_difference, empty_chunk, some_rows
from tussock.jobs.executors.base import (
    NO_ROW,
    TWO_ROWS,
    Positions,
    change_error,
    located_rows,
    no_columns,
    split_halves,
    state_table,
    take_rows,
    weights_of,
)
from tussock.jobs.executors.operator import Actor, Executor, Origin, Own, PlainNode, TakesPieces, column_list
from tussock.jobs.executors.order import Order, table_key
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.hummock.sorted_keys import Probes, SortedKeys
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import LocatedKeys, StateTable

Mask = npt.NDArray[np.bool_]


class Materialize(PlainNode, frozen=True, omit_defaults=True):
    """Stores the view's rows as `order | stream key -> row`, and passes the netted changes to views that read it.

    Args:
        checked: whether rows that appear or disappear are compared with the stored ones. An aggregation has just read
            its groups, whose keys are the ones here, so a second look would find the same in another table.
    """

    keeps_relation: ClassVar[bool] = True

    relation_id: int
    stream_key: tuple[int, ...]
    distribution: tuple[int, ...]
    types: tuple[str, ...]
    order: tuple[Order, ...] = ()
    checked: bool = True

    @property
    def key(self) -> tuple[KeyColumn, ...]:
        """The state's key: the order columns, then the remaining columns of the stream key."""
        return table_key(self.order, self.stream_key)

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The view's rows."""
        return (state_table("rows", self.types, self.key, self.distribution),)

    def column_origins(self) -> tuple[Origin, ...]:
        return tuple(Own(i) for i in range(len(self.types)))

    def explain_text(self) -> str:
        order = f" order=[{', '.join(o.explain_text() for o in self.order)}]" if self.order else ""
        return f"Materialize key=[{column_list(self.stream_key)}]{order}"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return MaterializeExecutor(self, tables[0])


class MaterializeExecutor(TakesPieces):
    """Stores the sum of all input chunks. No two rows of this sum have the same key.

    An update overwrites its row without reading it. Reading it would cost as much as the rest of an epoch, and an
    overwrite neither loses nor duplicates rows. Inserts without a delete, and deletes without an insert, are checked.
    """

    needs_keys = True

    def __init__(self, node: Materialize, table: StateTable) -> None:
        self._node, self._table = node, table
        self._key = tuple(k.column for k in node.key)

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Store the changes and return them netted.

        Raises: ChangeError if an inserted key already exists, or if a deleted row does not.
        Cost: one `get_rows` of the keys that appear and disappear, if they are checked.
        """
        if chunks[0].num_rows == 0:
            return empty_chunk(self._node.types)
        if (ordered := _in_key_order(chunks[0], self._table, self._key)) is not None:
            return self._apply_ordered(ordered)
        parts = split_halves(chunks[0], self._table.name, self._key)
        self._check_rows(some_rows(parts.gone, ~parts.is_replaced), some_rows(parts.come, ~parts.is_replacing))
        parts.write_to(self._table)
        return chunk_of_difference(parts.gone, parts.come)

    def _apply_ordered(self, changes: "_Ordered") -> pa.Table:
        replaced = changes.place >= 0
        gone, come = some_rows(changes.gone, ~replaced), some_rows(changes.come, ~changes.is_replacing)
        self._check_rows(gone, come, changes.located if changes.gone.num_rows == 0 else None)
        idle, idle_come = changes.idle_masks()
        self._table.delete_rows(gone)
        self._table.replace_located(changes.located, changes.come, np.zeros(len(idle_come), np.bool_), ~idle_come)
        return chunk_of_difference(some_rows(changes.gone, ~idle), some_rows(changes.come, ~idle_come))

    def _check_rows(self, gone: pa.Table, come: pa.Table, located: LocatedKeys | None = None) -> None:
        """Check that the keys of `come` do not exist, and that the rows of `gone` do.

        `located`: the located keys of `come` if `gone` is empty.
        """
        key = list(self._key)
        count = gone.num_rows + come.num_rows
        if not self._node.checked or count == 0 or (gone.num_rows == 0 and self._table.is_empty()):
            return
        if located is not None:
            stored_rows = self._table.get_located(located, again=False)
        else:
            keys = pa.concat_tables([gone.select(key), come.select(key)]) if key else no_columns(count)
            stored_rows = self._table.get_rows(keys, again=False)
        there = stored_rows.found.to_numpy(zero_copy_only=False)
        absent = ~(there[: gone.num_rows] & same_rows(stored_rows.rows.slice(0, gone.num_rows), gone))
        if absent.any():
            raise change_error(self._table.name, NO_ROW, gone.select(key), int(np.flatnonzero(absent)[0]))
        if (taken := there[gone.num_rows :]).any():
            raise change_error(self._table.name, TWO_ROWS, come.select(key), int(np.flatnonzero(taken)[0]))


@dataclass(frozen=True, slots=True)
class _Ordered:
    """The deleted and inserted rows of a chunk, both in the table's key order, without repeated keys."""

    gone: pa.Table
    come: pa.Table
    located: LocatedKeys  # the keys of `come`
    place: Positions  # (gone,) index of the inserted row with the same key, or -1

    @property
    def is_replacing(self) -> Mask:
        """(come,) True if a row with the same key is deleted."""
        mask = np.zeros(self.come.num_rows, np.bool_)
        mask[self.place[self.place >= 0]] = True
        return mask

    def idle_masks(self) -> tuple[Mask, Mask]:
        """(gone,) and (come,) True if an equal row is deleted and inserted."""
        replaced = np.flatnonzero(self.place >= 0)
        there = self.place[replaced]
        aligned = len(replaced) == self.come.num_rows == self.gone.num_rows  # keys ascend in both: they pair one to one
        left = self.gone if aligned else take_rows(self.gone, replaced)
        same = same_rows(left, self.come if aligned else take_rows(self.come, there))
        gone, come = np.zeros(self.gone.num_rows, np.bool_), np.zeros(self.come.num_rows, np.bool_)
        gone[replaced[same]] = come[there[same]] = True
        return gone, come


def _in_key_order(chunk: pa.Table, table: StateTable, key: Sequence[int]) -> _Ordered | None:
    """The halves of a chunk that is in the table's key order or insert-only; None for other chunks.

    Cost: two encodings of the keys and a search of one half; for an insert-only chunk one encoding and a sort.
    """
    if (coming := located_rows(chunk, table, key)) is not None:
        located, come = coming
        return _Ordered(come.slice(0, 0), come, located, np.empty(0, np.int64))
    weights = weights_of(chunk)
    if not key or np.abs(weights).max() > 1 or (weights > 0).all():
        return None
    rows, goes = chunk.drop_columns([WEIGHT]), weights < 0
    count = int(goes.sum())
    if goes[:count].all():  # the usual case: all deletes come first
        gone, come = rows.slice(0, count), rows.slice(count)
    else:
        gone, come = rows.filter(pa.array(goes)), rows.filter(pa.array(~goes))
    arriving, leaving = come.select(list(key)), gone.select(list(key))
    if (here := table.locate_ordered(arriving)) is None:
        return None
    if leaving.equals(arriving):  # the usual case: all rows are updates
        return _Ordered(gone, come, here, np.arange(count))
    if (left := table.locate_ordered(leaving)) is None:
        return None
    if not len(here.keys):
        return _Ordered(gone, come, here, np.full(count, -1, np.int64))
    place, exists = SortedKeys(here.keys).find_probes(Probes(left.keys), slice(None))
    return _Ordered(gone, come, here, np.where(exists, place, -1))
