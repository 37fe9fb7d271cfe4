"""Parses SSTs: opens the footer, finds blocks by key, and verifies and decodes them.

Does no I/O; see block_source.py.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.checksum import crc32c
from tussock.statestore.hummock.errors import DamagedSstError, show_key
from tussock.statestore.hummock.packed_blocks import PackedBlock, can_be_packed
from tussock.statestore.hummock.plane_reader import (
    PlaneReader,
    divide_bytes,
    encode_unpacked,
    layout_of,
    pack_block,
    plane_reader,
)
from tussock.statestore.hummock.planes import PlaneLayout
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.sorted_keys import Positions, SortedKeys
from tussock.statestore.hummock.sst_format import (
    BLOCKS_SCHEMA,
    FILTERS_SCHEMA,
    HEAD_COLUMNS,
    SECTIONS_SCHEMA,
    TAIL_SIZE,
    Tail,
    require_crc,
)
from tussock.statestore.meta.version import SstInfo

_PLAIN = pa.ipc.IpcReadOptions(use_threads=False)
_UNDECODABLE = (pa.ArrowInvalid, OSError, StopIteration, ValueError, IndexError, struct.error)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block as it is stored, with a verified checksum."""

    first_block: int  # its number
    data: bytes

    @property
    def end_block(self) -> int:
        """The number of the next block."""
        return self.first_block + 1

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return len(self.data) + 128


@dataclass(slots=True)
class Rows:
    """Decoded blocks of one section: rows in key order, newest first within a key.

    They are the blocks first_block … end_block - 1, without some between them that no call requested.
    """

    first_block: int
    end_block: int
    keys: SortedKeys
    columns: pa.RecordBatch  # the requested row columns
    min_epoch: int
    max_epoch: int
    epochs: npt.NDArray[np.uint64] | None  # None: all rows have min_epoch
    puts: npt.NDArray[np.bool_] | None  # None: all rows are puts
    _at: tuple[int, SortedKeys, Positions] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        # Counts whole buffers: `nbytes` of a batch inspects every column, which took a sixth of the time to decode it.
        heads = (0 if self.epochs is None else self.epochs.nbytes) + (0 if self.puts is None else self.puts.nbytes)
        return int(self.keys.nbytes + self.columns.get_total_buffer_size()) + heads + 512

    def keys_at(self, epoch: int) -> tuple[SortedKeys, Positions | None]:
        """Keys of the rows up to `epoch`, and the positions of these rows (None: all rows)."""
        if self.max_epoch <= epoch:
            return self.keys, None
        if self._at is None or self._at[0] != epoch:
            places = np.zeros(0, np.int64) if self.epochs is None else np.flatnonzero(self.epochs <= np.uint64(epoch))
            self._at = (epoch, self.keys.take(places), places)
        return self._at[1], self._at[2]


class WantedColumns(NamedTuple):
    """The columns to read of blocks, and their layout in the result."""

    heads: int  # number of leading columns: key, and epoch and op if needed
    rows: pa.Schema  # of the row columns in their order
    planes: PlaneReader


class _Piece(NamedTuple):
    """Some blocks of a section."""

    reader: "SectionReader"
    blocks: Positions  # ascending
    parts: Sequence[memoryview]  # the bytes of each, which have the right checksum


