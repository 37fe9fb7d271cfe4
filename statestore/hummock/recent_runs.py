"""Keeps the small runs of the last epochs merged in memory, so that a read searches a few of them instead of all.

Every epoch adds a run to L0. After some small epochs, most of the time of a read goes to runs that no compaction has
merged: each costs a tenth of a millisecond, however few rows it has. This process therefore merges the newest small
runs of each table. As in the row cache, each merged run is more than twice as long as the newer one, so their number
grows with the logarithm of the number of epochs, and an epoch costs O(its rows), not O(rows in memory).

    newest   [120]                     one epoch
             [250]                     two epochs
             [1,900]                   16 epochs
    oldest   SSTs that are large, or older than those, are read as usual

A merged run contains the newest row of each key, so it serves reads at the version's own epoch only. For the same
reason, no other run may belong between its runs: SSTs that are newer than rows in the shared buffer are not merged. A
merged run is a function of its SSTs. A process merges the runs of a table from the second version on in which it reads
the table, since a process that runs one epoch would not regain the cost. It keeps the rows of small SSTs that it has
uploaded itself, and does not read these back.

A reader of some vnodes, such as a parallel unit, merges only the SSTs and blocks that may hold their rows. So the units
of an epoch divide this work, and merged runs then serve only reads of these vnodes.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.block_source import BlockRequest, BlockSource, OpenSection
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.errors import DamagedSstError, MissingSstError
from tussock.statestore.hummock.prefix_scan import RangeBlocks
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.shared_buffer import BufferedIndex, BufferedSection, buffered_section
from tussock.statestore.hummock.sorted_keys import (
    Mask,
    Probes,
    SortedKeys,
    differs_from_previous,
    join_keys,
    sort_order,
    take_keys,
)
from tussock.statestore.hummock.sst_reader import Rows, no_columns, one_batch
from tussock.statestore.hummock.version import keys_of, section_of
from tussock.statestore.meta.version import HummockVersion, SectionInfo, SstInfo

SMALL_ROWS, SMALL_BYTES = 16_384, 1 << 20  # limits of a section that is merged
MERGED_ROWS, MERGED_BYTES = 262_144, 16 << 20  # limits of a merged run
WORTH_MERGING = 4  # sections
MOST_WRITTEN = 4  # uploaded SSTs of a table that is written and seldom read


class OwnKeys(NamedTuple):
    """The keys of a table's vnodes that a reader owns. `end` is exclusive, and no full key."""

    table_id: int
    first: bytes
    end: bytes

    @staticmethod
    def of_vnodes(table_id: int, vnodes: range | None) -> "OwnKeys":
        """The keys of some consecutive vnodes of a table; None: of all."""
        first, end = keys_of(table_id)
        if vnodes is not None:
            first, end = (first + vnode.to_bytes(2, "big") for vnode in (vnodes.start, vnodes.stop))
        return OwnKeys(table_id, first, end)


@dataclass(frozen=True, slots=True)
class RecentRun:
    """The rows of neighbouring sections of a table in L0. `ssts`: their names, newest first."""

    ssts: tuple[str, ...]
    section: BufferedSection

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.section.reader.rows.nbytes


@dataclass(frozen=True, slots=True)
class RecentRuns:
    """The merged runs of a table, newest first, as of a version.

    `ssts`: their names, newest first. Names are hashes of bytes, so they identify the rows even if another store takes
    the place of this one. `written`: those of SSTs that this process has uploaded since.
    """

    version: int
    ssts: tuple[str, ...]
    runs: tuple[RecentRun, ...]
    written: tuple[RecentRun, ...] = ()

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(run.nbytes for run in (*self.runs, *self.written)) + 256


