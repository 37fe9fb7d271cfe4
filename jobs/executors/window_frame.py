"""Ordered rows of several partitions, and the frames of their rows as places.

The rows at hand may begin in the middle of their partition. A *head* stands before them for all that is not at hand; each partition has
one, and what a call carries over from before is counted as if it were the head's value. So frames are pairs of places, and a sum over a
frame is the difference of two prefix sums, whether or not the partition's beginning was read:

    place    0        1 … m0                m0 + 1    …
             head 0 | rows of partition 0 | head 1 | rows of partition 1 | …
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.logical.nodes import FrameEdge
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import Probes, SortedKeys, differs_from_previous, successors
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.vnode import one_array


def ordered_key(
    partition: Sequence[int], order: Sequence[Order], stream_key: Sequence[int]
) -> tuple[tuple[KeyColumn, ...], tuple[KeyColumn, ...]]:
    """The key under which rows lie by partition in order, ties by the stream key; and the part of it that ORDER BY names.

    A column named twice counts where it is first: within a partition its columns order nothing.
    """
    key = {c: KeyColumn(c) for c in partition}
    parts = len(key)
    for by in order:
        key.setdefault(by.column, KeyColumn(by.column, by.descending, by.nulls_last))
    ordering = tuple(key.values())[parts:]
    for column in stream_key:
        key.setdefault(column, KeyColumn(column))
    return tuple(key.values()), ordering


@dataclass(frozen=True)
class Before:
    """What came before the rows at hand, by partition. All (partitions,)."""

    rows: Positions  # how many rows; 0: the partition begins with the rows at hand
    rank: Positions  # of the first row at hand
    dense_rank: Positions


@dataclass(frozen=True)
class OrderedRows:
    """(n,) rows by partition, within it in order."""

    rows: pa.Table
    partition: Positions  # (n,) the place of each row's partition, ascending
    order: tuple[KeyColumn, ...]  # by which they are ordered: `column` is one of `rows`
    before: Before

    def __len__(self) -> int:
        return len(self.partition)

    @property
    def partitions(self) -> int:
        return len(self.before.rows)

    @cached_property
    def counts(self) -> Positions:
        """(partitions,) how many rows each has at hand."""
        return np.bincount(self.partition, minlength=self.partitions)

    @cached_property
    def heads(self) -> Positions:
        """(partitions,) the place of each head."""
        return np.cumsum(self.counts) - self.counts + np.arange(self.partitions)

    @cached_property
    def places(self) -> Positions:
        """(n,) the place of each row."""
        return np.arange(len(self)) + self.partition + 1

    @cached_property
    def first(self) -> Positions:
        """(n,) the place of the first row at hand of each row's partition."""
        return self.heads[self.partition] + 1

    @cached_property
    def end(self) -> Positions:
        """(n,) the place after the last row of each row's partition."""
        return (self.heads + 1 + self.counts)[self.partition]

    @cached_property
    def number(self) -> Positions:
        """(n,) each row's number in its partition, from 1."""
        return self.places - self.first + 1 + self.before.rows[self.partition]

    @cached_property
    def peers(self) -> Positions:
        """(n,) the number of each row's peers, ascending over all partitions: rows that the order does not tell apart have one."""
        new = np.ones(len(self), np.bool_)
        new[1:] = self.partition[1:] != self.partition[:-1]
        if self.order and len(self):
            columns = [one_array(self.rows.column(k.column)) for k in self.order]
            new |= differs_from_previous(encode_keys(0, np.zeros(len(self), np.uint16), columns, self.order))
        return np.cumsum(new) - 1

    @cached_property
    def first_peer(self) -> Positions:
        """(n,) the place of the first of each row's peers at hand."""
        starts = np.flatnonzero(np.diff(self.peers, prepend=-1))
        return self.places[starts[self.peers]]

    @cached_property
    def after_peers(self) -> Positions:
        """(n,) the place after the last of each row's peers."""
        ends = np.flatnonzero(np.diff(self.peers, append=-1))
        return self.places[ends[self.peers]] + 1

    @cached_property
    def rank(self) -> Positions:
        """(n,) one more than the rows before each row's peers."""
        return np.where(
            self._continued, self.before.rank[self.partition], self.number - (self.places - self.first_peer)
        )

    @cached_property
    def dense_rank(self) -> Positions:
        """(n,) the number of each row's peers in its partition."""
        begin = np.flatnonzero(np.diff(self.partition, prepend=-1))
        own = np.zeros(self.partitions, np.int64)
        own[self.partition[begin]] = self.peers[begin]
        return (
            self.peers - own[self.partition] + np.where(self.before.rows > 0, self.before.dense_rank, 1)[self.partition]
        )

    @property
    def _continued(self) -> npt.NDArray[np.bool_]:
        """(n,) whether a row is a peer of its partition's first row at hand, whose own peers may lie before it."""
        found: npt.NDArray[np.bool_] = (self.first_peer == self.first) & (self.before.rows[self.partition] > 0)
        return found

    def frame(self, call: Over) -> tuple[Positions, Positions]:
        """(n,) first place of each row's frame, and the place after its last. A frame without bound before it begins with the head."""
        if call.lower.edge is FrameEdge.UNBOUNDED:
            low = self.first - 1
        elif call.by_rows:
            low = np.clip(self.places + call.lower.rows, self.first, self.end)
        else:
            low = self.first_peer if call.lower.edge is FrameEdge.CURRENT else self._reached(call.lower, False)
        if call.upper.edge is FrameEdge.UNBOUNDED:
            high = self.end
        elif call.by_rows:
            high = np.clip(self.places + call.upper.rows + 1, self.first, self.end)
        else:
            high = self.after_peers if call.upper.edge is FrameEdge.CURRENT else self._reached(call.upper, True)
        return low, np.maximum(low, high)

    def _reached(self, edge: FrameEnd, past: bool) -> Positions:
        """(n,) the place of the first row that is not before the value at the edge, or (`past`) that is behind it."""
        assert edge.column is not None
        (key,) = self.order
        found, wanted = (self._keyed(key, column) for column in (key.column, edge.column))
        return SortedKeys(found).left(Probes(successors(wanted) if past else wanted), slice(None)) + self.partition + 1

    def _keyed(self, key: KeyColumn, column: int) -> pa.BinaryArray:
        columns = [pa.array(self.partition), one_array(self.rows.column(column))]
        by = [KeyColumn(0), KeyColumn(1, key.descending, key.nulls_last)]
        return encode_keys(0, np.zeros(len(self), np.uint16), columns, by)

    def with_heads(self, values: Sequence[object] | np.ndarray, heads: np.ndarray) -> np.ndarray:
        """(…, places) the rows' values and the heads', each in its place."""
        rows = np.asarray(values)
        laid = np.empty((*rows.shape[:-1], len(self) + self.partitions), rows.dtype)
        laid[..., self.places] = rows
        laid[..., self.heads] = heads
        return laid