class SectionReader:
    """One table's section of an opened SST: its block index, as arrays with one entry per block."""

    def __init__(
        self,
        name: str,
        table_id: int,
        schema_message: bytes,
        blocks: pa.RecordBatch,
        filters: pa.RecordBatch,
        shape: RowShape | None = None,
    ) -> None:
        """`shape`: the table's current row columns, if the section was written before one of them was added."""
        self.name, self.table_id, self.shape = name, table_id, shape
        self.schema_message = schema_message
        self._blocks, self._filters = blocks, filters
        self.offsets = _int_column(blocks, "offset")
        self.lengths = _int_column(blocks, "length")
        # As they are stored: a section may have thousands of blocks, of which a look-up needs a few.
        self.rows, self.deletes, self.crcs, self.min_epochs, self.max_epochs = (
            blocks.column(name).to_numpy() for name in ("rows", "deletes", "crc", "min_epoch", "max_epoch")
        )
        self.filter_lengths = _int_column(filters, "length")
        self._layouts: dict[tuple[bool, bool, tuple[str, ...] | None], WantedColumns] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def filter_offsets(self) -> Positions:
        """The offset of each filter partition in the object."""
        return _int_column(self._filters, "offset")

    @cached_property
    def filter_crcs(self) -> Positions:
        """The checksum of each filter partition."""
        return _int_column(self._filters, "crc")

    @cached_property
    def filter_starts(self) -> Positions:
        """The offset of each filter partition in a FilterArena."""
        starts: Positions = np.cumsum(self.filter_lengths) - self.filter_lengths
        return starts

    @cached_property
    def first_keys(self) -> SortedKeys:
        """The smallest key of each block."""
        return SortedKeys(self._blocks.column("first_key"))

    @cached_property
    def last_keys(self) -> SortedKeys:
        """The greatest key of each block."""
        return SortedKeys(self._blocks.column("last_key"))

    @cached_property
    def schema(self) -> pa.Schema:
        """Key, epoch, op, then the row's columns, as stored."""
        return self.planes.schema

    @property
    def row_schema(self) -> pa.Schema:
        """The row's columns as readers see them."""
        return self._stored_row if self.shape is None else self.shape.schema

    @cached_property
    def _stored_row(self) -> pa.Schema:
        return pa.schema(list(self.schema)[HEAD_COLUMNS:])

    @property
    def planes(self) -> PlaneLayout:
        """The parts of a block."""
        return layout_of(self.schema_message)

    def lacks_columns_of(self, shape: RowShape) -> bool:
        """Whether the section was written before its table had this shape."""
        names: list[str] = self._stored_row.names
        return names != shape.names

    def describe_blocks(self, first: int, end: int) -> str:
        """Describe blocks first … end - 1 for an error message."""
        low, high = self._blocks.column("first_key")[first].as_py(), self._blocks.column("last_key")[end - 1].as_py()
        start, stop = int(self.offsets[first]), int(self.offsets[end - 1] + self.lengths[end - 1])
        which = f"block {first}" if end == first + 1 else f"blocks {first} to {end - 1}"
        return f"table {self.table_id}, {which}, keys {show_key(low)} to {show_key(high)}, bytes {start} to {stop}"

    def decode_blocks(
        self, first: int, end: int, data: bytes | memoryview, columns: Sequence[str] | None = None
    ) -> Rows:
        """Verify and decode blocks first … end - 1.

        Args:
            data: the bytes of these blocks, concatenated.
            columns: row columns to decode; None: all.

        Raises:
            DamagedSstError: a block's checksum does not match, or it does not contain the rows that its index promises.

        Cost: about 50 us per call, and 10 ns per row of two numbers; see PlaneReader.decode_blocks.
        """
        if self.shape is None:
            return self._verify_and_decode(first, end, data, columns)
        wanted = self.shape.names if columns is None else columns
        rows = self._verify_and_decode(first, end, data, [name for name in wanted if name in self._stored_row.names])
        rows.columns = self.shape.widen_rows(rows.columns, wanted)
        return rows

    def _verify_and_decode(self, first: int, end: int, data: bytes | memoryview, columns: Sequence[str] | None) -> Rows:
        self._require_intact(first, end, memoryview(data))
        parts = divide_bytes(memoryview(data), self.lengths[first:end].tolist())
        (rows,) = _decode_together([_Piece(self, np.arange(first, end), parts)], columns)
        return rows

    def decode_each(self, blocks: Sequence[int], parts: Sequence[memoryview]) -> list[Rows]:
        """Verify and decode single blocks, with all row columns.

        Raises DamagedSstError. Cost: less than a call of `decode_blocks` for each.
        """
        if len(blocks) == 1:
            return [self.decode_blocks(block, block + 1, part) for block, part in zip(blocks, parts, strict=True)]
        self._require_each(blocks, parts)
        low, high, rows = self.min_epochs[blocks], self.max_epochs[blocks], self.rows[blocks].tolist()
        mixed, deletes = low != high, self.deletes[blocks] > 0
        wanted = self.find_layout(bool(mixed.any()), bool(deletes.any()), None)
        try:
            arrays_by_block = wanted.planes.decode_each(parts, rows)
        except _UNDECODABLE as error:
            raise self.decoding_error(blocks[0], blocks[-1] + 1, error) from error
        answer = []
        for i, (block, arrays) in enumerate(zip(blocks, arrays_by_block, strict=True)):
            columns = pa.RecordBatch.from_arrays(arrays[wanted.heads :], schema=wanted.rows)
            columns = columns if columns.num_columns else no_columns(rows[i])
            answer.append(
                Rows(
                    block, block + 1, SortedKeys(arrays[0]),
                    columns if self.shape is None else self.shape.widen_rows(columns), int(low[i]), int(high[i]),
                    arrays[1].to_numpy() if mixed[i] else None,
                    arrays[wanted.heads - 1].to_numpy() == 1 if deletes[i] else None,
                )
            )  # fmt: skip
        return answer

    def store_each(self, blocks: Sequence[int], parts: Sequence[memoryview]) -> list[StoredBlock]:
        """Verify single blocks, and copy their bytes. Raises DamagedSstError."""
        self._require_each(blocks, parts)
        return [StoredBlock(block, bytes(part)) for block, part in zip(blocks, parts, strict=True)]

    @cached_property
    def can_pack(self) -> bool:
        """Whether `pack_each` can be used."""
        return can_be_packed(self.planes)

    def pack_each(self, blocks: Sequence[int], parts: Sequence[memoryview]) -> list[PackedBlock]:
        """Verify single blocks, and unpack their planes.

        Requires: `can_pack`. Raises DamagedSstError. Cost: 10 us each.
        """
        layout = self.planes
        self._require_each(blocks, parts)
        packed_blocks = []
        for block, part, rows in zip(blocks, parts, self.rows[blocks].tolist(), strict=True):
            try:
                packed_blocks.append(pack_block(layout, part, block, rows))
            except _UNDECODABLE as error:
                raise self.decoding_error(block, block + 1, error) from error
        return packed_blocks

    def unpack_block(self, block: PackedBlock) -> Rows:
        """All rows of a block. Raises DamagedSstError."""
        piece = _Piece(self, np.array([block.first_block]), [memoryview(encode_unpacked(block))])
        (rows,) = _decode_together([piece], None)
        if self.shape is not None:
            rows.columns = self.shape.widen_rows(rows.columns)
        return rows

    def decoding_error(self, first: int, end: int, error: Exception) -> DamagedSstError:
        """The error for blocks first … end - 1 whose bytes have a valid checksum and do not decode."""
        finding = f"bytes that do not decode ({error})"
        return DamagedSstError(self.name, self.describe_blocks(first, end), finding, "Arrow columns")

    def _require_intact(self, first: int, end: int, data: memoryview) -> None:
        """Verify block checksums. Raises DamagedSstError for the first block whose bytes have changed."""
        lengths = self.lengths[first:end].tolist()
        if len(data) != sum(lengths):
            raise DamagedSstError(
                self.name, self.describe_blocks(first, end), f"{len(data)} bytes", f"{sum(lengths)} bytes"
            )
        offset = 0
        for block, (length, crc) in enumerate(zip(lengths, self.crcs[first:end].tolist(), strict=True), first):
            part = data[offset : offset + length]
            if crc32c(part) != crc:
                require_crc(self.name, self.describe_blocks(block, block + 1), part, crc)
            offset += length

    def _require_each(self, blocks: Sequence[int], parts: Sequence[memoryview]) -> None:
        """`_require_intact` for single blocks."""
        sizes, crcs = self.lengths[blocks].tolist(), self.crcs[blocks].tolist()
        for block, part, size, crc in zip(blocks, parts, sizes, crcs, strict=True):
            if len(part) != size or crc32c(part) != crc:
                self._require_intact(block, block + 1, part)

    def find_layout(self, mixed: bool, deletes: bool, columns: tuple[str, ...] | None) -> WantedColumns:
        """How to read blocks with mixed epochs or deletes. Cost: a look-up, after the first call for a combination."""
        if (layout := self._layouts.get((mixed, deletes, columns))) is None:
            heads = [0, *([1] if mixed else []), *([2] if deletes else [])]
            places = (
                list(range(HEAD_COLUMNS, len(self.schema))) if columns is None else [self._place_of(c) for c in columns]
            )
            layout = self._layouts[mixed, deletes, columns] = WantedColumns(
                len(heads),
                pa.schema([self.schema.field(place) for place in places]),
                plane_reader(self.schema_message, (*heads, *places)),
            )
        return layout

    def _place_of(self, column: str) -> int:
        place: int = HEAD_COLUMNS + self._stored_row.names.index(column)
        return place


