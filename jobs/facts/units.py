"""The parallel units: their stored rows, their work, and their hottest keys."""

from collections.abc import Sequence

import msgspec
import numpy as np

from tussock.jobs.facts.epochs import EpochFacts
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.in_use import on_newest
from tussock.statestore.hummock.vnode_sizes import VnodeSizes, sum_of, vnode_sizes
from tussock.statestore.meta.manifest import HotKey
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class UnitFacts(msgspec.Struct, frozen=True):
    """One parallel unit under the version's mapping. Its work is summed over the given epochs."""

    unit: int
    vnodes: int
    rows_in: int  # into its fragments
    bytes_in: int  # of these rows, as Arrow arrays
    busy_s: float  # wall seconds in which its fragments ran
    busy_share: float  # of all units' busy seconds, 0 to 1; even: 1 / units
    hot: HotKey | None  # the hottest key of its fragments in these epochs, by rows
    rows_stored: int | None = None  # of its vnodes, in all SSTs; estimated from block indexes. None: not computed
    bytes_stored: int | None = None  # encoded; as for `rows_stored`


def list_units(version: HummockVersion, done: Sequence[EpochFacts], meta: MetaStore | None) -> tuple[UnitFacts, ...]:
    """Return the units, in order.

    Args:
        done: the epochs whose work is summed. Work under another mapping counts for the unit of the same number.
        meta: the store, to compute the stored rows; None: they are not computed.

    Raises: with `meta`, MissingSstError if compaction and vacuum ran meanwhile; try again. Cost: none; with `meta` one
    range read per SST that this process has not opened yet.
    """
    owners = np.asarray(version.mapping.unit_of_vnode)
    stored = None if meta is None else _stored_by_unit(meta, owners)
    work = [unit for epoch in done for unit in epoch.units]
    busy = sum(unit.seconds for unit in work)
    units = []
    for number in range(version.mapping.unit_count):
        mine = [unit for unit in work if unit.unit == number]
        seconds = sum(unit.seconds for unit in mine)
        hot = max(
            (unit.hot for unit in mine if unit.hot is not None), key=lambda hot: hot.share * hot.rows, default=None
        )
        took = (
            sum(unit.rows for unit in mine),
            sum(unit.bytes for unit in mine),
            round(seconds, 3),
            seconds / busy if busy else 0.0,
        )
        stored_amounts = (None, None) if stored is None else stored[number]
        units.append(UnitFacts(number, int((owners == number).sum()), *took, hot, *stored_amounts))
    return tuple(units)


def _stored_by_unit(meta: MetaStore, owners: np.ndarray) -> list[tuple[int, int]]:
    source = BlockSource(meta.objects, process_cache())

    def measure_vnodes(version: HummockVersion) -> VnodeSizes:
        ssts = [sst for level in version.levels for sst in level]
        return sum_of(vnode_sizes(source, ssts, len(owners)).values(), len(owners))

    sizes = on_newest(meta, measure_vnodes)
    rows, nbytes = (np.bincount(owners, weights=amounts) for amounts in (sizes.rows, sizes.bytes))
    return [(round(r), round(b)) for r, b in zip(rows.tolist(), nbytes.tolist(), strict=True)]
