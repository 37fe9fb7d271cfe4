"""Scans many key prefixes or key ranges at once: the newest visible rows of each, with an optional limit per prefix.

Without a limit, one round reads all blocks of all prefixes. With a limit, a round reads a window of blocks per prefix
and section, from the front or, in reverse, from the back. Rows past the end of the smallest window may be incomplete
and wait for the next round. A prefix is done if it has enough rows or all its blocks are read. The others continue with
a window four times as long.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.block_source import OpenSection
from tussock.statestore.hummock.packed_blocks import MANY_PROBES, PACKED_AT_ONCE, PackedBlock, PackedBlocks
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.shared_buffer import BufferedSource, Section, is_in_memory
from tussock.statestore.hummock.sorted_keys import Positions, Probes, sort_order
from tussock.statestore.hummock.sst_reader import Rows, taken_from

_GROWTH = 4
COPIED_WHOLE = 4_096  # rows of a unit; found rows of larger ones are copied at once, which is faster than at the end

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class RangeBlocks:
    """Per prefix, the blocks [first, end) of one section that may hold its rows."""

    section: Section
    first: Positions
    end: Positions

    @classmethod
    def from_probes(cls, section: Section, low: Probes, high: Probes) -> "RangeBlocks":
        """The blocks of the ranges from `low` to `high`. A block that is already in memory is searched without this."""
        reader, everything = section.reader, slice(None)
        if len(reader) == 1 and is_in_memory(section):
            return cls(section, np.zeros(len(low), np.int64), np.ones(len(low), np.int64))
        return cls(
            section, reader.last_keys.count_below(low, everything), reader.first_keys.count_below(high, everything)
        )

    def count_inside(self) -> int:
        """How many blocks certainly contain only rows of a prefix: those between the first and the last of each."""
        return int(np.maximum(self.end - self.first - 2, 0).sum())

    def next_window(self, prefixes: Positions, size: int | None, reverse: bool) -> tuple[Positions, Positions]:
        """The blocks to read for these prefixes, at most `size` each."""
        first, end = self.first[prefixes], self.end[prefixes]
        if size is None:
            return first, end
        return (np.maximum(first, end - size), end) if reverse else (first, np.minimum(end, first + size))


@dataclass(frozen=True, slots=True)
class Scanned:
    """The rows found, aligned: prefix, key, and position in the concatenated decoded blocks."""

    prefix: Positions
    keys: pa.Array
    row: Positions

    @staticmethod
    def make_empty() -> "Scanned":
        """No rows."""
        return Scanned(np.zeros(0, np.int64), pa.array([], pa.binary()), np.zeros(0, np.int64))

    def take_rows(self, places: Positions) -> "Scanned":
        """The rows at these positions."""
        return Scanned(self.prefix[places], self.keys.take(pa.array(places)), self.row[places])

    def select_rows(self, mask: Mask) -> "Scanned":
        """The rows selected by `mask`."""
        return self if mask.all() else Scanned(self.prefix[mask], self.keys.filter(pa.array(mask)), self.row[mask])

    def by_prefix(self) -> "Scanned":
        """Sorted by prefix; rows of a prefix keep their order."""
        return self.take_rows(np.argsort(self.prefix, kind="stable"))

    def reverse_rows(self) -> "Scanned":
        """Sorted by prefix; rows of a prefix in reverse order."""
        return self.take_rows(np.arange(len(self.prefix))[::-1]).by_prefix()


@dataclass(slots=True)
class _Gathered:
    """Rows found in a round: section, prefix, position in the decoded blocks, put or delete, and key."""

    section: list[Positions] = field(default_factory=list)  # their places among the ranges
    prefix: list[Positions] = field(default_factory=list)
    row: list[Positions] = field(default_factory=list)
    put: list[Mask] = field(default_factory=list)
    keys: list[pa.Array] = field(default_factory=list)


class _Scan:
    """State of all rounds of one call: the candidate blocks of each section, and the decoded blocks."""

    def __init__(
        self,
        source: BufferedSource,
        ranges: Sequence[RangeBlocks],
        low: Probes,
        high: Probes,
        epoch: int,
        reverse: bool,
    ) -> None:
        self.source, self.low, self.high, self.epoch, self.reverse = source, low, high, epoch, reverse
        self.ranges = ranges
        self.batches: list[pa.RecordBatch] = []
        self._rows = 0  # in `batches`
        self._settled = 0  # of `batches`: they have found rows only

    def begin_round(self) -> None:
        """Begin a round. Rows of the rounds before stay where they are."""
        self._settled = len(self.batches)

    def keep_only_found(self, found: "_Gathered") -> None:
        """Replace the blocks that were searched since the last call by the rows that were found in them."""
        batches = self.batches[self._settled :]
        if not batches or any(batch.schema != batches[0].schema for batch in batches):
            return  # the end of the read reports batches that differ
        base = self._rows - sum(batch.num_rows for batch in batches)
        places = [number for number, rows in enumerate(found.row) if len(rows) and rows[0] >= base]
        wanted = np.concatenate([found.row[place] - base for place in places]) if places else np.zeros(0, np.int64)
        self._rows = base
        for place in places:
            count = len(found.row[place])
            found.row[place] = self._rows + np.arange(count)
            self._rows += count
        self.batches[self._settled :] = taken_from(batches, wanted)
        self._settled = len(self.batches)

    def store_rows(self, rows: pa.RecordBatch) -> int:
        """Store rows, and return the position of the first one."""
        place = self._rows
        self.batches.append(rows)
        self._rows += rows.num_rows
        return place


class _Round:
    """A window of blocks of each section, for the prefixes that are not done."""

    def __init__(self, scan: _Scan, prefixes: Positions, size: int | None) -> None:
        """`size`: limit of blocks per prefix and section; None: all."""
        self.scan, self.prefixes = scan, prefixes
        self.windows = [blocks.next_window(prefixes, size, scan.reverse) for blocks in scan.ranges]
        self.unread = [
            (first > blocks.first[prefixes]) if scan.reverse else (end < blocks.end[prefixes])
            for blocks, (first, end) in zip(scan.ranges, self.windows, strict=True)
        ]
        """Per section and prefix, whether some of its blocks are not read yet."""

    def read_windows(self) -> tuple[Scanned, Mask]:
        """The newest row of each key in the windows, sorted by prefix and key, and whether it is a put."""
        scan, found = self.scan, _Gathered()
        requests = [
            (b.section, _distinct_numbers(first, end))
            for b, (first, end) in zip(scan.ranges, self.windows, strict=True)
        ]
        scan.begin_round()
        for number, portion in enumerate(scan.source.in_portions(requests, scan.epoch)):
            if number:
                scan.keep_only_found(found)  # drops the blocks of the portion before
            packed: list[tuple[int, list[PackedBlock]]] = []
            for place, blocks, units in portion:
                first, end = self.windows[place]
                if some := [unit for unit in units if isinstance(unit, PackedBlock)]:
                    packed.append((place, some))
                for unit in units:
                    if isinstance(unit, PackedBlock):
                        continue
                    # A unit may have blocks of other portions. They are searched there.
                    low, high = max(unit.first_block, int(blocks[0])), min(unit.end_block, int(blocks[-1]) + 1)
                    inside = np.flatnonzero((first < high) & (end > low))
                    _gather_rows(found, place, unit, self.prefixes[inside], scan)
            self._gather_packed(found, packed)
        return _newest_rows(found)

    def _gather_packed(self, into: _Gathered, parts: Sequence[tuple[int, Sequence[PackedBlock]]]) -> None:
        """Collect the rows of the prefixes from packed blocks. `parts`: those of each section, by its place."""
        alike: dict[tuple[int, str], list[tuple[int, Sequence[PackedBlock]]]] = {}
        for place, blocks in parts:
            shape = self._row_shape(place)
            alike.setdefault((id(blocks[0].layout), "" if shape is None else shape.digest), []).append((place, blocks))
        for same in alike.values():
            every, at, prefixes = list[PackedBlock](), list[Positions](), list[Positions]()
            for place, blocks in same:
                numbers = np.array([block.first_block for block in blocks])
                first, end = (np.searchsorted(numbers, bound) for bound in self.windows[place])
                at.append(len(every) + _expand_ranges(first, end))
                prefixes.append(np.repeat(self.prefixes, np.maximum(end - first, 0)))
                every += blocks
            sections = np.repeat([place for place, _ in same], [len(blocks) for _, blocks in same])
            places, order = np.concatenate(at), np.argsort(np.concatenate(at), kind="stable")
            for low in range(0, len(every), PACKED_AT_ONCE):
                start, stop = np.searchsorted(places, [low, low + PACKED_AT_ONCE], sorter=order)
                chosen = order[start:stop]
                part = slice(low, low + PACKED_AT_ONCE)
                self._search_packed(
                    into, every[part], sections[part], places[chosen] - low, np.concatenate(prefixes)[chosen]
                )

    def _search_packed(
        self,
        into: _Gathered,
        blocks: Sequence[PackedBlock],
        sections: Positions,
        at: Positions,
        prefixes: Positions,
    ) -> None:
        """Collect rows from packed blocks of the same columns. Blocks with many rows or prefixes are decoded.

        Args:
            sections: the place of the section of each block.
            at, prefixes: pairs of a block that may have rows of a prefix, and the prefix.
        """
        scan, packed = self.scan, PackedBlocks(blocks)
        many = np.bincount(at, minlength=len(blocks)) > MANY_PROBES
        few = ~many[at]
        starts, stops = (
            packed.count_smaller(at[few], probes.bytes_of(packed.key_width, prefixes[few]))
            for probes in (scan.low, scan.high)
        )
        counts = np.maximum(stops - starts, 0)
        many |= np.bincount(at[few], counts, len(blocks)) > MANY_PROBES
        for number in np.flatnonzero(many).tolist():
            place = int(sections[number])
            unit = scan.source.decode_block(scan.ranges[place].section, blocks[number])
            _gather_rows(into, place, unit, prefixes[at == number], scan)
        counts[many[at[few]]] = 0
        if not counts.any():
            return
        rows, blocks_of = _expand_ranges(starts, starts + counts), np.repeat(at[few], counts)
        columns, shape = packed.read_columns(blocks_of, rows), self._row_shape(int(sections[0]))
        into.section.append(sections[blocks_of])
        into.prefix.append(np.repeat(prefixes[few], counts))
        into.row.append(scan.store_rows(columns if shape is None else shape.widen_rows(columns)) + np.arange(len(rows)))
        into.put.append(packed.read_puts(blocks_of, rows))
        into.keys.append(packed.read_keys(blocks_of, rows))

    def _row_shape(self, place: int) -> RowShape | None:
        """The shape of a stored section's rows."""
        section = self.scan.ranges[place].section
        return section.reader.shape if isinstance(section, OpenSection) else None

    def is_complete(self, found: Scanned) -> Mask:
        """Whether each row is inside all windows, so that no unread block can hold its key or one before it."""
        complete = np.ones(len(found.prefix), np.bool_)
        if not any(unread.any() for unread in self.unread):
            return complete
        place = np.searchsorted(self.prefixes, found.prefix)
        for blocks, (first, end), unread in zip(self.scan.ranges, self.windows, self.unread, strict=True):
            if not unread.any():
                continue
            reader = blocks.section.reader
            bounds = reader.first_keys.array if self.scan.reverse else reader.last_keys.array
            border = np.clip(first if self.scan.reverse else end - 1, 0, len(reader) - 1)
            bound = bounds.take(pa.array(border[place]))
            reached = (pc.greater_equal if self.scan.reverse else pc.less_equal)(found.keys, bound).to_numpy(
                zero_copy_only=False
            )
            complete &= reached | ~unread[place]
        return complete

    def take_finished(self, limit: int | None) -> tuple[Scanned, Positions]:
        """Live rows of the finished prefixes, and the remaining prefixes.

        A prefix is finished if it has `limit` rows, or all its blocks are read.
        """
        found, put = self.read_windows()
        rows = found.select_rows(put & self.is_complete(found))
        if self.scan.reverse:
            rows = rows.reverse_rows()
        if limit is None:
            return rows, self.prefixes[:0]
        counts = np.bincount(rows.prefix, minlength=int(self.prefixes[-1]) + 1)[self.prefixes]
        done = (counts >= limit) | ~np.logical_or.reduce(self.unread)
        return rows.select_rows(
            np.isin(rows.prefix, self.prefixes[done]) & (_rank_in_runs(rows.prefix) < limit)
        ), self.prefixes[~done]


