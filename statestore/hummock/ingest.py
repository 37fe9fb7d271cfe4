"""The write path: turns the sealed MemTables of an epoch into a few SSTs of the right size.

The MemTables of all actors are combined by table, sorted, and encoded as blocks. The blocks are distributed over
ceil(bytes / target) objects: small tables share one, and large tables get several.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.errors import UnorderedRowsError, WrongRowsError, show_key
from tussock.statestore.hummock.merge import merge_tables
from tussock.statestore.hummock.range_reader import keep_uploaded
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sorted_keys import above_previous, as_fixed_size, fixed_keys, measure_widths
from tussock.statestore.hummock.sst_format import KEY, OP, block_schema
from tussock.statestore.hummock.sst_writer import EncodedBlocks, EncodedSst, build_sst, encode_blocks
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.named_rows import with_schema
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.vnode import one_array

log = logging.getLogger(__name__)

DEFAULT_TARGET_BYTES = 64 << 20
_SNAP = 8  # a cut moves to a border of tables or vnodes within 1/8 of the target
_CUT_BLOCKS = 256  # sections with more rows than this many blocks start a block at each border of a vnode group
VNODE_GROUP = 16  # vnodes; consecutive ones tend to belong to one unit


def batch_ingest(
    objects: ObjectStore,
    batches: Iterable[SealedBatch],
    epoch: int,
    prefix: str,
    target_bytes: int = DEFAULT_TARGET_BYTES,
) -> list[SstInfo]:
    """Write the batches of one epoch as SSTs and upload them.

    Args:
        objects: the target store.
        batches: of any tables, in any order, without duplicate keys. Empty ones are ignored. Each batch is released
            after its table is encoded.
        epoch: uint64, the epoch of the rows.
        prefix: prefix of the object names, `data/<epoch, 16 hex digits>`.
        target_bytes: desired size of an SST; ceil(encoded bytes / target) objects are written.

    Returns:
        The SSTs in key order, without overlaps. They become visible when a commit names them. The same batches give the
        same objects, however they were distributed over actors.

    Raises:
        UnorderedRowsError: a batch is not sorted, or two batches hold the same key.
        WrongRowsError: a batch's columns are not SealedBatch's, or batches of one table differ.

    Cost: one PUT per SST; about 0.2 us of CPU per row of two numbers. Memory: the encoded blocks, and a copy of one
        table's rows.
    """
    return _upload_sections(objects, _encode_tables(batches, epoch), prefix, target_bytes)


class PartIngest:
    """Writes tables of one epoch as SSTs while more of their rows come, part by part.

    Parts of a table that follow each other in key order share SSTs: encoded rows take a fifth of the memory of a part.
    A look-up opens each SST that may have its keys, so many small ones are expensive for good.
    """

    def __init__(self, objects: ObjectStore, epoch: int, prefix: str, target_bytes: int = DEFAULT_TARGET_BYTES) -> None:
        """As `batch_ingest`."""
        self.target_bytes = target_bytes
        self._objects, self._epoch, self._prefix = objects, epoch, prefix
        self._waiting: dict[int, list[EncodedBlocks]] = {}  # by table, in key order
        self._infos: list[SstInfo] = []

    def add_part(self, batches: Iterable[SealedBatch]) -> None:
        """Encode batches, and upload the parts before them if an SST has no room for both.

        Raises the same as `batch_ingest`. Memory: the encoded blocks of at most one SST of each table, and of another
        one while it is uploaded.
        """
        for section in _encode_tables(batches, self._epoch):
            waiting = self._waiting.setdefault(section.table_id, [])
            if waiting and not (_continues(waiting[-1], section) and self._has_room(waiting, section)):
                self._upload([waiting])
                waiting.clear()
            waiting.append(section)

    def close(self) -> list[SstInfo]:
        """Upload the rest. Returns the SSTs of all parts."""
        self._upload([self._waiting.pop(table_id) for table_id in sorted(self._waiting)])
        return self._infos

    def _has_room(self, waiting: Sequence[EncodedBlocks], section: EncodedBlocks) -> bool:
        return sum(int(part.sizes.sum()) for part in (*waiting, section)) <= self.target_bytes

    def _upload(self, tables: Sequence[Sequence[EncodedBlocks]]) -> None:
        sections = [EncodedBlocks.join_parts(parts) for parts in tables]
        self._infos += _upload_sections(self._objects, sections, self._prefix, self.target_bytes)


def _continues(before: EncodedBlocks, section: EncodedBlocks) -> bool:
    """Whether the rows of a section follow those before, in blocks of the same form."""
    ascends: bool = before.last_keys[-1].as_py() < section.first_keys[0].as_py()
    return ascends and before.schema == section.schema


def _encode_tables(batches: Iterable[SealedBatch], epoch: int) -> list[EncodedBlocks]:
    return [encode_blocks(table_id, rows, cuts=_vnode_cuts(rows)) for table_id, rows in stamped_tables(batches, epoch)]


def _upload_sections(
    objects: ObjectStore, sections: Sequence[EncodedBlocks], prefix: str, target_bytes: int
) -> list[SstInfo]:
    started = time.perf_counter()
    infos = _build_and_upload(
        objects, [partial(build_sst, parts, prefix) for parts in cut_sections(sections, target_bytes)]
    )
    rows, size = sum(info.rows for info in infos), sum(info.size for info in infos)
    log.info(
        "uploaded %d SSTs: %d tables, %d rows, %d bytes, %.3f s",
        len(infos),
        len(sections),
        rows,
        size,
        time.perf_counter() - started,
    )
    return infos


def _build_and_upload(objects: ObjectStore, ssts: Sequence[Callable[[], EncodedSst]]) -> list[SstInfo]:
    """Build and upload SSTs. Each is uploaded while the next is built, so at most two are in memory."""

    def upload_sst(sst: EncodedSst) -> SstInfo:
        objects.put(sst.info.name, sst.data)
        keep_uploaded(objects, sst.info, sst.data)
        return sst.info

    if len(ssts) <= 1:
        return [upload_sst(build()) for build in ssts]
    infos: list[SstInfo] = []
    with ThreadPoolExecutor(1, thread_name_prefix="upload") as thread:
        uploading: Future[SstInfo] | None = None
        for build in ssts:
            sst = build()
            if uploading is not None:
                infos.append(uploading.result())
            uploading = thread.submit(upload_sst, sst)
            del sst
        assert uploading is not None
        infos.append(uploading.result())
    return infos


def stamped_tables(batches: Iterable[SealedBatch], epoch: int) -> Iterator[tuple[int, pa.Table]]:
    """Each table's rows from all batches, sorted, after key, epoch, op; by table_id.

    Raises the same as `batch_ingest`.
    """
    by_table = _by_table(batches)
    for table_id in sorted(by_table):
        yield table_id, _add_epoch(table_id, _merge_parts(table_id, by_table.pop(table_id)), epoch)


def _by_table(batches: Iterable[SealedBatch]) -> dict[int, list[pa.Table]]:
    tables_by_id: dict[int, list[pa.Table]] = {}
    for batch in batches:
        _require_columns(batch)
        if batch.rows.num_rows:
            tables_by_id.setdefault(batch.table_id, []).append(batch.rows)
    return tables_by_id


def cut_sections(sections: Sequence[EncodedBlocks], target_bytes: int) -> list[list[EncodedBlocks]]:
    """Distribute the blocks of the sections, in order, over ceil(bytes / target) objects.

    Cuts are between blocks, at equal shares of the bytes. A cut moves to the nearest border between tables or vnode
    groups if one is close, so that the rows of a unit or a table stay together.
    """
    if not sections:
        return []
    sizes = np.concatenate([section.sizes for section in sections])
    total = int(sizes.sum())
    pieces = max(1, min(-(-total // target_bytes), len(sizes)))
    if pieces == 1:
        return [list(sections)]
    ends = np.cumsum(sizes)
    counts = np.array([len(section) for section in sections])
    section_ends = np.cumsum(counts)
    borders = np.unique(np.concatenate([section_ends, *_group_borders(sections, section_ends - counts)]))
    cuts: list[int] = []
    for piece in range(1, pieces):
        ideal = total * piece // pieces
        near = borders[np.abs(ends[borders - 1] - ideal) * _SNAP <= total // pieces]
        cut = (
            int(near[np.argmin(np.abs(ends[near - 1] - ideal))])
            if len(near)
            else int(np.searchsorted(ends, ideal, "left")) + 1
        )
        if (cuts[-1] if cuts else 0) < cut < len(sizes):
            cuts.append(cut)
    answer = []
    for start, end in zip([0, *cuts], [*cuts, len(sizes)], strict=True):
        parts = []
        for section, section_end, count in zip(sections, section_ends.tolist(), counts.tolist(), strict=True):
            low, high = max(start, section_end - count), min(end, section_end)
            if low < high:
                parts.append(section.slice_blocks(low - section_end + count, high - section_end + count))
        answer.append(parts)
    return answer


def _group_borders(sections: Sequence[EncodedBlocks], starts: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Per section, the blocks (numbered over all sections) at which a vnode group starts."""
    answer = []
    for section, start in zip(sections, starts.tolist(), strict=True):
        groups = vnodes_of_keys(section.first_keys) // VNODE_GROUP
        answer.append(start + 1 + np.flatnonzero(groups[1:] != groups[:-1]))
    return answer


