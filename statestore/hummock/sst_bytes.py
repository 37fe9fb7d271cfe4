"""Attributes the bytes of SSTs to causes: keys, epochs, values, block heads, filters and indexes, per table.

Filters and indexes are exact, from the footers. The parts of the blocks come from sampled blocks; a table with at most
SAMPLE blocks is measured exactly. If columns are packed together, their bytes are divided in proportion to the bytes of
each when it is packed alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.plane_reader import bytes_by_column
from tussock.statestore.hummock.sst_format import HEAD_COLUMNS, TAIL_SIZE
from tussock.statestore.hummock.sst_reader import SectionReader, SstReader
from tussock.statestore.meta.version import SstInfo

SAMPLE = 64  # blocks per table
_AT_ONCE = 64  # SSTs per fetch of footers


@dataclass(frozen=True, slots=True)
class TableBytes:
    """The bytes of one table's sections.

    The sum of all parts is exact. `keys`, `epochs`, `values` and `heads` are estimates for tables with many blocks.
    """

    keys: int
    epochs: int  # the columns epoch and op
    values: int  # the row's columns
    heads: int  # of blocks: message heads and padding; schema messages; ends of streams
    filters: int
    index: int  # of the SSTs' indexes and tails, by the table's share of their blocks

    @property
    def total(self) -> int:
        """All bytes."""
        return self.keys + self.epochs + self.values + self.heads + self.filters + self.index


class _Block(NamedTuple):
    sst: SstInfo
    section: SectionReader
    number: int


def table_bytes(source: BlockSource, ssts: Sequence[SstInfo], sample: int = SAMPLE) -> dict[int, TableBytes]:
    """The bytes of SSTs by table id and cause. Their sum is the sum of the SSTs' sizes.

    Raises: MissingSstError, DamagedSstError.
    Cost: one range read per SST that the source has not opened yet, and one per sampled block: at most `sample` blocks
    per table. Memory: the footers of _AT_ONCE SSTs, and the block lengths of all.
    """
    known: dict[int, _Known] = {}
    for start in range(0, len(ssts), _AT_ONCE):
        for sst, reader in zip(chunk := ssts[start : start + _AT_ONCE], source.open_ssts(chunk), strict=True):
            _count_sst(known, sst, reader)
    shares = _measure_shares(source, {table_id: one.sample_blocks(sample) for table_id, one in known.items()})
    return {table_id: one.split_bytes(shares[table_id]) for table_id, one in known.items()}


@dataclass(slots=True)
class _Known:
    """The exact sums of one table, and its blocks."""

    blocks: list[tuple[SstInfo, SectionReader]]
    block_bytes: int = 0
    stream_bytes: int = 0  # schema messages and ends of streams
    filters: int = 0
    index: int = 0

    def sample_blocks(self, most: int) -> list[_Block]:
        """At most `most` blocks, evenly spaced over all blocks of the table."""
        ends = np.cumsum([len(section) for _, section in self.blocks])
        count = int(ends[-1])
        chosen = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
        owners = np.searchsorted(ends, chosen, "right")
        return [
            _Block(sst, section, int(block - ends[owner] + len(section)))
            for owner, block in zip(owners.tolist(), chosen.tolist(), strict=True)
            for sst, section in self.blocks[owner : owner + 1]
        ]

    def split_bytes(self, shares: npt.NDArray[np.float64]) -> TableBytes:
        """The table's bytes. `shares`: of keys, epochs and values in the bytes of blocks."""
        keys, epochs, values = (int(part) for part in np.floor(shares * self.block_bytes))
        heads = self.block_bytes - keys - epochs - values + self.stream_bytes
        return TableBytes(keys, epochs, values, heads, self.filters, self.index)


def _count_sst(known: dict[int, _Known], sst: SstInfo, reader: SstReader) -> None:
    """Add the sections of one SST. The index is divided by blocks, so that the parts sum up to the SST's size."""
    sections = [reader.open_section(table_id) for table_id in reader.table_ids]
    index = reader.tail.index_len + TAIL_SIZE
    blocks = np.cumsum([len(section) for section in sections])
    parts = np.diff(index * blocks // blocks[-1], prepend=0).tolist()
    for info, section, part in zip(sst.sections, sections, parts, strict=True):
        one = known.setdefault(info.table_id, _Known([]))
        lengths = int(section.lengths.sum())
        one.blocks.append((sst, section))
        one.block_bytes += lengths
        one.stream_bytes += info.bytes - lengths
        one.filters += int(section.filter_lengths.sum())
        one.index += part


def _measure_shares(source: BlockSource, sampled: dict[int, list[_Block]]) -> dict[int, npt.NDArray[np.float64]]:
    """Per table: the shares of keys, epochs and values in the bytes of its sampled blocks."""
    wanted: dict[str, tuple[SstInfo, list[tuple[int, int]]]] = {}
    places: dict[int, list[tuple[str, int]]] = {}
    for table_id, blocks in sampled.items():
        for sst, section, number in blocks:
            _, ranges = wanted.setdefault(sst.name, (sst, []))
            places.setdefault(table_id, []).append((sst.name, len(ranges)))
            ranges.append((int(section.offsets[number]), int(section.lengths[number])))
    fetched = source.ranges.fetch_ranges(list(wanted.values()), keep=False)
    data = dict(zip(wanted, fetched, strict=True))
    answer = {}
    for table_id, blocks in sampled.items():
        block_bytes = [data[name][place] for name, place in places[table_id]]
        parts = sum(
            (
                _column_bytes(block, section, number)
                for block, (_, section, number) in zip(block_bytes, blocks, strict=True)
            ),
            np.zeros(3),
        )
        answer[table_id] = parts / sum(map(len, block_bytes))
    return answer


def _column_bytes(block: bytes, section: SectionReader, number: int) -> npt.NDArray[np.float64]:
    """Encoded bytes of a block's keys, of its epochs and ops, and of its values."""
    columns = bytes_by_column(section.planes, memoryview(block), int(section.rows[number]))
    return np.array([columns[0], columns[1:HEAD_COLUMNS].sum(), columns[HEAD_COLUMNS:].sum()])
