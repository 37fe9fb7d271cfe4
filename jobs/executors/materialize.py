"""Materialize: keeps a view's rows where readers find them, and passes the changes on.

State: `order columns | stream key -> row`. Without an ORDER BY there are no order columns. A row whose order columns change goes under
one key and comes under another.

Rows that go and rows that come are paired by key. Executors that work in key order, as HashAgg does, hand both over in the order in
which the table stores them: then they are paired by a search, and written without another sort. Where rows only come, as in a first load,
they are put in that order here, which they need to be written anyway. Otherwise keys are hashed (base.halves).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.base import (
    NO_ROW,
    TWO_ROWS,
    Positions,
    change_error,
    halves,
    located_rows,
    no_columns,
    state_table,
    take_rows,
    weights_of,
)
from tussock.jobs.executors.operator import Actor, Executor, Origin, Own, PlainNode, TakesPieces, column_list
from tussock.jobs.executors.order import Order, table_key
from tussock.jobs.flow.chunk import WEIGHT, difference, empty_chunk, some_rows
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.hummock.sorted_keys import Probes, SortedKeys
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import Located, StateTable

Mask = npt.NDArray[np.bool_]


class Materialize(PlainNode, frozen=True):
    """Keeps the view's rows: state `order | stream key -> row`; passes the netted changes on to views over this view."""

    relation_id: int
    stream_key: tuple[int, ...]
    distribution: tuple[int, ...]
    types: tuple[str, ...]
    order: tuple[Order, ...] | msgspec.UnsetType = (
        msgspec.UNSET
    )  # unset is not stored: nodes of earlier releases have none

    @property
    def ordered_by(self) -> tuple[Order, ...]:
        """`order`, empty if it is not set."""
        return () if isinstance(self.order, msgspec.UnsetType) else self.order

    @property
    def key(self) -> tuple[KeyColumn, ...]:
        """The state's key: the order, then those columns of the stream key that it does not name."""
        return table_key(self.ordered_by, self.stream_key)

    @property
    def keeps_relation(self) -> bool:
        return True

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The view's rows."""
        return (state_table("rows", self.types, self.key, self.distribution),)

    def lineage(self) -> tuple[Origin, ...]:
        return tuple(Own(i) for i in range(len(self.types)))

    def text(self) -> str:
        order = f" order=[{', '.join(o.text() for o in self.ordered_by)}]" if self.ordered_by else ""
        return f"Materialize key=[{column_list(self.stream_key)}]{order}"

    def cost(self) -> str:
        return "changed rows"

    def executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return MaterializeExecutor(self, tables[0])


