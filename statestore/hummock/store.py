"""HummockStore: reads of one version, by key, by prefix and by range, as of an epoch. Arrays in, tables out.

A call looks at the sections that may hold its keys, newest first: section ranges, then filters, then block indexes, then one round of
fetches for the blocks that are left, then vectorised search. Keys that a section's filter lets through and that are not there
(one in 200) go on to the next older section in another round.
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
from tussock.statestore.hummock.block_source import BlockSource, OpenSection
from tussock.statestore.hummock.cache import BlockCache, process_cache
from tussock.statestore.hummock.errors import WrongRowsError
from tussock.statestore.hummock.filter import hash_keys, probe_filter
from tussock.statestore.hummock.merge import READ_AHEAD_THREADS, RunCursor, merge_runs, newest_between, visible_at
from tussock.statestore.hummock.net_changes import net_changes
from tussock.statestore.hummock.prefix_scan import scan_prefixes
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.shared_buffer import (
    BufferedIndex,
    BufferedSection,
    BufferedSource,
    Section,
    SharedBuffer,
)
from tussock.statestore.hummock.sorted_keys import Positions, Probes, SortedKeys, probe_order, sort_order, successors
from tussock.statestore.hummock.sst_format import HEAD_COLUMNS, KEY, PUT, row_schema
from tussock.statestore.hummock.sst_reader import Rows
from tussock.statestore.hummock.version import SectionRef, require_readable, sections_at, sorted_runs
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.vnode import one_array

log = logging.getLogger(__name__)

_FEW_RANGES = 64
_MANY_BLOCKS = 1_024  # a million rows
_WORTH_TAKING = 64  # rows of one piece of blocks that are taken from it at once; fewer are taken with those of all others in the end


@dataclass(slots=True)
class _Candidates:
    """Keys (places in the sorted probes) that one section may hold, and the block each would be in."""

    section: Section
    keys: Positions  # places of probes
    blocks: Positions

    def only(self, mask: npt.NDArray[np.bool_]) -> "_Candidates":
        return _Candidates(self.section, self.keys[mask], self.blocks[mask])


class _Lookup:
    """Many keys looked up at once. A *key* has a place in the caller's array, a *probe* in the sorted keys, a *row* in the decoded batches
    put end to end. No other code converts one into another."""

    def __init__(self, keys: pa.Array) -> None:
        self._order = probe_order(keys)  # the key of each probe
        self.probes = Probes(keys.take(pa.array(self._order)), ascending=True)
        self.unresolved = np.ones(len(keys), np.bool_)  # (probes,) whether an older section may have its newest entry
        self.batches: list[pa.RecordBatch] = []
        self._rows = 0  # in the batches
        self._row = np.full(len(keys), -1, np.int64)  # (probes,) the row of each; -1: none

    def search(self, part: _Candidates, units: Sequence[Rows], epoch: int) -> None:
        """Look for probes in the blocks of one section that may hold them."""
        own = Probes(self.probes.array.take(pa.array(part.keys)), ascending=True)
        bounds = [*np.searchsorted(part.blocks, [unit.first_block for unit in units]).tolist(), len(part.keys)]
        for unit, low, high in zip(units, bounds[:-1], bounds[1:], strict=True):
            sorted_keys, places = unit.at(epoch)
            if len(sorted_keys) == 0:
                continue
            positions, hit = sorted_keys.find(own, slice(low, high))
            if hit.any():
                at = positions[hit]
                self._resolve(part.keys[low:high][hit], unit, at if places is None else places[at])

    def _resolve(self, probes: Positions, unit: Rows, at: Positions) -> None:
        """The newest entries of these probes are the unit's at these places: rows, or deletes."""
        self.unresolved[probes] = False
        if unit.puts is not None:
            live = unit.puts[at]
            at, probes = at[live], probes[live]
        batch = unit.columns
        if len(at) >= _WORTH_TAKING:
            batch, at = batch.take(pa.array(at)), np.arange(len(at))
        self._row[probes] = self._rows + at
        self.batches.append(batch)
        self._rows += batch.num_rows

    def rows_of_keys(self) -> Positions:
        """(keys,) the row of each; -1: none."""
        rows = np.empty_like(self._row)
        rows[self._order] = self._row
        return rows


