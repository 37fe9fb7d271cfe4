"""Percentiles of groups: the slot, and the anchors that it stores (value_walk.py)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.agg_result import F64
from tussock.jobs.executors.base import take_rows
from tussock.jobs.executors.distinct_state import DistinctState
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.group_segments import I64, Segments
from tussock.jobs.executors.recomputed import OfValues, counts_of
from tussock.jobs.executors.value_state import SideState, State
from tussock.jobs.executors.value_walk import Stretches, read_near_anchors
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.types import array_name, arrow_type

_FEW = 16  # rows of a group up to which one scan of it costs less than walks


@dataclass(frozen=True, slots=True)
class _Places:
    """The ranks (from 0) of the two values that a share of each group's rows is computed from, which may be equal."""

    position: F64
    lower: I64
    higher: I64


@dataclass(frozen=True, slots=True)
class Percentile(OfValues):
    """Percentiles of a group's sorted values; NULL without rows.

    They are interpolated between two values, or (`discrete`) the first value that reaches the share. `reverse`: in
    descending order.

    State: the result; the number of rows; per share, the lower of its two values and the number of rows before it, as
    two columns or, for several shares, as two lists.
    """

    shares: tuple[float, ...]
    type: str
    reverse: bool
    discrete: bool
    once: bool

    @property
    def types(self) -> tuple[str, ...]:
        anchor, below = self.values.types[0], "bigint"
        if len(self.shares) > 1:
            anchor, below = array_name(anchor), array_name(below)
        return (self.type, "bigint", anchor, below)

    def compute_states(self, values: Segments) -> pa.Array:
        counts = self._counts_of(values)
        upto = np.concatenate([[0], np.cumsum(counts)])
        below = upto[values.starts[values.filled_groups]]  # number of rows in earlier groups
        return self.states_among(
            values.columns[0],
            np.diff(upto[values.starts]),
            lambda share, place: np.searchsorted(upto, below + place, "right") - 1,
        )

    def read_state(self, side: SideState, groups: pa.Table, before: State, change: State) -> State:
        """The groups' percentiles.

        Cost: the values between the anchors and the new ranks, which are at most as many as changed rows. All values
            of new groups, whose rows are all changed, and of groups with few rows.
        """
        assert isinstance(side, DistinctState)
        rows = self._count_rows(side, groups, before)
        far = rows > _FEW
        whole = np.flatnonzero(~far)
        segments = side.read_all(take_rows(groups, whole))
        counts = self._counts_of(segments)
        upto = np.concatenate([[0], np.cumsum(counts)])
        rows[whole] = np.diff(upto[segments.starts])
        shares = len(self.shares)
        starts, below = (np.zeros((groups.num_rows, shares), np.int64) for _ in range(2))
        starts[whole] = segments.starts[:-1, None]
        values = segments.columns[0]
        if far.any():
            near = self._read_stretches(side, take_rows(groups, np.flatnonzero(far)), _rows_of(before, far), rows[far])
            starts[far], below[far] = (len(values) + near.starts).reshape(-1, shares), near.below.reshape(-1, shares)
            values, counts = pa.concat_arrays([values, near.values]), np.concatenate([counts, near.counts])
            upto = np.concatenate([[0], np.cumsum(counts)])
        filled = rows > 0
        offset = upto[starts[filled]] - below[filled]

        def at(share: int, place: I64) -> I64:
            return np.searchsorted(upto, offset[:, share] + place, "right") - 1

        result = self.states_among(values, rows, at)
        anchors = np.stack([at(i, self._first_and_last(i, rows[filled])[0]) for i in range(shares)], axis=1)
        return [result, *self._anchors_of(filled, rows, values, anchors, upto[anchors] - offset)]

    def states_among(self, column: pa.Array, rows: I64, at: Callable[[int, I64], I64]) -> pa.Array:
        """(n,) the states of groups with these row counts.

        Args:
            rows: (n,) row count per group.
            at: for a share (by number) and non-empty groups, maps a row's index in its ordered group (from 0) to its
                value's index in `column`.
        """
        there = rows > 0
        filled = rows[there]
        shares_of_groups = (self._discrete_values if self.discrete else self._interpolated_values)(column, filled, at)
        if not self.type.startswith("array"):
            return shares_of_groups.take(pa.array(np.cumsum(there) - 1, mask=~there))
        return _lists_of(shares_of_groups, there, len(self.shares))

    def _discrete_values(self, column: pa.Array, rows: I64, at: Callable[[int, I64], I64]) -> pa.Array:
        """(filled groups * shares,) the values themselves."""
        places = [at(i, self._places_of(i, rows).lower) for i in range(len(self.shares))]
        kind = arrow_type(self.type)
        element = kind.value_type if pa.types.is_list(kind) else kind
        taken = column.take(pa.array(np.stack(places, axis=1).ravel()))
        return pa.array(_to_doubles(taken)) if pa.types.is_floating(element) else taken.cast(element, safe=False)

    def _interpolated_values(self, column: pa.Array, rows: I64, at: Callable[[int, I64], I64]) -> pa.Array:
        """(filled groups * shares,) interpolated doubles. Intervals are truncated toward zero, as in Spark."""
        values_by_share = []
        for i in range(len(self.shares)):
            places = self._places_of(i, rows)
            lower, higher = np.floor(places.position), np.ceil(places.position)
            low, high = at(i, places.lower), at(i, places.higher)
            least, most = (_to_doubles(column.take(pa.array(place))) for place in (low, high))
            with np.errstate(invalid="ignore"):
                between = (higher - places.position) * least + (places.position - lower) * most
            values_by_share.append(np.where((lower == higher) | (low == high), least, between))
        interpolated = np.stack(values_by_share, axis=1).ravel()
        return (
            pa.array(interpolated.astype(np.int64), column.type)
            if pa.types.is_duration(column.type)
            else pa.array(interpolated)
        )

    def _places_of(self, share: int, rows: I64) -> _Places:
        """The places in ascending order of the values, also if the share counts from the greatest one."""
        if self.discrete:
            position = np.maximum(np.ceil(self.shares[share] * rows), 1) - 1
        else:
            position = (rows - 1) * self.shares[share]
        lower, higher = np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)
        return _Places(position, *((rows - 1 - lower, rows - 1 - higher) if self.reverse else (lower, higher)))

    def _first_and_last(self, share: int, rows: I64) -> tuple[I64, I64]:
        """The lesser and the greater rank of a share's places."""
        places = self._places_of(share, rows)
        return np.minimum(places.lower, places.higher), np.maximum(places.lower, places.higher)

    def _counts_of(self, values: Segments) -> I64:
        return np.ones(len(values.columns[0]), np.int64) if self.once else counts_of(values)

    def _count_rows(self, side: DistinctState, groups: pa.Table, before: State) -> I64:
        """(n,) the number of rows of the groups that had rows before; 0 for new groups."""
        had = integer_values(before[1])
        if not had.any():
            return np.zeros(len(had), np.int64)
        prefixes = side.table.layout.prefixes_of(groups)
        return np.where(had > 0, had + side.sum_changes(prefixes, successors(prefixes), self.once), 0)

    def _read_stretches(self, side: DistinctState, groups: pa.Table, before: State, rows: I64) -> Stretches:
        """(groups * shares,) the values that the shares of groups need, near the anchors of the state before."""
        shares = len(self.shares)
        each = take_rows(groups, np.repeat(np.arange(groups.num_rows), shares))
        anchors, below = (before[2].flatten(), before[3].flatten()) if shares > 1 else (before[2], before[3])
        prefixes, keys = side.table.layout.prefixes_of(each), side.keys_of_values(each, anchors)
        now = below.to_numpy(zero_copy_only=False) + side.sum_changes(prefixes, keys, self.once)
        ends = (self._first_and_last(i, rows) for i in range(shares))
        first, last = (np.stack(ranks, axis=1).ravel() for ranks in zip(*ends, strict=True))
        return read_near_anchors(side, each, anchors, now, first, last, self.once)

    def _anchors_of(self, filled: npt.NDArray[np.bool_], rows: I64, values: pa.Array, at: I64, below: I64) -> State:
        """The state's columns after the result. `at`, `below`: (filled groups, shares) each."""
        shares = len(self.shares)
        anchors, numbers = values.take(pa.array(at.ravel())), pa.array(below.ravel())
        total = pa.array(rows, mask=~filled)
        if shares > 1:
            return [total, _lists_of(anchors, filled, shares), _lists_of(numbers, filled, shares)]
        places = pa.array(np.cumsum(filled) - 1, mask=~filled)
        return [total, anchors.take(places), numbers.take(places)]


def _to_doubles(values: pa.Array) -> F64:
    """(n,) the nearest doubles. Arrow's direct cast of decimals rounds twice, its cast of their digits does not."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    elif pa.types.is_duration(values.type):
        values = values.cast(pa.int64())
    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _lists_of(elements: pa.Array, filled: npt.NDArray[np.bool_], size: int) -> pa.Array:
    """(n,) lists of `size` elements; NULL for groups that are not filled."""
    offsets = np.concatenate([[0], np.cumsum(filled) * size]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=pa.array(~filled))


def _rows_of(state: Sequence[pa.Array], chosen: npt.NDArray[np.bool_]) -> State:
    return [column.filter(pa.array(chosen)) for column in state]