def decode_stored(stored: Sequence[tuple[SectionReader, Sequence[StoredBlock]]]) -> list[Rows]:
    """Decode the ascending blocks of each section as one, with all row columns.

    Requires: the sections have one schema message. Raises DamagedSstError.

    Cost: as one `decode_blocks` for all. To decode, cache and search each block alone costs 0.2 ms more per block.
    """
    pieces = [
        _Piece(reader, np.array([one.first_block for one in blocks]), [memoryview(one.data) for one in blocks])
        for reader, blocks in stored
    ]
    rows_by_piece = _decode_together(pieces, None)
    for piece, rows in zip(pieces, rows_by_piece, strict=True):
        if piece.reader.shape is not None:
            rows.columns = piece.reader.shape.widen_rows(rows.columns)
    return rows_by_piece


def _decode_together(pieces: Sequence[_Piece], columns: Sequence[str] | None) -> list[Rows]:
    """The rows of each piece, which share memory. Requires: one schema message. Raises DamagedSstError."""
    some = pieces[0].reader
    lows = [int(reader.min_epochs[blocks].min()) for reader, blocks, _ in pieces]
    highs = [int(reader.max_epochs[blocks].max()) for reader, blocks, _ in pieces]
    deletes = [bool(reader.deletes[blocks].any()) for reader, blocks, _ in pieces]
    counts = [reader.rows[blocks].tolist() for reader, blocks, _ in pieces]
    wanted = some.find_layout(lows != highs, any(deletes), None if columns is None else tuple(columns))
    try:
        arrays = wanted.planes.decode_parts(
            [part for piece in pieces for part in piece.parts], list(chain.from_iterable(counts))
        )
        batch = pa.RecordBatch.from_arrays(arrays[wanted.heads :], schema=wanted.rows)
    except _UNDECODABLE as error:
        if len(pieces) > 1:  # so that the error names the damaged one
            return [rows for piece in pieces for rows in _decode_together([piece], columns)]
        first, end = int(pieces[0].blocks[0]), int(pieces[0].blocks[-1]) + 1
        raise some.decoding_error(first, end, error) from error
    rows_by_piece, start = list[Rows](), 0
    for (_, blocks, _), low, high, has_deletes, rows_by_block in zip(pieces, lows, highs, deletes, counts, strict=True):
        count = sum(rows_by_block)
        keys, *heads = (array.slice(start, count) for array in arrays[: wanted.heads])
        rows_by_piece.append(
            Rows(
                int(blocks[0]), int(blocks[-1]) + 1, SortedKeys(keys),
                batch.slice(start, count) if batch.num_columns else no_columns(count), low, high,
                heads[0].to_numpy() if low != high else None,
                heads[-1].to_numpy() == 1 if has_deletes else None,
            )
        )  # fmt: skip
        start += count
    return rows_by_piece


