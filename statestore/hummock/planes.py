"""Blocks of columns whose values are split into planes.

Plane j of a fixed-width column holds byte j of each value. Values of one column differ in few bytes, so most planes
repeat one byte and are not stored. LZ4 packs the others better and faster than whole values, and finds columns that the
key repeats. Texts are often packed by zstd, because LZ4 cannot shorten a text of few letters if no part repeats.

    +-------------------+  head: not packed; its size depends only on the section's schema
    | packed u32        |  stored bytes of the planes
    | extents           |  per extent: bytes u32, stored bytes u32
    | codecs            |  of the planes, and per extent: u8: 0 not packed, 1 LZ4 block, 2 zstd frame
    | nullable          |  one bit per column: the block has its bitmap of NULLs
    | varying           |  one bit per plane: it is stored; all bytes of any other plane are its constant
    | constants         |  one byte per plane; 0 if it is stored
    +-------------------+
    | planes            |  the stored planes, a byte per row each; then the bitmaps
    +-------------------+
    | extents           |
    +-------------------+  end of the block

The parts are in the order of the section's columns (key, epoch, op, then the row's):

    fixed width of w bytes   w planes
    string, binary           4 planes: the lengths of the values in bytes, u32; and an extent: the values, without gaps
    boolean                  no plane; a bitmap: the values
    array, map, struct       no plane; all such columns together are the last extent: a record batch message without
                             compression, of these columns alone

A bitmap has a bit per row, rounded up to bytes. A column's bitmap of NULLs (1: not NULL) comes after its bitmap of
values. Bits are counted from the lowest. A NULL's bytes are 0, its length is 0.

The planes are packed by LZ4, or not if it saves less than an eighth. So is an extent, unless zstd saves _WORTH_ZSTD
bytes more: unpacking by zstd costs 10 us and 1 ns per byte, ten times the cost of LZ4.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.batch_message import BatchMessage
from tussock.statestore.hummock.ipc_messages import record_messages
from tussock.statestore.nested import is_nested
from tussock.statestore.stacked import FEW_ROWS, group_stacks, stack_columns

_LENGTH_BYTES = 4
_SMALL = 64  # bytes; packing fewer saves nothing
_WORTH = 8  # packing must save one byte in so many
_LEAST_FOR_ZSTD, _WORTH_ZSTD = 2048, 768  # bytes that LZ4 leaves, and that zstd must save over it
PLAIN, LZ4, ZSTD = 0, 1, 2  # codecs
WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

#: Arrow's codec has no state, so threads share it; making one takes a quarter of a block's time.
LZ4_BLOCKS = pa.Codec("lz4_raw")
_WRITE = pa.ipc.IpcWriteOptions(use_threads=False)

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Bounds = Sequence[tuple[int, int]]


class Form(Enum):
    """How a block stores a column."""

    FIXED = "planes"
    TEXT = "planes of lengths, and an extent"
    BITS = "a bitmap"
    NESTED = "the last extent"


_VARYING = (Form.NESTED, Form.TEXT)


class ColumnParts(NamedTuple):
    """The parts of a block that hold a column."""

    number: int  # of the column
    kind: pa.DataType
    form: Form
    plane: int  # its first plane
    width: int  # number of its planes
    extent: int  # of TEXT and NESTED


class PlaneLayout:
    """The parts of a section's blocks, from the section's schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.places: list[ColumnParts] = []
        forms = [_form_of(kind) for kind in schema.types]
        texts = forms.count(Form.TEXT)
        planes = extent = 0
        for number, (kind, form) in enumerate(zip(schema.types, forms, strict=True)):
            width = _width_of(kind, form)
            self.places.append(ColumnParts(number, kind, form, planes, width, texts if form is Form.NESTED else extent))
            planes, extent = planes + width, extent + (form is Form.TEXT)
        self.nested = [place.number for place in self.places if place.form is Form.NESTED]
        self.flat = [place.number for place in self.places if place.form is not Form.NESTED]
        # Of the columns that are not nested, the first buffer in a message of these alone.
        counts = [3 if form is Form.TEXT else 2 for form in forms if form is not Form.NESTED]
        self.first_buffers = np.zeros(len(forms), np.int64)
        self.first_buffers[self.flat] = np.cumsum([0, *counts[:-1]]) if counts else 0
        self.varying = [place.number for place in self.places if place.form in _VARYING]
        self.fixed_bytes: float = sum(place.kind.bit_width for place in self.places if place.form not in _VARYING) / 8
        self.booleans = forms.count(Form.BITS)
        self.counts: dict[bytes, tuple[int, int]] = {}  # by flags, the stored planes and bitmaps
        self.planes, self.extents = planes, texts + bool(self.nested)
        flags, bits = -(-len(self.places) // 8), -(-planes // 8)
        self.sizes = struct.Struct(f"<{1 + 2 * self.extents}I{1 + self.extents}B")
        self.flags_at = self.sizes.size
        self.varying_at = self.flags_at + flags
        self.constants_at = self.varying_at + bits
        self.head_bytes = self.constants_at + planes

    @cached_property
    def nested_schema(self) -> pa.Schema:
        """The nested columns."""
        return pa.schema([self.schema.field(number) for number in self.nested])

    @cached_property
    def nested_message(self) -> bytes:
        """The schema message of the nested columns."""
        message: bytes = self.nested_schema.serialize().to_pybytes()
        return message


def _form_of(kind: pa.DataType) -> Form:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return Form.TEXT
    return Form.BITS if pa.types.is_boolean(kind) else Form.NESTED if is_nested(kind) else Form.FIXED


def _width_of(kind: pa.DataType, form: Form) -> int:
    return int(kind.bit_width) // 8 if form is Form.FIXED else _LENGTH_BYTES if form is Form.TEXT else 0


def of_one_width(places: Iterable[ColumnParts]) -> list[list[ColumnParts]]:
    """The places with planes, in groups that NumPy handles at once: columns of one width."""
    groups: dict[int, list[ColumnParts]] = {}
    for place in places:
        if place.width:
            groups.setdefault(place.width, []).append(place)
    return list(groups.values())


class CommonParts(NamedTuple):
    """The stored parts of blocks that are encoded together: they store the same planes and bitmaps."""

    nullable: Mask  # (columns,): whether a column has a NULL
    varying: Mask  # (planes,)
    first: Bytes  # (planes,): the byte of the first row

    @property
    def flags(self) -> bytes:
        """The flags and constants in the head of each block."""
        constants = np.where(self.varying, np.uint8(0), self.first)
        return bits_of(self.nullable) + bits_of(self.varying) + constants.tobytes()


def encode_planes(
    layout: PlaneLayout,
    batch: pa.RecordBatch,
    bounds: Bounds,
) -> Iterator[bytes]:
    """The bytes of each block.

    Args:
        batch: the rows of all blocks; bytes under NULLs are zeros or empty.
        bounds: the first row of each block, and the one after its last. A plane is stored in all blocks or in none.
    """
    texts = _text_columns(layout, batch)
    message = _message_of(layout, batch)
    cells = _plane_cells(layout, batch, texts, message)
    common = _common_parts(layout, batch, cells, message)
    stored = _stored_planes(cells, common.varying, batch.num_rows)
    bitmaps = _make_bitmaps(layout, batch, common.nullable)
    flags = common.flags
    nested = _nested_messages(layout, batch, bounds)
    for start, end in bounds:
        extents = [*(text.values_between(start, end) for text in texts), *([next(nested)] if layout.nested else [])]
        raw = stored[:, start:end].tobytes()
        if len(bitmaps):
            raw += np.packbits(bitmaps[:, start:end], axis=1, bitorder="little").tobytes()
        codec, planes = packed_by_lz4(raw)
        frames = [_pack_extent(extent) for extent in extents]
        sizes = [size for extent, (_, frame) in zip(extents, frames, strict=True) for size in (len(extent), len(frame))]
        head = layout.sizes.pack(len(planes), *sizes, codec, *(codec for codec, _ in frames))
        yield b"".join([head, flags, planes, *(frame for _, frame in frames)])


def _make_bitmaps(layout: PlaneLayout, batch: pa.RecordBatch, nullable: Mask) -> Mask:
    """(bitmaps, rows): the values of Booleans, and which rows of a column with NULLs have a value, column by column."""
    booleans = [place.number for place in layout.places if place.form is Form.BITS]
    gappy = np.flatnonzero(nullable).tolist()
    values = _column_masks(batch, booleans, lambda column: column.fill_null(False))
    valid = _column_masks(batch, gappy, pc.is_valid)
    order = sorted([(number, 0, i) for i, number in enumerate(booleans)] + [(n, 1, i) for i, n in enumerate(gappy)])
    bitmaps = np.empty((len(order), batch.num_rows), np.bool_)
    for row, (_, kind, i) in enumerate(order):
        bitmaps[row] = (values, valid)[kind][i]
    return bitmaps


def _column_masks(batch: pa.RecordBatch, numbers: Sequence[int], mask: Callable[[pa.Array], pa.Array]) -> Mask:
    """(columns, rows): a mask of each column."""
    masks = np.empty((len(numbers), batch.num_rows), np.bool_)
    columns = [batch.column(number) for number in numbers]
    for places in group_stacks([column.type for column in columns], batch.num_rows, columns):
        stacked = mask(stack_columns([columns[i] for i in places])).to_numpy(zero_copy_only=False)
        masks[places] = np.asarray(stacked, np.bool_).reshape(len(places), -1)
    return masks


class _Text(NamedTuple):
    """The values of a text, without gaps."""

    offsets: npt.NDArray[np.int32]
    data: memoryview

    @staticmethod
    def from_column(column: pa.Array) -> "_Text":
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
        return _Text(ends, memoryview(b"" if data is None else data))

    def values_between(self, start: int, end: int) -> memoryview:
        """The values of some rows."""
        return self.data[self.offsets[start] : self.offsets[end]]


class _Cells(NamedTuple):
    """The bytes of columns of one width."""

    planes: Positions  # (columns * width,): their planes
    values: Bytes  # (columns, rows, width)


def _text_columns(layout: PlaneLayout, batch: pa.RecordBatch) -> list[_Text]:
    return [_Text.from_column(batch.column(place.number)) for place in layout.places if place.form is Form.TEXT]


def _message_of(layout: PlaneLayout, batch: pa.RecordBatch) -> BatchMessage | None:
    """The columns that are not nested, if the rows are few. Copying many costs more than an object per column."""
    if batch.num_rows > FEW_ROWS:
        return None
    return BatchMessage.from_batch(batch.select(layout.flat) if layout.nested else batch)


def _plane_cells(
    layout: PlaneLayout, batch: pa.RecordBatch, texts: Sequence[_Text], message: BatchMessage | None
) -> list[_Cells]:
    """The bytes of all planes."""
    rows = batch.num_rows
    cells: list[_Cells] = []
    for places in of_one_width(layout.places):
        width = places[0].width
        values = np.empty((len(places), rows, width), np.uint8)
        fixed = [i for i, place in enumerate(places) if place.form is not Form.TEXT]
        if message is None:
            for i in fixed:
                column = batch.column(places[i].number)
                data = np.frombuffer(column.buffers()[1], np.uint8, rows * width, column.offset * width)
                values[i] = data.reshape(rows, width)
        else:
            buffers = layout.first_buffers[[places[i].number for i in fixed]] + 1
            values[fixed] = message.read_values(buffers, rows * width).reshape(len(fixed), rows, width)
        if len(fixed) < len(places):
            for target, place in zip(values, places, strict=True):
                if place.form is Form.TEXT:
                    ends = texts[place.extent].offsets
                    np.subtract(ends[1:], ends[:-1], out=target.view(np.int32).reshape(-1))
        cells.append(_Cells(planes_of(places), values))
    return cells


def _common_parts(
    layout: PlaneLayout, batch: pa.RecordBatch, cells: Sequence[_Cells], message: BatchMessage | None
) -> CommonParts:
    varying, first = np.zeros(layout.planes, np.bool_), np.zeros(layout.planes, np.uint8)
    for planes, values in cells:
        varying[planes], first[planes] = _find_varying(values).reshape(-1), values[:, 0].reshape(-1)
    nullable = np.zeros(len(layout.places), np.bool_)
    nullable[layout.flat] = (
        [batch.column(number).null_count > 0 for number in layout.flat] if message is None else message.null_counts > 0
    )
    return CommonParts(nullable, varying, first)


def _stored_planes(cells: Sequence[_Cells], varying: Mask, rows: int) -> Bytes:
    """(stored planes, rows): the planes that vary."""
    numbers = np.cumsum(varying) - 1
    stored = np.empty((int(varying.sum()), rows), np.uint8)
    for planes, values in cells:
        places = np.flatnonzero(varying[planes])
        width = values.shape[2]
        stored[numbers[planes[places]]] = values.transpose(0, 2, 1)[places // width, places % width]
    return stored


def planes_of(places: Sequence[ColumnParts]) -> Positions:
    """(columns * width,): the planes of columns of one width."""
    width = places[0].width
    first = np.array([place.plane for place in places], np.int64)
    planes: Positions = (first[:, None] + np.arange(width)).reshape(-1)
    return planes


def _find_varying(values: Bytes) -> Mask:
    """(columns, width): whether each byte of the values of columns (columns, rows, width) varies."""
    columns, rows, width = values.shape
    word = max(size for size in WORDS if size <= width)
    is_varying = np.zeros((columns, width), np.bool_)
    for start in {*range(0, width - word, word), width - word}:  # the last word may overlap the one before
        words = np.ndarray((columns, rows), WORDS[word], values, start, (rows * width, width))
        differing = np.bitwise_or.reduce(words ^ words[:, :1], axis=1)
        is_varying[:, start : start + word] |= differing.view(np.uint8).reshape(columns, word) != 0
    return is_varying


def _nested_messages(layout: PlaneLayout, batch: pa.RecordBatch, bounds: Bounds) -> Iterator[memoryview]:
    if layout.nested:
        nested = pa.RecordBatch.from_arrays(
            [batch.column(number) for number in layout.nested], schema=layout.nested_schema
        )
        yield from record_messages(nested, bounds, len(layout.nested_message), _WRITE)


def bits_of(flags: Mask) -> bytes:
    """Flags as a bitmap."""
    return np.packbits(flags, bitorder="little").tobytes()


def packed_by_lz4(data: bytes | memoryview) -> tuple[int, bytes | memoryview]:
    """The codec, and the data packed by LZ4 or not at all."""
    if len(data) < _SMALL:
        return PLAIN, data
    packed: bytes = LZ4_BLOCKS.compress(data, asbytes=True)
    return (LZ4, packed) if len(packed) <= len(data) - len(data) // _WORTH else (PLAIN, data)


def _pack_extent(data: memoryview) -> tuple[int, bytes | memoryview]:
    """The codec, and the packed extent."""
    codec, best = packed_by_lz4(data)
    if len(best) >= _LEAST_FOR_ZSTD:
        packed: bytes = pa.Codec("zstd", compression_level=1).compress(data, asbytes=True)
        if len(packed) <= len(best) - _WORTH_ZSTD:
            return ZSTD, packed
    return codec, best
