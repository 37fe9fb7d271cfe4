"""Extremes: the slot of min and max, and the state that it reads if rows can be deleted.

State: `group key | argument | upstream stream key`, with the argument descending for max and ascending for min, so that
a group's first row has its extreme. NULL arguments are not stored. The extreme is also a slot of the group's value row.
The state is therefore read only if a group's extreme (or a row equal to it) was deleted.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import take_rows
from tussock.jobs.executors.exact_sum import float_values
from tussock.jobs.executors.int128 import validity_bitmap
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.ordered_state import OrderedLayout, OrderedState
from tussock.jobs.executors.value_state import I64, Deposit, Side, SideState, Slot, State
from tussock.statestore.hummock.key import encode_values
from tussock.statestore.nested import is_nested
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import null_mask, one_array


@dataclass(frozen=True, slots=True)
class Extreme(Slot):
    """The largest (or smallest) value of a column; NULL if the group has none.

    `retractable`: rows can be deleted. A change then has two columns: the extremes of the inserted and of the deleted
    rows. Only the extreme state, its side, contains the remaining values.
    """

    arg: int
    arg_type: str
    largest: bool
    retractable: bool

    @property
    def columns_read(self) -> tuple[int, ...]:
        return (self.arg,)

    def over_first(self) -> Slot:
        return replace(self, arg=0)

    @property
    def types(self) -> tuple[str, ...]:
        return (self.arg_type,)

    @property
    def side(self) -> Side | None:
        """The arguments by group, the extreme first."""
        if not self.retractable:
            return None
        name = f"agg_{self.function}_c{self.arg}"
        return OrderedLayout(name, (Order(self.arg, self.largest, False),), (), (self.arg,))

    @property
    def function(self) -> str:
        return "max" if self.largest else "min"

    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        comparable = self._to_comparable(column)
        restored = partial(self._from_comparable, column, comparable)
        if not self.retractable:
            return Deposit([(comparable, self.function)], restored)
        come, gone = pa.array(weights > 0), pa.array(weights < 0)
        return Deposit([(pc.if_else(half, comparable, None), self.function) for half in (come, gone)], restored)

    def deposit_of_state(self, state: State) -> Deposit:
        comparable = self._to_comparable(state[0])
        return Deposit([(comparable, self.function)], partial(self._from_comparable, state[0], comparable))

    def add_change(self, before: State, change: State) -> State:
        return [self.choose_better(before[0], change[0])]

    def read_state(self, side: SideState, groups: pa.Table, before: State, change: State) -> State:
        """The groups' extremes after `change`: the extremes of the inserted and of the deleted rows.

        A row that is inserted and deleted in one epoch is harmless: if it beat `before`, the deleted extreme does too,
        and the group is read.

        Cost: one scan of the first row of the groups whose extreme may be deleted; none if there are no such groups.
        """
        assert isinstance(side, OrderedState)
        came, went = change
        unsure = pc.and_(pc.is_valid(went), pc.invert(self.beats(before[0], went))).to_numpy(zero_copy_only=False)
        known = self.choose_better(before[0], came)
        asked = np.flatnonzero(unsure)
        if len(asked) == 0:
            return [known]
        (first,) = side.read_first(take_rows(groups, asked), (self.arg,))
        places = np.full(groups.num_rows, -1, np.int64)
        places[asked] = np.arange(len(asked))
        return [pc.if_else(pa.array(unsure), first.take(pa.array(places, mask=places < 0)), known)]

    def choose_better(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """The more extreme of two values. NULL loses."""
        return pc.if_else(pc.or_(pc.is_null(left), self.beats(right, left)), right, left)

    def beats(self, left: pa.Array, right: pa.Array) -> pa.BooleanArray:
        """Whether `left` is more extreme; False if either is NULL."""
        x, y = self._to_comparable(left), self._to_comparable(right)
        return pc.fill_null(pc.greater(x, y) if self.largest else pc.less(x, y), False)

    def _to_comparable(self, column: pa.Array) -> pa.Array:
        """Values in a form that Arrow compares in Spark's order.

        Floats become integers with NaN above all; arrays and structs become bytes; other types are unchanged.
        """
        if is_nested(column.type):
            return pc.if_else(column.is_valid(), encode_values(column), pa.scalar(None, pa.binary()))
        return _ordered_bits(column) if self.arg_type in ("float", "double") else column

    def _from_comparable(self, column: pa.Array, comparable: pa.Array, values: State) -> State:
        """Convert comparable values back to the column's form."""
        if is_nested(column.type):
            return [column.take(pc.index_in(v, value_set=comparable)) for v in values]
        floating = self.arg_type in ("float", "double")
        return [(_from_ordered_bits(v) if floating else v).cast(arrow_type(self.arg_type)) for v in values]


def _ordered_bits(column: pa.Array) -> pa.Array:
    """Floats as int64 in Spark's order: any NaN is above infinity. -0.0 is just below 0.0."""
    values = float_values(column)
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    nulls = null_mask(column) if column.null_count else None
    return pa.array(ordered, pa.int64(), mask=nulls)


def _from_ordered_bits(column: pa.Array) -> pa.Array:
    ordered = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    bits = np.where(ordered < 0, ordered ^ np.int64(2**63 - 1), ordered)
    valid = ~null_mask(column) if column.null_count else None
    return pa.Array.from_buffers(pa.float64(), len(bits), [validity_bitmap(valid), pa.py_buffer(bits)])
