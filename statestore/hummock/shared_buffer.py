"""The read side of the shared buffer: sealed MemTables of epochs in flight, which are in no version yet.

The next epoch reads rows of the previous one while that one's upload and commit are still running. A sealed MemTable
reads like a section with one decoded block in memory. Point reads, prefix scans and the merge iterator treat it as
another sorted run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.block_source import BlockRequest, BlockSource, OpenSection, ReadMode, Unit
from tussock.statestore.hummock.packed_blocks import PackedBlock
from tussock.statestore.hummock.row_shape import RowShape
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sorted_keys import Positions, SortedKeys
from tussock.statestore.hummock.sst_format import PUT, row_schema
from tussock.statestore.hummock.sst_reader import FilterArena, Rows, no_columns, one_batch
from tussock.statestore.memory import memory_limit
from tussock.statestore.named_rows import with_schema

_PORTION_BYTES = 256 << 20  # decoded blocks that a read of many blocks holds at once
_PORTION_PART = 8  # of a limited memory
_PACKED_SHARE = 4  # of this, if it needs few rows of each: what it holds besides the cache
_EXPANSION = 4  # decoded bytes per encoded byte
_LEAST_BYTES = 4 << 10  # of a decoded block
_MOST_DECODED = 1_024  # blocks; whole partitions with a few rows of each of more blocks would take gigabytes
_MOST_CACHED = 4_096  # blocks; more packed ones would take some hundred megabytes

#: Loads one table's sealed MemTable of an epoch, or None. The first read decodes it.
Load = Callable[[], SealedBatch | None]


@dataclass(frozen=True, slots=True)
class BufferedIndex:
    """The block index of a section with one block."""

    rows: Rows
    row_schema: pa.Schema
    first_keys: SortedKeys
    last_keys: SortedKeys

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class BufferedSection:
    """One table's changes in one epoch in flight."""

    epoch: int
    reader: BufferedIndex
    per_partition: int = 1

    @property
    def first_key(self) -> bytes:
        """The smallest key."""
        key: bytes = self.reader.first_keys.array[0].as_py()
        return key

    @property
    def last_key(self) -> bytes:
        """The greatest key."""
        key: bytes = self.reader.last_keys.array[0].as_py()
        return key

    def in_shape(self, shape: RowShape | None) -> "BufferedSection":
        """The section with all current columns of its table."""
        if shape is None or self.reader.row_schema.names == shape.names:
            return self
        rows = replace(self.reader.rows, columns=shape.widen_rows(self.reader.rows.columns))
        return replace(self, reader=replace(self.reader, rows=rows, row_schema=shape.schema))


Section = OpenSection | BufferedSection


