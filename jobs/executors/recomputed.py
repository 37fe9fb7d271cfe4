"""Held results: slots that store a group's result and recompute it from a side state whenever the group changes."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.distinct_state import DistinctState, DistinctValues
from tussock.jobs.executors.group_segments import I64, Segments
from tussock.jobs.executors.ordered_state import Ends, OrderedLayout, OrderedState
from tussock.jobs.executors.value_state import Deposit, Side, SideState, Slot, State
from tussock.statestore.positions import indices_in_ranges
from tussock.statestore.types import arrow_type


class RecomputedSlot(Slot):
    """A slot that is recomputed, because a change alone does not determine its new value."""

    __slots__ = ()

    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        return Deposit([], _keep_state)

    def deposit_of_state(self, state: State) -> Deposit:
        raise NotImplementedError

    def add_change(self, before: State, change: State) -> State:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _OfRows(RecomputedSlot):
    """A slot over one column of a group's ordered rows."""

    rows: OrderedLayout
    column: int
    type: str

    @property
    def types(self) -> tuple[str, ...]:
        return (self.type,)

    @property
    def side(self) -> Side:
        return self.rows

    def read_state(self, side: SideState, groups: pa.Table, before: State, change: State) -> State:
        assert isinstance(side, OrderedState)
        return [self.compute_states(side, groups)]

    @abstractmethod
    def compute_states(self, rows: OrderedState, groups: pa.Table) -> pa.Array:
        """The states of some groups."""


@dataclass(frozen=True, slots=True)
class OfValues(RecomputedSlot):
    """A slot over a group's distinct values, in ascending order."""

    values: DistinctValues

    @property
    def types(self) -> tuple[str, ...]:
        return self.values.types

    @property
    def side(self) -> Side:
        return self.values

    def read_state(self, side: SideState, groups: pa.Table, before: State, change: State) -> State:
        assert isinstance(side, DistinctState)
        return [self.compute_states(side.read_all(groups))]

    @abstractmethod
    def compute_states(self, values: Segments) -> pa.Array:
        """The states of groups with these values."""


@dataclass(frozen=True, slots=True)
class FirstRow(_OfRows):
    """A column of a group's first or last row in an order; NULL without rows.

    Cost: one limited scan of the touched groups.
    """

    last: bool = False

    @property
    def ends(self) -> Ends:
        return Ends(0, 1) if self.last else Ends(1, 0)

    def compute_states(self, rows: OrderedState, groups: pa.Table) -> pa.Array:
        return rows.read_first(groups, (self.column,), self.last)[0]


@dataclass(frozen=True, slots=True)
class OfAllRows(_OfRows):
    """A slot over all rows of a group in order."""

    def compute_states(self, rows: OrderedState, groups: pa.Table) -> pa.Array:
        return self.states_of_rows(rows.read_all(groups, (self.column,)))

    @abstractmethod
    def states_of_rows(self, rows: Segments) -> pa.Array:
        """The states of groups with these values of the column."""


@dataclass(frozen=True, slots=True)
class FirstRowsSlot(OfAllRows):
    """A list of a column's values in a group's first `count` rows; NULL without rows.

    Cost: one limited scan of touched groups.
    """

    count: int

    @property
    def ends(self) -> Ends:
        return Ends(self.count, 0)

    def compute_states(self, rows: OrderedState, groups: pa.Table) -> pa.Array:
        return self.states_of_rows(rows.read_firsts(groups, self.column, self.count))

    def states_of_rows(self, rows: Segments) -> pa.Array:
        segments = first_rows(rows, self.count)
        empty = pa.array(np.diff(segments.starts) == 0)
        return pc.if_else(empty, None, lists_per_group(segments, self.type))


@dataclass(frozen=True, slots=True)
class JoinedTexts(OfAllRows):
    """The texts of a group's rows in order, joined by a delimiter; NULL without rows. Reads the touched groups."""

    delimiter: str  # in hexadecimal if the values are binary

    def states_of_rows(self, rows: Segments) -> pa.Array:
        return join_texts(rows, self.delimiter)


@dataclass(frozen=True, slots=True)
class JoinedDistinct(OfValues):
    """Like Joined, over a group's distinct values. The last column of the values is the text."""

    descending: bool
    delimiter: str

    @property
    def types(self) -> tuple[str, ...]:
        return self.values.types[-1:]

    def compute_states(self, values: Segments) -> pa.Array:
        texts = Segments(values.starts, [values.columns[len(self.values.types) - 1]])
        return join_texts(reversed_segments(texts) if self.descending else texts, self.delimiter)


@dataclass(frozen=True, slots=True)
class CollectedList(OfAllRows):
    """A list of a column's values in a group's ordered rows; empty without rows. Reads the touched groups."""

    def states_of_rows(self, rows: Segments) -> pa.Array:
        return lists_per_group(rows, self.type)


@dataclass(frozen=True, slots=True)
class CollectedDistinct(OfValues):
    """A list of a group's distinct values in ascending order; empty without rows. Reads the touched groups' values."""

    type: str

    @property
    def types(self) -> tuple[str, ...]:
        return (self.type,)

    def compute_states(self, values: Segments) -> pa.Array:
        return lists_per_group(values, self.type)


def counts_of(segments: Segments) -> I64:
    """The multiplicity of each value in a distinct state."""
    return segments.columns[-1].to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def first_rows(segments: Segments, count: int) -> Segments:
    """The first rows of every group, at most `count`."""
    sizes = np.diff(segments.starts)
    if sizes.max(initial=0) <= count:
        return segments
    within = indices_in_ranges(sizes) < count
    starts = np.concatenate([[0], np.cumsum(np.minimum(sizes, count))])
    return Segments(starts, [column.filter(pa.array(within)) for column in segments.columns])


def reversed_segments(segments: Segments) -> Segments:
    """The rows of every group in reverse order."""
    ends = np.repeat(segments.starts[1:] + segments.starts[:-1] - 1, np.diff(segments.starts))
    places = pa.array(ends - np.arange(len(ends)))
    return Segments(segments.starts, [column.take(places) for column in segments.columns])


def lists_per_group(segments: Segments, type_name: str) -> pa.Array:
    """(n,) a list per group, from the first column."""
    return pa.ListArray.from_arrays(pa.array(segments.starts.astype(np.int32)), segments.columns[0]).cast(
        arrow_type(type_name)
    )


def join_texts(segments: Segments, delimiter: str) -> pa.Array:
    """(n,) the first column's texts (or bytes) per group, joined by a delimiter; NULL for a group without rows."""
    texts = segments.columns[0]
    binary = pa.types.is_binary(texts.type)
    lists = pa.LargeListArray.from_arrays(segments.starts, texts)
    between = pa.scalar(bytes.fromhex(delimiter), pa.binary()) if binary else pa.scalar(delimiter)
    empty = pa.array(np.diff(segments.starts) == 0)
    return pc.if_else(empty, None, pc.binary_join(lists, between)).cast(texts.type)


def _keep_state(columns: State) -> State:
    return columns