def scan_prefixes(
    source: BufferedSource,
    ranges: Sequence[RangeBlocks],
    low: Probes,
    high: Probes,
    epoch: int,
    limit: int | None,
    reverse: bool,
) -> tuple[Scanned, list[pa.RecordBatch]]:
    """Find the rows of each prefix. Returns them sorted by prefix, and the decoded blocks that hold them.

    Args:
        ranges: the blocks of each section, newest section first.
        low, high: per prefix its first key and the successor of its last key. Any keys or key prefixes work as the
            bounds of a range.
        epoch, limit, reverse: see HummockStore.scan_prefix.
    """
    scan = _Scan(source, ranges, low, high, epoch, reverse)
    taken: list[Scanned] = []
    waiting, window = np.arange(len(low)), None if limit is None else 1
    while len(waiting) and ranges:
        rows, waiting = _Round(scan, waiting, window).take_finished(limit)
        taken.append(rows)
        window = None if window is None else window * _GROWTH
    if len(taken) < 2:
        return (taken[0] if taken else Scanned.make_empty()), scan.batches
    together = (
        np.concatenate([t.prefix for t in taken]),
        pa.concat_arrays([t.keys for t in taken]),
        np.concatenate([t.row for t in taken]),
    )
    return Scanned(*together).by_prefix(), scan.batches


