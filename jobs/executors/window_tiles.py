"""ntile by the borders between tiles: the key of each tile's first row, except for the first tile.

State: `over_borders`, partition -> number of rows, and the borders of each call. A changed row moves the numbers of the
rows behind it by one, and each border by at most one row. Only rows between the old and the new border change their
tile:

    rows           a  b  c | d  e  f | g  h  i
    after -b, -c   a  d  e | f  g    | h  i        d, e and g change their tile

A border's row number is known: it follows from the number of rows. So the old border is an anchor (value_walk.py), from
which a walk over the rows that change their tile finds the new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import chunk_of_difference, some_rows
from tussock.jobs.executors.base import Positions, same_rows, take_rows
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.value_walk import walk_rows
from tussock.jobs.executors.window_pieces import Changes, Mask, MergedRows
from tussock.statestore.hummock.sorted_keys import (
    differs_from_previous,
    left_positions,
    sort_order,
    successors,
    take_keys,
)
from tussock.statestore.positions import indices_in_ranges
from tussock.statestore.table.state_table import LocatedKeys, StateTable
from tussock.statestore.vnode import normalise_floats, one_array

_TABLE_ID_BYTES = 4  # of a storage key


@dataclass(frozen=True, slots=True)
class TouchedPartitions:
    """The partitions of changed rows, in the order of the state's keys, with their state before the epoch."""

    prefixes: pa.BinaryArray  # of the rows' keys
    located: LocatedKeys  # in the table of borders
    groups: pa.Table  # the partitions' columns
    stored: pa.Table  # rows of the table of borders; NULL for new partitions
    before: Positions  # number of rows
    after: Positions

    def select_partitions(self, chosen: Mask) -> "TouchedPartitions":
        """The chosen partitions."""
        places = np.flatnonzero(chosen)
        located = LocatedKeys(np.arange(len(places)), self.located.keys.take(pa.array(places)), as_given=True)
        groups, stored = take_rows(self.groups, places), take_rows(self.stored, places)
        prefixes = self.prefixes.take(pa.array(places))
        return TouchedPartitions(prefixes, located, groups, stored, self.before[places], self.after[places])


