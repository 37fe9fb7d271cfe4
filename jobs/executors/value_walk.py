"""Reads the values near a stored position in the order of a group, instead of the group.

A group's row stores an *anchor*: a value, and the number of the group's rows before it. An epoch that changes m rows of
the group moves neither the anchor's rank nor a wanted rank by more than m:

    rows before the anchor now = rows before the anchor then + changed rows with smaller values

So the value at a wanted rank is at most m rows away from the anchor, and the walk to it reads no others.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tussock.jobs.executors.base import NO_ROW, change_error
from tussock.jobs.executors.distinct_state import DistinctState
from tussock.jobs.executors.group_segments import I64
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import one_array

_FIRST_STEP = 16  # values per walk in the first read
_LONGER = 8  # factor by which further reads of a walk grow


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of consecutive values of n groups, as positions in common columns.

    `values` are (m,) with the number of rows of each in `counts`. A stretch begins at the value `starts[i]`, and
    `below[i]` rows of the group have smaller values.
    """

    values: pa.Array
    counts: I64
    starts: I64
    below: I64


@dataclass(frozen=True, slots=True)
class _Walked:
    """The values that n walks in one direction passed, in their direction: (m,) each, walk after walk in each part."""

    walk: I64
    values: pa.Array
    counts: I64


def read_near_anchors(
    state: DistinctState, groups: pa.Table, anchors: pa.Array, below: I64, first: I64, last: I64, once: bool
) -> Stretches:
    """The values at the ranks from `first` to `last` (both inclusive, from 0) of each group.

    Args:
        groups: (n,) keys of groups; repeats allowed.
        anchors, below: (n,) a value of each group, which may be deleted by now, and how many rows are before it now.
        once: each value counts as one row.

    Raises: ChangeError if a group has fewer rows than its ranks need.
    Cost: two batched scans that are limited to the rows between the anchors and the ranks, or a few more.
    """
    prefixes = state.table.layout.prefixes_of(groups)
    keys = state.keys_of_values(groups, anchors)
    back = _walk_rows(state.table, groups, prefixes, keys, below - first, True, once)
    forth = _walk_rows(state.table, groups, keys, successors(prefixes), last + 1 - below, False, once)
    walk = np.concatenate([back.walk, forth.walk])
    order = np.lexsort((np.concatenate([-1 - np.arange(len(back.walk)), np.arange(len(forth.walk))]), walk))
    passed = np.zeros(len(below), np.int64)
    np.add.at(passed, back.walk, back.counts)
    return Stretches(
        pa.concat_arrays([back.values, forth.values]).take(pa.array(order)),
        np.concatenate([back.counts, forth.counts])[order],
        np.searchsorted(walk[order], np.arange(len(below))),
        below - passed,
    )


def _walk_rows(
    table: StateTable,
    groups: pa.Table,
    firsts: pa.BinaryArray,
    ends: pa.BinaryArray,
    needed: I64,
    reverse: bool,
    once: bool,
) -> _Walked:
    """The values from one end of each range of keys until they have `needed` rows; none for ranges that need none."""
    walks, rest = np.flatnonzero(needed > 0), needed[needed > 0]
    chosen = pa.array(walks)
    firsts, ends = firsts.take(chosen), ends.take(chosen)
    value_type = table.layout.rows.types[-2]
    parts = [_Walked(np.empty(0, np.int64), pa.array([], value_type), np.empty(0, np.int64))]
    limit = _FIRST_STEP
    while len(walks):
        limit = min(limit, int(rest.max()))
        read = table.scan_between(firsts, ends, limit, reverse)
        index = np.asarray(read.index)
        *_, values, stored = read.rows.columns
        counts = np.ones(len(index), np.int64) if once else stored.to_numpy()
        parts.append(_Walked(walks[index], one_array(values), counts))
        upto, cuts = np.concatenate([[0], np.cumsum(counts)]), np.searchsorted(index, np.arange(len(walks) + 1))
        rest = rest - np.diff(upto[cuts])
        unfinished = rest > 0
        if (ended := unfinished & (np.diff(cuts) < limit)).any():
            raise change_error(table.name, NO_ROW, groups, int(walks[np.argmax(ended)]))
        reached, further = read.keys.take(pa.array(cuts[1:][unfinished] - 1)), pa.array(unfinished)
        walks, rest = walks[unfinished], rest[unfinished]
        firsts, ends = (firsts.filter(further), reached) if reverse else (successors(reached), ends.filter(further))
        limit *= _LONGER
    return _Walked(
        np.concatenate([part.walk for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )
