"""Sorted string table (SST): one immutable object with rows in key order, for any number of tables.

    +--------------------+  offset 0
    | section            |  one table's rows: schema message, blocks, end marker
    | section …          |  in ascending table_id order, without gaps
    +--------------------+
    | filter partitions  |  per section one Bloom filter (filter.py) per BLOCKS_PER_PARTITION blocks; no gaps
    +--------------------+
    | sections index     |  Arrow IPC stream of SECTIONS_SCHEMA, one row per section
    | blocks index       |  Arrow IPC stream of BLOCKS_SCHEMA, one row per block, section by section
    | filters index      |  Arrow IPC stream of FILTERS_SCHEMA, one row per filter partition, section by section
    +--------------------+
    | tail, 64 B         |  magic 8 B "TUSSOCKS" | version u16 | blocks per partition u16
    |                    |  sections_len u32 | blocks_len u32 | filters_len u32 | index_crc u32 | reserved u32, 0
    |                    |  rows u64 | min_epoch u64 | max_epoch u64 | reserved u32, 0 | tail_crc u32
    +--------------------+  end of object

Numbers are little-endian. Checksums are crc32c: index_crc covers the three indexes, tail_crc the first 60 bytes of the
tail, and the indexes contain one per block and one per filter partition. The object's name contains the xxh3_128 of all
bytes, so every bit is covered.

A block's columns are `key`, `epoch` u64, `op` u8 (0 delete, 1 put), then the row's columns, typed. planes.py defines
their bytes. Keys are full storage keys, `table_id u32 BE | vnode u16 BE | primary key`:
fixed_size_binary if all keys of the section have one length, else binary. Rows ascend by key, then descend by epoch;
each (key, epoch) occurs once. All rows of a key are in one block, so a reader that has found a key's block has all its
versions. A block has ROWS_PER_BLOCK rows, fewer if rows are wide or a cut ends it, more if a key has many versions. Row
fields are nullable and have no metadata.

An SST is written once and never changed. Its bytes depend only on the rows. Version 1 is the only version so far.
"""

import struct
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from tussock.statestore.checksum import crc32c
from tussock.statestore.hummock.errors import DamagedSstError
from tussock.statestore.named_rows import plain_schema

MAGIC = b"TUSSOCKS"
ROWS_PER_BLOCK = 1024
BLOCKS_PER_PARTITION = 64

DELETE, PUT = 0, 1  # op

KEY, EPOCH, OP = "key", "epoch", "op"
HEAD_COLUMNS = 3  # key, epoch and op precede the row's columns, which may have the same names

SECTIONS_SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.uint32(), nullable=False),
        pa.field("offset", pa.uint64(), nullable=False),  # of the section
        pa.field("length", pa.uint64(), nullable=False),
        pa.field("rows", pa.uint64(), nullable=False),
        pa.field("blocks", pa.uint32(), nullable=False),
        pa.field("partitions", pa.uint32(), nullable=False),  # filter partitions; 0: the section has no filter
        pa.field("schema", pa.binary(), nullable=False),  # the schema message, a copy of the one at `offset`
    ]
)
BLOCKS_SCHEMA = pa.schema(
    [
        pa.field("first_key", pa.binary(), nullable=False),
        pa.field("last_key", pa.binary(), nullable=False),
        pa.field("offset", pa.uint64(), nullable=False),  # of the block
        pa.field("length", pa.uint32(), nullable=False),
        pa.field("rows", pa.uint32(), nullable=False),
        pa.field("deletes", pa.uint32(), nullable=False),
        pa.field("min_epoch", pa.uint64(), nullable=False),
        pa.field("max_epoch", pa.uint64(), nullable=False),
        pa.field("crc", pa.uint32(), nullable=False),
    ]
)
FILTERS_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.uint64(), nullable=False),
        pa.field("length", pa.uint32(), nullable=False),
        pa.field("crc", pa.uint32(), nullable=False),
    ]
)


VERSION = 1
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_TAIL = struct.Struct("<8sHHIIIIIQQQI")
TAIL_SIZE = 64


@dataclass(frozen=True, slots=True)
class Tail:
    """The last 64 bytes of an SST."""

    blocks_per_partition: int
    sections_len: int
    blocks_len: int
    filters_len: int
    index_crc: int
    rows: int
    min_epoch: int
    max_epoch: int

    @property
    def index_len(self) -> int:
        """Bytes of the three indexes."""
        return self.sections_len + self.blocks_len + self.filters_len

    def encode(self) -> bytes:
        """Encode to 64 bytes."""
        head = _TAIL.pack(
            MAGIC, VERSION, self.blocks_per_partition, self.sections_len, self.blocks_len, self.filters_len,
            self.index_crc, 0, self.rows, self.min_epoch, self.max_epoch, 0,
        )  # fmt: skip
        return head + struct.pack("<I", crc32c(head))

    @staticmethod
    def decode(name: str, data: bytes | memoryview) -> "Tail":
        """Decode the tail of the SST `name`. Raises DamagedSstError."""
        place = f"its tail (last {TAIL_SIZE} bytes)"
        if len(data) != TAIL_SIZE:
            raise DamagedSstError(name, place, f"{len(data)} bytes", f"{TAIL_SIZE} bytes")
        magic, version, per_partition, sections, blocks, filters, crc, _, rows, low, high, _ = _TAIL.unpack(
            data[: _TAIL.size]
        )
        if magic != MAGIC:
            raise DamagedSstError(name, place, f"magic {magic!r}", f"{MAGIC!r}: the object is truncated or not an SST")
        require_crc(name, place, data[: _TAIL.size], int.from_bytes(data[_TAIL.size :], "little"))
        if version != VERSION:
            raise DamagedSstError(name, place, f"format version {version}", f"{VERSION}: a newer release wrote it")
        return Tail(per_partition, sections, blocks, filters, crc, rows, low, high)


def require_crc(name: str, place: str, data: bytes | memoryview, expected: int) -> None:
    """Raise DamagedSstError unless the crc32c of `data` is `expected`."""
    if (checksum := crc32c(data)) != expected:
        raise DamagedSstError(name, place, f"crc32c {checksum:08x}", f"{expected:08x}")


def object_name(prefix: str, data: bytes) -> str:
    """`<prefix>/<xxh3_128 of the bytes, 32 hex digits>.sst`."""
    return f"{prefix.rstrip('/')}/{xxhash.xxh3_128_hexdigest(data)}.sst"


def row_schema(columns: pa.Schema) -> pa.Schema:
    """Row columns as a section stores them: nullable, without metadata."""
    return plain_schema(columns)


def block_schema(key: pa.DataType, rows: pa.Schema) -> pa.Schema:
    """The schema of a section's stream: key, epoch, op, then the row's columns."""
    head = [
        pa.field(KEY, key, nullable=False),
        pa.field(EPOCH, pa.uint64(), nullable=False),
        pa.field(OP, pa.uint8(), nullable=False),
    ]
    return pa.schema([*head, *row_schema(rows)])