def recent_runs(
    source: BlockSource,
    version: HummockVersion,
    keys: OwnKeys,
    shape: RowShape | None,
    before: int | None = None,
) -> tuple[RecentRun, ...]:
    """Merge the newest small runs of a table, or recall them from the cache of `source`.

    Args:
        keys: of the table that the reads need. Other reads must not use the result: it lacks runs that belong between.
        before: merge SSTs of earlier epochs only; None: of all.

    Returns: newest first; empty if there are few, if one is damaged, if this process reads the table for the first
        time, or if it has read a later version.
    Cost: microseconds if these runs are known; else the blocks of runs that others wrote, and a merge of some.
    """
    small = [sst for sst in _small_ones(version, keys) if before is None or sst.max_epoch < before]
    names = tuple(sst.name for sst in small)
    key = _cache_key(source.objects.uri, keys, shape)
    known = source.cache.get(key, RecentRuns)
    if known is not None and known.ssts == names:
        return known.runs
    if known is not None and known.version >= version.id:
        return ()
    runs: tuple[RecentRun, ...] = ()
    if known is not None and len(small) >= WORTH_MERGING:
        # A merge reads whole sections. So damage is left to the reads that meet it, which name it.
        with suppress(DamagedSstError, MissingSstError):
            runs = tuple(_merge_parts(_collect_parts(source, small, (*known.runs, *known.written), keys, shape)))
    source.cache.put(key, RecentRuns(version.id, names, runs))
    return runs


def keep_written(cache: BlockCache, store: str, sst: SstInfo, batches: Iterable[SealedBatch]) -> None:
    """Keep the rows of an uploaded SST, for tables whose runs this process merges for all vnodes.

    Args:
        store: the store's address.
        sst: of one epoch. It may be in no version yet, or never, or uploaded before.
        batches: all its rows of some tables, one batch per table.

    Cost: a copy of the rows of small sections, because the rows of an epoch are slices of its buffers.
    """
    for batch in batches:
        section = section_of(sst, batch.table_id)
        if section is None or not _is_small(section):
            continue
        key = _cache_key(store, OwnKeys.of_vnodes(batch.table_id, None), None)
        known = cache.get(key, RecentRuns)
        if known is None or any(sst.name in run.ssts for run in (*known.runs, *known.written)):
            continue
        if (rows := buffered_section(SealedBatch(batch.table_id, _copy_rows(batch.rows)), sst.max_epoch)) is not None:
            written = RecentRun((sst.name,), rows), *known.written[: MOST_WRITTEN - 1]
            cache.put(key, replace(known, written=written))


def _copy_rows(rows: pa.Table) -> pa.Table:
    copies = [pa.ipc.read_record_batch(part.serialize(), rows.schema) for part in rows.to_batches()]
    return pa.Table.from_batches(copies, schema=rows.schema)


def _cache_key(store: str, keys: OwnKeys, shape: RowShape | None) -> tuple[str, str, OwnKeys, str]:
    """The key of a table's runs in the cache."""
    return store, "recent", keys, "" if shape is None else shape.digest


def _small_ones(version: HummockVersion, keys: OwnKeys) -> Iterator[SstInfo]:
    """The SSTs of L0 that may hold rows of these keys, newest first, up to one that is not merged."""
    for sst in version.levels[0] if version.levels else ():
        section = section_of(sst, keys.table_id)
        if section is not None and keys.first <= section.last_key and section.first_key < keys.end:
            if sst.min_epoch != sst.max_epoch or not _is_small(section):
                return
            yield sst


def _is_small(section: SectionInfo) -> bool:
    return section.rows <= SMALL_ROWS and section.bytes <= SMALL_BYTES