def _gather_rows(into: _Gathered, section: int, unit: Rows, prefixes: Positions, scan: _Scan) -> None:
    """Collect the unit's rows of these prefixes up to the scan's epoch. Most units have none, and are not kept."""
    keys, places = unit.keys_at(scan.epoch)
    if len(keys) == 0 or len(prefixes) == 0:
        return
    starts = keys.count_below(scan.low, prefixes)
    stops = np.maximum(starts, keys.count_below(scan.high, prefixes))
    counts = stops - starts
    if not counts.any():
        return
    at = _expand_ranges(starts, stops)
    rows = at if places is None else places[at]
    into.section.append(np.full(len(rows), section))
    into.prefix.append(np.repeat(prefixes, counts))
    if len(unit) > COPIED_WHOLE and len(unit) > 8 * len(rows):
        into.row.append(scan.store_rows(unit.columns.take(pa.array(rows))) + np.arange(len(rows)))
    else:
        into.row.append(scan.store_rows(unit.columns) + rows)
    into.put.append(np.ones(len(rows), np.bool_) if unit.puts is None else unit.puts[rows])
    into.keys.append(keys.array.slice(at[0], len(at)) if len(prefixes) == 1 else keys.array.take(pa.array(at)))


def _newest_rows(found: _Gathered) -> tuple[Scanned, Mask]:
    """Per prefix and key the newest row, sorted by both, and whether it is a put."""
    if not found.row:
        return Scanned.make_empty(), np.zeros(0, np.bool_)
    if len({part.type for part in found.keys}) > 1:  # sections with and without offsets
        found.keys = [part.cast(pa.binary()) for part in found.keys]
    rows = Scanned(
        np.concatenate(found.prefix), pa.concat_arrays(found.keys).cast(pa.binary()), np.concatenate(found.row)
    )
    puts, section = np.concatenate(found.put), np.concatenate(found.section)
    if (section[1:] < section[:-1]).any():  # packed blocks of all sections are searched after the others
        newest = np.argsort(section, kind="stable")
        rows, puts = rows.take_rows(newest), puts[newest]
    order = sort_order(rows.keys)  # stable: sections are newest first, and so are the rows within a section
    order = order[np.argsort(rows.prefix[order], kind="stable")]
    rows, put = rows.take_rows(order), puts[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (rows.prefix[1:] != rows.prefix[:-1]) | pc.not_equal(rows.keys[1:], rows.keys[:-1]).to_numpy(
        zero_copy_only=False
    )
    return rows.select_rows(first), put[first]


def _distinct_numbers(first: Positions, end: Positions) -> Positions:
    """The distinct numbers in all ranges, ascending."""
    if len(first) and (first == first[0]).all() and (end == end[0]).all():
        return np.arange(first[0], end[0])
    numbers: Positions = np.unique(_expand_ranges(first, end))
    return numbers


def _expand_ranges(first: Positions, end: Positions) -> Positions:
    """The numbers first[0] … end[0] - 1, first[1] … end[1] - 1, and so on, in one array."""
    counts = np.maximum(end - first, 0)
    numbers: Positions = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return numbers


def _rank_in_runs(index: Positions) -> Positions:
    """The position of each entry within its run of equal values."""
    starts = np.flatnonzero(np.append(True, index[1:] != index[:-1])) if len(index) else np.zeros(0, np.int64)
    return np.arange(len(index)) - np.repeat(starts, np.diff(np.append(starts, len(index))))