def _vnode_cuts(rows: pa.Table) -> npt.NDArray[np.int64] | None:
    """Rows at which a vnode group starts, if the table is large enough to cut there."""
    if rows.num_rows < _CUT_BLOCKS * 1024:
        return None
    groups = vnodes_of_keys(one_array(rows.column(0))) // VNODE_GROUP
    return 1 + np.flatnonzero(groups[1:] != groups[:-1])


def vnodes_of_keys(keys: pa.Array) -> npt.NDArray[np.uint16]:
    """The vnode of each storage key, uint16: bytes 4 and 5."""
    heads = fixed_keys(keys, 6).view(np.uint8).reshape(-1, 6)
    return heads[:, 4].astype(np.uint16) * np.uint16(256) + heads[:, 5]


def _require_columns(batch: SealedBatch) -> None:
    head = [batch.rows.schema.field(i) for i in range(min(2, len(batch.rows.schema)))]
    names, types = [field.name for field in head], [field.type for field in head]
    if (
        names != [KEY, OP]
        or not (pa.types.is_binary(types[0]) or pa.types.is_fixed_size_binary(types[0]))
        or types[1] != pa.uint8()
    ):
        columns = ", ".join(f"{field.name} {field.type}" for field in batch.rows.schema)
        raise WrongRowsError(f"sealed batch of table {batch.table_id}", columns, "key binary, op uint8, then the row's")