class MaterializeExecutor(TakesPieces):
    """Keeps the sum of all input chunks, of which no two rows have one key.

    An update's row is replaced unseen: reading what it replaces would cost as much as the rest of an epoch, and neither loses nor doubles
    a row. A row that only comes or only goes is checked.
    """

    needs_keys = True

    def __init__(self, node: Materialize, table: StateTable) -> None:
        self._node, self._table = node, table
        self._key = tuple(k.column for k in node.key)

    def over(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Piece by piece. Raises as `apply`."""
        return map(self.apply, pieces)  # which holds no piece while it waits for the next

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """The netted changes.

        Raises: ChangeError for a row that comes where one stays, and for one that goes but is not there.
        Cost: one `get_rows` of the keys that appear and disappear.
        """
        if chunks[0].num_rows == 0:
            return empty_chunk(self._node.types)
        if (ordered := _in_key_order(chunks[0], self._table, self._key)) is not None:
            return self._apply_ordered(ordered)
        parts = halves(chunks[0], self._table.name, self._key)
        self._check(some_rows(parts.gone, ~parts.replaced), some_rows(parts.come, ~parts.replacing))
        parts.write(self._table)
        return difference(parts.gone, parts.come)

    def _apply_ordered(self, changes: "_Ordered") -> pa.Table:
        replaced = changes.place >= 0
        gone, come = some_rows(changes.gone, ~replaced), some_rows(changes.come, ~changes.replacing)
        self._check(gone, come, changes.located if changes.gone.num_rows == 0 else None)
        idle, idle_come = changes.idle()
        self._table.delete_rows(gone)
        self._table.replace_located(changes.located, changes.come, np.zeros(len(idle_come), np.bool_), ~idle_come)
        return difference(some_rows(changes.gone, ~idle), some_rows(changes.come, ~idle_come))

    def _check(self, gone: pa.Table, come: pa.Table, located: Located | None = None) -> None:
        """Where a row only comes, none may be; a row that only goes must be there as it is. `located`: the keys of `come`, if none goes."""
        key = list(self._key)
        count = gone.num_rows + come.num_rows
        if count == 0 or (gone.num_rows == 0 and self._table.is_empty()):
            return
        if located is not None:
            found = self._table.get_located(located, again=False)
        else:
            keys = pa.concat_tables([gone.select(key), come.select(key)]) if key else no_columns(count)
            found = self._table.get_rows(keys, again=False)
        there = found.found.to_numpy(zero_copy_only=False)
        absent = ~(there[: gone.num_rows] & same_rows(found.rows.slice(0, gone.num_rows), gone))
        if absent.any():
            raise change_error(self._table.name, NO_ROW, gone.select(key), int(np.flatnonzero(absent)[0]))
        if (taken := there[gone.num_rows :]).any():
            raise change_error(self._table.name, TWO_ROWS, come.select(key), int(np.flatnonzero(taken)[0]))


@dataclass(frozen=True, slots=True)
class _Ordered:
    """A chunk taken apart, both halves in the table's key order, no key twice in either."""

    gone: pa.Table
    come: pa.Table
    located: Located  # the keys of `come`
    place: Positions  # (gone,) where the row with the same key comes, or -1

    @property
    def replacing(self) -> Mask:
        """(come,) True where a row with the same key goes."""
        mask = np.zeros(self.come.num_rows, np.bool_)
        mask[self.place[self.place >= 0]] = True
        return mask

    def idle(self) -> tuple[Mask, Mask]:
        """(gone,) and (come,) True where the very row that goes comes back."""
        replaced = np.flatnonzero(self.place >= 0)
        there = self.place[replaced]
        aligned = len(replaced) == self.come.num_rows == self.gone.num_rows  # each key ascending: one and one
        left = self.gone if aligned else take_rows(self.gone, replaced)
        same = same_rows(left, self.come if aligned else take_rows(self.come, there))
        gone, come = np.zeros(self.gone.num_rows, np.bool_), np.zeros(self.come.num_rows, np.bool_)
        gone[replaced[same]] = come[there[same]] = True
        return gone, come


def _in_key_order(chunk: pa.Table, table: StateTable, key: Sequence[int]) -> _Ordered | None:
    """The halves of a chunk that came in the table's key order, or whose rows only come; else None.

    Cost: two encodings of the keys and a search of one half; of rows that only come one encoding and a sort.
    """
    if (coming := located_rows(chunk, table, key)) is not None:
        located, come = coming
        return _Ordered(come.slice(0, 0), come, located, np.empty(0, np.int64))
    weights = weights_of(chunk)
    if not key or np.abs(weights).max() > 1 or (weights > 0).all():
        return None
    rows, goes = chunk.drop_columns([WEIGHT]), weights < 0
    count = int(goes.sum())
    if goes[:count].all():  # the usual: first all that goes
        gone, come = rows.slice(0, count), rows.slice(count)
    else:
        gone, come = rows.filter(pa.array(goes)), rows.filter(pa.array(~goes))
    arriving, leaving = come.select(list(key)), gone.select(list(key))
    if (here := table.locate_ordered(arriving)) is None:
        return None
    if leaving.equals(arriving):  # the usual: all of them are updates
        return _Ordered(gone, come, here, np.arange(count))
    if (left := table.locate_ordered(leaving)) is None:
        return None
    if not len(here.keys):
        return _Ordered(gone, come, here, np.full(count, -1, np.int64))
    place, found = SortedKeys(here.keys).find(Probes(left.keys), slice(None))
    return _Ordered(gone, come, here, np.where(found, place, -1))