def _collect_parts(
    source: BlockSource, ssts: Sequence[SstInfo], known: Sequence[RecentRun], keys: OwnKeys, shape: RowShape | None
) -> list[RecentRun]:
    """Known runs that are still neighbours in L0, and a run for each other SST; newest first."""
    names = [sst.name for sst in ssts]
    places = {name: place for place, name in enumerate(names)}
    run_by_place: dict[int, RecentRun] = {}  # by the place of its newest SST
    covered: set[str] = set()
    for run in known:
        first = places.get(run.ssts[0])
        if (
            first is not None
            and tuple(names[first : first + len(run.ssts)]) == run.ssts
            and covered.isdisjoint(run.ssts)  # An SST may be uploaded again after its rows were merged.
        ):
            run_by_place[first] = run
            covered.update(run.ssts)
    new = [sst for sst in ssts if sst.name not in covered]
    sections = [OpenSection(reader, reader.open_section(keys.table_id, shape)) for reader in source.open_ssts(new)]
    low, high = Probes(pa.array([keys.first], pa.binary())), Probes(pa.array([keys.end], pa.binary()))
    requests = []
    for section in sections:
        own = RangeBlocks.from_probes(section, low, high)
        first, end = int(own.first[0]), int(own.end[0])
        # A run replaces its SST, so it is not empty, even if its rows belong to other vnodes.
        requests.append(BlockRequest(section, np.arange(first, max(end, first + 1))))
    for sst, section, units in zip(new, sections, source.read_blocks(requests), strict=True):
        run_by_place[places[sst.name]] = RecentRun(
            (sst.name,), _section_of(units, section.reader.row_schema, sst.max_epoch)
        )
    return [run_by_place[place] for place in sorted(run_by_place)]


def _section_of(units: Sequence[Rows], schema: pa.Schema, epoch: int) -> BufferedSection:
    """The rows of all blocks of a section of one epoch."""
    keys = units[0].keys if len(units) == 1 else SortedKeys(join_keys([unit.keys.array for unit in units]))
    return _as_section(keys, _join_columns(units, schema), _join_puts(units), schema, epoch)


def _merge_parts(parts: Sequence[RecentRun]) -> list[RecentRun]:
    """Merge runs until each is more than twice as long as the newer one; newest first, as the parts."""
    groups: list[list[RecentRun]] = []  # oldest first; each becomes one run
    for part in reversed(parts):
        groups.append([part])
        while len(groups) > 1 and _are_alike(*groups[-2:]):
            groups[-2:] = [[*groups[-1], *groups[-2]]]
    return [group[0] if len(group) == 1 else _overlay_runs(group) for group in reversed(groups)]


def _are_alike(older: Sequence[RecentRun], newer: Sequence[RecentRun]) -> bool:
    rows = [sum(len(run.section.reader.rows) for run in group) for group in (older, newer)]
    fits = sum(rows) <= MERGED_ROWS and sum(run.nbytes for run in (*older, *newer)) <= MERGED_BYTES
    return fits and 2 * rows[1] >= rows[0]


def _overlay_runs(runs: Sequence[RecentRun]) -> RecentRun:
    """The rows of several runs, newest first; of a key in some, the newest row."""
    units = [run.section.reader.rows for run in runs]
    every = join_keys([unit.keys.array for unit in units])
    order = sort_order(every)  # stable, so the newest of equal keys comes first
    keys = take_keys(every, order)
    newest = differs_from_previous(keys)
    if not newest.all():
        order, keys = order[newest], keys.filter(pa.array(newest))
    puts, schema = _join_puts(units), runs[0].section.reader.row_schema
    columns = _join_columns(units, schema)
    section = _as_section(
        SortedKeys(keys),
        None if columns is None else columns.take(pa.array(order)),
        None if puts is None else puts[order],
        schema,
        runs[0].section.epoch,
    )
    return RecentRun(tuple(name for run in runs for name in run.ssts), section)


def _join_columns(units: Sequence[Rows], schema: pa.Schema) -> pa.RecordBatch | None:
    return one_batch(pa.Table.from_batches([unit.columns for unit in units])) if len(schema) else None


def _join_puts(units: Sequence[Rows]) -> Mask | None:
    if all(unit.puts is None for unit in units):
        return None
    return np.concatenate([np.ones(len(unit), np.bool_) if unit.puts is None else unit.puts for unit in units])


def _as_section(
    keys: SortedKeys, columns: pa.RecordBatch | None, puts: Mask | None, schema: pa.Schema, epoch: int
) -> BufferedSection:
    """Rows of several epochs count as written in the newest one, up to which no reader distinguishes them."""
    rows = Rows(0, 1, keys, no_columns(len(keys)) if columns is None else columns, epoch, epoch, None, puts)
    ends = (SortedKeys(keys.array.slice(place, 1)) for place in (0, len(keys) - 1))
    return BufferedSection(epoch, BufferedIndex(rows, schema, *ends))
