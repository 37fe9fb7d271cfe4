"""Writes SSTs: rows become blocks, and blocks become objects. sst_format.py specifies the format.

Blocks are encoded once per section and then distributed over objects, so that objects have the requested size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.allocator import give_back_freed_memory
from tussock.statestore.batch_message import BatchMessage
from tussock.statestore.checksum import crc32c
from tussock.statestore.hummock.errors import WrongRowsError
from tussock.statestore.hummock.filter import Hashes, build_filter, hash_keys
from tussock.statestore.hummock.plane_reader import layout_of
from tussock.statestore.hummock.planes import PlaneLayout, encode_planes
from tussock.statestore.hummock.sorted_keys import differs_from_previous
from tussock.statestore.hummock.sst_format import (
    BLOCKS_PER_PARTITION,
    BLOCKS_SCHEMA,
    END_OF_STREAM,
    EPOCH,
    FILTERS_SCHEMA,
    HEAD_COLUMNS,
    KEY,
    OP,
    PUT,
    ROWS_PER_BLOCK,
    SECTIONS_SCHEMA,
    TAIL_SIZE,
    Tail,
    block_schema,
    object_name,
)
from tussock.statestore.meta.version import SectionInfo, SstInfo
from tussock.statestore.named_rows import with_schema
from tussock.statestore.nested import as_list, is_nested, zero_under_nulls
from tussock.statestore.positions import indices_in_ranges
from tussock.statestore.stacked import FEW_ROWS, canonical_columns
from tussock.statestore.vnode import one_array

_BLOCK_BYTES = 24 << 10  # before packing; reading one row decodes a block
_BLOCKS_AT_ONCE = 256  # that are encoded together
_WHOLE = 128 << 10  # an object up to this size is read completely when it is opened
_FILTERS_WITH_FOOTER = 256 << 10  # filters up to this size are read together with the footer

_BYTES_AT_ONCE = 16 << 20  # of rows that are encoded together

_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)

_BINARY = frozenset(kind.id for kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()))

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EncodedBlocks:
    """Encoded consecutive blocks of one section. Arrays have one entry per block, except `hashes`: one per row."""

    table_id: int
    schema: bytes  # the schema message
    payloads: tuple[memoryview, ...]
    first_keys: pa.Array
    last_keys: pa.Array
    rows: Ints
    deletes: Ints
    live: Ints  # keys whose newest row is a put
    min_epochs: npt.NDArray[np.uint64]
    max_epochs: npt.NDArray[np.uint64]
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def sizes(self) -> Ints:
        """Encoded bytes of each block."""
        return np.array([len(payload) for payload in self.payloads], np.int64)

    def slice_blocks(self, start: int, end: int) -> "EncodedBlocks":
        """Blocks start … end - 1."""
        first_row, last_row = int(self.rows[:start].sum()), int(self.rows[:end].sum())
        return EncodedBlocks(
            self.table_id, self.schema, self.payloads[start:end], self.first_keys[start:end],
            self.last_keys[start:end],
            self.rows[start:end], self.deletes[start:end], self.live[start:end], self.min_epochs[start:end],
            self.max_epochs[start:end], self.hashes[first_row:last_row],
        )  # fmt: skip

    @staticmethod
    def join_parts(parts: Sequence["EncodedBlocks"]) -> "EncodedBlocks":
        """The blocks of all parts. Requires: parts of one section, in key order."""
        if len(parts) == 1:
            return parts[0]
        head = parts[0]
        return EncodedBlocks(
            head.table_id, head.schema, tuple(payload for part in parts for payload in part.payloads),
            pa.concat_arrays([part.first_keys for part in parts]), pa.concat_arrays([part.last_keys for part in parts]),
            np.concatenate([part.rows for part in parts]), np.concatenate([part.deletes for part in parts]),
            np.concatenate([part.live for part in parts]), np.concatenate([part.min_epochs for part in parts]),
            np.concatenate([part.max_epochs for part in parts]), np.concatenate([part.hashes for part in parts]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class EncodedSst:
    """A complete SST before its upload."""

    info: SstInfo
    data: bytes


def encode_blocks(
    table_id: int, rows: pa.Table, rows_per_block: int | None = None, cuts: Ints | None = None
) -> EncodedBlocks:
    """Encode sorted rows of one table as blocks. Equal rows give equal bytes.

    Args:
        table_id: the table's id, as in its keys.
        rows: at least one row. Columns key, epoch, op, then the row's; ascending by key, then descending by epoch. All
            parts of a section must use the same key type (binary or fixed_size_binary).
        rows_per_block: defaults to ROWS_PER_BLOCK, or fewer for wide rows.
        cuts: additional rows at which a block must start.

    Cost: about 60 ns per row of two numbers; a text of random letters costs 1 to 2 ns per byte. Memory: the encoded
        blocks, and three copies of _BYTES_AT_ONCE, or of one block if it is larger.
    """
    _require_columns(rows.schema, f"rows to write to table {table_id}")
    schema = block_schema(rows.schema.field(0).type, rows.select(range(HEAD_COLUMNS, rows.num_columns)).schema)
    rows = rows.combine_chunks()  # copies only columns with several chunks
    message = schema.serialize().to_pybytes()
    layout = layout_of(message)
    width = _width_of(layout, rows)
    keys, epochs, ops = (_one_array(rows.column(i), schema.field(i).type) for i in range(HEAD_COLUMNS))
    first, puts = differs_from_previous(keys), ops.to_numpy() == PUT
    rows_per_block = rows_per_block or _rows_per_block(width)
    starts = _block_starts(first, rows_per_block, cuts)
    ends = np.append(starts[1:], rows.num_rows)
    min_epochs, max_epochs = _epoch_extremes(epochs.to_numpy(), starts)
    return EncodedBlocks(
        table_id=table_id,
        schema=message,
        payloads=tuple(_encode_payloads(rows, schema, layout, width, starts, ends)),
        first_keys=keys.take(pa.array(starts)).cast(pa.binary()),
        last_keys=keys.take(pa.array(ends - 1)).cast(pa.binary()),
        rows=ends - starts,
        deletes=(ends - starts) - _count_flags(puts, starts),
        live=_count_flags(first & puts, starts),
        min_epochs=min_epochs,
        max_epochs=max_epochs,
        hashes=hash_keys(keys),
    )


def _encode_payloads(
    rows: pa.Table, schema: pa.Schema, layout: PlaneLayout, width: float, starts: Ints, ends: Ints
) -> Iterator[memoryview]:
    """The bytes of each block. `width`: the mean bytes of a row."""
    blocks_at_once = _blocks_at_once(width * rows.num_rows / len(starts))
    for low in range(0, len(starts), blocks_at_once):
        begin, end = int(starts[low]), int(ends[min(low + blocks_at_once, len(starts)) - 1])
        batch = _batch_of(layout, rows.slice(begin, end - begin), schema)
        part = slice(low, low + blocks_at_once)
        bounds = list(zip((starts[part] - begin).tolist(), (ends[part] - begin).tolist(), strict=True))
        yield from (memoryview(block) for block in encode_planes(layout, batch, bounds))
        del batch
        if blocks_at_once < _BLOCKS_AT_ONCE:
            give_back_freed_memory()  # Buffers of wide rows leave gaps that no other buffer fills.


def _batch_of(layout: PlaneLayout, rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as one batch whose bytes under NULLs are zeros or empty. Without NULLs, few rows are that already."""
    if rows.num_rows <= FEW_ROWS and not layout.nested:
        (batch,) = with_schema(rows, schema).to_batches()
        if not BatchMessage.from_batch(batch).null_counts.any():
            return batch
    return canonical_batch(rows, schema, padded=False)


