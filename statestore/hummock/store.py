"""HummockStore: reads one version by key, by prefix or by range, as of an epoch. Takes arrays and returns tables.

A call narrows the sections that may hold its keys, newest first: by section ranges, then filters, then block indexes.
One round of fetches reads the remaining blocks, and a vectorised search finds the rows. Keys that pass a section's
filter but are absent (one in 200) continue in the next older section in another round.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.allocator import give_back_freed_memory
from tussock.statestore.hummock.admission import FilterSearch, admit_keys
from tussock.statestore.hummock.block_source import BlockSource, OpenSection, Unit
from tussock.statestore.hummock.cache import BlockCache, process_cache
from tussock.statestore.hummock.errors import WrongRowsError
from tussock.statestore.hummock.filter import KeyHashes, hash_keys
from tussock.statestore.hummock.merge import (
    READ_AHEAD_THREADS,
    Blocks,
    Choose,
    RunCursor,
    merge_runs,
    newest_between,
    share_of,
    visible_at,
)
from tussock.statestore.hummock.net_changes import net_changes
from tussock.statestore.hummock.packed_blocks import MANY_PROBES, PACKED_AT_ONCE, PackedBlock, PackedBlocks
from tussock.statestore.hummock.prefix_scan import COPIED_WHOLE, RangeBlocks, scan_prefixes
from tussock.statestore.hummock.recent_runs import OwnKeys, RecentRun, recent_runs
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.shared_buffer import BufferedSection, BufferedSource, Section, SharedBuffer
from tussock.statestore.hummock.sorted_keys import Positions, Probes, SortedKeys, probe_order, sort_order, successors
from tussock.statestore.hummock.sst_format import HEAD_COLUMNS, KEY, PUT, row_schema
from tussock.statestore.hummock.sst_reader import Rows, taken_from
from tussock.statestore.hummock.version import SectionRef, require_readable, sections_at, sorted_runs
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.stacked import no_rows, take_rows
from tussock.statestore.vnode import one_array

log = logging.getLogger(__name__)

_FEW_RANGES = 64
_MANY_BLOCKS = 1_024  # a million rows
_FEW_KEYS = 16  # per block; if more are searched, whole partitions are decoded faster
_WORTH_TAKING = 64  # rows found in one group of blocks; as many or more are copied at once, fewer at the end


@dataclass(slots=True)
class _Candidates:
    """Keys (positions in the sorted probes) that one section may hold, and the candidate block of each."""

    section: Section
    keys: Positions  # positions of probes
    blocks: Positions

    def select_keys(self, mask: npt.NDArray[np.bool_]) -> "_Candidates":
        return _Candidates(self.section, self.keys[mask], self.blocks[mask])

    def within_blocks(self, blocks: Positions) -> "_Candidates":
        """The keys of these consecutive candidate blocks."""
        if blocks[0] == self.blocks[0] and blocks[-1] == self.blocks[-1]:
            return self
        return self.select_keys((self.blocks >= blocks[0]) & (self.blocks <= blocks[-1]))


class _Lookup:
    """A look-up of many keys.

    A *key* is a position in the caller's array. A *probe* is a position in the sorted keys. A *row* is a position in
    the concatenated decoded batches. Only this class converts between them.
    """

    def __init__(self, keys: pa.Array) -> None:
        self._order = probe_order(keys)  # the key of each probe
        self.probes = Probes(keys.take(pa.array(self._order)), ascending=True)
        self.unresolved = np.ones(len(keys), np.bool_)  # (probes,) whether an older section may hold the newest entry
        self.batches: list[pa.RecordBatch] = []
        self._rows = 0  # in `batches`
        self._settled = 0  # of `batches`: they have requested rows only
        self._row = np.full(len(keys), -1, np.int64)  # (probes,) the row of each; -1: none

    def search_blocks(self, parts: Sequence[tuple[_Candidates, Sequence[Unit]]], epoch: int) -> None:
        """Search for probes in the candidate blocks of some sections. Each probe is in one of them only."""
        packed = []
        for part, units in parts:
            decoded = [unit for unit in units if isinstance(unit, Rows)]
            self._search_decoded(part, decoded, epoch)
            if len(decoded) < len(units):
                packed.append((part, [unit for unit in units if isinstance(unit, PackedBlock)]))
        for shape, keys, places, blocks in _by_layout(packed):
            for low in range(0, len(blocks), PACKED_AT_ONCE):
                start, end = np.searchsorted(places, [low, low + PACKED_AT_ONCE])
                together = PackedBlocks(blocks[low : low + PACKED_AT_ONCE])
                self._search_packed(together, shape, keys[start:end], places[start:end] - low)

    def _search_packed(self, blocks: PackedBlocks, shape: RowShape | None, keys: Positions, places: Positions) -> None:
        """Search for probes in packed blocks. `places`: the block of each."""
        rows, hit = blocks.find_keys(places, self.probes.bytes_of(blocks.key_width, keys))
        if not hit.all():
            keys, places, rows = keys[hit], places[hit], rows[hit]
        self.unresolved[keys] = False
        live = blocks.read_puts(places, rows)
        if not live.all():
            keys, places, rows = keys[live], places[live], rows[live]
        if not len(keys):
            return
        batch = blocks.read_columns(places, rows)
        self._row[keys] = self._rows + np.arange(len(keys))
        self.batches.append(batch if shape is None else shape.widen_rows(batch))
        self._rows += len(keys)

    def _search_decoded(self, part: _Candidates, units: Sequence[Rows], epoch: int) -> None:
        """Search for probes in the candidate blocks of one section."""
        lows = np.searchsorted(part.blocks, [unit.first_block for unit in units]).tolist()
        highs = np.searchsorted(part.blocks, [unit.end_block for unit in units]).tolist()
        for unit, low, high in zip(units, lows, highs, strict=True):
            if low == high:
                continue
            sorted_keys, places = unit.keys_at(epoch)
            if len(sorted_keys) == 0:
                continue
            positions, hit = sorted_keys.find_probes(self.probes, part.keys[low:high])
            if hit.any():
                at = positions[hit]
                self._record_entries(part.keys[low:high][hit], unit, at if places is None else places[at])

    def _record_entries(self, probes: Positions, unit: Rows, at: Positions) -> None:
        """Record the unit's entries at `at`, rows or deletes, as the newest entries of these probes."""
        self.unresolved[probes] = False
        if unit.puts is not None:
            live = unit.puts[at]
            at, probes = at[live], probes[live]
        batch = unit.columns
        if len(at) >= _WORTH_TAKING or (len(at) and batch.num_rows > COPIED_WHOLE):
            batch, at = batch.take(pa.array(at)), np.arange(len(at))
        self._row[probes] = self._rows + at
        self.batches.append(batch)
        self._rows += batch.num_rows

    def keep_only_found(self) -> None:
        """Replace the blocks that were searched since the last call by their requested rows."""
        batches = self.batches[self._settled :]
        if not batches or any(batch.schema != batches[0].schema for batch in batches):
            return  # the end of the read reports batches that differ
        base = self._rows - sum(batch.num_rows for batch in batches)
        probes = np.flatnonzero(self._row >= base)
        self.batches[self._settled :] = taken_from(batches, self._row[probes] - base)
        self._row[probes] = base + np.arange(len(probes))
        self._settled, self._rows = len(self.batches), base + len(probes)

    def rows_of_keys(self) -> Positions:
        """(keys,) the row of each key; -1: none."""
        rows = np.empty_like(self._row)
        rows[self._order] = self._row
        return rows


