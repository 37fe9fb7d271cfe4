"""Compaction: merging what a task took, in pieces of the key space, into SSTs without what no reader can see.

    plan_merge(...)   ──>  a MergePlan: SSTs that stay as they are, and pieces
    run_piece(...)    ──>  the SSTs of one piece; pieces need nothing of each other and run wherever there is room

What is kept of a key is decided by its rows within the task: a row is seen by the readers from its epoch up to the one before the next
newer row's. It stays if that holds a readable epoch, or if nothing newer is there (then also readers to come see it). Tombstones go where
nothing older can lie below them, and no older row of the key is kept.

A piece streams: windows of blocks of each run come in, blocks go out, and an SST is uploaded as soon as it is full. Reading, merging, and
encoding with uploads are done side by side, in threads that work on successive windows: requests cost no time of the merge, and two cores
are busy where there are two. Memory: the windows (`WINDOW_BYTES` at hand, and as much again coming) and an SST or two of the target size,
however large the state. SSTs end at borders of tables, units and vnode groups where one is near, so that what one actor reads lies
together. The bytes depend on the plan alone: a piece run again makes the same objects.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.block_source import BlockSource, OpenSection
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.compaction_picker import dropped_tables
from tussock.statestore.hummock.errors import WrongRowsError
from tussock.statestore.hummock.ingest import VNODE_GROUP, vnodes_of_keys
from tussock.statestore.hummock.merge import READ_AHEAD_THREADS, RunCursor, merge_runs
from tussock.statestore.hummock.row_shape import shape_of
from tussock.statestore.hummock.shared_buffer import BufferedSource
from tussock.statestore.hummock.sorted_keys import Mask, Positions, differs_from_previous, fixed_keys
from tussock.statestore.hummock.sst_format import BLOCKS_PER_PARTITION, HEAD_COLUMNS, PUT, ROWS_PER_BLOCK, block_schema
from tussock.statestore.hummock.sst_writer import EncodedBlocks, build_sst, encode_blocks
from tussock.statestore.hummock.version import SectionRef, section_of, sorted_runs
from tussock.statestore.meta.catalog import ColumnSpec
from tussock.statestore.meta.levels import hull_of, touches
from tussock.statestore.meta.names import task_prefix
from tussock.statestore.meta.version import CompactionTask, HummockVersion, KeyRange, SectionInfo, SstInfo
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.vnode import one_array

WINDOW_BYTES = (
    32 << 20
)  # decoded, of all runs of a merge together; merging and encoding hold several copies of a window
_BLOCK_BYTES = 256 << 10  # a decoded block, unless its rows are very wide
_CHUNK_ROWS = BLOCKS_PER_PARTITION * ROWS_PER_BLOCK  # encoded at once
_CHUNK_BYTES = 16 << 20
_CUT_BLOCKS = 256  # tables of more blocks than this in a piece start one at each border of a unit or vnode group
_SNAP = 8  # an SST ends at a border from 7/8 of its target on, and anywhere from 9/8 on
_INDEX_BYTES = 64 << 20  # footers kept open by a piece


class TableInput(msgspec.Struct, frozen=True):
    """What a piece has to know about one of its tables."""

    table_id: int
    below: tuple[KeyRange, ...]  # where older rows of the table may lie outside the task: tombstones stay there
    columns: tuple[ColumnSpec, ...] = ()  # of a table that columns were added to: older sections get them here


class MergePiece(msgspec.Struct, frozen=True):
    """A part of a task's keys, with all that is needed to merge it anywhere: plain data, JSON goes through."""

    task_id: int
    levels: tuple[tuple[SstInfo, ...], ...]  # as in a version: the task's inputs with keys of the piece
    first: bytes | None  # inclusive
    last: bytes | None  # exclusive
    tables: tuple[TableInput, ...]  # ascending; rows of others are dropped
    readable: tuple[int, ...]  # epochs that somebody may read, ascending
    units: tuple[int, ...]  # vnode -> parallel unit
    target_bytes: int


class MergePlan(msgspec.Struct, frozen=True):
    """How a task is run."""

    kept: tuple[SstInfo, ...]  # inputs that stay on the target level as they are
    pieces: tuple[MergePiece, ...]  # apart, in key order