def _blocks_at_once(block_bytes: float) -> int:
    """The blocks of about `block_bytes` that are encoded together. They depend on the values only, as the bytes do."""
    return min(_BLOCKS_AT_ONCE, max(1, int(_BYTES_AT_ONCE // max(block_bytes, 1))))


def _epoch_extremes(
    epochs: npt.NDArray[np.uint64], starts: Ints
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The smallest and greatest epoch of each block. The rows of a flush all have one epoch."""
    if (low := epochs.min()) == epochs.max():
        constant = np.full(len(starts), low)
        return constant, constant
    return np.minimum.reduceat(epochs, starts), np.maximum.reduceat(epochs, starts)


def _count_flags(flags: npt.NDArray[np.bool_], starts: Ints) -> Ints:
    """The number of flags set in each block."""
    if flags.all():
        return np.diff(starts, append=len(flags))
    counts: Ints = np.add.reduceat(flags, starts, dtype=np.int64)
    return counts


def build_sst(sections: Sequence[EncodedBlocks], prefix: str) -> EncodedSst:
    """Combine sections, in ascending table_id order, into one object below `prefix`, named by the hash of its bytes.

    Requires: at least one section.
    """
    body: list[bytes | memoryview] = []
    filters: list[bytes] = []
    offset, blocks, infos = 0, [], []
    directory: dict[str, list[object]] = {name: [] for name in SECTIONS_SCHEMA.names}
    for section in sections:
        sizes = section.sizes
        first_block = offset + len(section.schema)
        length = len(section.schema) + int(sizes.sum()) + len(END_OF_STREAM)
        body += [section.schema, *section.payloads, END_OF_STREAM]
        partitions = _filters_of(section)
        filters += partitions
        blocks.append(_blocks_index(section, first_block + np.cumsum(sizes) - sizes))
        count = int(section.rows.sum())
        for name, value in zip(
            SECTIONS_SCHEMA.names,
            (section.table_id, offset, length, count, len(section), len(partitions), section.schema),
            strict=True,
        ):
            directory[name].append(value)
        low_key, high_key, dead = (
            section.first_keys[0].as_py(),
            section.last_keys[-1].as_py(),
            count - int(section.live.sum()),
        )
        infos.append(SectionInfo(section.table_id, low_key, high_key, count, length, dead))
        offset += length
    filter_sizes = np.array([len(data) for data in filters], np.int64)
    filter_rows = [offset + np.cumsum(filter_sizes) - filter_sizes, filter_sizes, [crc32c(data) for data in filters]]
    indexes = [
        _encode_stream(
            pa.table([pa.array(directory[field.name], field.type) for field in SECTIONS_SCHEMA], schema=SECTIONS_SCHEMA)
        ),
        _encode_stream(pa.concat_tables(blocks)),
        _encode_stream(
            pa.table(
                [pa.array(v, f.type) for v, f in zip(filter_rows, FILTERS_SCHEMA, strict=True)], schema=FILTERS_SCHEMA
            )
        ),
    ]
    index = b"".join(indexes)
    low = min(int(section.min_epochs.min()) for section in sections)
    high = max(int(section.max_epochs.max()) for section in sections)
    rows = sum(info.rows for info in infos)
    sections_len, blocks_len, filters_len = map(len, indexes)
    tail = Tail(BLOCKS_PER_PARTITION, sections_len, blocks_len, filters_len, crc32c(index), rows, low, high)
    data = b"".join([*body, *filters, index, tail.encode()])
    footer = len(index) + TAIL_SIZE
    if len(data) <= _WHOLE:
        footer = len(data)
    elif int(filter_sizes.sum()) <= _FILTERS_WITH_FOOTER:
        footer += int(filter_sizes.sum())
    info = SstInfo(object_name(prefix, data), len(data), footer, rows, low, high, tuple(infos))
    return EncodedSst(info, data)


def canonical_batch(rows: pa.Table, schema: pa.Schema, padded: bool = True) -> pa.RecordBatch:
    """Rows as one batch in which equal rows have equal bytes: bytes under NULLs are zeros or empty.

    Args:
        padded: whether the columns are written as Arrow's messages, which pads them with the bytes that follow in
            memory. Nested columns always are.

    Requires: `rows` has the columns of `schema`, except for nullability and metadata.
    """
    columns, types = rows.columns, schema.types
    alone = range(len(types)) if padded else [i for i, kind in enumerate(types) if is_nested(kind)]
    column_by_place = {i: zero_under_nulls(_one_array(columns[i], types[i])) for i in alone}
    rest = [i for i in range(len(types)) if i not in column_by_place]
    column_by_place |= zip(rest, canonical_columns([one_array(columns[i]) for i in rest]), strict=True)
    return pa.record_batch([column_by_place[i] for i in range(len(types))], schema=schema)


def _one_array(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column as one array whose buffers end with it.

    Arrow pads encoded data with up to 63 bytes that follow in memory.
    """
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1 and _ends_its_buffer(column.chunk(0)):
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)


def _ends_its_buffer(array: pa.Array) -> bool:
    """Whether a fixed-width array of whole bytes without NULLs ends where its buffers end. False for other arrays."""
    if array.null_count or not (pa.types.is_primitive(array.type) or pa.types.is_fixed_size_binary(array.type)):
        return False
    data = array.buffers()[1]
    return data is not None and 8 * data.size == (array.offset + len(array)) * int(array.type.bit_width)


def _width_of(layout: PlaneLayout, rows: pa.Table) -> float:
    """The mean bytes of a row. Depends on the values only, not on the buffers."""
    return layout.fixed_bytes + sum(_bytes_a_row(one_array(rows.column(i)), rows.num_rows) for i in layout.varying)


def _rows_per_block(width: float) -> int:
    """Rows per block that keep a block of rows of `width` bytes near _BLOCK_BYTES, or one row."""
    return max(1, min(ROWS_PER_BLOCK, int(_BLOCK_BYTES // max(width, 1))))


def _bytes_a_row(values: pa.Array, rows: int) -> float:
    """Bytes of a column, or of the elements of one, per row."""
    kind = values.type
    if pa.types.is_struct(kind):
        return sum(_bytes_a_row(field, rows) for field in values.flatten())
    if is_nested(kind):
        return 4.0 * len(values) / rows + _bytes_a_row(as_list(values).flatten(), rows)
    if _is_binary(kind):
        return float((pc.sum(pc.binary_length(values)).as_py() or 0) / rows)
    return float(kind.bit_width / 8 * len(values) / rows)


def _is_binary(kind: pa.DataType) -> bool:
    return kind.id in _BINARY


def _block_starts(first: npt.NDArray[np.bool_], rows_per_block: int, cuts: Ints | None) -> Ints:
    """First row of each block: every `rows_per_block` rows after each cut, moved back to the start of its key."""
    count = len(first)
    borders = np.unique(np.concatenate([[0], cuts])) if cuts is not None and len(cuts) else np.zeros(1, np.int64)
    spans = np.append(borders[1:], count) - borders
    blocks = -(-spans // rows_per_block)
    starts: Ints = np.repeat(borders, blocks) + indices_in_ranges(blocks) * rows_per_block
    if first.all():
        return starts
    key_starts = np.flatnonzero(first)
    moved: Ints = np.unique(key_starts[np.searchsorted(key_starts, starts, "right") - 1])
    return moved


def _require_columns(schema: pa.Schema, place: str) -> None:
    fields = [schema.field(i) for i in range(min(HEAD_COLUMNS, len(schema)))]
    types = [field.type for field in fields[1:]]
    if [field.name for field in fields] != [KEY, EPOCH, OP] or types != [pa.uint64(), pa.uint8()]:
        columns = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise WrongRowsError(place, columns, "key binary, epoch uint64, op uint8, then the row's")


def _filters_of(section: EncodedBlocks) -> list[bytes]:
    ends = np.cumsum(section.rows)
    starts = ends - section.rows
    firsts = starts[::BLOCKS_PER_PARTITION].tolist()
    return [build_filter(section.hashes[a:b]) for a, b in zip(firsts, [*firsts[1:], int(ends[-1])], strict=True)]


def _blocks_index(section: EncodedBlocks, offsets: Ints) -> pa.Table:
    columns = [
        section.first_keys, section.last_keys, offsets, section.sizes, section.rows, section.deletes,
        section.min_epochs, section.max_epochs, [crc32c(payload) for payload in section.payloads],
    ]  # fmt: skip
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, BLOCKS_SCHEMA, strict=True)],
        schema=BLOCKS_SCHEMA,
    )


def _encode_stream(table: pa.Table) -> bytes:
    """Encode a table as an uncompressed stream with one batch, so that readers need no copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_PLAIN) as writer:
        writer.write_batch(canonical_batch(table, table.schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data
