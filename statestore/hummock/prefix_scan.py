"""Scans many key prefixes or key ranges at once: the newest visible rows of each, with an optional limit per prefix.

Without a limit, one round reads all rows of all prefixes. With a limit, a round takes a window per prefix and section,
from the front or, in reverse, from the back: some blocks, and as many rows of each as are asked for. So a prefix of a
million rows costs no more than one of ten. A prefix is done if it has enough rows or its windows are everything. The
others, whose rows newer sections delete or whose blocks end too early, continue with windows four times as long.

    section 1   aaaaa|              | ends a window; rows after it are not taken
    section 2   aa  aaaa|           a row is complete if it is in front of the first end of its prefix's windows,
    section 3        a a a a|       since no row before it is missing
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.block_source import OpenSection
from tussock.statestore.hummock.packed_blocks import (
    MANY_PROBES,
    MANY_ROWS,
    PACKED_AT_ONCE,
    PackedBlock,
    PackedBlocks,
    cut_ranges,
)
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.shared_buffer import BufferedSource, Section, is_in_memory
from tussock.statestore.hummock.sorted_keys import Positions, Probes, sort_order
from tussock.statestore.hummock.sst_reader import Rows, taken_from
from tussock.statestore.positions import expand_ranges

_GROWTH = 4
COPIED_WHOLE = 4_096  # rows of a unit; found rows of larger ones are copied at once, which is faster than at the end

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class RangeBlocks:
    """Per prefix, the blocks [first, end) of one section that may hold its rows, and how many of them to read."""

    section: Section
    first: Positions
    end: Positions
    size: Positions = field(init=False)

    def __post_init__(self) -> None:
        self.size = np.ones(len(self.first), np.int64)

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

    def next_window(self, prefixes: Positions, limited: bool, reverse: bool) -> tuple[Positions, Positions]:
        """The blocks to read for these prefixes: all, or `size` of each if `limited`."""
        first, end = self.first[prefixes], self.end[prefixes]
        if not limited:
            return first, end
        size = self.size[prefixes]
        return (np.maximum(first, end - size), end) if reverse else (first, np.minimum(end, first + size))


@dataclass(frozen=True, slots=True)
class ScanMatches:
    """The rows found, aligned: prefix, key, and position in the concatenated decoded blocks."""

    prefix: Positions
    keys: pa.Array
    row: Positions

    @staticmethod
    def make_empty() -> "ScanMatches":
        """No rows."""
        return ScanMatches(np.zeros(0, np.int64), pa.array([], pa.binary()), np.zeros(0, np.int64))

    def take_rows(self, places: Positions) -> "ScanMatches":
        """The rows at these positions."""
        return ScanMatches(self.prefix[places], self.keys.take(pa.array(places)), self.row[places])

    def select_rows(self, mask: Mask) -> "ScanMatches":
        """The rows selected by `mask`."""
        return self if mask.all() else ScanMatches(self.prefix[mask], self.keys.filter(pa.array(mask)), self.row[mask])

    def by_prefix(self) -> "ScanMatches":
        """Sorted by prefix; rows of a prefix keep their order."""
        return self.take_rows(np.argsort(self.prefix, kind="stable"))

    def reverse_rows(self) -> "ScanMatches":
        """Sorted by prefix; rows of a prefix in reverse order."""
        return self.take_rows(np.arange(len(self.prefix))[::-1]).by_prefix()


@dataclass(slots=True)
class _Gathered:
    """Rows found in a round: section, prefix, position in the decoded blocks, put or delete, and key."""

    section: list[Positions] = field(default_factory=list)  # their places among the ranges
    prefix: list[Positions] = field(default_factory=list)
    row: list[Positions] = field(default_factory=list)
    put: list[Mask] = field(default_factory=list)
    cut: list[Mask] = field(default_factory=list)  # whether a row ends a window: the block has more rows of its prefix
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

    def keep_gathered_rows(self, gathered_rows: "_Gathered") -> None:
        """Replace the blocks that were searched since the last call by the rows that were found in them."""
        batches = self.batches[self._settled :]
        if not batches or any(batch.schema != batches[0].schema for batch in batches):
            return  # the end of the read reports batches that differ
        base = self._rows - sum(batch.num_rows for batch in batches)
        places = [number for number, rows in enumerate(gathered_rows.row) if len(rows) and rows[0] >= base]
        wanted = (
            np.concatenate([gathered_rows.row[place] - base for place in places]) if places else np.zeros(0, np.int64)
        )
        self._rows = base
        for place in places:
            count = len(gathered_rows.row[place])
            gathered_rows.row[place] = self._rows + np.arange(count)
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
    """A window of each section, for the prefixes that are not done."""

    def __init__(self, scan: _Scan, prefixes: Positions, rows: int | None) -> None:
        """`rows`: limit of rows per prefix and block; None: all rows of all blocks."""
        self.scan, self.prefixes, self.rows = scan, prefixes, rows
        self.windows = [blocks.next_window(prefixes, rows is not None, scan.reverse) for blocks in scan.ranges]
        self.unread = [
            (first > blocks.first[prefixes]) if scan.reverse else (end < blocks.end[prefixes])
            for blocks, (first, end) in zip(scan.ranges, self.windows, strict=True)
        ]
        """Per section and prefix, whether some of its blocks are not read yet."""
        self._ended: list[Mask] = []

    def read_windows(self) -> "_Newest":
        """The newest row of each key in the windows, sorted by prefix and key."""
        scan, gathered_rows = self.scan, _Gathered()
        requests = [
            (b.section, _distinct_numbers(first, end))
            for b, (first, end) in zip(scan.ranges, self.windows, strict=True)
        ]
        scan.begin_round()
        few = self.rows is not None and self.rows <= MANY_PROBES
        for number, portion in enumerate(scan.source.in_portions(requests, scan.epoch, few)):
            if number:
                scan.keep_gathered_rows(gathered_rows)  # drops the blocks of the portion before
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
                    self._gather_decoded(gathered_rows, place, unit, self.prefixes[inside])
            self._gather_packed(gathered_rows, packed)
        self._note_ends(gathered_rows)
        return _Newest.from_gathered(gathered_rows)

    def _note_ends(self, gathered_rows: _Gathered) -> None:
        """Note, per section, the prefixes whose blocks end before their window: these need further blocks."""
        self._ended = [unread.copy() for unread in self.unread]
        if self.rows is None or not gathered_rows.cut:
            return
        cut = np.concatenate(gathered_rows.cut)
        places = np.searchsorted(self.prefixes, np.concatenate(gathered_rows.prefix)[cut])
        sections = np.concatenate(gathered_rows.section)[cut]
        for section in np.unique(sections).tolist():
            self._ended[section][places[sections == section]] = False

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
                at.append(len(every) + expand_ranges(first, np.maximum(end - first, 0)))
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
        low, high = (probes.bytes_of(packed.key_width, prefixes[few]) for probes in (scan.low, scan.high))
        starts, counts, cut = packed.find_ranges(at[few], low, high, self.rows, scan.reverse)
        many |= np.bincount(at[few], counts, len(blocks)) > MANY_ROWS
        for number in np.flatnonzero(many).tolist():
            place = int(sections[number])
            unit = scan.source.decode_block(scan.ranges[place].section, blocks[number])
            self._gather_decoded(into, place, unit, prefixes[at == number])
        counts[many[at[few]]] = 0
        if not counts.any():
            return
        rows, blocks_of = expand_ranges(starts, counts), np.repeat(at[few], counts)
        columns, shape = packed.read_columns(blocks_of, rows), self._row_shape(int(sections[0]))
        into.section.append(sections[blocks_of])
        into.prefix.append(np.repeat(prefixes[few], counts))
        into.row.append(scan.store_rows(columns if shape is None else shape.widen_rows(columns)) + np.arange(len(rows)))
        into.put.append(packed.read_puts(blocks_of, rows))
        into.cut.append(_ends_of_windows(counts, cut, scan.reverse))
        into.keys.append(packed.read_keys(blocks_of, rows))

    def _gather_decoded(self, into: _Gathered, section: int, unit: Rows, prefixes: Positions) -> None:
        """Collect the unit's rows of these prefixes up to the scan's epoch. Most units have none, and are not kept."""
        scan = self.scan
        keys, places = unit.keys_at(scan.epoch)
        if len(keys) == 0 or len(prefixes) == 0:
            return
        starts = keys.count_below(scan.low, prefixes)
        counts = np.maximum(keys.count_below(scan.high, prefixes) - starts, 0)
        starts, counts, cut = cut_ranges(starts, counts, self.rows, scan.reverse)
        if not counts.any():
            return
        at = expand_ranges(starts, counts)
        rows = at if places is None else places[at]
        into.section.append(np.full(len(rows), section))
        into.prefix.append(np.repeat(prefixes, counts))
        if len(unit) > COPIED_WHOLE and len(unit) > 8 * len(rows):
            into.row.append(scan.store_rows(unit.columns.take(pa.array(rows))) + np.arange(len(rows)))
        else:
            into.row.append(scan.store_rows(unit.columns) + rows)
        into.put.append(np.ones(len(rows), np.bool_) if unit.puts is None else unit.puts[rows])
        into.cut.append(_ends_of_windows(counts, cut, scan.reverse))
        into.keys.append(keys.array.slice(at[0], len(at)) if len(prefixes) == 1 else keys.array.take(pa.array(at)))

    def _row_shape(self, place: int) -> RowShape | None:
        """The shape of a stored section's rows."""
        section = self.scan.ranges[place].section
        return section.reader.shape if isinstance(section, OpenSection) else None

    def _is_complete(self, newest: "_Newest") -> Mask:
        """Whether each row is inside all windows, so that no other row can have its key or one before it."""
        newest_rows = newest.rows
        complete = ~_after_first(newest_rows.prefix, newest.cut, self.scan.reverse)
        if not any(unread.any() for unread in self.unread):
            return complete
        place = np.searchsorted(self.prefixes, newest_rows.prefix)
        for blocks, (first, end), unread in zip(self.scan.ranges, self.windows, self.unread, strict=True):
            if not unread.any():
                continue
            reader = blocks.section.reader
            bounds = reader.first_keys.array if self.scan.reverse else reader.last_keys.array
            border = np.clip(first if self.scan.reverse else end - 1, 0, len(reader) - 1)
            bound = bounds.take(pa.array(border[place]))
            reached = (pc.greater_equal if self.scan.reverse else pc.less_equal)(newest_rows.keys, bound).to_numpy(
                zero_copy_only=False
            )
            complete &= reached | ~unread[place]
        return complete

    def take_finished(self, limit: int | None) -> tuple[ScanMatches, Positions]:
        """Live rows of the finished prefixes, and the remaining prefixes.

        A prefix is finished if it has `limit` rows, or all its blocks are read.
        """
        newest = self.read_windows()
        rows = newest.rows.select_rows(newest.put & self._is_complete(newest))
        if self.scan.reverse:
            rows = rows.reverse_rows()
        if limit is None:
            return rows, self.prefixes[:0]
        every = int(self.prefixes[-1]) + 1
        counts, cut = (np.bincount(n, minlength=every)[self.prefixes] for n in (rows.prefix, newest.cut_prefixes))
        done = (counts >= limit) | ~(np.logical_or.reduce(self.unread) | (cut > 0))
        for blocks, ended in zip(self.scan.ranges, self._ended, strict=True):
            blocks.size[self.prefixes[ended]] *= _GROWTH
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
) -> tuple[ScanMatches, list[pa.RecordBatch]]:
    """Find the rows of each prefix. Returns them sorted by prefix, and the decoded blocks that hold them.

    Args:
        ranges: the blocks of each section, newest section first.
        low, high: per prefix its first key and the successor of its last key. Any keys or key prefixes work as the
            bounds of a range.
        epoch, limit, reverse: see HummockStore.scan_prefix.
    """
    scan = _Scan(source, ranges, low, high, epoch, reverse)
    taken: list[ScanMatches] = []
    # In reverse, the last row of a window shows only that no version of the key after it is missing.
    waiting, window = np.arange(len(low)), None if limit is None else limit + reverse
    while len(waiting) and ranges:
        rows, waiting = _Round(scan, waiting, window).take_finished(limit)
        taken.append(rows)
        window = None if window is None else window * _GROWTH
    if len(taken) < 2:
        return (taken[0] if taken else ScanMatches.make_empty()), scan.batches
    together = (
        np.concatenate([t.prefix for t in taken]),
        pa.concat_arrays([t.keys for t in taken]),
        np.concatenate([t.row for t in taken]),
    )
    return ScanMatches(*together).by_prefix(), scan.batches


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest row of each key, sorted by prefix and key."""

    rows: ScanMatches
    put: Mask
    cut: Mask  # whether a window ends with the row's key

    @property
    def cut_prefixes(self) -> Positions:
        """The prefixes of which a block has more rows, with repeats."""
        return self.rows.prefix[self.cut]

    @staticmethod
    def from_gathered(gathered_rows: _Gathered) -> "_Newest":
        """Choose the newest row of each prefix and key."""
        if not gathered_rows.row:
            nothing = np.zeros(0, np.bool_)
            return _Newest(ScanMatches.make_empty(), nothing, nothing)
        if len({part.type for part in gathered_rows.keys}) > 1:  # sections with and without offsets
            gathered_rows.keys = [part.cast(pa.binary()) for part in gathered_rows.keys]
        rows = ScanMatches(
            np.concatenate(gathered_rows.prefix),
            pa.concat_arrays(gathered_rows.keys).cast(pa.binary()),
            np.concatenate(gathered_rows.row),
        )
        puts, cut, section = (
            np.concatenate(gathered_rows.put),
            np.concatenate(gathered_rows.cut),
            np.concatenate(gathered_rows.section),
        )
        if (section[1:] < section[:-1]).any():  # packed blocks of all sections are searched after the others
            newest = np.argsort(section, kind="stable")
            rows, puts, cut = rows.take_rows(newest), puts[newest], cut[newest]
        order = sort_order(rows.keys)  # stable: sections are newest first, and so are the rows within a section
        order = order[np.argsort(rows.prefix[order], kind="stable")]
        rows, puts, cut = rows.take_rows(order), puts[order], cut[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (rows.prefix[1:] != rows.prefix[:-1]) | pc.not_equal(rows.keys[1:], rows.keys[:-1]).to_numpy(
            zero_copy_only=False
        )
        cut = np.logical_or.reduceat(cut, np.flatnonzero(first)) if cut.any() else cut[first]
        return _Newest(rows.select_rows(first), puts[first], cut)


def _ends_of_windows(counts: Positions, cut: Mask, reverse: bool) -> Mask:
    """(rows,) whether each row is the last that was taken of a range that has more. `counts`: rows of each range."""
    ends = np.zeros(int(counts.sum()), np.bool_)
    after = np.cumsum(counts)
    ends[(after - counts if reverse else after - 1)[cut]] = True
    return ends


def _after_first(prefix: Positions, cut: Mask, reverse: bool) -> Mask:
    """Whether each row comes after the first one of its prefix that ends a window; in reverse, or is that one.

    Forward, the first version of a key is its newest. In reverse, newer versions of the last key may be missing.
    """
    if not cut.any():
        return np.zeros(len(cut), np.bool_)
    if reverse:
        passed = np.cumsum(cut[::-1])[::-1]  # the ends at this row or after it
        others = np.append(passed, 0)[np.searchsorted(prefix, prefix, "right")]
    else:
        passed = np.cumsum(cut) - cut  # the ends before this row
        others = passed[np.searchsorted(prefix, prefix)]
    after: Mask = np.greater(passed, others)
    return after


def _distinct_numbers(first: Positions, end: Positions) -> Positions:
    """The distinct numbers in all ranges, ascending."""
    if len(first) and (first == first[0]).all() and (end == end[0]).all():
        return np.arange(first[0], end[0])
    numbers: Positions = np.unique(expand_ranges(first, np.maximum(end - first, 0)))
    return numbers


def _rank_in_runs(index: Positions) -> Positions:
    """The position of each entry within its run of equal values."""
    starts = np.flatnonzero(np.append(True, index[1:] != index[:-1])) if len(index) else np.zeros(0, np.int64)
    return np.arange(len(index)) - np.repeat(starts, np.diff(np.append(starts, len(index))))
