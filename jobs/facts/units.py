"""What each parallel unit holds and does, and its hottest key."""

from collections.abc import Sequence

import msgspec
import numpy as np

from tussock.jobs.facts.epochs import EpochFacts
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.vnode_sizes import sum_of, vnode_sizes
from tussock.statestore.meta.manifest import HotKey
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class UnitFacts(msgspec.Struct, frozen=True):
    """One parallel unit under the version's mapping; what it did is summed over the epochs that were looked at."""

    unit: int
    vnodes: int
    rows_in: int  # that came into its fragments
    bytes_in: int  # of these, as Arrow arrays
    busy_s: float  # wall seconds in which its fragments worked
    busy_share: float  # of all units' busy seconds, 0 to 1; even: 1 / units
    hot: HotKey | None  # of its fragments' hottest keys the one with most rows, of any of these epochs
    rows_stored: int | None = None  # of its vnodes, in all SSTs; by block indexes, so about. None: nobody looked
    bytes_stored: int | None = None  # likewise, encoded


def units(version: HummockVersion, done: Sequence[EpochFacts], meta: MetaStore | None = None) -> tuple[UnitFacts, ...]:
    """The units, in order.

    Args:
        done: the epochs whose work is summed; those of another mapping count for the unit of that number then.
        meta: of the store, to look what is stored; None: nobody looks.

    Cost: none; with `meta` a range read of each SST that this process has not opened yet.
    Raises: with `meta`, MissingSstError where compaction and vacuum went on meanwhile; look again.
    """
    owners = np.asarray(version.mapping.units)
    stored = None if meta is None else _stored(meta, version, owners)
    work = [unit for epoch in done for unit in epoch.units]
    busy = sum(unit.seconds for unit in work)
    found = []
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
        held = (None, None) if stored is None else stored[number]
        found.append(UnitFacts(number, int((owners == number).sum()), *took, hot, *held))
    return tuple(found)


def _stored(meta: MetaStore, version: HummockVersion, owners: np.ndarray) -> list[tuple[int, int]]:
    source = BlockSource(meta.objects, process_cache())
    sizes = sum_of(
        vnode_sizes(source, [sst for level in version.levels for sst in level], len(owners)).values(), len(owners)
    )
    rows, nbytes = (np.bincount(owners, weights=amounts) for amounts in (sizes.rows, sizes.bytes))
    return [(round(r), round(b)) for r, b in zip(rows.tolist(), nbytes.tolist(), strict=True)]
