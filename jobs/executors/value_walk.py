"""Reads the rows near a stored position in an order, instead of the group or partition.

A group's row stores an *anchor*: a value, and the number of the group's rows before it. An epoch that changes m rows of
the group moves neither the anchor's rank nor a wanted rank by more than m:

    rows before the anchor now = rows before the anchor then + changed rows with smaller values

So the value at a wanted rank is at most m rows away from the anchor, and the walk to it reads no others.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tussock.jobs.executors.base import NO_ROW, change_error
from tussock.jobs.executors.distinct_state import DistinctState
from tussock.jobs.executors.group_segments import I64
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import one_array

_FIRST_STEP = 16  # rows per walk in the first read
_LONGER = 8  # factor by which further reads of a walk grow


@dataclass(frozen=True, slots=True)
class WalkedRows:
    """The m rows that n walks in one direction passed, walk after walk, each in its direction.

    Args:
        walk: (m,) the number of each row's walk, ascending.
        keys, rows, counts: (m,) storage keys, whole rows, and the number that each row counts for.
        missing: (n,) how many of the needed rows do not exist.
    """

    walk: I64
    keys: pa.BinaryArray
    rows: pa.Table
    counts: I64
    missing: I64


def walk_rows(
    table: StateTable,
    firsts: pa.BinaryArray,
    ends: pa.BinaryArray,
    needed: I64,
    reverse: bool,
    count_rows: Callable[[pa.Table], I64],
) -> WalkedRows:
    """The rows from one end of each range of keys until they count for `needed`, or a few more.

    Args:
        count_rows: the number that each row counts for, at least 1.

    Cost: batched scans that grow with the rows that the longest walk still needs. None for ranges that need no row.
    """
    missing = np.maximum(needed, 0)
    walks = np.flatnonzero(missing)
    firsts, ends = firsts.take(pa.array(walks)), ends.take(pa.array(walks))
    index, keys, rows = [np.empty(0, np.int64)], [pa.array([], pa.binary())], [table.layout.rows.empty_table()]
    counts = [np.empty(0, np.int64)]
    limit = _FIRST_STEP
    while len(walks):
        limit = min(limit, int(missing[walks].max()))
        read = table.scan_between(firsts, ends, limit, reverse)
        here = np.asarray(read.index)
        index.append(walks[here])
        keys.append(read.keys.cast(pa.binary()))
        rows.append(read.rows)
        counts.append(count_rows(read.rows))
        upto, cuts = np.concatenate([[0], np.cumsum(counts[-1])]), np.searchsorted(here, np.arange(len(walks) + 1))
        missing[walks] = np.maximum(missing[walks] - np.diff(upto[cuts]), 0)
        unfinished = (missing[walks] > 0) & (np.diff(cuts) == limit)
        reached, further = keys[-1].take(pa.array(cuts[1:][unfinished] - 1)), pa.array(unfinished)
        firsts, ends = (firsts.filter(further), reached) if reverse else (successors(reached), ends.filter(further))
        walks = walks[unfinished]
        limit *= _LONGER
    walk = np.concatenate(index)
    order = np.argsort(walk, kind="stable")
    chosen = pa.array(order)
    return WalkedRows(
        walk[order],
        pa.concat_arrays(keys).take(chosen),
        pa.concat_tables(rows).take(chosen),
        np.concatenate(counts)[order],
        missing,
    )


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


def read_near_anchors(
    state: DistinctState, groups: pa.Table, anchors: pa.Array, below: I64, first: I64, last: I64, once: bool
) -> Stretches:
    """The values at the ranks from `first` to `last` (both inclusive, from 0) of each group.

    Args:
        groups: (n,) keys of groups; repeats allowed.
        anchors, below: (n,) a value of each group, which may be deleted by now, and how many rows are before it now.
        once: each value counts as one row.

    Raises: ChangeError if a group has fewer rows than its ranks need.
    Cost: two walks from the anchors to the ranks.
    """

    def count_rows(rows: pa.Table) -> I64:
        return np.ones(rows.num_rows, np.int64) if once else one_array(rows.columns[-1]).to_numpy()

    prefixes = state.table.layout.prefixes_of(groups)
    keys = state.keys_of_values(groups, anchors)
    back = walk_rows(state.table, prefixes, keys, below - first, True, count_rows)
    forth = walk_rows(state.table, keys, successors(prefixes), last + 1 - below, False, count_rows)
    if (short := back.missing + forth.missing).any():
        raise change_error(state.table.name, NO_ROW, groups, int(np.argmax(short > 0)))
    walk = np.concatenate([back.walk, forth.walk])
    order = np.lexsort((np.concatenate([-1 - np.arange(len(back.walk)), np.arange(len(forth.walk))]), walk))
    passed = np.zeros(len(below), np.int64)
    np.add.at(passed, back.walk, back.counts)
    values = pa.concat_arrays([one_array(walked.rows.columns[-2]) for walked in (back, forth)])
    return Stretches(
        values.take(pa.array(order)),
        np.concatenate([back.counts, forth.counts])[order],
        np.searchsorted(walk[order], np.arange(len(below))),
        below - passed,
    )
