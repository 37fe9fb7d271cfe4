"""Reads a table in primary key order: merges the rows of all vnodes.

Rows are stored by vnode first, so each vnode is a run in key order. A round reads the next rows of each run that has
few left, in one batched read for all runs. Rows up to the nearest end of these parts are complete and returned in
order; the others wait. A read with a limit, or between two keys, costs the first blocks of each run and the blocks with
its rows.

The *tail* of a storage key is the part after table id and vnode: the encoded primary key. Tails compare like primary
keys.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.key import HEADER_BYTES, encode_prefixes, vnode_range
from tussock.statestore.hummock.sorted_keys import Positions, sort_order, successor
from tussock.statestore.table.schema import TableLayout

_BUFFERED = 1 << 17  # approximate limit of waiting rows; half of them in equal shares for all runs
_LEAST = 1 << 8  # minimum of rows per run and round, for any number of runs
_LEAST_OF_FEW = 1 << 4  # the same for a read with a limit
_SEGMENTS = 64  # sorted parts that wait before they are merged into one
_LONGEST = 2**31 - 1  # bytes of a key: Arrow 26 cannot slice binary values without an end

_VALUES, _AFTER_VALUES = b"\x01", b"\x02"  # the first byte of a non-NULL value, and the next byte (hummock.key)


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """A range of tails."""

    first: bytes = b""  # inclusive
    end: bytes | None = None  # exclusive; None: unbounded

    @property
    def is_empty(self) -> bool:
        """Whether no key can be in the range."""
        return self.end is not None and self.first >= self.end


EVERY_KEY = KeyBounds()


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of a range of values: a non-NULL value as an array of length 1, and whether the range includes it."""

    value: pa.Array
    inclusive: bool


def key_bounds(
    layout: TableLayout,
    fixed: Sequence[pa.Array],
    low: Edge | None = None,
    high: Edge | None = None,
    known: bool = False,
) -> KeyBounds:
    """The bounds of the rows whose first key columns equal `fixed` (arrays of length 1; NULL means NULL).

    Args:
        low, high: a range of the next key column, without NULL, independent of the column's direction in the key.
        known: exclude NULLs of the next key column. A range excludes them anyway.

    Raises: UnsupportedTypeError.
    """
    prefix = _encode_tail(layout, fixed)
    if not (known or low or high):
        return KeyBounds(prefix, successor(prefix) if prefix else None)
    begin, end = (high, low) if layout.schema.key[len(fixed)].descending else (low, high)
    first, last = prefix + _VALUES, prefix + _AFTER_VALUES
    if begin is not None:
        first = _bound_beside(_encode_tail(layout, [*fixed, begin.value]), after=not begin.inclusive)
    if end is not None:
        last = _bound_beside(_encode_tail(layout, [*fixed, end.value]), after=end.inclusive)
    return KeyBounds(first, last)


def _encode_tail(layout: TableLayout, values: Sequence[pa.Array]) -> bytes:
    encoded = encode_prefixes(0, np.zeros(1, np.uint16), values, layout.schema.key)
    tail: bytes = encoded[0].as_py()[HEADER_BYTES:]
    return tail


def _bound_beside(tail: bytes, *, after: bool) -> bytes:
    """The smallest key that starts with `tail`, or the smallest one after all of these."""
    following = successor(tail) if after else tail
    assert following is not None, "the encoding of a column starts with a small byte"
    return following


#: Reads rows between pairs of storage keys, with a limit per pair. Returns (index of the pair, storage key, row).
Read = Callable[[pa.BinaryArray, pa.BinaryArray, int], tuple[pa.Int64Array, pa.BinaryArray, pa.Table]]


def rows_in_order(
    layout: TableLayout, vnodes: Iterable[int], read: Read, bounds: KeyBounds, limit: int | None, reverse: bool
) -> Iterator[pa.Table]:
    """Merge the rows that `read` finds in some vnodes; see StorageTable.scan_in_order.

    If `reverse`, `read` must also return the rows of a pair in reverse order.
    """
    if bounds.is_empty or limit == 0:
        return
    merge = _Merge(_Runs(layout, vnodes, bounds, reverse), reverse)
    left = limit
    while (asked := merge.next_request(left)) is not None:
        runs, count = asked
        merge.add_rows(runs, count, *read(*merge.runs.remaining_ranges(runs), count))
        if (rows := merge.take_complete()) is None:
            continue
        if left is not None:
            rows = rows.slice(0, left)
            left -= rows.num_rows
        yield rows
        if left == 0:
            return