@dataclass(slots=True)
class FilterArena:
    """Memory for all filter partitions of a section.

    Unloaded ones are zeros, for which the kernel allocates no pages.
    """

    data: npt.NDArray[np.uint8]
    loaded: npt.NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        """Memory in bytes when completely loaded."""
        return self.data.nbytes + self.loaded.nbytes

    def keep_bits(self, reader: SectionReader, first: int, end: int, bits: npt.NDArray[np.uint8]) -> None:
        """Keep the bytes of partitions first … end - 1."""
        if end - first == len(self.loaded):
            self.data = bits
        else:
            start = int(reader.filter_starts[first])
            self.data[start : start + len(bits)] = bits
        self.loaded[first:end] = True


class SstReader:
    """An opened SST: its verified indexes, and other data that was read with them."""

    def __init__(self, info: SstInfo, footer: bytes) -> None:
        """Parse the footer.

        Args:
            info: the SST as its version describes it.
            held: its last `info.footer_size` bytes.

        Raises:
            DamagedSstError: the object's size differs from the recorded one, it is truncated, or its footer has a
                flipped bit.
        """
        self.info, self.name = info, info.name
        self._held, self._held_from = memoryview(footer), info.size - len(footer)
        if len(footer) != info.footer_size:
            raise DamagedSstError(info.name, "its footer", f"{len(footer)} bytes", f"{info.footer_size} bytes")
        self.tail = tail = Tail.decode(info.name, self._held[-TAIL_SIZE:])
        index = self._held[max(0, len(footer) - TAIL_SIZE - tail.index_len) : len(footer) - TAIL_SIZE]
        self.index_offset = info.size - TAIL_SIZE - tail.index_len
        require_crc(
            info.name, f"its index, bytes {self.index_offset} to {info.size - TAIL_SIZE}", index, tail.index_crc
        )
        if tail.rows != info.rows:
            raise DamagedSstError(
                info.name,
                "its tail",
                f"{tail.rows} rows",
                f"{info.rows} rows as in its version: it is a different SST",
            )
        self._sections = _parse_batch(index[: tail.sections_len], SECTIONS_SCHEMA)
        self._blocks = _parse_batch(index[tail.sections_len : tail.sections_len + tail.blocks_len], BLOCKS_SCHEMA)
        self._filters = _parse_batch(index[tail.sections_len + tail.blocks_len :], FILTERS_SCHEMA)
        self._table_ids = self._sections.column("table_id").to_numpy()
        self._readers: dict[tuple[int, str], SectionReader] = {}  # by table and digest of its shape

    @property
    def nbytes(self) -> int:
        """Memory in bytes: the footer, once raw and once as padded keys."""
        return 2 * len(self._held) + 1024

    @property
    def table_ids(self) -> list[int]:
        """Tables with a section, ascending."""
        ids: list[int] = self._table_ids.tolist()
        return ids

    def open_section(self, table_id: int, shape: RowShape | None = None) -> SectionReader:
        """The section of a table, with the table's current row columns. Requires: it exists."""
        stored = self._stored_section(table_id, None)
        return stored if shape is None or not stored.lacks_columns_of(shape) else self._stored_section(table_id, shape)

    def _stored_section(self, table_id: int, shape: RowShape | None) -> SectionReader:
        which = table_id, "" if shape is None else shape.digest
        if (reader := self._readers.get(which)) is None:
            number = int(np.searchsorted(self._table_ids, table_id))
            blocks, partitions = _int_column(self._sections, "blocks"), _int_column(self._sections, "partitions")
            first_block, first_partition = int(blocks[:number].sum()), int(partitions[:number].sum())
            reader = self._readers[which] = SectionReader(
                self.name,
                table_id,
                self._sections.column("schema")[number].as_py(),
                self._blocks.slice(first_block, int(blocks[number])),
                self._filters.slice(first_partition, int(partitions[number])),
                shape,
            )
        return reader

    def held_bytes(self, offset: int, length: int) -> memoryview | None:
        """These bytes of the object if they were read with the footer, else None."""
        start = offset - self._held_from
        return self._held[start : start + length] if start >= 0 else None


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table's rows as one batch."""
    batches = table.combine_chunks().to_batches()
    return (
        batches[0] if len(batches) == 1 else pa.concat_batches(batches or [table.schema.empty_table().to_batches()[0]])
    )


def no_columns(rows: int) -> pa.RecordBatch:
    """A batch of `rows` rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])).take(pa.array(np.zeros(rows, np.int64))))


def taken_from(batches: Sequence[pa.RecordBatch], rows: Positions) -> list[pa.RecordBatch]:
    """Copy some rows of concatenated batches, so that the batches can be dropped. Requires: equal schemas."""
    if not batches[0].num_columns:
        return [no_columns(len(rows))]
    taken: list[pa.RecordBatch] = pa.Table.from_batches(batches).take(pa.array(rows)).combine_chunks().to_batches()
    return taken


def _parse_batch(data: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    batch = pa.ipc.open_stream(pa.py_buffer(data), options=_PLAIN).read_next_batch()
    assert batch.schema.equals(schema), (
        "the index has a valid checksum, so a writer used another schema for this version"
    )
    return batch


def _int_column(batch: pa.RecordBatch, column: str) -> Positions:
    values = batch.column(column).to_numpy()
    integers: Positions = values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)
    return integers
