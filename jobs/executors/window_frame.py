"""Ordered rows of several partitions, and the frames of their rows as positions ("places").

The loaded rows may begin in the middle of a partition. Each partition has a *head* before its loaded rows that
represents all earlier rows. A call's carried values count as the head's values. A frame is therefore a pair of places,
and a sum over a frame is the difference of two prefix sums, even if the partition's beginning was not read:

    place    0        1 … m0                m0 + 1    …
             head 0 | rows of partition 0 | head 1 | rows of partition 1 | …
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.logical.nodes import FrameEdge
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import Probes, SortedKeys, differs_from_previous, successors
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.vnode import null_mask, one_array


def ordered_key(
    partition: Sequence[int], order: Sequence[Order], stream_key: Sequence[int]
) -> tuple[tuple[KeyColumn, ...], tuple[KeyColumn, ...]]:
    """The key that sorts rows by partition and order, with ties by the stream key; and the part of it from ORDER BY.

    If a column repeats, its first occurrence counts. The partition's columns order nothing within a partition.
    """
    key = {c: KeyColumn(c) for c in partition}
    parts = len(key)
    for by in order:
        key.setdefault(by.column, KeyColumn(by.column, by.descending, by.nulls_last))
    ordering = tuple(key.values())[parts:]
    for column in stream_key:
        key.setdefault(column, KeyColumn(column))
    return tuple(key.values()), ordering


def move_back(values: pa.Array, distance: int, descending: bool) -> pa.Array:
    """Values of an order, moved against its direction, but not beyond the type. Requires: integers or timestamps."""
    if not distance:
        return values
    whole, top = values.cast(pa.int64()), (1 << 63) - 1
    if descending:
        moved = pc.add(pc.min_element_wise(whole, top - distance, skip_nulls=False), distance)
    else:
        moved = pc.subtract(pc.max_element_wise(whole, distance - top, skip_nulls=False), distance)
    return moved.cast(values.type)


@dataclass(frozen=True)
class Before:
    """The rows before the loaded ones, by partition. All arrays are (partitions,)."""

    rows: Positions  # number of rows; 0 if the loaded rows begin with the partition
    rank: Positions  # of the first loaded row
    dense_rank: Positions


@dataclass(frozen=True)
class OrderedRows:
    """(n,) rows sorted by partition and order."""

    rows: pa.Table
    partition: Positions  # (n,) index of each row's partition, ascending
    order: tuple[KeyColumn, ...]  # the rows' order: `column` is an index into `rows`
    before: Before

    def __len__(self) -> int:
        return len(self.partition)

    @property
    def partition_count(self) -> int:
        return len(self.before.rows)

    @cached_property
    def row_counts(self) -> Positions:
        """(partitions,) the number of loaded rows."""
        return np.bincount(self.partition, minlength=self.partition_count)

    @cached_property
    def heads(self) -> Positions:
        """(partitions,) the place of each head."""
        return np.cumsum(self.row_counts) - self.row_counts + np.arange(self.partition_count)

    @cached_property
    def places(self) -> Positions:
        """(n,) the place of each row."""
        return np.arange(len(self)) + self.partition + 1

    @cached_property
    def first_place(self) -> Positions:
        """(n,) the place of the first loaded row in each row's partition."""
        return self.heads[self.partition] + 1

    @cached_property
    def end_place(self) -> Positions:
        """(n,) the place after the last row of each row's partition."""
        return (self.heads + 1 + self.row_counts)[self.partition]

    @cached_property
    def number(self) -> Positions:
        """(n,) each row's number in its partition, from 1."""
        return self.places - self.first_place + 1 + self.before.rows[self.partition]

    @cached_property
    def peers(self) -> Positions:
        """(n,) the number of each row's peer group, ascending over all partitions. Peers are equal in the order."""
        new = np.ones(len(self), np.bool_)
        new[1:] = self.partition[1:] != self.partition[:-1]
        if self.order and len(self):
            columns = [one_array(self.rows.column(k.column)) for k in self.order]
            new |= differs_from_previous(encode_keys(0, np.zeros(len(self), np.uint16), columns, self.order))
        return np.cumsum(new) - 1

    @cached_property
    def first_peer(self) -> Positions:
        """(n,) the place of the first loaded row among each row's peers."""
        starts = np.flatnonzero(np.diff(self.peers, prepend=-1))
        return self.places[starts[self.peers]]

    @cached_property
    def after_peers(self) -> Positions:
        """(n,) the place after the last of each row's peers."""
        ends = np.flatnonzero(np.diff(self.peers, append=-1))
        return self.places[ends[self.peers]] + 1

    @cached_property
    def rank(self) -> Positions:
        """(n,) the number of rows before each row's peers, plus one."""
        return np.where(
            self._continues_peer, self.before.rank[self.partition], self.number - (self.places - self.first_peer)
        )

    @cached_property
    def dense_rank(self) -> Positions:
        """(n,) the number of each row's peer group in its partition."""
        begin = np.flatnonzero(np.diff(self.partition, prepend=-1))
        own = np.zeros(self.partition_count, np.int64)
        own[self.partition[begin]] = self.peers[begin]
        return (
            self.peers - own[self.partition] + np.where(self.before.rows > 0, self.before.dense_rank, 1)[self.partition]
        )

    @property
    def _continues_peer(self) -> npt.NDArray[np.bool_]:
        """(n,) whether a row is a peer of its partition's first loaded row, whose first peer may be an earlier row."""
        is_peer: npt.NDArray[np.bool_] = (self.first_peer == self.first_place) & (self.before.rows[self.partition] > 0)
        return is_peer

    def places_back(self, distance: int) -> Positions:
        """(n,) the place of the first loaded row that precedes each row by at most a distance in the order's value."""
        (key,) = self.order
        earlier = move_back(one_array(self.rows.column(key.column)), distance, key.descending)
        return self._count_before(key, earlier, False) + self.partition + 1

    def frame_bounds(self, call: Over) -> tuple[Positions, Positions]:
        """(n,) the first place of each row's frame, and the place after its last.

        A frame with no lower bound begins at the head. An end that is NULL beside a known value of the order is beyond
        the type, on the side of the row where no known value is. So the frame has the rows whose order is NULL, if they
        are on that side, or is empty.
        """
        if call.lower.edge is FrameEdge.UNBOUNDED:
            low = self.first_place - 1
        elif call.by_rows:
            low = np.clip(self.places + call.lower.rows, self.first_place, self.end_place)
        else:
            low = (
                self.first_peer
                if call.lower.edge is FrameEdge.CURRENT
                else self._reach_edge(call.lower, False, self.end_place)
            )
        if call.upper.edge is FrameEdge.UNBOUNDED:
            high = self.end_place
        elif call.by_rows:
            high = np.clip(self.places + call.upper.rows + 1, self.first_place, self.end_place)
        else:
            high = self.after_peers if call.upper.edge is FrameEdge.CURRENT else self._reach_edge(call.upper, True, low)
        if call.setback:  # places ascend over all partitions
            high = np.maximum.accumulate(high)
            low = np.maximum.accumulate(np.minimum(low, high))  # an empty frame skips no rows after it
        return low, np.maximum(low, high)

    def _reach_edge(self, edge: FrameEnd, past: bool, beyond: Positions) -> Positions:
        """(n,) the place of the first row not before the value at the edge, or (`past`) after it.

        `beyond` is the place if the edge is beyond the type, on the other side than the NULLs of the order.
        """
        assert edge.column is not None
        (key,) = self.order
        value, end = (one_array(self.rows.column(column)) for column in (key.column, edge.column))
        places = self._count_before(key, end, past)
        if key.nulls_last is not past or end.null_count == value.null_count:  # the end of a NULL is NULL
            return places + self.partition + 1
        return np.where(null_mask(end) & ~null_mask(value), beyond, places + self.partition + 1)

    def _count_before(self, key: KeyColumn, values: pa.Array, past: bool) -> Positions:
        """(n,) the number of rows before each value in each row's partition, or (`past`) not after it, plus all rows of
        earlier partitions.
        """
        encoded_keys, wanted = (self._encode_values(key, v) for v in (one_array(self.rows.column(key.column)), values))
        return SortedKeys(encoded_keys).count_below(Probes(successors(wanted) if past else wanted), slice(None))

    def _encode_values(self, key: KeyColumn, values: pa.Array) -> pa.BinaryArray:
        columns = [pa.array(self.partition), values]
        by = [KeyColumn(0), KeyColumn(1, key.descending, key.nulls_last)]
        return encode_keys(0, np.zeros(len(self), np.uint16), columns, by)

    def with_heads(self, values: Sequence[object] | np.ndarray, heads: np.ndarray) -> np.ndarray:
        """(…, places) the rows' values and the heads' values, each at its place."""
        rows = np.asarray(values)
        laid = np.empty((*rows.shape[:-1], len(self) + self.partition_count), rows.dtype)
        laid[..., self.places] = rows
        laid[..., self.heads] = heads
        return laid