class _Runs:
    """Each vnode's run: the part that remains to be read."""

    def __init__(self, layout: TableLayout, vnodes: Iterable[int], bounds: KeyBounds, reverse: bool) -> None:
        # A singleton has only vnode 0.
        ranges = [vnode_range(layout.schema.table_id, v) for v in vnodes if layout.schema.distribution or v == 0]
        self.firsts = [head + bounds.first for head, _ in ranges]
        self.ends = [after if bounds.end is None else head + bounds.end for head, after in ranges]
        self.open = np.ones(len(ranges), np.bool_)  # whether there may be unread rows
        self.reached = [b""] * len(ranges)  # the tail of the last row read
        self._reverse = reverse

    def remaining_ranges(self, runs: Positions) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """The key ranges that remain to be read in some runs."""
        firsts, ends = (
            pa.array([keys[run] for run in runs.tolist()], pa.binary()) for keys in (self.firsts, self.ends)
        )
        return firsts, ends

    def record_read(self, run: int, key: bytes) -> None:
        """Record the last row read from a run."""
        self.reached[run] = key[HEADER_BYTES:]
        if self._reverse:
            self.ends[run] = key
        else:
            self.firsts[run] = _bound_beside(key, after=True)  # correct because no key is a prefix of another

    def find_horizon(self) -> bytes | None:
        """The tail up to which all rows have been read; None: to the end."""
        reached = [self.reached[run] for run in np.flatnonzero(self.open).tolist()]
        if not reached:
            return None
        return max(reached) if self._reverse else min(reached)


@dataclass(frozen=True, slots=True)
class _Segment:
    """Sorted rows of any runs."""

    run: Positions  # the run of each row
    tails: pa.BinaryArray
    rows: pa.Table

    def slice(self, first: int, count: int | None = None) -> "_Segment":
        end = len(self.run) if count is None else first + count
        return _Segment(self.run[first:end], self.tails.slice(first, end - first), self.rows.slice(first, end - first))


class _Merge:
    """Rows that were read and wait for rows that may precede them."""

    def __init__(self, runs: _Runs, reverse: bool) -> None:
        self.runs, self._reverse = runs, reverse
        self._waiting = np.zeros(len(runs.open), np.int64)  # number of waiting rows by run
        self._segments: list[_Segment] = []

    def next_request(self, left: int | None) -> tuple[Positions, int] | None:
        """The runs to read next, and the number of rows of each; None at the end.

        `left`: rows still wanted; None: all.
        """
        if not (self.runs.open & (self._waiting == 0)).any():
            return None
        each = max(_LEAST, _BUFFERED // (2 * len(self._waiting)))
        if left is not None:
            each = min(each, max(_LEAST_OF_FEW, -(-2 * left // len(self._waiting))))
        wanted = np.flatnonzero(self.runs.open & (self._waiting <= each // 2))
        if left is not None:
            return wanted, min(left, max(each, -(-2 * left // len(wanted))), _BUFFERED)
        return wanted, max(each, (_BUFFERED - int(self._waiting.sum())) // len(wanted))

    def add_rows(self, runs: Positions, count: int, index: pa.Int64Array, keys: pa.BinaryArray, rows: pa.Table) -> None:
        """Add rows read from some runs, at most `count` of each."""
        place = np.asarray(index)
        ends = np.cumsum(np.bincount(place, minlength=len(runs)))
        for run, first, end in zip(runs.tolist(), (0, *ends[:-1].tolist()), ends.tolist(), strict=True):
            self.runs.open[run] = end - first == count
            if first < end:
                self.runs.record_read(run, keys[end - 1].as_py())
        if len(place):
            run = runs[place]
            self._waiting += np.bincount(run, minlength=len(self._waiting))
            self._segments.append(
                self._merge_segments([_Segment(run, pc.binary_slice(keys, HEADER_BYTES, _LONGEST), rows)])
            )

    def take_complete(self) -> pa.Table | None:
        """Return the rows that no unread row can precede, or None. The others wait."""
        horizon = self.runs.find_horizon()
        done, left = [], []
        for segment in self._segments:
            count = len(segment.run) if horizon is None else self._count_before(segment, horizon)
            done += [segment.slice(0, count)] if count else []
            left += [segment.slice(count)] if count < len(segment.run) else []
        self._segments = left if len(left) < _SEGMENTS else [self._merge_segments(left)]
        if not done:
            return None
        merged_segment = done[0] if len(done) == 1 else self._merge_segments(done)
        self._waiting -= np.bincount(merged_segment.run, minlength=len(self._waiting))
        return merged_segment.rows

    def _count_before(self, segment: _Segment, horizon: bytes) -> int:
        """The number of rows of a segment up to and including a tail."""
        reached = (pc.greater_equal if self._reverse else pc.less_equal)(segment.tails, pa.scalar(horizon, pa.binary()))
        return int(pc.sum(reached).as_py() or 0)

    def _merge_segments(self, segments: Sequence[_Segment]) -> _Segment:
        """Merge segments into one sorted segment."""
        tails = pa.concat_arrays([segment.tails for segment in segments])
        order: npt.NDArray[np.int64] = sort_order(tails)
        order = order[::-1].copy() if self._reverse else order
        rows = pa.concat_tables([segment.rows for segment in segments]).take(pa.array(order))
        return _Segment(np.concatenate([segment.run for segment in segments])[order], tails.take(pa.array(order)), rows)