def plan_merge(
    objects: ObjectStore,
    version: HummockVersion,
    task: CompactionTask,
    readable: Sequence[int],
    target_bytes: int,
    pieces: int = 1,
    rewrite: bool = False,
) -> MergePlan:
    """Cut a task into pieces.

    Args:
        version: one in which the task is open.
        readable: epochs somebody may read, listed with that version or a later one (`MetaStore.readable_epochs`).
        target_bytes: of an SST.
        pieces: into how many parts of about equal bytes to cut, fewer where they would be smaller than two SSTs. Cuts lie at vnodes.
        rewrite: whether also SSTs that meet no other input are written anew: old versions and tombstones in them go.

    Cost: one range read per input to see how its bytes are spread, none for a single piece.
    """
    names = {name for given in task.inputs for name in given.ssts}
    inputs = tuple(tuple(sst for sst in level if sst.name in names) for level in version.levels)
    dropped = dropped_tables(version, readable)
    kept = () if rewrite else _undisturbed(inputs, task.target, dropped, target_bytes)
    stay = {sst.name for sst in kept}
    inputs = tuple(tuple(sst for sst in level if sst.name not in stay) for level in inputs)
    ids = sorted({s.table_id for level in inputs for sst in level for s in sst.sections} - dropped)
    if not ids:
        return MergePlan(kept, ())
    grown = _grown_tables(version)
    tables = tuple(TableInput(i, tuple(_below(version, names, task.target, i)), grown.get(i, ())) for i in ids)
    bounds: list[bytes | None] = [
        None,
        *_cuts(objects, inputs, min(pieces, _bytes_of(inputs) // (2 * target_bytes))),
        None,
    ]
    made = []
    for start, end in pairwise(bounds):
        for first, last in _around(kept, start, end):
            mine = tuple(tuple(sst for sst in level if _has_keys(sst, first, last)) for level in inputs)
            if any(mine):
                made.append(
                    MergePiece(task.id, mine, first, last, tables, tuple(readable), version.mapping.units, target_bytes)
                )
    return MergePlan(kept, tuple(made))


def _grown_tables(version: HummockVersion) -> dict[int, tuple[ColumnSpec, ...]]:
    """The columns of the tables that some were added to, by table id."""
    tables = (table for relation in version.catalog.stored() for table in relation.state_tables)
    return {table.table_id: table.columns for table in tables if any(column.missing for column in table.columns)}


def outputs_of(plan: MergePlan, made: Sequence[Sequence[SstInfo]]) -> list[SstInfo]:
    """All outputs of a task in key order, given those of each piece."""
    return sorted((*plan.kept, *(sst for part in made for sst in part)), key=lambda sst: sst.sections[0].first_key)


def run_piece(objects: ObjectStore, piece: MergePiece, beat: Callable[[], None] = lambda: None) -> list[SstInfo]:
    """Merge one piece and upload its SSTs. Returns them in key order.

    Args:
        beat: called in this thread for every window of rows that is merged or written, seconds apart: the merge gets on.

    Cost: reads each input block of the piece once and writes what stays, 4 to 6 million narrow rows a second of CPU; memory as said above.
    """
    source = BlockSource(objects, BlockCache(_INDEX_BYTES))
    writer = _SstStream(objects, task_prefix(piece.task_id), piece.target_bytes, _groups_of(piece.units))
    with ThreadPoolExecutor(1, "encode") as encoder:
        before: Future[None] | None = None
        for table in piece.tables:
            found = _refs(piece, table.table_id)
            size = sum(ref.section.bytes for ref in found)
            for chunk in _chunks(_kept_rows(source, piece, table, found, beat)) if found else ():
                if before is not None:  # at most one chunk waits: memory stays bounded, and an error comes up soon
                    before.result()
                    beat()
                before = encoder.submit(writer.write, table.table_id, size, chunk)
        if before is not None:
            before.result()
    made = writer.finish()
    beat()
    return made


# --- which rows stay -------------------------------------------------------------------------------------------------------------


def surviving(rows: pa.Table, readable: npt.NDArray[np.uint64], bottom: bool) -> Mask:
    """Which rows somebody can see.

    Args:
        rows: key, epoch, op, …; all rows of each key, newest first.
        readable: epochs, ascending.
        bottom: whether nothing older than these rows lies below them.
    """
    first = differs_from_previous(one_array(rows.column(0)))
    epochs = rows.column(1).to_numpy()
    keep = first.copy()
    if not first.all():
        newer = np.empty_like(epochs)
        newer[1:] = epochs[:-1]
        seen_by = np.searchsorted(
            readable, epochs
        )  # the first readable epoch that sees the row, if no newer row hides it
        hidden = seen_by == len(readable)
        seen_by[hidden] = 0
        keep |= ~hidden & (readable[seen_by] < newer)
    if bottom and not (puts := rows.column(2).to_numpy() == PUT).all():
        starts = np.flatnonzero(first)
        last_put = np.maximum.reduceat(np.where(keep & puts, np.arange(len(keep)), -1), starts)
        keep &= (
            np.arange(len(keep)) <= last_put[np.cumsum(first) - 1]
        )  # below a key's oldest row that is there, nothing needs hiding
    return keep


def _kept_rows(
    source: BlockSource, piece: MergePiece, table: TableInput, refs: Sequence[SectionRef], beat: Callable[[], None]
) -> Iterator[pa.Table]:
    """The rows of one table that stay, in order, all with one schema."""
    readers = source.open([ref.sst for ref in refs])
    shape = shape_of(table.columns)
    opened = {
        id(ref): OpenSection(reader, reader.section(table.table_id, shape))
        for ref, reader in zip(refs, readers, strict=True)
    }
    schema = _one_schema(table.table_id, list(opened.values()))
    runs = sorted_runs(list(refs))
    block = max(_decoded_block_bytes(section) for section in opened.values())
    window = max(1, min(BLOCKS_PER_PARTITION, WINDOW_BYTES // (block * len(runs))))
    readable = np.array(piece.readable, np.uint64)

    def choose(rows: pa.Table) -> Mask:
        beat()
        bottom = not table.below or not _any_holds(table.below, rows.column(0)[0].as_py(), rows.column(0)[-1].as_py())
        return surviving(rows, readable, bottom)

    with ThreadPoolExecutor(READ_AHEAD_THREADS) as ahead:
        cursors = [
            RunCursor(
                BufferedSource(source),
                [opened[id(ref)] for ref in run],
                piece.first,
                piece.last,
                window=window,
                ahead=ahead,
            )
            for run in runs
        ]
        for rows in merge_runs(cursors, choose):
            if rows.schema.field(0).type != schema.field(0).type:
                rows = rows.set_column(0, schema.field(0), rows.column(0).cast(schema.field(0).type))
            yield rows


def _decoded_block_bytes(section: OpenSection) -> int:
    """About what a block of a section takes in memory; more rather than less, where the widths of its rows are not known."""
    widths = [_bits(field.type) for field in (*list(section.reader.schema)[:HEAD_COLUMNS], *section.reader.row_schema)]
    known = [width for width in widths if width is not None]
    if len(known) == len(widths):
        return int(section.reader.rows.max()) * sum(known) // 8
    return max(_BLOCK_BYTES, 2 * int(section.reader.lengths.mean()))  # decoded from encoded


def _bits(kind: pa.DataType) -> int | None:
    """Bits of a value, where all have the same."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return None


def _one_schema(table_id: int, sections: Sequence[OpenSection]) -> pa.Schema:
    """What all sections of a table agree on; keys of several lengths are binary."""
    first = sections[0].reader.row_schema
    for section in sections[1:]:
        if not section.reader.row_schema.equals(first):
            raise WrongRowsError(f"stored sections of table {table_id}", str(section.reader.row_schema), str(first))
    kinds = {section.reader.schema.field(0).type for section in sections}
    return block_schema(kinds.pop() if len(kinds) == 1 else pa.binary(), first)


def _any_holds(ranges: Sequence[KeyRange], first: bytes, last: bytes) -> bool:
    return any(touches(other, KeyRange(first, last)) for other in ranges)


def _chunks(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together until they are worth encoding. Keys stay whole: a table holds all rows of its keys."""
    held: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        held.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


# --- cutting the task ------------------------------------------------------------------------------------------------------------


def _undisturbed(
    inputs: Sequence[Sequence[SstInfo]], target: int, dropped: frozenset[int], target_bytes: int
) -> tuple[SstInfo, ...]:
    """SSTs of the target level with no other input's keys between their first and last: they are part of the output as they are.

    Not those with dropped tables, nor small ones, which are better put together with others.
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
        and not any(touches(hull_of((sst,)), other) for other in coming)
    )


def _around(
    kept: Sequence[SstInfo], first: bytes | None, last: bytes | None
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """The ranges (first inclusive, last exclusive) between first … last that hold no key of SSTs that stay."""
    for hull in sorted((hull_of((sst,)) for sst in kept), key=lambda hull: hull.first):
        after = hull.last + b"\x00"  # the least key above
        if (last is not None and hull.first >= last) or (first is not None and after <= first):
            continue
        if first is None or first < hull.first:
            yield first, hull.first
        first = after
    if last is None or first is None or first < last:
        yield first, last


def _below(version: HummockVersion, names: set[str], target: int, table_id: int) -> Iterator[KeyRange]:
    """Where the version has rows of a table that may be older than what the task puts out: on deeper levels, or in older runs of L0."""
    older = False
    for sst in version.levels[0] if target == 0 else ():
        older |= sst.name in names
        if older and sst.name not in names and (section := section_of(sst, table_id)) is not None:
            yield KeyRange(section.first_key, section.last_key)
    for ssts in version.levels[target + 1 :]:
        for sst in ssts:
            if sst.name not in names and (section := section_of(sst, table_id)) is not None:
                yield KeyRange(section.first_key, section.last_key)


def _cuts(objects: ObjectStore, inputs: Sequence[Sequence[SstInfo]], pieces: int) -> list[bytes]:
    """Keys, each the start of a vnode of a table, that cut the inputs' bytes into about equal pieces."""
    if pieces < 2:
        return []
    source = BlockSource(objects, BlockCache(_INDEX_BYTES))
    starts: list[npt.NDArray[np.uint64]] = []
    sizes: list[Positions] = []
    for sst in (sst for level in inputs for sst in level):
        (reader,) = source.open([sst])
        for table_id in reader.table_ids:
            section = reader.section(table_id)
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


def _refs(piece: MergePiece, table_id: int) -> list[SectionRef]:
    """Sections of a table with keys of the piece, newest first."""
    found = []
    for level, ssts in enumerate(piece.levels):
        for sst in ssts:
            section: SectionInfo | None = section_of(sst, table_id)
            if section is None or (piece.last is not None and section.first_key >= piece.last):
                continue
            if piece.first is None or section.last_key >= piece.first:
                found.append(SectionRef(level, sst, section))
    return found


def _bytes_of(levels: Sequence[Sequence[SstInfo]]) -> int:
    return sum(sst.size for level in levels for sst in level)


# --- writing ---------------------------------------------------------------------------------------------------------------------


def _groups_of(units: Sequence[int]) -> npt.NDArray[np.int64]:
    """vnode -> number of its group: neighbouring vnodes of one unit, at most VNODE_GROUP of them."""
    owners = np.asarray(units)
    starts = np.arange(len(owners)) % VNODE_GROUP == 0
    starts[1:] |= owners[1:] != owners[:-1]
    groups: npt.NDArray[np.int64] = np.cumsum(starts)
    return groups


@dataclass(slots=True)
class _SstStream:
    """Rows in, SSTs out, as soon as each is full."""

    objects: ObjectStore
    prefix: str
    target: int
    groups: npt.NDArray[np.int64]
    done: list[SstInfo] = field(default_factory=list)
    _sections: dict[int, list[EncodedBlocks]] = field(default_factory=dict)  # of the SST at hand, by table
    _size: int = 0
    _table: int | None = None  # whose rows were written last
    _table_bytes: int = 0
    _group: int = -1  # of the last key written of the table at hand

    def write(self, table_id: int, table_bytes: int, rows: pa.Table) -> None:
        """More rows, in order, whole keys. The table has about `table_bytes`, all in all."""
        if table_id != self._table:
            self._begin_table(table_bytes)
            self._table = table_id
        rows = rows.combine_chunks()
        keys = one_array(rows.column(0))
        cuts = None
        if self._table_bytes >= 2 * self.target:
            groups = self._groups(keys)
            cuts = 1 + np.flatnonzero(groups[1:] != groups[:-1])
        blocks = encode_blocks(table_id, rows, cuts=cuts)
        while len(blocks):
            end = self._room_for(blocks)
            if end:
                part = blocks.part(0, end)
                self._sections.setdefault(table_id, []).append(part)
                self._size += int(part.sizes.sum())
                self._group = int(self._groups(part.last_keys[-1:])[0])
            if end < len(blocks):
                self._close()
            blocks = blocks.part(end, len(blocks))

    def _begin_table(self, table_bytes: int) -> None:
        """Small tables share an SST; a large one starts its own."""
        if 2 * self._size >= self.target or (2 * table_bytes >= self.target and 2 * _SNAP * self._size >= self.target):
            self._close()
        self._table_bytes, self._group = table_bytes, -1

    def finish(self) -> list[SstInfo]:
        """Upload what is left. Returns all SSTs, in key order."""
        self._close()
        return self.done

    def _room_for(self, blocks: EncodedBlocks) -> int:
        """How many of the blocks still go into the SST at hand: all, or those up to the border, or the place, where it ends."""
        before = self._size + np.cumsum(blocks.sizes) - blocks.sizes  # bytes of the SST if it ended before each block
        if before[-1] < self.target - self.target // _SNAP:
            return len(blocks)
        groups = np.concatenate([[self._group], self._groups(blocks.first_keys)])
        at_border = (groups[1:] != groups[:-1]) & (before >= self.target - self.target // _SNAP)
        full = before >= self.target + self.target // _SNAP
        ends = np.flatnonzero((at_border | full) & (before > 0))
        return int(ends[0]) if len(ends) else len(blocks)

    def _groups(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        groups: npt.NDArray[np.int64] = self.groups[vnodes_of_keys(keys)]
        return groups

    def _close(self) -> None:
        if not self._sections:
            return
        sst = build_sst([EncodedBlocks.joined(parts) for parts in self._sections.values()], self.prefix)
        self.objects.put(sst.info.name, sst.data)
        self.done.append(sst.info)
        self._sections, self._size = {}, 0