def _merge_parts(table_id: int, parts: list[pa.Table]) -> pa.Table:
    """Combine the parts in key order. Disjoint parts are concatenated; others are merged."""
    for part in parts[1:]:
        if part.schema.names != parts[0].schema.names or part.schema.types != parts[0].schema.types:
            raise WrongRowsError(f"sealed batches of table {table_id}", str(part.schema), str(parts[0].schema))
    parts = [part.combine_chunks() for part in parts]
    parts.sort(key=lambda part: part.column(0)[0].as_py())
    apart = all(a.column(0)[-1].as_py() < b.column(0)[0].as_py() for a, b in pairwise(parts))
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks() if apart else merge_tables(parts)


def _add_epoch(table_id: int, rows: pa.Table, epoch: int) -> pa.Table:
    """Add the epoch to rows and check their order. Keys of one length are stored without offsets."""
    keys = one_array(rows.column(0))
    _require_ascending(table_id, keys)
    width, of_one_width = measure_widths(keys)
    if of_one_width:
        keys = as_fixed_size(keys, width)
    epochs = pa.array(np.full(rows.num_rows, epoch, np.uint64))
    columns = rows.select(range(2, rows.num_columns))
    schema = block_schema(keys.type, columns.schema)
    for place, values in ((2, rows.column(1)), (1, epochs), (0, keys)):
        columns = columns.add_column(0, schema.field(place), values)
    return with_schema(columns, schema)


def _require_ascending(table_id: int, keys: pa.Array) -> None:
    above = above_previous(keys)
    if not above.all():
        row = int(np.argmin(above))
        raise UnorderedRowsError(table_id, row, show_key(keys[row - 1].as_py()), show_key(keys[row].as_py()))
