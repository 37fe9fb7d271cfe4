"""Compaction: merges a task's inputs, in pieces of the key space, into SSTs without rows that no reader can see.

    plan_merge(...)   ──>  a MergePlan: SSTs that stay unchanged, and pieces
    run_piece(...)    ──>  the SSTs of one piece; pieces are independent and run anywhere

The rows of a key within the task determine which of them stay. A row is visible to readers from its epoch up to the one
before the next newer row. It stays if this range contains a readable epoch, or if no newer row exists, since later
readers see it too. A tombstone is dropped if no older row can be below it and no older row of its key stays.

A piece is a stream: it reads windows of blocks from each run, writes blocks, and uploads each SST as soon as it is
full. Reading, merging, and encoding with upload run in separate threads on successive windows, so requests do not delay
the merge and two cores can be busy. Memory is independent of the state's size: the windows of a merge
(`WINDOW_BYTES`), and one or two SSTs of the target size. SSTs end at nearby borders of tables, units and
vnode groups, so that the rows of one actor are close together. The bytes depend only on the plan: running a piece again
makes the same objects.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.allocator import give_back_freed_memory
from tussock.statestore.hummock.block_source import BlockSource, OpenSection
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.compaction_picker import dropped_tables
from tussock.statestore.hummock.errors import WrongRowsError
from tussock.statestore.hummock.ingest import VNODE_GROUP, vnodes_of_keys
from tussock.statestore.hummock.merge import READ_AHEAD_THREADS, RunCursor, merge_runs, share_of
from tussock.statestore.hummock.row_shape import differs_from_sections, rows_of
from tussock.statestore.hummock.shared_buffer import BufferedSource
from tussock.statestore.hummock.sorted_keys import Mask, Positions, differs_from_previous, fixed_keys
from tussock.statestore.hummock.sst_format import BLOCKS_PER_PARTITION, PUT, ROWS_PER_BLOCK, block_schema
from tussock.statestore.hummock.sst_writer import EncodedBlocks, build_sst, encode_blocks
from tussock.statestore.hummock.version import SectionRef, keys_of, section_of, sorted_runs
from tussock.statestore.meta.catalog import ColumnSpec
from tussock.statestore.meta.levels import hull_of, inputs_of, ranges_overlap, ssts_between
from tussock.statestore.meta.names import task_prefix
from tussock.statestore.meta.version import CompactionTask, HummockVersion, KeyRange, SectionInfo, SstInfo
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.vnode import one_array

# Decoded windows of all runs of a merge, with the ones that are read ahead. A scan holds more, but merging and encoding
# hold several copies of a window.
WINDOW_BYTES = 64 << 20
_CHUNK_ROWS = BLOCKS_PER_PARTITION * ROWS_PER_BLOCK  # per encoding step
_CHUNK_BYTES = 16 << 20
_SNAP = 8  # an SST ends at a border from 7/8 of its target size, and anywhere from 9/8
_INDEX_BYTES = 64 << 20  # cache of opened footers per piece


class TableInput(msgspec.Struct, frozen=True):
    """The data of one table that a piece needs."""

    table_id: int
    below: tuple[KeyRange, ...]  # ranges that may hold older rows outside the task; tombstones stay there
    columns: tuple[ColumnSpec, ...] = ()  # if its sections have different columns: those of the outputs


class MergePiece(msgspec.Struct, frozen=True):
    """A part of a task's keys, with all data for merging it in any process. Plain data that survives JSON."""

    task_id: int
    levels: tuple[tuple[SstInfo, ...], ...]  # as in a version: the task's inputs with keys in the piece
    first: bytes | None  # inclusive
    last: bytes | None  # exclusive
    tables: tuple[TableInput, ...]  # ascending; rows of other tables are dropped
    readable: tuple[int, ...]  # epochs that readers may read, ascending
    units: tuple[int, ...]  # vnode -> parallel unit
    target_bytes: int


class MergePlan(msgspec.Struct, frozen=True):
    """The plan for running a task."""

    kept: tuple[SstInfo, ...]  # inputs that stay unchanged on the target level
    pieces: tuple[MergePiece, ...]  # disjoint, in key order


