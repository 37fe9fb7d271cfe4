"""Estimates rows and bytes in SSTs per vnode from the block indexes, without reading blocks.

The index gives a block's first and last key, and therefore its first and last vnode, its number of rows and its length.
Rows are spread evenly over these vnodes; an outer vnode counts half if the neighbouring block also has rows of it. If a
table has more than one block per vnode, the estimate is exact except for the two blocks at each vnode's ends. Estimates
for smaller tables assume a uniform hash.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.ingest import vnodes_of_keys
from tussock.statestore.meta.version import SstInfo

_AT_ONCE = 64  # SSTs per fetch of footers

Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class VnodeSizes:
    """Per vnode: (vnodes,) rows and encoded bytes. Includes deletes and old versions of rows."""

    rows: Amounts
    bytes: Amounts

    def __add__(self, other: "VnodeSizes") -> "VnodeSizes":
        return VnodeSizes(self.rows + other.rows, self.bytes + other.bytes)

    @classmethod
    def make_empty(cls, vnode_count: int) -> "VnodeSizes":
        """Sizes of zero SSTs."""
        return cls(np.zeros(vnode_count), np.zeros(vnode_count))


def vnode_sizes(source: BlockSource, ssts: Sequence[SstInfo], vnode_count: int) -> dict[int, VnodeSizes]:
    """Rows and bytes of SSTs per vnode, by table id.

    Raises: MissingSstError, DamagedSstError.
    Cost: one range read per SST that the source has not opened yet.
    """
    sizes_by_table: dict[int, VnodeSizes] = {}
    for start in range(0, len(ssts), _AT_ONCE):
        for table_id, sizes in _read_sizes(source, ssts[start : start + _AT_ONCE], vnode_count):
            sizes_by_table[table_id] = sizes_by_table[table_id] + sizes if table_id in sizes_by_table else sizes
    return sizes_by_table


def sum_of(sizes: Iterable[VnodeSizes], vnode_count: int) -> VnodeSizes:
    """The total of all tables."""
    return sum(sizes, VnodeSizes.make_empty(vnode_count))


def _read_sizes(source: BlockSource, ssts: Sequence[SstInfo], vnode_count: int) -> Iterator[tuple[int, VnodeSizes]]:
    for reader in source.open_ssts(ssts):
        for table_id in reader.table_ids:
            section = reader.open_section(table_id)
            first, last = (
                vnodes_of_keys(keys.array).astype(np.int64) for keys in (section.first_keys, section.last_keys)
            )
            spread = _spread_amounts(
                first, last, np.stack([section.rows, section.lengths]).astype(np.float64), vnode_count
            )
            yield table_id, VnodeSizes(*spread)


def _spread_amounts(
    first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], amounts: Amounts, vnode_count: int
) -> Amounts:
    """(k, vnodes): spread the amounts (k, blocks) over the vnodes `first` to `last` of each block.

    Blocks are in key order.
    """
    meets = last[:-1] == first[1:]  # whether a block and the next one share a vnode
    outer_first = np.where(np.r_[False, meets], 0.5, 1.0)
    outer_last = np.where(np.r_[meets, False], 0.5, 1.0)
    one = first == last
    outer_first[one], outer_last[one] = 1.0, 0.0
    shares = amounts / (outer_first + outer_last + np.maximum(last - first - 1, 0))
    spread = np.zeros((len(amounts), vnode_count + 1))
    for row, share in zip(spread, shares, strict=True):
        np.add.at(row, np.minimum(first + 1, last), share)  # the inner vnodes
        np.add.at(row, last, -share)
        np.cumsum(row, out=row)
        np.add.at(row, first, share * outer_first)
        np.add.at(row, last, share * outer_last)
    return spread[:, :-1]
