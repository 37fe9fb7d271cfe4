"""Finds keys, and reads their rows, in blocks whose planes are unpacked and whose rows are not decoded.

A look-up of few keys needs one row of each block. To decode a block costs 50 us: its columns are moved to new memory,
and become keys, a batch and an entry of the cache of three times the bytes. Here a byte of a value is read in its plane
instead. The address of byte j of row i is a constant of the block and the plane plus i; if the plane is not stored, its
constant stands in the head of the block, and the step is 0 instead of 1. So one NumPy call reads any bytes of any rows
of any blocks, and a binary search for all keys in their blocks takes eleven of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.planes import Bytes, ColumnParts, Form, Mask, PlaneLayout, Positions
from tussock.statestore.hummock.sorted_keys import NARROW
from tussock.statestore.hummock.sst_format import HEAD_COLUMNS, PUT

PACKED_AT_ONCE = 256  # blocks per search; a copy of their planes takes some megabytes
MANY_PROBES = 64  # if more keys are searched in a block, it is better decoded
MANY_ROWS = 128  # so it is if more of its rows are needed

_WORD = 8  # bytes
_OP = 2  # the place of `op`


def can_be_packed(layout: PlaneLayout) -> bool:
    """Whether rows of a section are found without decoding: it has no texts or nested columns, also not as its keys."""
    key = layout.places[0]
    simple = all(place.form in (Form.FIXED, Form.BITS) for place in layout.places)
    return simple and key.form is Form.FIXED and key.width <= NARROW and len(layout.places) > HEAD_COLUMNS


class PackedBlock(NamedTuple):
    """A block with unpacked planes, and without texts and nested columns. Cheap to create."""

    first_block: int  # its number
    rows: int
    head: bytes
    planes: bytes  # and bitmaps
    layout: PlaneLayout

    @property
    def end_block(self) -> int:
        """The number of the next block."""
        return self.first_block + 1

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return len(self.head) + len(self.planes) + 256


class PackedBlocks:
    """Blocks of sections with the same columns, to search together.

    A *place* is the number of a block in this object, a *row* the number of a row in its block.
    """

    def __init__(self, blocks: Sequence[PackedBlock]) -> None:
        """Cost: a copy of the planes, and 1 us per block."""
        self.layout = layout = blocks[0].layout
        self.rows = np.array([block.rows for block in blocks], np.int64)
        self.data = np.frombuffer(b"".join([part for block in blocks for part in (block.head, block.planes)]), np.uint8)
        sizes = np.array([len(block.planes) for block in blocks], np.int64) + layout.head_bytes
        start = np.cumsum(sizes) - sizes
        flags = self.data[start[:, None] + np.arange(layout.flags_at, layout.constants_at)]
        split = layout.varying_at - layout.flags_at
        self._nullable = _unpack_flags(flags[:, :split], len(layout.places))
        self._step = _unpack_flags(flags[:, split:], layout.planes).astype(np.int64)  # (places, planes)
        stored = np.cumsum(self._step, axis=1)
        in_planes = (start + layout.head_bytes)[:, None] + (stored - self._step) * self.rows[:, None]
        in_head = start[:, None] + np.arange(layout.constants_at, layout.head_bytes)
        self._at = np.where(self._step, in_planes, in_head)  # (places, planes): the address of the byte in row 0
        self._bits_at = start + layout.head_bytes
        if layout.planes:
            self._bits_at += stored[:, -1] * self.rows
        self.key_width = layout.places[0].width

    def find_keys(self, places: Positions, probes: Bytes) -> tuple[Positions, Mask]:
        """The first row of each key in its block, and whether the block has the key.

        Args:
            probes: (n, key_width).
        """
        search = _Search(self, places, probes)
        rows = search.count_smaller()
        return rows, search.equals_probe(rows)

    def find_ranges(
        self, places: Positions, low: Bytes, high: Bytes, most: int | None, reverse: bool
    ) -> tuple[Positions, Positions, Mask]:
        """The rows of each block from a key (inclusive) to another (exclusive), as `cut_ranges` returns them.

        Args:
            low, high: (n, key_width).
            most: rows of each range, from the front, or from the back in `reverse`; None: all.

        Cost: one search in the block for either end. With `most`, the second one searches so many rows only.
        """
        first, second = _Search(self, places, high if reverse else low), _Search(self, places, low if reverse else high)
        near = first.count_smaller()
        bounds = None
        if most is not None:  # one row more shows whether the block has more
            edges = np.maximum(near - most - 1, 0) if reverse else np.minimum(near + most + 1, self.rows[places])
            bounds = (edges, near) if reverse else (near, edges)
        far = second.count_smaller(bounds)
        starts, stops = (far, near) if reverse else (near, far)
        return cut_ranges(starts, np.maximum(stops - starts, 0), most, reverse)

    def read_keys(self, places: Positions, rows: Positions) -> pa.FixedSizeBinaryArray:
        """The keys of some rows."""
        width = self.key_width
        key_bytes = self.bytes_of(places, rows, np.arange(width))
        return pa.Array.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(key_bytes)])

    def read_puts(self, places: Positions, rows: Positions) -> Mask:
        """Whether rows are puts."""
        plane = self.layout.places[_OP].plane
        is_put: Mask = self.bytes_of(places, rows, np.array([plane])).reshape(-1) == PUT
        return is_put

    def read_columns(self, places: Positions, rows: Positions) -> pa.RecordBatch:
        """The row's columns of some rows."""
        chosen = self.layout.places[HEAD_COLUMNS:]
        first = chosen[0].plane
        cells = self.bytes_of(places, rows, np.arange(first, self.layout.planes))
        arrays = [self._read_column(place, cells[:, place.plane - first :], places, rows) for place in chosen]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(self.layout.schema)[HEAD_COLUMNS:]))

    def bytes_of(self, places: Positions, rows: Positions, planes: Positions) -> Bytes:
        """(n, planes): bytes of some rows."""
        at, step = self.byte_addresses(places, planes)
        cells: Bytes = self.data[at + step * rows[:, None]]
        return cells

    def byte_addresses(self, places: Positions, planes: Positions) -> tuple[Positions, Positions]:
        """(n, planes): the addresses in `data` of bytes of row 0, and their distances from row to row."""
        which = places[:, None], planes
        return self._at[which], self._step[which]

    def varying_planes(self, planes: int) -> Positions:
        """Those of the first `planes` planes that are stored in a block."""
        return np.flatnonzero(self._step[:, :planes].any(axis=0))

    def _read_column(self, place: ColumnParts, cells: Bytes, places: Positions, rows: Positions) -> pa.Array:
        """A column, whose planes are the first ones of `cells`."""
        validity = None
        if self._nullable[:, place.number].any():
            validity = self._read_bitmap(place, True, places, rows)
        if place.form is Form.BITS:
            values = self._read_bitmap(place, False, places, rows)
        else:
            values = pa.py_buffer(cells[:, : place.width].copy())
        return pa.Array.from_buffers(place.kind, len(rows), [validity, values])

    def _read_bitmap(self, place: ColumnParts, nulls: bool, places: Positions, rows: Positions) -> pa.Buffer:
        """The values of a boolean column, or whether values are not NULL."""
        there = np.zeros((len(self.rows), 2 * len(self.layout.places)), np.bool_)  # in the order of the bitmaps
        there[:, [2 * other.number for other in self.layout.places if other.form is Form.BITS]] = True
        there[:, 1::2] = self._nullable
        number = 2 * place.number + nulls
        start = self._bits_at + there[:, :number].sum(axis=1) * -(-self.rows // 8)
        stored = there[places, number]
        at = np.where(stored, start[places] + rows // 8, 0)
        bits = (self.data[at] >> (rows % 8).astype(np.uint8)) & 1
        return pa.py_buffer(np.packbits(np.where(stored, bits, 1).astype(np.bool_), bitorder="little"))


def cut_ranges(
    starts: Positions, counts: Positions, most: int | None, reverse: bool
) -> tuple[Positions, Positions, Mask]:
    """Shorten ranges of rows to `most` rows each, from the front, or from the back in `reverse`.

    Returns: the first row of each range, its number of rows, and whether it has more.
    """
    if most is None:
        return starts, counts, np.zeros(len(counts), np.bool_)
    cut, shorter = counts > most, np.minimum(counts, most)
    return (starts + counts - shorter if reverse else starts), shorter, cut


class _Search:
    """A search for keys, each in its block. Keys are compared as words of eight bytes."""

    def __init__(self, blocks: PackedBlocks, places: Positions, probes: Bytes) -> None:
        self._data, self._rows = blocks.data, blocks.rows[places]
        width = blocks.key_width
        byte = np.arange(width)
        self._words = -(-width // _WORD)
        # Bytes are reversed within a word, as numbers are stored here.
        self._target = byte // _WORD * _WORD + _WORD - 1 - byte % _WORD
        self._probes = self._as_words(probes)
        # Bytes that vary in no block are read once.
        self._cells = np.zeros((len(places), self._words * _WORD), np.uint8)
        self._cells[:, self._target] = blocks.bytes_of(places, np.zeros_like(places), byte)
        varying = blocks.varying_planes(width)
        self._varying = self._target[varying]
        self._at, self._step = blocks.byte_addresses(places, varying)

    def count_smaller(self, bounds: tuple[Positions, Positions] | None = None) -> Positions:
        """How many keys are smaller than each probe.

        `bounds`: the least and the greatest possible answers; a smaller or greater answer becomes the nearest of them.
        """
        low, high = (np.zeros_like(self._rows), self._rows.copy()) if bounds is None else bounds
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            row = np.minimum((low + high) >> 1, self._rows - 1)
            less, _ = self._compare_keys(row)
            open_ = low < high
            low = np.where(less & open_, row + 1, low)
            high = np.where(less | ~open_, high, row)
        return low

    def equals_probe(self, rows: Positions) -> Mask:
        """Whether the key of each row is its probe. A row may be the one after the last."""
        return self._compare_keys(np.minimum(rows, self._rows - 1))[1] & (rows < self._rows)

    def _compare_keys(self, rows: Positions) -> tuple[Mask, Mask]:
        """Whether the key of each row is less than its probe, and whether it is equal."""
        self._cells[:, self._varying] = self._data[self._at + self._step * rows[:, None]]
        keys = self._cells.view("<u8")
        less, same = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        for word in range(self._words):
            key, probe = keys[:, word], self._probes[:, word]
            less |= same & (key < probe)
            same &= key == probe
        return less, same

    def _as_words(self, keys: Bytes) -> npt.NDArray[np.uint64]:
        cells = np.zeros((len(keys), self._words * _WORD), np.uint8)
        cells[:, self._target] = keys
        words: npt.NDArray[np.uint64] = cells.view("<u8")
        return words


def _unpack_flags(bits: Bytes, count: int) -> Mask:
    """(blocks, count): the first bits of each block."""
    flags: Mask = np.unpackbits(bits, axis=1, count=count, bitorder="little").view(np.bool_)
    return flags
