"""The vnode mapping: which parallel unit owns which vnode. Even, and changed with the least possible movement."""

import numpy as np

from statestore.meta.errors import SettingError
from statestore.meta.version import VnodeMapping

MAX_VNODES = 1 << 15


def even_mapping(vnode_count: int, units: int) -> VnodeMapping:
    """The first mapping: contiguous groups of vnodes, whose sizes differ by at most one. Raises SettingError."""
    _check(vnode_count, units)
    return VnodeMapping(0, tuple((np.arange(vnode_count) * units // vnode_count).tolist()))


def remap(mapping: VnodeMapping, units: int) -> VnodeMapping:
    """The next mapping, over units 0 to `units`-1: even again, and no mapping that is even moves fewer vnodes.

    Units that go lose everything, the others only what they hold above their share; the one more that some must hold stays with those
    that hold most. Deterministic. Raises SettingError.
    """
    owners = np.asarray(mapping.units, dtype=np.int64)
    _check(len(owners), units)
    held = np.bincount(owners, minlength=units)[:units]
    share, one_more = divmod(len(owners), units)
    target = np.full(units, share)
    target[np.argsort(-held, kind="stable")[:one_more]] += 1

    by_owner = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[by_owner], owners[by_owner])
    rank = np.empty(len(owners), dtype=np.int64)  # of each vnode among those of its unit
    rank[by_owner] = np.arange(len(owners)) - starts
    room = np.zeros(max(units, int(owners.max()) + 1), dtype=np.int64)
    room[:units] = target
    moves = rank >= room[owners]
    after = owners.copy()
    after[moves] = np.repeat(np.arange(units), np.maximum(target - held, 0))
    return VnodeMapping(mapping.id + 1, tuple(after.tolist()))


def _check(vnode_count: int, units: int) -> None:
    if not 1 <= vnode_count <= MAX_VNODES or vnode_count & (vnode_count - 1):
        raise SettingError("the vnode count", str(vnode_count), f"a power of two from 1 to {MAX_VNODES}")
    if not 1 <= units <= vnode_count:
        raise SettingError("the number of parallel units", str(units), f"1 to {vnode_count}, the vnode count")
