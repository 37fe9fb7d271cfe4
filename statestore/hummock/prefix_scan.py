"""Scanning many prefixes, or ranges of keys, at once: the rows in each, newest visible ones only, with a limit per prefix.

Without a limit all blocks of all prefixes are read in one round. With one, a round reads a window of blocks per prefix and section, from
the front or, in reverse, from the back; what lies beyond the least window's end is not known to be complete and waits. A prefix that
has its rows, or has read all its blocks, is done; the others go on with a window four times as long.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.shared_buffer import BufferedSource, Section
from tussock.statestore.hummock.sorted_keys import Positions, Probes, sort_order
from tussock.statestore.hummock.sst_reader import Rows

_GROWTH = 4


@dataclass(slots=True)
class _Blocks:
    """Per prefix the blocks [first, end) of one section that may hold its rows."""

    section: Section
    first: Positions
    end: Positions

    def window(self, prefixes: Positions, size: int | None, reverse: bool) -> tuple[Positions, Positions]:
        """The blocks to read for these prefixes when `size` blocks at most are read."""
        first, end = self.first[prefixes], self.end[prefixes]
        if size is None:
            return first, end
        return (np.maximum(first, end - size), end) if reverse else (first, np.minimum(end, first + size))


@dataclass(slots=True)
class _Gathered:
    """Rows found in a round: prefix, place in the decoded blocks, key and whether it is a put; newest section first."""

    prefix: list[Positions] = field(default_factory=list)
    row: list[Positions] = field(default_factory=list)
    put: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    keys: list[pa.Array] = field(default_factory=list)


def scan_prefixes(
    source: BufferedSource,
    sections: Sequence[Section],
    prefixes: pa.Array,
    ends: pa.Array,
    epoch: int,
    limit: int | None,
    reverse: bool,
) -> tuple[Positions, pa.Array, list[pa.RecordBatch], Positions]:
    """Rows of each prefix.

    Args:
        sections: newest first.
        prefixes, ends: per prefix its first key and the successor of its last; or any keys, or first columns of such,
            between which to read.
        epoch, limit, reverse: as in HummockStore.scan_prefix.

    Returns:
        (prefix of each row, ascending; its key; decoded blocks; the row's place in those blocks put end to end).
    """
    low, high = Probes(prefixes), Probes(ends)
    everything = slice(None)
    ranges = [_Blocks(s, s.reader.last_keys.left(low, everything), s.reader.first_keys.left(high, everything)) for s in sections]
    batches: list[pa.RecordBatch] = []
    done: list[tuple[Positions, pa.Array, Positions]] = []
    active = np.arange(len(prefixes))
    window = None if limit is None else 1
    base = 0
    while len(active) and sections:
        windows = [blocks.window(active, window, reverse) for blocks in ranges]
        gathered = _Gathered()
        requests = [(b.section, _numbers(first, end)) for b, (first, end) in zip(ranges, windows, strict=True)]
        for (first, end), units in zip(windows, source.blocks(requests), strict=True):
            for unit in units:
                inside = np.flatnonzero((first < unit.end_block) & (end > unit.first_block))
                _gather(gathered, unit, active[inside], low, high, epoch, base)
                batches.append(unit.columns)
                base += len(unit)
        index, keys, rows, put = _newest(gathered)
        more = [
            (end < blocks.end[active]) if not reverse else (first > blocks.first[active])
            for blocks, (first, end) in zip(ranges, windows, strict=True)
        ]
        if any(flags.any() for flags in more):
            complete = _complete(index, keys, active, ranges, windows, more, reverse)
            index, keys, rows, put = index[complete], keys.filter(pa.array(complete)), rows[complete], put[complete]
        index, keys, rows = index[put], keys.filter(pa.array(put)), rows[put]
        if reverse:
            backwards = np.arange(len(index))[::-1]
            index, keys, rows = index[backwards], keys.take(pa.array(backwards)), rows[backwards]
            turned = np.argsort(index, kind="stable")
            index, keys, rows = index[turned], keys.take(pa.array(turned)), rows[turned]
        counts = np.bincount(index, minlength=len(prefixes))[active]
        unread = np.logical_or.reduce(more)
        finished = np.ones(len(active), np.bool_) if limit is None else (counts >= limit) | ~unread
        chosen = np.isin(index, active[finished])
        if limit is not None:
            chosen &= _rank(index) < limit
        done.append((index[chosen], keys.filter(pa.array(chosen)), rows[chosen]))
        active = active[~finished]
        window = None if window is None else window * _GROWTH
    if not done:
        return np.zeros(0, np.int64), pa.array([], pa.binary()), batches, np.zeros(0, np.int64)
    index, keys, rows = np.concatenate([d[0] for d in done]), pa.concat_arrays([d[1] for d in done]), np.concatenate([d[2] for d in done])
    if len(done) > 1:
        order = np.argsort(index, kind="stable")
        index, keys, rows = index[order], keys.take(pa.array(order)), rows[order]
    return index, keys, batches, rows


def _gather(into: _Gathered, unit: Rows, prefixes: Positions, low: Probes, high: Probes, epoch: int, base: int) -> None:
    """Add the unit's rows of these prefixes that are no newer than `epoch`."""
    keys, places = unit.at(epoch)
    if len(keys) == 0 or len(prefixes) == 0:
        return
    starts = keys.left(low, prefixes)
    stops = np.maximum(starts, keys.left(high, prefixes))
    at = _expand(starts, stops)
    if len(at) == 0:
        return
    rows = at if places is None else places[at]
    into.prefix.append(np.repeat(prefixes, stops - starts))
    into.row.append(base + rows)
    into.put.append(np.ones(len(rows), np.bool_) if unit.puts is None else unit.puts[rows])
    into.keys.append(keys.array.slice(at[0], len(at)) if len(prefixes) == 1 else keys.array.take(pa.array(at)))


def _newest(found: _Gathered) -> tuple[Positions, pa.Array, Positions, npt.NDArray[np.bool_]]:
    """Per prefix and key the newest row, sorted by both."""
    if not found.row:
        empty = np.zeros(0, np.int64)
        return empty, pa.array([], pa.binary()), empty, np.zeros(0, np.bool_)
    index, rows, put = np.concatenate(found.prefix), np.concatenate(found.row), np.concatenate(found.put)
    if len({part.type for part in found.keys}) > 1:  # a section without offsets beside one with
        found.keys = [part.cast(pa.binary()) for part in found.keys]
    keys = pa.concat_arrays(found.keys).cast(pa.binary())
    order = sort_order(keys)  # stable: sections came newest first, and within one newer rows come first
    order = order[np.argsort(index[order], kind="stable")]
    index, rows, put, keys = index[order], rows[order], put[order], keys.take(pa.array(order))
    first = np.ones(len(index), np.bool_)
    first[1:] = (index[1:] != index[:-1]) | pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return index[first], keys.filter(pa.array(first)), rows[first], put[first]


def _complete(
    index: Positions,
    keys: pa.Array,
    active: Positions,
    ranges: Sequence[_Blocks],
    windows: Sequence[tuple[Positions, Positions]],
    more: Sequence[npt.NDArray[np.bool_]],
    reverse: bool,
) -> npt.NDArray[np.bool_]:
    """Whether each row lies where every section's window has been read: no unread block can hold its key or one before it."""
    place = np.searchsorted(active, index)
    complete = np.ones(len(index), np.bool_)
    for blocks, (first, end), unread in zip(ranges, windows, more, strict=True):
        if not unread.any():
            continue
        reader = blocks.section.reader
        bounds = reader.first_keys.array if reverse else reader.last_keys.array
        border = np.clip(first if reverse else end - 1, 0, len(reader) - 1)
        bound = bounds.take(pa.array(border[place]))
        reached = (pc.greater_equal if reverse else pc.less_equal)(keys, bound).to_numpy(zero_copy_only=False)
        complete &= reached | ~unread[place]
    return complete


def _numbers(first: Positions, end: Positions) -> Positions:
    """The distinct numbers of all the ranges, ascending."""
    numbers: Positions = np.unique(_expand(first, end))
    return numbers


def _expand(first: Positions, end: Positions) -> Positions:
    """first[0] … end[0] - 1, first[1] … end[1] - 1, and so on, as one array."""
    counts = np.maximum(end - first, 0)
    numbers: Positions = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return numbers


def _rank(index: Positions) -> Positions:
    """The place of each entry within its run of equal values."""
    starts = np.flatnonzero(np.append(True, index[1:] != index[:-1])) if len(index) else np.zeros(0, np.int64)
    return np.arange(len(index)) - np.repeat(starts, np.diff(np.append(starts, len(index))))
