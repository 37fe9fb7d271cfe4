"""The vnode mapping: which parallel unit owns which vnode. It is balanced, and changes move as few vnodes as possible.

remap      change the number of units: each gets an equal share of the vnodes
relieve    keep the units: overloaded ones give vnodes to lightly loaded ones
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tussock.statestore.meta.errors import SettingError
from tussock.statestore.meta.version import VnodeMapping

MAX_VNODES = 1 << 15


def even_mapping(vnode_count: int, units: int) -> VnodeMapping:
    """The first mapping: contiguous groups of vnodes whose sizes differ by at most one. Raises SettingError."""
    _check_counts(vnode_count, units)
    return VnodeMapping(0, tuple((np.arange(vnode_count) * units // vnode_count).tolist()))


def remap_vnodes(mapping: VnodeMapping, units: int) -> VnodeMapping:
    """The next mapping, balanced over units 0 to `units`-1. No balanced mapping moves fewer vnodes.

    Removed units give up all vnodes; the others give up only their excess. If some units must own one vnode more than
    others, the units with the most vnodes keep it. Deterministic. Raises SettingError.
    """
    owners = np.asarray(mapping.unit_of_vnode, dtype=np.int64)
    _check_counts(len(owners), units)
    vnode_counts = np.bincount(owners, minlength=units)[:units]
    share, one_more = divmod(len(owners), units)
    target = np.full(units, share)
    target[np.argsort(-vnode_counts, kind="stable")[:one_more]] += 1

    by_owner = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[by_owner], owners[by_owner])
    rank = np.empty(len(owners), dtype=np.int64)  # position of each vnode within its unit
    rank[by_owner] = np.arange(len(owners)) - starts
    room = np.zeros(max(units, int(owners.max()) + 1), dtype=np.int64)
    room[:units] = target
    moves = rank >= room[owners]
    after = owners.copy()
    after[moves] = np.repeat(np.arange(units), np.maximum(target - vnode_counts, 0))
    return VnodeMapping(mapping.id + 1, tuple(after.tolist()))


def relieve_units(mapping: VnodeMapping, weights: npt.NDArray[np.float64], most: float) -> VnodeMapping:
    """The next mapping over the same units, with at most `most` weight per unit or as close to it as possible.

    An overloaded unit gives its heaviest vnodes that fit elsewhere, and finally the lightest vnode that brings it below
    `most`. This moves the fewest vnodes unless capacity is short. The least loaded unit receives. Every unit keeps a
    vnode. Returns `mapping` itself if nothing improves. Deterministic.

    Args:
        weights: (vnodes,) load of each vnode, at least 0.
        most: desired upper limit of a unit's load.

    Cost: a pass over a unit's vnodes for each vnode that moves.
    """
    owners = np.asarray(mapping.unit_of_vnode, dtype=np.int64)
    load = np.bincount(owners, weights, minlength=mapping.unit_count)
    for giver in np.argsort(-load, kind="stable").tolist():
        while load[giver] > most:
            own = np.flatnonzero(owners == giver)
            taker = int(load.argmin())
            vnode = _to_give(own, weights[own], load[giver] - most, most - load[taker], load[giver] - load[taker])
            if vnode is None:
                break
            owners[vnode] = taker
            load[giver] -= weights[vnode]
            load[taker] += weights[vnode]
    units = tuple(owners.tolist())
    return mapping if units == mapping.unit_of_vnode else VnodeMapping(mapping.id + 1, units)


def _to_give(
    own: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], excess: float, room: float, lead: float
) -> int | None:
    """Choose a vnode for a unit to give, or None if no move improves the balance of the two units.

    Args:
        own, weights: the giver's vnodes and their loads.
        excess: the giver's load above the limit.
        room: load that the receiver can take below the limit.
        lead: the giver's load minus the receiver's.
    """
    useful = (weights > 0) & (weights < lead)
    fits = useful & (weights <= room)
    if len(own) == 1 or not useful.any():
        return None
    if (ends := fits & (weights >= excess)).any():
        return int(own[np.argmin(np.where(ends, weights, np.inf))])
    if fits.any():
        return int(own[np.argmax(np.where(fits, weights, -1.0))])
    # The receiver exceeds the limit too, but less than the giver did.
    return int(own[np.argmin(np.where(useful, np.abs(weights - lead / 2), np.inf))])


def validate_mapping(mapping: VnodeMapping, vnode_count: int) -> VnodeMapping:
    """Return the mapping if it is valid for a store with `vnode_count` vnodes. Raises SettingError."""
    _check_counts(mapping.vnode_count, mapping.unit_count)
    if mapping.vnode_count != vnode_count:
        raise SettingError("the length of a mapping", str(mapping.vnode_count), f"{vnode_count}, the vnode count")
    if idle := _units_without_vnodes(mapping.unit_of_vnode):
        raise SettingError("a mapping's unit without vnodes", str(idle[0]), "at least one vnode for every unit")
    return mapping


def _units_without_vnodes(units: Sequence[int]) -> list[int]:
    empty_units: list[int] = np.setdiff1d(np.arange(max(units) + 1), units).tolist()
    return empty_units


def _check_counts(vnode_count: int, units: int) -> None:
    if not 1 <= vnode_count <= MAX_VNODES or vnode_count & (vnode_count - 1):
        raise SettingError("the vnode count", str(vnode_count), f"a power of two from 1 to {MAX_VNODES}")
    if not 1 <= units <= vnode_count:
        raise SettingError("the number of parallel units", str(units), f"1 to {vnode_count}, the vnode count")