def plan_merge(
    objects: ObjectStore,
    version: HummockVersion,
    task: CompactionTask,
    readable: Sequence[int],
    target_bytes: int,
    pieces: int = 1,
    rewrite: bool = False,
) -> MergePlan:
    """Split a task into pieces.

    Args:
        version: a version in which the task is open.
        readable: epochs that readers may read, listed with that version or a later one (`MetaStore.readable_epochs`).
        target_bytes: size of an SST.
        pieces: desired number of pieces of about equal size; fewer if they would be smaller than two SSTs. Borders are
            vnodes.
        rewrite: also rewrite SSTs that overlap no other input, which drops their old versions and tombstones.

    Cost: one range read per input to find the distribution of its bytes; none for a single piece.
    """
    names = {name for input in task.inputs for name in input.ssts}
    inputs = _inputs_by_level(version, task)
    dropped = dropped_tables(version, readable)
    undisturbed = () if rewrite else _find_undisturbed(inputs, task.target, dropped, target_bytes)
    stay = {sst.name for sst in undisturbed}
    inputs = tuple(tuple(sst for sst in level if sst.name not in stay) for level in inputs)
    ids = sorted({s.table_id for level in inputs for sst in level for s in sst.sections} - dropped)
    if not ids:
        return MergePlan(undisturbed, ())
    columns = _columns_of_altered(version)
    tables = tuple(TableInput(i, tuple(_older_ranges(version, names, task.target, i)), columns.get(i, ())) for i in ids)
    bounds: list[bytes | None] = [
        None,
        *_piece_cuts(objects, inputs, min(pieces, _bytes_of(inputs) // (2 * target_bytes))),
        None,
    ]
    merge_pieces = []
    for start, end in pairwise(bounds):
        for first, last in _ranges_between(undisturbed, start, end):
            mine = tuple(tuple(sst for sst in level if _has_keys(sst, first, last)) for level in inputs)
            if any(mine):
                merge_pieces.append(
                    MergePiece(
                        task.id,
                        mine,
                        first,
                        last,
                        tables,
                        tuple(readable),
                        version.mapping.unit_of_vnode,
                        target_bytes,
                    )
                )
    return MergePlan(undisturbed, tuple(merge_pieces))


def _inputs_by_level(version: HummockVersion, task: CompactionTask) -> tuple[tuple[SstInfo, ...], ...]:
    """The task's inputs on each level of the version, newest first."""
    ssts_by_level: list[tuple[SstInfo, ...]] = [()] * len(version.levels)
    for place, named in enumerate(task.inputs):
        ssts = inputs_of(version, (named,), task.ranges[place : place + 1])
        assert not isinstance(ssts, str), "the inputs of an open task stay until it is closed"
        ssts_by_level[named.level] = tuple(ssts)
    return tuple(ssts_by_level)


def _columns_of_altered(version: HummockVersion) -> dict[int, tuple[ColumnSpec, ...]]:
    """The columns, by table id, of tables whose sections have different columns.

    After an undo, two relations have the same table, with the columns of different readable epochs. Its rows keep the
    columns of both.
    """
    tables = [table for relation in version.catalog.stored_relations() for table in relation.state_tables]
    altered = {table.table_id for table in tables if differs_from_sections(table)}
    columns: dict[int, dict[str, ColumnSpec]] = {}
    for table in tables:
        if table.table_id in altered:
            columns.setdefault(table.table_id, {}).update((column.name, column) for column in table.columns)
    return {table_id: tuple(by_name.values()) for table_id, by_name in columns.items()}


def outputs_of(plan: MergePlan, outputs_by_piece: Sequence[Sequence[SstInfo]]) -> list[SstInfo]:
    """All outputs of a task in key order, from the outputs of each piece."""
    return sorted(
        (*plan.kept, *(sst for part in outputs_by_piece for sst in part)), key=lambda sst: sst.sections[0].first_key
    )


def run_piece(objects: ObjectStore, piece: MergePiece, beat: Callable[[], None] = lambda: None) -> list[SstInfo]:
    """Merge one piece and upload its SSTs. Returns them in key order.

    Args:
        beat: called in this thread for every window that is merged or written, seconds apart, as a sign of progress.

    Cost: reads each input block of the piece once and writes the rows that stay: 4 to 6 million narrow rows per CPU
        second. The module docstring gives the memory.
    """
    source = BlockSource(objects, BlockCache(_INDEX_BYTES))
    groups = _groups_of(piece.units)
    writer = _SstStream(objects, task_prefix(piece.task_id), piece.target_bytes, groups)
    with ThreadPoolExecutor(1, "encode") as encoder:
        before: Future[None] | None = None
        for table in piece.tables:
            section_refs = _section_refs(piece, table.table_id)
            size = sum(ref.section.bytes for ref in section_refs)
            for chunk in _combine_tables(_kept_rows(source, piece, table, section_refs, beat)) if section_refs else ():
                if before is not None:  # At most one chunk waits, which limits memory and reports errors early.
                    before.result()
                    beat()
                before = encoder.submit(writer.write_rows, table.table_id, size, chunk)
                del chunk
        if before is not None:
            before.result()
    outputs = writer.finish()
    beat()
    return outputs


# --- which rows stay -------------------------------------------------------------------------------------------------


def find_surviving(rows: pa.Table, readable: npt.NDArray[np.uint64], bottom: bool) -> Mask:
    """Find the rows that readers can see.

    Args:
        rows: key, epoch, op, …; all rows of each key, newest first.
        readable: epochs, ascending.
        bottom: whether no older rows are below these.
    """
    first = differs_from_previous(one_array(rows.column(0)))
    epochs = rows.column(1).to_numpy()
    keep = first.copy()
    if not first.all():
        newer = np.empty_like(epochs)
        newer[1:] = epochs[:-1]
        # The first readable epoch that sees the row, unless a newer row hides it.
        seen_by = np.searchsorted(readable, epochs)
        hidden = seen_by == len(readable)
        seen_by[hidden] = 0
        keep |= ~hidden & (readable[seen_by] < newer)
    if bottom and not (puts := rows.column(2).to_numpy() == PUT).all():
        starts = np.flatnonzero(first)
        last_put = np.maximum.reduceat(np.where(keep & puts, np.arange(len(keep)), -1), starts)
        # A tombstone below the oldest remaining row of its key has nothing to hide.
        keep &= np.arange(len(keep)) <= last_put[np.cumsum(first) - 1]
    return keep


def _kept_rows(
    source: BlockSource, piece: MergePiece, table: TableInput, refs: Sequence[SectionRef], beat: Callable[[], None]
) -> Iterator[pa.Table]:
    """The remaining rows of one table in order, all with the same schema."""
    readers = source.open_ssts([ref.sst for ref in refs])
    shape = rows_of(table.columns) if table.columns else None
    opened = {
        id(ref): OpenSection(reader, reader.open_section(table.table_id, shape))
        for ref, reader in zip(refs, readers, strict=True)
    }
    schema = _one_schema(table.table_id, list(opened.values()))
    runs = sorted_runs(list(refs))
    readable = np.array(piece.readable, np.uint64)

    def choose(rows: pa.Table) -> Mask:
        beat()
        bottom = not table.below or not _any_holds(table.below, rows.column(0)[0].as_py(), rows.column(0)[-1].as_py())
        return find_surviving(rows, readable, bottom)

    with ThreadPoolExecutor(READ_AHEAD_THREADS) as ahead:
        cursors = [
            RunCursor(
                BufferedSource(source),
                [opened[id(ref)] for ref in run],
                piece.first,
                piece.last,
                ahead=ahead,
                share=share_of(len(runs), WINDOW_BYTES),
            )
            for run in runs
        ]
        for rows in merge_runs(cursors, choose):
            if (key := schema.field(0)).type == rows.schema.field(0).type:
                yield rows
            else:
                yield rows.set_column(0, key, rows.column(0).cast(key.type))


def _one_schema(table_id: int, sections: Sequence[OpenSection]) -> pa.Schema:
    """The common schema of a table's sections. Keys of several lengths are binary."""
    first = sections[0].reader.row_schema
    for section in sections[1:]:
        if not section.reader.row_schema.equals(first):
            raise WrongRowsError(f"stored sections of table {table_id}", str(section.reader.row_schema), str(first))
    kinds = {section.reader.schema.field(0).type for section in sections}
    return block_schema(kinds.pop() if len(kinds) == 1 else pa.binary(), first)


def _any_holds(ranges: Sequence[KeyRange], first: bytes, last: bytes) -> bool:
    return any(ranges_overlap(other, KeyRange(first, last)) for other in ranges)


def _combine_tables(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Combine tables until they are worth encoding. Each table holds all rows of its keys, so keys stay whole."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


# --- cutting the task ------------------------------------------------------------------------------------------------


def _find_undisturbed(
    inputs: Sequence[Sequence[SstInfo]], target: int, dropped: frozenset[int], target_bytes: int
) -> tuple[SstInfo, ...]:
    """SSTs of the target level whose range holds no key of another input; they become outputs unchanged.

    Excludes SSTs with dropped tables, and small SSTs, which are better merged with others.
    """
    if target == 0 or target >= len(inputs):
        return ()
    coming = [
        KeyRange(section.first_key, section.last_key)
        for level in inputs[:target]
        for sst in level
        for section in sst.sections
        if section.table_id not in dropped
    ]
    if not coming:
        return ()
    return tuple(
        sst
        for sst in inputs[target]
        if sst.size * 2 >= target_bytes
        and not any(section.table_id in dropped for section in sst.sections)
        and not any(ranges_overlap(hull_of((sst,)), other) for other in coming)
    )


def _ranges_between(
    undisturbed: Sequence[SstInfo], first: bytes | None, last: bytes | None
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """The ranges (first inclusive, last exclusive) within first … last that contain no key of kept SSTs."""
    for hull in sorted((hull_of((sst,)) for sst in undisturbed), key=lambda hull: hull.first):
        after = hull.last + b"\x00"  # the smallest greater key
        if (last is not None and hull.first >= last) or (first is not None and after <= first):
            continue
        if first is None or first < hull.first:
            yield first, hull.first
        first = after
    if last is None or first is None or first < last:
        yield first, last


def _older_ranges(version: HummockVersion, names: set[str], target: int, table_id: int) -> Iterator[KeyRange]:
    """Ranges with rows of a table that may be older than the task's outputs: on deeper levels, or in older L0 runs."""
    older = False
    for sst in version.levels[0] if target == 0 else ():
        older |= sst.name in names
        if older and sst.name not in names and (section := section_of(sst, table_id)) is not None:
            yield KeyRange(section.first_key, section.last_key)
    for ssts in version.levels[target + 1 :]:
        for sst in ssts_between(ssts, *keys_of(table_id)):
            if sst.name not in names and (section := section_of(sst, table_id)) is not None:
                yield KeyRange(section.first_key, section.last_key)


def _piece_cuts(objects: ObjectStore, inputs: Sequence[Sequence[SstInfo]], pieces: int) -> list[bytes]:
    """Keys at starts of vnodes that split the inputs into pieces of about equal size."""
    if pieces < 2:
        return []
    source = BlockSource(objects, BlockCache(_INDEX_BYTES))
    starts: list[npt.NDArray[np.uint64]] = []
    sizes: list[Positions] = []
    for sst in (sst for level in inputs for sst in level):
        (reader,) = source.open_ssts([sst])
        for table_id in reader.table_ids:
            section = reader.open_section(table_id)
            heads = fixed_keys(section.first_keys.array, 6).view(np.uint8).reshape(-1, 6)
            starts.append(
                np.ascontiguousarray(np.pad(heads, ((0, 0), (2, 0)))).view(">u8").reshape(-1).astype(np.uint64)
            )
            sizes.append(section.lengths)
    start, size = np.concatenate(starts), np.concatenate(sizes)
    order = np.argsort(start, kind="stable")
    ends = np.cumsum(size[order])
    shares = ends[-1] * np.arange(1, pieces) // pieces
    borders = np.unique(start[order][np.searchsorted(ends, shares)])
    return [int(border).to_bytes(6, "big") for border in borders if border > start[order[0]]]


def _has_keys(sst: SstInfo, first: bytes | None, last: bytes | None) -> bool:
    return any((last is None or s.first_key < last) and (first is None or s.last_key >= first) for s in sst.sections)


def _section_refs(piece: MergePiece, table_id: int) -> list[SectionRef]:
    """Sections of a table with keys in the piece, newest first."""
    section_refs = []
    for level, ssts in enumerate(piece.levels):
        for sst in ssts:
            section: SectionInfo | None = section_of(sst, table_id)
            if section is None or (piece.last is not None and section.first_key >= piece.last):
                continue
            if piece.first is None or section.last_key >= piece.first:
                section_refs.append(SectionRef(level, sst, section))
    return section_refs


def _bytes_of(levels: Sequence[Sequence[SstInfo]]) -> int:
    return sum(sst.size for level in levels for sst in level)


# --- writing ---------------------------------------------------------------------------------------------------------


def _groups_of(units: Sequence[int]) -> npt.NDArray[np.int64]:
    """vnode -> number of its group: at most VNODE_GROUP consecutive vnodes of one unit."""
    owners = np.asarray(units)
    starts = np.arange(len(owners)) % VNODE_GROUP == 0
    starts[1:] |= owners[1:] != owners[:-1]
    groups: npt.NDArray[np.int64] = np.cumsum(starts)
    return groups


@dataclass(slots=True)
class _SstStream:
    """Turns rows into SSTs, and uploads each SST as soon as it is full."""

    objects: ObjectStore
    prefix: str
    target: int
    groups: npt.NDArray[np.int64]
    done: list[SstInfo] = field(default_factory=list)
    _sections: dict[int, list[EncodedBlocks]] = field(default_factory=dict)  # of the current SST, by table
    _size: int = 0
    _table: int | None = None  # the table of the last rows
    _table_bytes: int = 0
    _group: int = -1  # of the last key written in the current table

    def write_rows(self, table_id: int, table_bytes: int, rows: pa.Table) -> None:
        """Append rows in key order, with all rows of each key. The whole table has about `table_bytes`."""
        if table_id != self._table:
            self._begin_table(table_bytes)
            self._table = table_id
        cuts = None
        if self._table_bytes >= 2 * self.target:
            groups = self._groups_of_keys(one_array(rows.column(0)))
            cuts = 1 + np.flatnonzero(groups[1:] != groups[:-1])
        blocks = encode_blocks(table_id, rows, cuts=cuts)
        last = blocks.last_keys[-1:]
        while len(blocks):
            end = self._room_for(blocks)
            if end:
                part = blocks.slice_blocks(0, end)
                self._sections.setdefault(table_id, []).append(part)
                self._size += int(part.sizes.sum())
                # Within these rows, the start of a block decides whether it is at a border.
                self._group = int(self._groups_of_keys(part.first_keys[-1:])[0])
            if end < len(blocks):
                self._upload_sst()
            blocks = blocks.slice_blocks(end, len(blocks))
        self._group = int(self._groups_of_keys(last)[0])

    def _begin_table(self, table_bytes: int) -> None:
        """Decide whether the table shares the current SST, as small tables do, or starts a new one."""
        if 2 * self._size >= self.target or (2 * table_bytes >= self.target and 2 * _SNAP * self._size >= self.target):
            self._upload_sst()
        self._table_bytes, self._group = table_bytes, -1

    def finish(self) -> list[SstInfo]:
        """Upload the rest. Returns all SSTs in key order."""
        self._upload_sst()
        return self.done

    def _room_for(self, blocks: EncodedBlocks) -> int:
        """The number of blocks that still belong to the current SST: all, or those before its end."""
        before = self._size + np.cumsum(blocks.sizes) - blocks.sizes  # size of the SST if it ends before each block
        if before[-1] < self.target - self.target // _SNAP:
            return len(blocks)
        groups = np.concatenate([[self._group], self._groups_of_keys(blocks.first_keys)])
        at_border = (groups[1:] != groups[:-1]) & (before >= self.target - self.target // _SNAP)
        full = before >= self.target + self.target // _SNAP
        ends = np.flatnonzero((at_border | full) & (before > 0))
        return int(ends[0]) if len(ends) else len(blocks)

    def _groups_of_keys(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        groups: npt.NDArray[np.int64] = self.groups[vnodes_of_keys(keys)]
        return groups

    def _upload_sst(self) -> None:
        if not self._sections:
            return
        if self._size > self.target + self.target // _SNAP:  # one block of wide rows is larger than an SST
            give_back_freed_memory()
        sst = build_sst([EncodedBlocks.join_parts(parts) for parts in self._sections.values()], self.prefix)
        self.objects.put(sst.info.name, sst.data)
        self.done.append(sst.info)
        self._sections, self._size = {}, 0