class Tiles:
    """The tiles of one actor's partitions. All functions of the window are ntile."""

    def __init__(self, partition: Sequence[int], tiles: Sequence[int], rows: StateTable, borders: StateTable) -> None:
        """`partition`: columns, without repetition. `tiles`: the number of tiles of each call."""
        self._partition, self._tiles, self._rows, self._borders = tuple(partition), tuple(tiles), rows, borders

    def find_partitions(self, among: Changes, prefixes: pa.BinaryArray) -> tuple[TouchedPartitions, Mask]:
        """The touched partitions, and in which of them the borders lead to the changed tiles.

        The others are new, have few rows, or change so much that reading them costs less than many walks.
        """
        ends = successors(prefixes)
        come, gone = among.count_between(prefixes, ends)
        first = np.where(come > 0, left_positions(among.come.keys, prefixes), 0)
        other = len(among.come.keys) + left_positions(among.gone.keys, prefixes)
        rows = take_rows(pa.concat_tables([among.come.rows, among.gone.rows]), np.where(come > 0, first, other))
        groups = rows.select(list(self._partition))
        if groups.num_columns:
            groups = pa.table([normalise_floats(c) for c in groups.columns], names=groups.column_names)
        located = self._borders.locate_ordered(groups)
        assert located is not None, "both tables have the partitions in the same order"
        stored = self._borders.get_located(located).rows
        before = integer_values(stored.column(len(self._partition)))
        most = max(self._tiles)
        after = before + come - gone
        follows = (np.minimum(before, after) >= 2 * most) & ((come + gone) * most < before)
        return TouchedPartitions(prefixes, located, groups, stored, before, after), follows

    def write_borders_of_rows(self, touched: TouchedPartitions, merged: MergedRows) -> None:
        """Write the state of partitions whose rows are all known. `merged` has the same partitions."""
        rows = np.flatnonzero(merged.now)
        counts = np.bincount(merged.partition[rows], minlength=len(touched.before))
        starts, keys = np.cumsum(counts) - counts, merged.keys
        borders = []
        for tiles in self._tiles:
            number = np.maximum(np.minimum(tiles, counts) - 1, 0)
            partition = np.repeat(np.arange(len(counts)), number)
            tile = indices_in_ranges(number) + 1
            places = starts[partition] + _first_number(tile, counts[partition], tiles)
            borders.append(_lists_of(take_keys(keys, rows[places]), number))
        self._write(touched, counts, borders)

    def follow_borders(self, touched: TouchedPartitions, among: Changes) -> pa.Table:
        """The difference in partitions whose borders are followed. Writes their state.

        Requires: the changes are checked (`Changes.require_stored`) and written to the rows.
        Cost: walks over the rows that change their tile.
        """
        ends = successors(touched.prefixes)
        (come, of_come), (gone, of_gone) = among.rows_between(touched.prefixes, ends)
        coming, going = among.come.take_rows(come), among.gone.take_rows(gone)
        moved = [self._move_borders(i, tiles, touched, among) for i, tiles in enumerate(self._tiles)]
        self._write(touched, touched.after, [_lists_of(m.new, np.full(len(ends), m.tiles - 1)) for m in moved])
        keys = pa.concat_arrays([m.passed_keys for m in moved])
        partition = np.concatenate([m.passed_partition for m in moved])
        order = sort_order(keys)
        keys = take_keys(keys, order)
        places = order[differs_from_previous(keys) & ~_is_among(coming.keys, keys)]
        rows = take_rows(pa.concat_tables([m.passed_rows for m in moved]), places)
        keys, partition = pa.concat_arrays([m.passed_keys for m in moved]).take(pa.array(places)), partition[places]
        old, new = ([m.tiles_of(keys, partition, b) for m in moved] for b in (False, True))
        changed = ~same_rows(_table_of(old), _table_of(new))
        return pa.concat_tables(
            [
                chunk_of_difference(
                    _append(going.rows, [m.tiles_of(going.keys, of_gone, False) for m in moved]),
                    _append(coming.rows, [m.tiles_of(coming.keys, of_come, True) for m in moved]),
                ),
                chunk_of_difference(some_rows(_append(rows, old), changed), some_rows(_append(rows, new), changed)),
            ]
        )

    def _move_borders(self, call: int, tiles: int, touched: TouchedPartitions, among: Changes) -> "_Moved":
        """The old and new borders of one call, and the rows between them."""
        stored = one_array(touched.stored.column(len(self._partition) + 1 + call)).flatten()
        table_id = self._rows.layout.schema.table_id.to_bytes(_TABLE_ID_BYTES, "big")
        old = pc.binary_replace_slice(stored, 0, _TABLE_ID_BYTES, table_id)
        partition = np.repeat(np.arange(len(touched.before)), tiles - 1)
        tile = np.tile(np.arange(1, tiles), len(touched.before))
        prefixes = touched.prefixes.take(pa.array(partition))
        come, gone = among.count_between(prefixes, old)
        number = _first_number(tile, touched.before[partition], tiles) + come - gone  # of the first row from `old` on
        wanted = _first_number(tile, touched.after[partition], tiles)
        forth = np.where((wanted > number) | (wanted == number) & among.are_deleted(old), wanted - number + 1, 0)
        ahead = walk_rows(self._rows, old, successors(prefixes), forth, False, _count_each)
        behind = walk_rows(self._rows, prefixes, old, number - wanted, True, _count_each)
        needed = np.where(forth > 0, forth, number - wanted)
        walk = np.concatenate([ahead.walk, behind.walk])  # no border has both
        order = np.argsort(walk, kind="stable")
        walk = walk[order]
        step = np.arange(len(walk)) - np.searchsorted(walk, walk) + 1
        keys, rows = pa.concat_arrays([ahead.keys, behind.keys]), pa.concat_tables([ahead.rows, behind.rows])
        new = np.arange(len(old))
        at_end = step == needed[walk]
        new[walk[at_end]] = len(old) + order[at_end]
        passed = order[step <= needed[walk]]
        return _Moved(
            tiles,
            old,
            pa.concat_arrays([old, keys]).take(pa.array(new)),
            keys.take(pa.array(passed)),
            take_rows(rows, passed),
            partition[np.concatenate([ahead.walk, behind.walk])[passed]],
        )

    def _write(self, touched: TouchedPartitions, counts: Positions, borders: Sequence[pa.ListArray]) -> None:
        """Write the rows whose number of rows or borders changed."""
        columns = [*touched.groups.columns, pa.array(counts), *borders]
        state = pa.table(columns, schema=self._borders.layout.rows)
        value_columns = range(len(self._partition), state.num_columns)
        changed = ~same_rows(touched.stored.select(value_columns), state.select(value_columns))
        self._borders.replace_located(touched.located, state, changed & (touched.before > 0), changed & (counts > 0))


@dataclass(frozen=True, slots=True)
class _Moved:
    """The borders of one call before and after the epoch, partition by partition, and the rows between them."""

    tiles: int
    old: pa.BinaryArray
    new: pa.BinaryArray
    passed_keys: pa.BinaryArray
    passed_rows: pa.Table
    passed_partition: Positions

    def tiles_of(self, keys: pa.BinaryArray, partition: Positions, after: bool) -> pa.Int32Array:
        """The tile of each row, from 1."""
        upto = np.asarray(pc.search_sorted(self.new if after else self.old, keys, side="right")).astype(np.int64)
        return pa.array((upto - partition * (self.tiles - 1) + 1).astype(np.int32))


def _first_number(tile: Positions, rows: Positions, tiles: int) -> Positions:
    """The number (from 0) of the first row of each tile (from 0). The first `rows % tiles` tiles have one row more."""
    return tile * (rows // tiles) + np.minimum(tile, rows % tiles)


def _lists_of(keys: pa.BinaryArray, sizes: Positions) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), keys)


def _count_each(rows: pa.Table) -> Positions:
    return np.ones(rows.num_rows, np.int64)


def _is_among(sorted_keys: pa.BinaryArray, keys: pa.BinaryArray) -> Mask:
    """Whether each key is one of the sorted ones."""
    if not len(sorted_keys):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(left_positions(sorted_keys, keys), len(sorted_keys) - 1)
    return np.asarray(pc.equal(sorted_keys.take(pa.array(places)), keys))


def _table_of(columns: Sequence[pa.Array]) -> pa.Table:
    return pa.table(list(columns), names=[f"c{i}" for i in range(len(columns))])


def _append(rows: pa.Table, columns: Sequence[pa.Array]) -> pa.Table:
    return _table_of([*rows.columns, *columns])