class SharedBuffer:
    """The sealed MemTables of the epochs in flight, by table.

    It evicts nothing: its sections stay as long as the buffer.
    """

    def __init__(self, runs: Mapping[int, Sequence[tuple[int, Load]]] | None = None) -> None:
        """`runs`: per table id (epoch, loader of a sealed MemTable). Keys are unique within an epoch."""
        self._runs = {table: sorted(loads, key=lambda run: -run[0]) for table, loads in (runs or {}).items()}
        # By table and position in its runs, after loading.
        self._sections: dict[tuple[int, int], BufferedSection | None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no epoch in flight has a sealed MemTable."""
        return not self._runs

    def find_sections(
        self, table_id: int, epoch: int, first: bytes | None = None, last: bytes | None = None
    ) -> list[BufferedSection]:
        """Sections that may hold rows of first … last (inclusive; None: open) visible at `epoch`, newest first."""
        sections = []
        for number, (sealed_in, load) in enumerate(self._runs.get(table_id, ())):
            if sealed_in > epoch:
                continue
            if (table_id, number) not in self._sections:
                self._sections[table_id, number] = buffered_section(load(), sealed_in)
            section = self._sections[table_id, number]
            if (
                section is None
                or (first is not None and section.last_key < first)
                or (last is not None and section.first_key > last)
            ):
                continue
            sections.append(section)
        return sections


def is_in_memory(section: Section) -> bool:
    """Whether the encoded blocks of a section need no request, because its object was read with the footer."""
    return isinstance(section, BufferedSection) or section.sst.held_bytes(int(section.reader.offsets[0]), 0) is not None


class BufferedSource:
    """Reads blocks of stored sections through a BlockSource, and blocks of buffered sections from memory."""

    def __init__(self, stored: BlockSource) -> None:
        self.stored = stored

    def load_filters(self, requests: Sequence[tuple[Section, Positions]]) -> list[FilterArena | None]:
        """Like BlockSource.load_filters; None for a buffered section, in which a key search is as cheap as a filter."""
        stored_filters = iter(
            self.stored.load_filters(
                [(section, parts) for section, parts in requests if isinstance(section, OpenSection)]
            )
        )
        return [next(stored_filters) if isinstance(section, OpenSection) else None for section, _ in requests]

    def read_units(
        self, requests: Sequence[tuple[Section, Positions]], until: int, mode: ReadMode = ReadMode.DENSE
    ) -> list[list[Unit]]:
        """Like BlockSource.read_units: the rows per section and its blocks (ascending, distinct)."""
        stored_units = iter(
            self.stored.read_units(
                [BlockRequest(s, blocks) for s, blocks in requests if isinstance(s, OpenSection)], until, mode
            )
        )
        return [
            next(stored_units) if isinstance(s, OpenSection) else ([s.reader.rows] if len(blocks) else [])
            for s, blocks in requests
        ]

    def decode_block(self, section: Section, block: PackedBlock) -> Rows:
        """Like BlockSource.decode_block. Requires: the section is stored."""
        assert isinstance(section, OpenSection)
        return self.stored.decode_block(section, block)

    def in_portions(
        self, requests: Sequence[tuple[Section, Positions]], until: int, few: bool
    ) -> Iterator[list[tuple[int, Positions, list[Unit]]]]:
        """`read_units` for one portion of the requests after another, so that a caller can drop the rows of the others.

        `few`: the caller needs few rows of each block.

        Yields: the number of a request, some of its blocks, and their rows; in the order of the requests. A
            portion takes about _PORTION_BYTES, or less if memory is limited, or is one block.
        Cost: besides the reads, some microseconds if all requests fit in one portion.
        """
        mode = _mode_of(sum(len(blocks) for _, blocks in requests)) if few else ReadMode.DENSE
        most = memory_limit.limit_share(_PORTION_BYTES, _PORTION_PART)
        if mode is not ReadMode.DENSE:
            most //= _PACKED_SHARE
        for portion in _split_portions(requests, most):
            wanted = [(requests[number][0], blocks) for number, blocks in portion]
            yield [(*part, units) for part, units in zip(portion, self.read_units(wanted, until, mode), strict=True)]

    def scan_blocks(self, section: Section, first: int, end: int, columns: Sequence[str] | None) -> Rows:
        """Like BlockSource.scan_blocks."""
        if isinstance(section, OpenSection):
            return self.stored.scan_blocks(section, first, end, columns)
        rows = section.reader.rows
        if columns is None:
            return rows
        chosen = rows.columns.select(list(columns))
        return Rows(0, 1, rows.keys, chosen, rows.min_epoch, rows.max_epoch, rows.epochs, rows.puts)


def _mode_of(blocks: int) -> ReadMode:
    """How to read few rows of each of some blocks."""
    if blocks <= _MOST_DECODED:
        return ReadMode.DENSE
    return ReadMode.SINGLE if blocks <= _MOST_CACHED else ReadMode.PASSING


def _split_portions(requests: Sequence[tuple[Section, Positions]], most: int) -> Iterator[list[tuple[int, Positions]]]:
    """Numbers of requests, ascending, with some of their blocks, of about `most` decoded bytes together."""
    ends = [np.cumsum(_decoded_bytes(section, blocks)) for section, blocks in requests]
    if sum(int(end[-1]) for end in ends if len(end)) <= most:
        yield [(number, blocks) for number, (_, blocks) in enumerate(requests)]
        return
    portion: list[tuple[int, Positions]] = []
    left = most
    for number, ((_, blocks), end) in enumerate(zip(requests, ends, strict=True)):
        start = taken = 0
        while start < len(blocks):
            stop = int(np.searchsorted(end, taken + left, "right"))
            if stop <= start and portion:
                yield portion
                portion, left = [], most
                continue
            stop = max(stop, start + 1)
            portion.append((number, blocks[start:stop]))
            left -= int(end[stop - 1]) - taken
            start, taken = stop, int(end[stop - 1])
    if portion:
        yield portion


def _decoded_bytes(section: Section, blocks: Positions) -> Positions:
    """(blocks,): an estimate of the memory that each takes when it is decoded."""
    if isinstance(section, BufferedSection):
        return np.zeros(len(blocks), np.int64)  # it is in memory already
    decoded: Positions = np.maximum(section.reader.lengths[blocks] * _EXPANSION, _LEAST_BYTES)
    return decoded


def buffered_section(batch: SealedBatch | None, epoch: int) -> BufferedSection | None:
    """A sealed MemTable as a section. None if it has no rows."""
    if batch is None or not batch.rows.num_rows:
        return None
    keys = batch.rows.column(0).combine_chunks()
    puts = np.asarray(batch.rows.column(1)) == PUT
    columns = batch.rows.select(range(2, batch.rows.num_columns))
    schema = row_schema(columns.schema)
    columns = no_columns(len(keys)) if not len(schema) else one_batch(with_schema(columns, schema))
    rows = Rows(0, 1, SortedKeys(keys), columns, epoch, epoch, None, None if puts.all() else puts)
    index = BufferedIndex(rows, schema, SortedKeys(keys.slice(0, 1)), SortedKeys(keys.slice(len(keys) - 1, 1)))
    return BufferedSection(epoch, index)