class HummockStore:
    """Reads one HummockVersion. Cheap to make; what it reads is kept in a BlockCache (by default the process's).

    Every read takes an `epoch` and sees, per key, the newest row no newer than it. All raise EpochExpiredError below the version's
    readable floor, EpochNotCommittedError above its epoch, and DamagedSstError. `columns` names the row columns to return (None: all).
    `schema`, the table's row columns, is what an answer has where the version holds no row of the table; without it such an answer
    has no columns.

    In a train of epochs `version` counts epochs in flight as its own, and their rows that are in no SST yet come from the shared buffer.
    """

    def __init__(
        self,
        objects: ObjectStore,
        version: HummockVersion,
        cache: BlockCache | None = None,
        pinned: Iterable[int] = (),
        buffer: SharedBuffer | None = None,
    ) -> None:
        """Read `version`. `pinned` are epochs below its floor that this reader holds a pin on."""
        self.objects, self.version, self.pinned = objects, version, frozenset(pinned)
        self.buffer = buffer or SharedBuffer()
        self.source = BufferedSource(BlockSource(objects, cache if cache is not None else process_cache()))
        self._shapes: dict[int, RowShape] = {}

    def read_as(self, table_id: int, shape: RowShape) -> None:
        """From now on rows of a table are read with all columns of `shape`, also those written before some of them were added."""
        self._shapes[table_id] = shape

    def get(self, table_id: int, key: bytes, epoch: int, columns: Sequence[str] | None = None) -> pa.Table | None:
        """The row of one key as a table of one row, or None. Cost: one block per section that its filter does not rule out."""
        found, rows = self.multi_get(table_id, pa.array([key], pa.binary()), epoch, columns)
        return rows if found[0].as_py() else None

    def multi_get(
        self,
        table_id: int,
        keys: pa.Array,
        epoch: int,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[pa.BooleanArray, pa.Table]:
        """Look many keys up at once.

        Args:
            keys: binary, full storage keys of the table, in any order, repeats allowed, no nulls.

        Returns:
            (found, rows), both aligned with `keys`; rows are null where nothing was found.

        Cost: one round of range reads, nearly always; about 1 us a key when blocks are cached.
        """
        require_readable(self.version, epoch, self.pinned)
        keys = one_array(keys)
        if not self.holds(table_id, epoch):  # as before a first load: nothing to search in
            log.debug("table %d: %d keys asked for, it has no rows", table_id, len(keys))
            nothing = self._rows(table_id, [], columns, schema, [])
            return pa.array(np.zeros(len(keys), np.bool_)), nothing.take(pa.nulls(len(keys), pa.int64()))
        lookup = _Lookup(keys)
        found_in = (
            self._sections(table_id, epoch, lookup.probes.array[0].as_py(), lookup.probes.array[-1].as_py())
            if len(keys)
            else []
        )
        candidates = self._candidates(found_in, lookup.probes)
        while candidates:
            candidates, now = _newest_first(candidates, lookup.unresolved)
            requests = [(part.section, _unique(part.blocks)) for part in now]
            for part, units in zip(now, self.source.blocks(requests), strict=True):
                lookup.search(part, units, epoch)
        at = lookup.rows_of_keys()
        found = at >= 0
        rows = self._rows(table_id, lookup.batches, columns, schema, found_in)
        blocks = len(lookup.batches)
        log.debug(
            "table %d: %d keys asked for in %d sections, rows from %d blocks",
            table_id,
            len(keys),
            len(found_in),
            blocks,
        )
        return pa.array(found), rows.take(pa.array(at, mask=~found))

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
        """The rows whose keys start with each prefix.

        Args:
            prefixes: binary, each the encoding of a table's first key columns (at least table_id and vnode); repeats allowed.
            limit: at most so many live rows of each prefix; blocks beyond them are not read.
            reverse: greatest key first, and the limit counts from there.

        Returns:
            (index, keys, rows), aligned: `index` is the place in `prefixes`, ascending; within a prefix rows are in key order.
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
        """As `scan_prefix`, the rows from `firsts[i]` up to, not with, `ends[i]`: keys of the table, or the encoding of their first columns
        (at least table_id and vnode), or the successors of such.

        Memory: what is found, twice, and the blocks that hold it; of few ranges with a million rows and more, what is found and two windows
        of blocks per run.
        """
        require_readable(self.version, epoch, self.pinned)
        prefixes, ends = one_array(firsts), one_array(ends)
        order = sort_order(prefixes) if len(prefixes) else np.zeros(0, np.int64)
        sections: list[_Ranged] = []
        if len(prefixes):
            last = ends[int(sort_order(ends)[-1])].as_py()
            sections = self._sections(table_id, epoch, prefixes[int(order[0])].as_py(), last)
        if (
            limit is None
            and not reverse
            and len(prefixes) <= _FEW_RANGES
            and _blocks_in(sections, prefixes, ends) >= _MANY_BLOCKS
        ):
            give_back_freed_memory()  # what is read here is as large as what the process may have kept
            parts = list(self._streamed(table_id, prefixes, ends, epoch, columns))
            if parts:
                index = np.repeat([i for i, _ in parts], [rows.num_rows for _, rows in parts])
                keyed = pa.concat_tables([rows for _, rows in parts])
                return pa.array(index), one_array(keyed.column(0)), keyed.remove_column(0)
        found, batches = scan_prefixes(
            self.source, [s.section for s in sections], prefixes, ends, epoch, limit, reverse
        )
        table = self._rows(table_id, batches, columns, schema, sections)
        log.debug(
            "table %d: %d prefixes asked for in %d sections, rows of %d blocks",
            table_id,
            len(prefixes),
            len(sections),
            len(batches),
        )
        return pa.array(found.prefix), found.keys, table.take(pa.array(found.row))

    def _streamed(
        self, table_id: int, firsts: pa.Array, ends: pa.Array, epoch: int, columns: Sequence[str] | None
    ) -> Iterator[tuple[int, pa.Table]]:
        """As `iter`, range after range, each part with its range's place."""
        for place, (first, end) in enumerate(zip(firsts.to_pylist(), ends.to_pylist(), strict=True)):
            yield from ((place, rows) for rows in self.iter(table_id, first, end, epoch, columns))

    def iter(
        self,
        table_id: int,
        first: bytes | None,
        last: bytes | None,
        epoch: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Rows of first (inclusive) … last (exclusive; None: unbounded) in key order.

        Yields:
            Tables of `key` (binary), then the row columns; none is empty. Memory: two windows of blocks per run; nothing is cached.
        """
        require_readable(self.version, epoch, self.pinned)
        runs = list(_runs(self._sections(table_id, epoch, first, last)))
        with ThreadPoolExecutor(
            READ_AHEAD_THREADS
        ) as ahead:  # which has no thread as long as there is nothing to read ahead
            cursors = [
                RunCursor(self.source, [ranged.section for ranged in run], first, last, columns, ahead=ahead)
                for run in runs
            ]
            for rows in merge_runs(cursors, visible_at(epoch)):
                yield rows.remove_column(2).remove_column(1).set_column(0, KEY, rows.column(0).cast(pa.binary()))

    def changes(
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

        A key that has a row at `since` and another, or none, at `until` gives its old row at weight -1; one that has a row at `until` and
        another, or none, at `since` gives the new one at +1. What came and went in between gives nothing.

        Requires: since <= until.

        Yields:
            Tables of `key` (binary), `weight` (int64), then the row columns; none is empty, and no key is in two of them. In each the rows
            at -1 come first, both halves in key order.

        Cost: blocks that hold a row written in between, and, for the keys of those rows, a read at `since`. SSTs without such a row are not
        opened. Compaction puts old and new rows into one block but leaves each its epoch, so more blocks are read and the answer is the
        same.
        """
        for keys, put, after in self._written(table_id, first, last, since, until, columns):
            found, before = self.multi_get(
                table_id, keys, since, columns, schema if schema is not None else after.schema
            )
            net = net_changes(keys, np.asarray(found), before, put, after)
            if net.num_rows:
                yield net

    def written(
        self,
        table_id: int,
        first: bytes | None,
        last: bytes | None,
        since: int,
        until: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """The rows of first … last at `until` that were written after `since`, also where the row before was the same.

        Requires, yields: as `changes`, without `weight`. Cost: that of `changes` without the read at `since`, whose keys may lie in as many
        blocks as there are.
        """
        for keys, put, after in self._written(table_id, first, last, since, until, columns):
            if put.any():
                yield after.add_column(0, KEY, keys).filter(pa.array(put))

    def _written(
        self,
        table_id: int,
        first: bytes | None,
        last: bytes | None,
        since: int,
        until: int,
        columns: Sequence[str] | None,
    ) -> Iterator[tuple[pa.BinaryArray, npt.NDArray[np.bool_], pa.Table]]:
        """The newest entry of each key written in between, in batches: keys, whether it puts, and its row."""
        self.require_readable(since)
        self.require_readable(until)
        runs = list(_runs(self._sections(table_id, until, first, last, since)))
        blocks = partial(_blocks_between, since, until)
        with ThreadPoolExecutor(READ_AHEAD_THREADS) as ahead:
            cursors = [
                RunCursor(
                    self.source, [ranged.section for ranged in run], first, last, columns, ahead=ahead, blocks=blocks
                )
                for run in runs
            ]
            for rows in merge_runs(cursors, newest_between(since, until)):
                keys = one_array(rows.column(0)).cast(pa.binary())
                yield keys, rows.column(2).to_numpy() == PUT, rows.select(range(HEAD_COLUMNS, rows.num_columns))

    def require_readable(self, epoch: int) -> None:
        """Raises EpochExpiredError, EpochNotCommittedError unless this version answers reads at `epoch`."""
        require_readable(self.version, epoch, self.pinned)

    def holds(self, table_id: int, epoch: int) -> bool:
        """Whether there may be a row of a table: False is certain. Cost: no read."""
        stored = next(iter(sections_at(self.version, table_id, epoch, None, None, None)), None)
        return stored is not None or bool(self.buffer.sections(table_id, epoch))

    def _sections(
        self, table_id: int, epoch: int, first: bytes | None, last: bytes | None, since: int | None = None
    ) -> "list[_Ranged]":
        """Sections, stored or buffered, that may hold rows of first … last (inclusive) written after `since`: newest first, opened."""
        refs = list(sections_at(self.version, table_id, epoch, first, last, since))
        readers = self.source.stored.open([ref.sst for ref in refs])
        shape = self._shapes.get(table_id)
        stored = [
            _Ranged(
                OpenSection(reader, reader.section(table_id, shape)), ref.section.first_key, ref.section.last_key, ref
            )
            for ref, reader in zip(refs, readers, strict=True)
        ]
        for buffered in reversed(
            self.buffer.sections(table_id, epoch, first, last)
        ):  # oldest first, so that each goes above those
            if since is not None and buffered.epoch <= since:
                continue
            place = next((i for i, ranged in enumerate(stored) if ranged.newest <= buffered.epoch), len(stored))
            stored.insert(place, _Ranged(buffered.in_shape(shape), buffered.first_key, buffered.last_key))
        return stored

    def _candidates(self, sections: "Sequence[_Ranged]", probes: Probes) -> list[_Candidates]:
        """Per section the keys within its range that its filter does not rule out; newest section first."""
        if not sections:
            return []
        stored = SortedKeys(probes.array)
        lows = stored.left(Probes(pa.array([ranged.first_key for ranged in sections], pa.binary())), slice(None))
        highs = stored.left(
            Probes(successors(pa.array([ranged.last_key for ranged in sections], pa.binary()))), slice(None)
        )
        found = []
        for ranged, low, high in zip(sections, lows.tolist(), highs.tolist(), strict=True):
            if low < high:
                found.append(
                    (ranged.section, slice(low, high), _partition_ends(ranged.section).left(probes, slice(low, high)))
                )
        arenas = self.source.filters([(section, _unique(partitions)) for section, _, partitions in found])
        hashes = hash_keys(probes.array)
        kept = []
        for (section, part, partitions), arena in zip(found, arenas, strict=True):
            reader, keys = section.reader, np.arange(part.start, part.stop)
            if arena is not None and not isinstance(reader, BufferedIndex):
                maybe = probe_filter(
                    arena.data, reader.filter_starts[partitions], 8 * reader.filter_lengths[partitions], hashes[part]
                )
                if not maybe.all():
                    keys = keys[maybe]
            if len(keys):  # which block is asked for those only that passed: an absent key costs its filter and no more
                passed = Probes(probes.array.take(pa.array(keys)), ascending=True)
                kept.append(_Candidates(section, keys, reader.last_keys.left(passed, slice(None))))
        return kept

    def _rows(
        self,
        table_id: int,
        batches: Sequence[pa.RecordBatch],
        columns: Sequence[str] | None,
        schema: pa.Schema | None,
        sections: "Sequence[_Ranged]",
    ) -> pa.Table:
        """The row columns of the decoded blocks, end to end."""
        if batches:
            try:
                rows = pa.Table.from_batches(batches)
            except pa.ArrowInvalid as error:
                first = batches[0].schema
                other = next((batch.schema for batch in batches if not batch.schema.equals(first)), first)
                raise WrongRowsError(f"stored sections of table {table_id}", str(other), str(first)) from error
        elif sections or schema is not None:
            rows = (sections[0].section.reader.row_schema if sections else row_schema(schema)).empty_table()
        else:
            return pa.table({})
        return rows if columns is None else rows.select(list(columns))


@dataclass(frozen=True, slots=True)
class _Ranged:
    """A section with its first and last key, and where a version names it; no `ref`: it is buffered."""

    section: Section
    first_key: bytes
    last_key: bytes
    ref: SectionRef | None = None

    @property
    def newest(self) -> int:
        """The epoch of its newest row, or a later one."""
        return self.ref.sst.max_epoch if self.ref is not None else self.section.epoch  # type: ignore[union-attr]


def _blocks_in(sections: Sequence[_Ranged], firsts: pa.Array, ends: pa.Array) -> int:
    """How many blocks, of all sections, may hold rows between the keys; those of several ranges count for each."""
    low, high, everything = Probes(firsts), Probes(ends), slice(None)
    readers = [s.section.reader for s in sections]
    return sum(
        int(np.maximum(r.first_keys.left(high, everything) - r.last_keys.left(low, everything), 0).sum())
        for r in readers
    )


def _blocks_between(since: int, until: int, section: Section) -> npt.NDArray[np.bool_]:
    """Blocks of a section that may hold a row written after `since` and by `until`."""
    if isinstance(section, BufferedSection):
        return np.ones(1, np.bool_)  # its epoch was looked at
    mask: npt.NDArray[np.bool_] = (section.reader.max_epochs > np.uint64(since)) & (
        section.reader.min_epochs <= np.uint64(until)
    )
    return mask


def _partition_ends(section: Section) -> SortedKeys:
    """The last key of each filter partition of a section."""
    blocks = len(section.reader)
    ends = np.minimum(np.arange(section.per_partition, blocks + section.per_partition, section.per_partition), blocks)
    return section.reader.last_keys.take(ends - 1)


def _runs(sections: "Sequence[_Ranged]") -> "Iterator[list[_Ranged]]":
    """Sorted runs, newest first. A buffered section is one of its own, and those above and below it are not put together past it."""
    for buffered, group in groupby(sections, key=lambda ranged: ranged.ref is None):
        if buffered:
            yield from ([ranged] for ranged in group)
        else:
            by_ref = {id(ranged.ref): ranged for ranged in group}
            refs = [ranged.ref for ranged in by_ref.values() if ranged.ref is not None]
            yield from ([by_ref[id(ref)] for ref in run] for run in sorted_runs(refs))


def _newest_first(
    candidates: list[_Candidates], unresolved: npt.NDArray[np.bool_]
) -> tuple[list[_Candidates], list[_Candidates]]:
    """Split candidates into (later rounds, this round): in a round each unresolved key is looked for in its newest section only."""
    free = unresolved.copy()
    later, now = [], []
    for part in candidates:
        open_keys = unresolved[part.keys]
        mine = free[part.keys]
        free[part.keys[mine]] = False
        if mine.any():
            now.append(part.only(mine))
        if (rest := open_keys & ~mine).any():
            later.append(part.only(rest))
    return later, now


def _unique(ascending: Positions) -> Positions:
    """The distinct values of an ascending array."""
    return ascending[np.append(True, ascending[1:] != ascending[:-1])] if len(ascending) else ascending
