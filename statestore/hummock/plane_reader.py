"""Decodes blocks whose values are split into planes; planes.py specifies them.

Blocks with the same stored planes are decoded together: all planes of columns of one width are moved to their places by
one NumPy assignment. Consecutive zstd frames are unpacked by one call.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.packed_blocks import PackedBlock
from tussock.statestore.hummock.planes import (
    LZ4,
    LZ4_BLOCKS,
    PLAIN,
    WORDS,
    ZSTD,
    Bytes,
    ColumnParts,
    Form,
    Mask,
    PlaneLayout,
    Positions,
    bits_of,
    of_one_width,
    packed_by_lz4,
    planes_of,
)
from tussock.statestore.vnode import one_array

_REMEMBERED = 16  # combinations of stored planes per reader
_COUNTED = 1024  # combinations of stored planes and bitmaps per layout
_SCHEMAS = 64  # of sections, whose layouts stay in memory
_READ = pa.ipc.IpcReadOptions(use_threads=False)
_MAX_OFFSET = 2**31 - 1
_CODECS = ("", "lz4_raw", "zstd")  # as Arrow calls them, by number
_LITERALS = 5  # bytes at the end of every LZ4 block that are not packed


class PlaneReader:
    """Decodes some columns of a section's blocks."""

    def __init__(self, layout: PlaneLayout, columns: Sequence[int]) -> None:
        """`columns`: numbers of the columns in the section's schema."""
        self.layout = layout
        self.places = [layout.places[number] for number in columns]
        self.groups = of_one_width({place.number: place for place in self.places}.values())
        self._nested = any(place.form is Form.NESTED for place in self.places)
        self._stored: dict[bytes, _Stored] = {}

    def decode_blocks(self, data: memoryview, lengths: Sequence[int], rows: Sequence[int]) -> list[pa.Array]:
        """The columns of consecutive blocks, each as one array.

        Args:
            data: the bytes of the blocks, concatenated. `lengths` has the bytes of each.
            rows: the rows of each block.

        Raises: ArrowInvalid, OSError, ValueError, IndexError or struct.error for bytes that do not decode.
        Cost: 50 to 100 us per call, and 1 ns per row and stored plane; per text packed by zstd 10 us, and 1 ns per
            byte.
        """
        parts, offset = [], 0
        for length in lengths:
            parts.append(data[offset : offset + length])
            offset += length
        return self.decode_parts(parts, rows)

    def decode_parts(self, parts: Sequence[memoryview], rows: Sequence[int]) -> list[pa.Array]:
        """`decode_blocks` of blocks that are apart: `parts` has the bytes of each."""
        blocks = self._unpack_blocks(parts, rows)
        nested = blocks.read_nested() if self._nested else {}
        count = sum(rows)
        return [
            nested[place.number] if place.form is Form.NESTED else blocks.column_array(place, 0, count)
            for place in self.places
        ]

    def decode_each(self, parts: Sequence[memoryview], rows: Sequence[int]) -> list[list[pa.Array]]:
        """The columns of each of some blocks. Blocks share no memory, so that each can be cached.

        Raises the same as `decode_blocks`. Cost: 30 to 60 us per block.
        """
        if self._nested:
            return [self.decode_blocks(part, [len(part)], [count]) for part, count in zip(parts, rows, strict=True)]
        blocks = self._unpack_blocks(parts, rows)
        bounds = pairwise([0, *accumulate(rows)])
        return [[blocks.column_array(place, start, end) for place in self.places] for start, end in bounds]

    def _unpack_blocks(self, parts: Sequence[memoryview], rows: Sequence[int]) -> "_Blocks":
        blocks = [_Block(self.layout, part, count) for part, count in zip(parts, rows, strict=True)]
        return _Blocks(self, blocks, [_Stretch(self, same) for same in _group_equal(blocks)])

    def find_stored(self, block: "_Block") -> "_Stored":
        """The parts of a block. Blocks of a section mostly have the same ones."""
        if (stored_parts := self._stored.get(block.stored_flags)) is None:
            if len(self._stored) >= _REMEMBERED:
                self._stored.clear()
            stored_parts = self._stored[block.stored_flags] = _Stored(self, block.stored_flags)
        return stored_parts