class HummockStore:
    """Reads one HummockVersion. Cheap to create; decoded blocks are cached in a BlockCache (by default the process's).

    Each read takes an `epoch` and sees, per key, the newest row up to that epoch. All reads raise EpochExpiredError
    below the version's floor, EpochNotCommittedError above its epoch, and DamagedSstError. `columns` lists the row
    columns to return (None: all). `schema`, the table's row columns, determines the result's columns if the version has
    no row of the table; without it, such a result has no columns.

    In a train of epochs, `version` includes epochs in flight. Their rows that are in no SST yet come from the shared
    buffer.
    """

    def __init__(
        self,
        objects: ObjectStore,
        version: HummockVersion,
        cache: BlockCache | None = None,
        pinned: Iterable[int] = (),
        buffer: SharedBuffer | None = None,
        vnodes: range | None = None,
    ) -> None:
        """Read `version`.

        Args:
            pinned: epochs below the version's floor that this reader has pinned.
            vnodes: those of most reads; None: all. Other reads are slower after many small epochs (recent_runs.py).
        """
        self.objects, self.version, self.pinned = objects, version, frozenset(pinned)
        self._vnodes = vnodes
        self.buffer = buffer or SharedBuffer()
        self.source = BufferedSource(BlockSource(objects, cache if cache is not None else process_cache()))
        self._shapes: dict[int, RowShape] = {}
        self._recent: dict[int, tuple[RecentRun, ...]] = {}  # by table

    def read_as(self, table_id: int, shape: RowShape) -> None:
        """Return rows of a table with all columns of `shape` from now on, including rows that predate some columns."""
        self._shapes[table_id] = shape
        self._recent.pop(table_id, None)

    def get(self, table_id: int, key: bytes, epoch: int, columns: Sequence[str] | None = None) -> pa.Table | None:
        """The row of one key as a table of one row, or None.

        Cost: one block per section whose filter admits the key.
        """
        exists, rows = self.multi_get(table_id, pa.array([key], pa.binary()), epoch, columns)
        return rows if exists[0].as_py() else None

    def multi_get(
        self,
        table_id: int,
        keys: pa.Array,
        epoch: int,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        once: bool = False,
    ) -> tuple[pa.BooleanArray, pa.Table]:
        """Look up many keys.

        Args:
            keys: binary, full storage keys of the table, in any order, repeats allowed, no nulls.
            once: later reads look other keys up, so a filter is read only if it is smaller than the blocks of its keys.

        Returns:
            (found, rows), both aligned with `keys`; rows are null for absent keys.

        Cost: usually one round of range reads; about 1 us per key if blocks are cached.
        """
        require_readable(self.version, epoch, self.pinned)
        keys = one_array(keys)
        if not self.may_have_rows(table_id, epoch):  # e.g. before a first load: nothing to search
            log.debug("table %d: %d keys requested, but it has no rows", table_id, len(keys))
            nothing = self._collect_rows(table_id, [], columns, schema, [])
            return pa.array(np.zeros(len(keys), np.bool_)), nothing.take(pa.nulls(len(keys), pa.int64()))
        lookup = _Lookup(keys)
        found_in = (
            self._sections_to_search(table_id, epoch, lookup.probes.array[0].as_py(), lookup.probes.array[-1].as_py())
            if len(keys)
            else []
        )
        candidates = self._find_candidates(found_in, lookup.probes, once)
        while candidates:
            candidates, now = _newest_first(candidates, lookup.unresolved)
            requests = [(part.section, _unique_values(part.blocks)) for part in now]
            few = sum(len(part.keys) for part in now) <= _FEW_KEYS * sum(len(blocks) for _, blocks in requests)
            for turn, portion in enumerate(self.source.in_portions(requests, epoch, few)):
                if turn:
                    lookup.keep_only_found()  # drops the blocks of the portion before
                parts = [(now[number].within_blocks(wanted), units) for number, wanted, units in portion]
                lookup.search_blocks([(part, self._decode_if_many(part, units)) for part, units in parts], epoch)
        at = lookup.rows_of_keys()
        exists = at >= 0
        rows = self._collect_rows(table_id, lookup.batches, columns, schema, found_in)
        blocks = len(lookup.batches)
        log.debug(
            "table %d: %d keys requested, searched in %d sections, rows from %d blocks",
            table_id,
            len(keys),
            len(found_in),
            blocks,
        )
        return pa.array(exists), take_rows(rows, pa.array(at, mask=~exists))

    def _decode_if_many(self, part: _Candidates, units: list[Unit]) -> list[Unit]:
        """The blocks of a section, with those decoded in which many keys are searched."""
        if len(part.keys) <= MANY_PROBES:
            return units
        firsts = np.array([unit.first_block for unit in units])
        counts = np.searchsorted(part.blocks, firsts + 1) - np.searchsorted(part.blocks, firsts)
        return [
            self.source.decode_block(part.section, unit)
            if isinstance(unit, PackedBlock) and count > MANY_PROBES
            else unit
            for unit, count in zip(units, counts.tolist(), strict=True)
        ]

    def scan_prefix(
        self,
        table_id: int,
        prefixes: pa.Array,
        epoch: int,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[pa.Int64Array, pa.BinaryArray, pa.Table]:
        """Find the rows whose keys start with each prefix.

        Args:
            prefixes: binary encodings of a table's first key columns (at least table_id and vnode); repeats allowed.
            limit: maximum of live rows per prefix; blocks after them are not read.
            reverse: greatest key first; the limit counts from there.

        Returns:
            (index, keys, rows), aligned. `index` is the position in `prefixes`, ascending; rows of a prefix are in key
            order.
        """
        prefixes = one_array(prefixes)
        return self.scan_between(table_id, prefixes, successors(prefixes), epoch, limit, reverse, columns, schema)

    def scan_between(
        self,
        table_id: int,
        firsts: pa.Array,
        ends: pa.Array,
        epoch: int,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[pa.Int64Array, pa.BinaryArray, pa.Table]:
        """Like `scan_prefix`, but find the rows from `firsts[i]` (inclusive) to `ends[i]` (exclusive).

        Bounds are keys of the table, encodings of their first columns (at least table_id and vnode), or successors of
        either.

        Memory: the result twice, and the blocks that hold it. For few ranges with a million rows or more: the result,
        and two windows of blocks per run.
        """
        require_readable(self.version, epoch, self.pinned)
        prefixes, ends = one_array(firsts), one_array(ends)
        order = sort_order(prefixes) if len(prefixes) else np.zeros(0, np.int64)
        sections: list[_Ranged] = []
        if len(prefixes):
            last = ends[int(sort_order(ends)[-1])].as_py()
            sections = self._sections_to_search(table_id, epoch, prefixes[int(order[0])].as_py(), last)
        low, high = Probes(prefixes), Probes(ends)
        ranges = [RangeBlocks.from_probes(ranged.section, low, high) for ranged in sections]
        if (
            limit is None
            and not reverse
            and len(prefixes) <= _FEW_RANGES
            and sum(blocks.count_inside() for blocks in ranges) >= _MANY_BLOCKS
        ):
            give_back_freed_memory()  # This read needs as much memory as the process may have kept.
            parts = list(self._stream_ranges(table_id, prefixes, ends, epoch, columns))
            if parts:
                index = np.repeat([i for i, _ in parts], [rows.num_rows for _, rows in parts])
                keyed = pa.concat_tables([rows for _, rows in parts])
                return pa.array(index), one_array(keyed.column(0)), keyed.remove_column(0)
        scanned_rows, batches = scan_prefixes(self.source, ranges, low, high, epoch, limit, reverse)
        table = self._collect_rows(table_id, batches, columns, schema, sections)
        log.debug(
            "table %d: %d prefixes requested, searched in %d sections, rows from %d blocks",
            table_id,
            len(prefixes),
            len(sections),
            len(batches),
        )
        return pa.array(scanned_rows.prefix), scanned_rows.keys, table.take(pa.array(scanned_rows.row))

    def _stream_ranges(
        self, table_id: int, firsts: pa.Array, ends: pa.Array, epoch: int, columns: Sequence[str] | None
    ) -> Iterator[tuple[int, pa.Table]]:
        """`iter_rows` for one range after another. Each part comes with the position of its range."""
        for place, (first, end) in enumerate(zip(firsts.to_pylist(), ends.to_pylist(), strict=True)):
            yield from ((place, rows) for rows in self.iter_rows(table_id, first, end, epoch, columns))

    def iter_rows(
        self,
        table_id: int,
        first: bytes | None,
        last: bytes | None,
        epoch: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Read the rows of first (inclusive) … last (exclusive; None: unbounded) in key order.

        Yields:
            Non-empty tables of `key` (binary), then the row columns. Memory: two windows of blocks per run; nothing is
            cached.
        """
        require_readable(self.version, epoch, self.pinned)
        sections = self._open_sections(table_id, epoch, first, last)
        for rows in self._merge_sections(sections, first, last, columns, visible_at(epoch)):
            yield rows.remove_column(2).remove_column(1).set_column(0, KEY, rows.column(0).cast(pa.binary()))

    def read_changes(
        self,
        table_id: int,
        first: bytes | None,
        last: bytes | None,
        since: int,
        until: int,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.Table]:
        """The net changes of first … last (exclusive; None: unbounded) between two readable epochs.

        If a key has different rows at `since` and `until`, or a row at only one of them, the old row has weight -1 and
        the new row +1. Rows that came and went in between are omitted.

        Requires: since <= until.

        Yields:
            Non-empty tables of `key` (binary), `weight` (int64), then the row columns. Each key is in one table only.
            Rows with weight -1 come first; both halves are in key order.

        Cost: the blocks with a row written in between, and a read at `since` of the keys of these rows. Other SSTs are
            not opened. Compaction mixes old and new rows in blocks but keeps the epoch of each row, so more blocks are
            read for the same result.
        """
        for keys, put, after in self.read_entries(table_id, first, last, since, until, columns):
            exists, before = self.multi_get(
                table_id, keys, since, columns, schema if schema is not None else after.schema
            )
            net = net_changes(keys, np.asarray(exists), before, put, after)
            if net.num_rows:
                yield net

    def read_entries(
        self,
        table_id: int,
        first: bytes | None,
        last: bytes | None,
        since: int,
        until: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[tuple[pa.BinaryArray, npt.NDArray[np.bool_], pa.Table]]:
        """The newest entry of each key written in between: keys, whether it is a put, and its row (null for a delete).

        Requires and batches: like `read_changes`. Cost: as there, without the read at `since`.
        """
        self.require_readable(since)
        self.require_readable(until)
        sections = self._open_sections(table_id, until, first, last, since)
        blocks = partial(_blocks_between, since, until)
        for rows in self._merge_sections(sections, first, last, columns, newest_between(since, until), blocks):
            keys = one_array(rows.column(0)).cast(pa.binary())
            yield keys, rows.column(2).to_numpy() == PUT, rows.select(range(HEAD_COLUMNS, rows.num_columns))

    def _merge_sections(
        self,
        sections: "Sequence[_Ranged]",
        first: bytes | None,
        last: bytes | None,
        columns: Sequence[str] | None,
        choose: Choose,
        blocks: Blocks | None = None,
    ) -> Iterator[pa.Table]:
        """Merge the runs of the sections, as `merge_runs` does, with the next windows read ahead."""
        runs = list(_sorted_runs(sections))
        share = share_of(len(runs))
        with ThreadPoolExecutor(READ_AHEAD_THREADS) as ahead:  # starts no thread until there is something to prefetch
            cursors = [
                RunCursor(self.source, [ranged.section for ranged in run], first, last, columns, ahead, blocks, share)
                for run in runs
            ]
            yield from merge_runs(cursors, choose)

    def require_readable(self, epoch: int) -> None:
        """Raise EpochExpiredError or EpochNotCommittedError unless this version can be read at `epoch`."""
        require_readable(self.version, epoch, self.pinned)

    def may_have_rows(self, table_id: int, epoch: int) -> bool:
        """Whether the table may have rows; False is certain. Cost: no read."""
        stored = next(iter(sections_at(self.version, table_id, epoch, None, None, None)), None)
        return stored is not None or bool(self.buffer.find_sections(table_id, epoch))

    def _sections_to_search(self, table_id: int, epoch: int, first: bytes, last: bytes) -> "list[_Ranged]":
        """`_open_sections`, with the small runs of recent epochs merged."""
        keys = OwnKeys.of_vnodes(table_id, self._vnodes)
        if epoch != self.version.epoch or first < keys.first or keys.end < last:
            return self._open_sections(table_id, epoch, first, last)
        if (recent := self._recent.get(table_id)) is None:
            shape, buffered = self._shapes.get(table_id), self.buffer.find_sections(table_id, epoch)
            before = buffered[-1].epoch if buffered else None
            recent = self._recent[table_id] = recent_runs(self.source.stored, self.version, keys, shape, before)
        return self._open_sections(table_id, epoch, first, last, recent=recent)

    def _open_sections(
        self,
        table_id: int,
        epoch: int,
        first: bytes | None,
        last: bytes | None,
        since: int | None = None,
        recent: Sequence[RecentRun] = (),
    ) -> "list[_Ranged]":
        """Open the stored and buffered sections that may hold rows of first … last, written after `since`.

        `last` is inclusive. Newest section first. Each of the `recent` runs takes the place of its sections.
        """
        merged = {name: run for run in recent for name in run.ssts}
        refs = list(sections_at(self.version, table_id, epoch, first, last, since))
        readers = iter(self.source.stored.open_ssts([ref.sst for ref in refs if ref.sst.name not in merged]))
        shape = self._shapes.get(table_id)
        stored: list[_Ranged] = []
        for ref in refs:
            if (run := merged.get(ref.sst.name)) is None:
                section = OpenSection(reader := next(readers), reader.open_section(table_id, shape))
                stored.append(_Ranged(section, ref.section.first_key, ref.section.last_key, ref))
            elif not stored or stored[-1].section is not run.section:
                stored.append(_Ranged(run.section, run.section.first_key, run.section.last_key))
        # Oldest first, so that each newer one is inserted before it.
        for buffered in reversed(self.buffer.find_sections(table_id, epoch, first, last)):
            if since is not None and buffered.epoch <= since:
                continue
            place = next((i for i, ranged in enumerate(stored) if ranged.newest_epoch <= buffered.epoch), len(stored))
            stored.insert(place, _Ranged(buffered.in_shape(shape), buffered.first_key, buffered.last_key))
        return stored

    def _find_candidates(self, sections: "Sequence[_Ranged]", probes: Probes, once: bool) -> list[_Candidates]:
        """Per section, the keys in its range that its filter admits; newest section first. `once`: see `multi_get`."""
        if not sections:
            return []
        stored = SortedKeys(probes.array)
        lows = stored.count_below(Probes(pa.array([ranged.first_key for ranged in sections], pa.binary())), slice(None))
        highs = stored.count_below(
            Probes(successors(pa.array([ranged.last_key for ranged in sections], pa.binary()))), slice(None)
        )
        searches = [
            FilterSearch(ranged.section, part := slice(low, high), _blocks_of(ranged.section, probes, part), once)
            for ranged, low, high in zip(sections, lows.tolist(), highs.tolist(), strict=True)
            if low < high
        ]
        admitted = admit_keys(self.source, searches, KeyHashes(hash_keys(probes.array)))
        candidates = []
        for search, maybe in zip(searches, admitted, strict=True):
            keys, blocks = np.arange(search.part.start, search.part.stop), search.blocks
            if not maybe.all():
                keys, blocks = keys[maybe], None if blocks is None else blocks[maybe]
            if len(keys):
                blocks = search.section.reader.last_keys.count_below(probes, keys) if blocks is None else blocks
                candidates.append(_Candidates(search.section, keys, blocks))
        return candidates

    def _collect_rows(
        self,
        table_id: int,
        batches: Sequence[pa.RecordBatch],
        columns: Sequence[str] | None,
        schema: pa.Schema | None,
        sections: "Sequence[_Ranged]",
    ) -> pa.Table:
        """The row columns of the decoded blocks, concatenated."""
        if batches:
            try:
                rows = pa.Table.from_batches(batches)
            except pa.ArrowInvalid as error:
                first = batches[0].schema
                other = next((batch.schema for batch in batches if not batch.schema.equals(first)), first)
                raise WrongRowsError(f"stored sections of table {table_id}", str(other), str(first)) from error
        elif sections or schema is not None:
            rows = no_rows(sections[0].section.reader.row_schema if sections else row_schema(schema))
        else:
            return pa.table({})
        return rows if columns is None else rows.select(list(columns))


@dataclass(frozen=True, slots=True)
class _Ranged:
    """A section with its first and last key, and its reference in the version; `ref` is None if it is buffered."""

    section: Section
    first_key: bytes
    last_key: bytes
    ref: SectionRef | None = None

    @property
    def newest_epoch(self) -> int:
        """An upper bound of the epochs of its rows."""
        return self.ref.sst.max_epoch if self.ref is not None else self.section.epoch  # type: ignore[union-attr]


def _blocks_between(since: int, until: int, section: Section) -> npt.NDArray[np.bool_]:
    """The blocks of a section that may hold a row written after `since` and by `until`."""
    if isinstance(section, BufferedSection):
        return np.ones(1, np.bool_)  # the caller has checked its epoch
    mask: npt.NDArray[np.bool_] = (section.reader.max_epochs > np.uint64(since)) & (
        section.reader.min_epochs <= np.uint64(until)
    )
    return mask


def _blocks_of(section: Section, probes: Probes, part: slice) -> Positions | None:
    """The block of each probe of `part`, which are in the section's range. None: the section has one filter.

    Most sections have one, since most SSTs in L0 are small. There, an absent key costs no more than the filter.
    """
    if len(section.reader) <= section.per_partition:
        return None
    return section.reader.last_keys.count_below(probes, part)


def _sorted_runs(sections: "Sequence[_Ranged]") -> "Iterator[list[_Ranged]]":
    """Sorted runs, newest first. A buffered section is a run, and separates the runs before and after it."""
    for buffered, group in groupby(sections, key=lambda ranged: ranged.ref is None):
        if buffered:
            yield from ([ranged] for ranged in group)
        else:
            by_ref = {id(ranged.ref): ranged for ranged in group}
            refs = [ranged.ref for ranged in by_ref.values() if ranged.ref is not None]
            yield from ([by_ref[id(ref)] for ref in run] for run in sorted_runs(refs))


def _by_layout(
    parts: Sequence[tuple[_Candidates, Sequence[PackedBlock]]],
) -> Iterator[tuple[RowShape | None, Positions, Positions, list[PackedBlock]]]:
    """The packed blocks of sections that can be searched together.

    Yields: the shape of their rows, the probes to search for, the place of each in the blocks (ascending), and the
        blocks.
    """
    alike: dict[tuple[int, str], list[tuple[_Candidates, Sequence[PackedBlock]]]] = {}
    for part, blocks in parts:
        shape = part.section.reader.shape  # type: ignore[union-attr]  # buffered sections have no packed blocks
        alike.setdefault((id(blocks[0].layout), "" if shape is None else shape.digest), []).append((part, blocks))
    for same in alike.values():
        keys, places, every = list[Positions](), list[Positions](), list[PackedBlock]()
        for part, blocks in same:
            numbers = np.array([block.first_block for block in blocks])
            at = np.minimum(np.searchsorted(numbers, part.blocks), len(numbers) - 1)
            inside = numbers[at] == part.blocks
            keys.append(part.keys[inside])
            places.append(len(every) + at[inside])
            every += blocks
        shape = same[0][0].section.reader.shape  # type: ignore[union-attr]
        yield shape, np.concatenate(keys), np.concatenate(places), every


def _newest_first(
    candidates: list[_Candidates], unresolved: npt.NDArray[np.bool_]
) -> tuple[list[_Candidates], list[_Candidates]]:
    """Split candidates into (later rounds, this round).

    A round searches each unresolved key in its newest section only.
    """
    free = unresolved.copy()
    later, now = [], []
    for part in candidates:
        open_keys = unresolved[part.keys]
        mine = free[part.keys]
        free[part.keys[mine]] = False
        if mine.any():
            now.append(part.select_keys(mine))
        if (rest := open_keys & ~mine).any():
            later.append(part.select_keys(rest))
    return later, now


def _unique_values(ascending: Positions) -> Positions:
    """The distinct values of an ascending array."""
    return ascending[np.append(True, ascending[1:] != ascending[:-1])] if len(ascending) else ascending