def divide_bytes(data: memoryview, lengths: Sequence[int]) -> list[memoryview]:
    """Parts of these lengths, one after another."""
    return [data[end - length : end] for end, length in zip(accumulate(lengths), lengths, strict=True)]


def pack_block(layout: PlaneLayout, data: memoryview, number: int, rows: int) -> PackedBlock:
    """A block of `rows` rows with its planes unpacked.

    Requires: `can_be_packed(layout)`. Raises ArrowInvalid, OSError, ValueError or struct.error for bytes that do not
    decode. Cost: 5 us, and 0.2 ns per byte.
    """
    block = _Block(layout, data, rows)
    flags = block.stored_flags
    if (counts := layout.counts.get(flags)) is None:
        if len(layout.counts) >= _COUNTED:
            layout.counts.clear()
        split = layout.varying_at - layout.flags_at
        nulls, stored = (int.from_bytes(part, "little").bit_count() for part in (flags[:split], flags[split:]))
        counts = layout.counts[flags] = stored, nulls + layout.booleans
    planes = block.unpack_planes(counts[0] * rows + counts[1] * -(-rows // 8))
    return PackedBlock(number, rows, bytes(data[: layout.head_bytes]), bytes(planes), layout)


def encode_unpacked(block: PackedBlock) -> bytes:
    """The bytes of a block whose planes are not packed, which decodes to the same rows."""
    return block.layout.sizes.pack(len(block.planes), PLAIN) + block.head[block.layout.flags_at :] + block.planes


class _Block:
    """A block's bytes and sizes."""

    __slots__ = ("_codecs", "_data", "_layout", "_sizes", "constants", "rows", "stored_flags")

    def __init__(self, layout: PlaneLayout, data: memoryview, rows: int) -> None:
        self._layout, self._data, self.rows = layout, data, rows
        sizes_and_codecs = layout.sizes.unpack_from(data)
        extents = 2 * layout.extents
        self._sizes, self._codecs = sizes_and_codecs[: 1 + extents], sizes_and_codecs[1 + extents :]
        if layout.head_bytes + sum(self._sizes[::2]) != len(data):
            raise ValueError(f"parts of {self._sizes[::2]} bytes in a block of {len(data)} bytes")
        self.stored_flags = data[layout.flags_at : layout.constants_at].tobytes()
        self.constants = data[layout.constants_at : layout.head_bytes]

    @property
    def planes_bytes(self) -> int:
        """Stored bytes of the planes and bitmaps."""
        return int(self._sizes[0])

    def unpack_planes(self, size: int) -> bytes | memoryview:
        """The planes and bitmaps. `size`: their bytes."""
        start = self._layout.head_bytes
        return _unpack_part(self._codecs[0], size, self._data[start : start + self._sizes[0]])

    def unpack_extent(self, number: int) -> "_Extent":
        """A text, or the message of the nested columns."""
        start = self._layout.head_bytes + sum(self._sizes[0 : 2 * number + 1 : 2])
        size, stored = self._sizes[2 * number + 1 : 2 * number + 3]
        return _Extent(self._codecs[1 + number], size, self._data[start : start + stored])


class _Extent(NamedTuple):
    codec: int
    size: int  # unpacked
    data: memoryview


def _unpack_part(codec: int, size: int, data: bytes | memoryview) -> bytes | memoryview:
    if codec == PLAIN:
        if len(data) != size:
            raise ValueError(f"a part of {len(data)} bytes instead of {size}")
        return data
    unpacker = LZ4_BLOCKS if codec == LZ4 else pa.Codec(_CODECS[codec])
    unpacked: bytes = unpacker.decompress(data, size, asbytes=True)
    # Arrow does not notice LZ4 that ends early, and leaves the rest of the memory as it was.
    if codec == LZ4 and unpacked[-_LITERALS:] != data[-_LITERALS:]:
        raise ValueError(f"a part that does not unpack to {size} bytes")
    return unpacked


@lru_cache(maxsize=_SCHEMAS)
def layout_of(schema_message: bytes) -> PlaneLayout:
    """The parts of a section's blocks. Sections of a table share it, because it takes more memory than their index."""
    return PlaneLayout(pa.ipc.read_schema(pa.py_buffer(schema_message)))


@lru_cache(maxsize=4 * _SCHEMAS)
def plane_reader(schema_message: bytes, columns: tuple[int, ...]) -> PlaneReader:
    """A reader of some columns, which sections of a table share. Threads may share it."""
    return PlaneReader(layout_of(schema_message), columns)


def _group_equal(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Consecutive blocks with the same number of rows."""
    if len(blocks) == 1:
        yield blocks
        return
    for _, same in groupby(blocks, lambda block: block.rows):
        yield list(same)


@dataclass(frozen=True, slots=True)
class _Moves:
    """The stored planes of columns of one width, and their target: column, and byte of the value."""

    count: int  # of columns
    width: int
    constants: Positions  # (columns * width,): planes
    planes: Positions  # (stored,): numbers among the stored planes
    columns: Positions
    bytes: Positions


class _Stored:
    """Which planes and bitmaps a block has, for the columns of a reader."""

    def __init__(self, reader: PlaneReader, flags: bytes) -> None:
        layout = reader.layout
        split = layout.varying_at - layout.flags_at
        nullable = np.unpackbits(np.frombuffer(flags, np.uint8)[:split], bitorder="little").view(np.bool_)
        varying = np.unpackbits(np.frombuffer(flags, np.uint8)[split:], bitorder="little").view(np.bool_)
        self.nullable = frozenset(np.flatnonzero(nullable).tolist())
        bitmaps = [
            (place.number, nulls)
            for place in layout.places
            for nulls in (False, True)
            if (place.number in self.nullable if nulls else place.form is Form.BITS)
        ]
        self.bitmaps = {which: number for number, which in enumerate(bitmaps)}
        self.planes = int(varying.sum())
        self.before = np.concatenate([[0], np.cumsum(varying)])  # the stored planes before each plane
        self.moves = []
        for places in reader.groups:
            width, planes = places[0].width, planes_of(places)
            stored = np.flatnonzero(varying[planes])
            self.moves.append(
                _Moves(len(places), width, planes, self.before[planes[stored]], stored // width, stored % width)
            )


class _Group:
    """The planes and bitmaps of blocks that are decoded together."""

    def __init__(self, stored: _Stored, blocks: Sequence[_Block]) -> None:
        self.stored, self.count, self.rows = stored, len(blocks), blocks[0].rows
        planes, bitmap = stored.planes * self.rows, -(-self.rows // 8)
        size = planes + len(stored.bitmaps) * bitmap
        raw = [block.unpack_planes(size) for block in blocks]
        every = np.frombuffer(raw[0] if len(raw) == 1 else b"".join(raw), np.uint8).reshape(self.count, size)
        self.planes = every[:, :planes].reshape(self.count, stored.planes, self.rows).transpose(1, 0, 2)
        self._bits = every[:, planes:].reshape(self.count, len(stored.bitmaps), bitmap)
        constants = [block.constants for block in blocks]
        #: (blocks, constants)
        self._constants = np.frombuffer(b"".join(constants), np.uint8).reshape(self.count, -1)

    def column_values(self, number: int) -> Bytes:
        """(columns, bytes): the values of columns of one width."""
        moves = self.stored.moves[number]
        values = _repeat_constants(self._constants[:, moves.constants], moves, self.rows)
        if len(moves.planes):
            cells = values.reshape(moves.count, self.count, self.rows, moves.width).transpose(0, 3, 1, 2)
            cells[moves.columns, moves.bytes] = self.planes[moves.planes]
        return values

    def column_bits(self, number: int, nulls: bool) -> Mask:
        """(rows,): the values of a boolean column, or whether values are not NULL."""
        place = self.stored.bitmaps.get((number, nulls))
        if place is None:
            return np.ones(self.count * self.rows, np.bool_)
        each = np.unpackbits(self._bits[:, place], axis=1, count=self.rows, bitorder="little")
        return each.reshape(-1).view(np.bool_)


class _Stretch:
    """Consecutive blocks with the same number of rows, in groups with the same stored planes."""

    def __init__(self, reader: PlaneReader, blocks: Sequence[_Block]) -> None:
        self._count = len(blocks)
        places_by_flags = dict[bytes, list[int]]()
        for place, block in enumerate(blocks):
            places_by_flags.setdefault(block.stored_flags, []).append(place)
        self._places = [np.array(places) for places in places_by_flags.values()]
        self.groups = [
            _Group(reader.find_stored(blocks[places[0]]), [blocks[place] for place in places])
            for places in places_by_flags.values()
        ]

    def column_values(self, number: int) -> Bytes:
        """(columns, bytes): as `_Group.column_values`, in the order of the blocks."""
        return self._in_order([group.column_values(number) for group in self.groups])

    def column_bits(self, number: int, nulls: bool) -> Mask:
        """(rows,): as `_Group.column_bits`, in the order of the blocks."""
        bits: Mask = self._in_order([group.column_bits(number, nulls)[None] for group in self.groups])[0]
        return bits

    def _in_order(self, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """(columns, …): the values (columns, …) of each group, in the order of the blocks."""
        if len(parts) == 1:
            return parts[0]
        columns = len(parts[0])
        values = np.empty((columns, self._count, parts[0].shape[1] // self.groups[0].count), parts[0].dtype)
        for places, group, part in zip(self._places, self.groups, parts, strict=True):
            values[:, places] = part.reshape(columns, group.count, -1)
        return values.reshape(columns, -1)


def _repeat_constants(constants: Bytes, moves: _Moves, rows: int) -> Bytes:
    """(columns, blocks * rows * width): the constants (blocks, columns * width) of each column, once per row."""
    if moves.count == 1 and moves.width not in WORDS:  # as of most keys: bytes are repeated faster than NumPy's values
        repeated = b"".join([block.tobytes() * rows for block in constants])
        return np.frombuffer(repeated, np.uint8).copy().reshape(1, -1)
    value = np.dtype(WORDS.get(moves.width, f"V{moves.width}"))
    values = np.empty((moves.count, len(constants), rows), value)
    values[:] = np.ascontiguousarray(constants).view(value).T[:, :, None]
    return values.view(np.uint8).reshape(moves.count, -1)


class _Blocks:
    """The columns of some blocks."""

    def __init__(self, reader: PlaneReader, blocks: Sequence[_Block], stretches: Sequence[_Stretch]) -> None:
        self._layout, self._blocks, self._stretches = reader.layout, blocks, stretches
        self._nullable = frozenset().union(
            *[group.stored.nullable for stretch in stretches for group in stretch.groups]
        )
        self._values: dict[int, Bytes] = {}
        for number, places in enumerate(reader.groups):
            parts = [stretch.column_values(number) for stretch in stretches]
            columns = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
            for place, column in zip(places, columns, strict=True):
                self._values[place.number] = column
        self._bits: dict[tuple[int, bool], Mask] = {}
        self._texts: dict[int, tuple[npt.NDArray[np.int32], bytes]] = {}

    def column_array(self, place: ColumnParts, start: int, end: int) -> pa.Array:
        """Rows start … end - 1 of a column that is not nested."""
        validity = self._pack_bitmap(place, True, start, end) if place.number in self._nullable else None
        match place.form:
            case Form.FIXED:
                values = self._values[place.number]
                if end - start < len(values) // place.width:
                    values = values[start * place.width : end * place.width].copy()
                buffers = [validity, pa.py_buffer(values)]
            case Form.TEXT:
                buffers = [validity, *self._text_buffers(place, start, end)]
            case _:
                buffers = [validity, self._pack_bitmap(place, False, start, end)]
        return pa.Array.from_buffers(place.kind, end - start, buffers)

    def _text_buffers(self, place: ColumnParts, start: int, end: int) -> tuple[pa.Buffer, pa.Buffer]:
        """The offsets and the bytes of texts."""
        if (ends_and_data := self._texts.get(place.number)) is None:
            lengths = self._values[place.number].view(np.int32)
            ends = np.empty(len(lengths) + 1, np.int32)
            ends[0] = 0
            np.cumsum(lengths, out=ends[1:])
            data = _joined_extents(self._blocks, place.extent)
            sizes = lengths.view(np.uint32)
            total = int(ends[-1])
            if int(np.maximum.reduce(sizes)) * len(sizes) > _MAX_OFFSET:  # `ends` may have overflown
                total = int(sizes.sum(dtype=np.uint64))
            if len(data) != total:
                raise ValueError(f"{len(data)} bytes of text instead of {total}")
            ends_and_data = self._texts[place.number] = ends, data
        ends, data = ends_and_data
        if end - start == len(ends) - 1:
            return pa.py_buffer(ends), pa.py_buffer(data)
        return pa.py_buffer(ends[start : end + 1] - ends[start]), pa.py_buffer(data[ends[start] : ends[end]])

    def _pack_bitmap(self, place: ColumnParts, nulls: bool, start: int, end: int) -> pa.Buffer:
        if (bits := self._bits.get((place.number, nulls))) is None:
            bits = np.concatenate([stretch.column_bits(place.number, nulls) for stretch in self._stretches])
            self._bits[place.number, nulls] = bits
        return pa.py_buffer(np.packbits(bits[start:end], bitorder="little"))

    def read_nested(self) -> dict[int, pa.Array]:
        """All nested columns by number."""
        layout = self._layout
        messages = _joined_extents(self._blocks, layout.extents - 1)
        stream = pa.ipc.open_stream(pa.py_buffer(b"".join([layout.nested_message, messages])), options=_READ)
        columns = stream.read_all().columns
        return {number: one_array(column) for number, column in zip(layout.nested, columns, strict=True)}


def _joined_extents(blocks: Sequence[_Block], number: int) -> bytes:
    """An extent of all blocks. Consecutive zstd frames are unpacked at once, because each call costs 10 us."""
    if len(blocks) == 1:
        return bytes(_unpack_part(*blocks[0].unpack_extent(number)))
    joined = []
    for codec, same in groupby((block.unpack_extent(number) for block in blocks), lambda extent: extent.codec):
        extents = list(same)
        if codec == ZSTD:
            frames = b"".join([extent.data for extent in extents])
            joined.append(_unpack_part(codec, sum(extent.size for extent in extents), frames))
        else:
            joined += [_unpack_part(*extent) for extent in extents]
    return b"".join(joined)


def bytes_by_column(layout: PlaneLayout, data: memoryview, rows: int) -> npt.NDArray[np.float64]:
    """(columns,): the stored bytes of each column in one block, without the block's head.

    The bytes of the planes are divided in proportion to the bytes of each column when packed alone.
    """
    block = _Block(layout, data, rows)
    stored = _Stored(PlaneReader(layout, ()), block.stored_flags)
    group = _Group(stored, [block])
    alone, extents = np.zeros(len(layout.places)), np.zeros(len(layout.places))
    for place in layout.places:
        first, end = stored.before[place.plane], stored.before[place.plane + place.width]
        raw = group.planes[first:end].tobytes()
        raw += b"".join(bits_of(group.column_bits(*which)) for which in stored.bitmaps if which[0] == place.number)
        alone[place.number] = len(packed_by_lz4(raw)[1])
        if place.form in (Form.TEXT, Form.NESTED):
            extents[place.number] = len(block.unpack_extent(place.extent).data)
    share = block.planes_bytes / max(alone.sum(), 1)
    column_bytes: npt.NDArray[np.float64] = alone * share + extents
    return column_bytes
