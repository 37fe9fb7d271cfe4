"""A long partition in pieces: how much is read at once, which results are final, and the start of the next piece.

    piece    … rows read again … | rows with final results | rows that depend on rows not read yet
    next                 … rows read again …               | …

A piece begins at a row that exists both before and after the epoch, with the values carried from the rows before it in
both states. If one state has no row of the partition in the current piece, any row of the other state will do, since
nothing was added to the carried values. If the carried values of both states are equal and no later row changes, no
later result changes either, and the rest of the partition is not read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import some_rows
from tussock.jobs.executors.base import NO_ROW, TWO_ROWS, Positions, change_error, located_rows, same_rows, split_halves
from tussock.jobs.executors.value_state import State
from tussock.jobs.executors.window_call import Over
from tussock.jobs.executors.window_frame import Before, OrderedRows
from tussock.jobs.executors.window_values import WindowResult
from tussock.jobs.logical.nodes import FrameEdge
from tussock.statestore.hummock.sorted_keys import (
    Probes,
    SortedKeys,
    differs_from_previous,
    probe_order,
    successors,
    take_keys,
)
from tussock.statestore.positions import expand_ranges
from tussock.statestore.table.columns import take_columns
from tussock.statestore.table.state_table import LocatedKeys, StateTable

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CarriedValues:
    """The values that the first row of each partition's piece carries."""

    before: Before
    calls: list[State]

    def equals_per_partition(self, other: "CarriedValues") -> Mask:
        """(partitions,) whether calls carry equal values, regardless of the number of earlier rows."""
        is_equal = np.ones(len(self.before.rows), np.bool_)
        for one, two in zip(self.calls, other.calls, strict=True):
            if one:
                names = [f"c{i}" for i in range(len(one))]
                is_equal &= same_rows(pa.table(one, names=names), pa.table(two, names=names))
        return is_equal

    def take_partitions(self, partitions: Positions) -> "CarriedValues":
        """The carried values of chosen partitions."""
        before, places = self.before, pa.array(partitions)
        numbers = (n[partitions] for n in (before.rows, before.rank, before.dense_rank))
        return CarriedValues(Before(*numbers), [[c.take(places) for c in state] for state in self.calls])

    def choose_from(self, chosen: Mask, other: "CarriedValues") -> "CarriedValues":
        """This carry's values where chosen, otherwise the other's."""
        if chosen.all():
            return self
        places = pa.array(np.where(chosen, np.arange(len(chosen)), len(chosen) + np.arange(len(chosen))))
        pairs = ((getattr(self.before, n), getattr(other.before, n)) for n in ("rows", "rank", "dense_rank"))
        numbers = (np.where(chosen, one, two) for one, two in pairs)
        calls = zip(self.calls, other.calls, strict=True)
        return CarriedValues(
            Before(*numbers), [[pa.concat_arrays(both).take(places) for both in zip(*c, strict=True)] for c in calls]
        )


@dataclass(frozen=True, slots=True)
class SortedChanges:
    """Inserted or deleted rows in key order."""

    keys: pa.BinaryArray
    rows: pa.Table

    def take_rows(self, places: Positions) -> "SortedChanges":
        """The rows at ascending, distinct positions, without a copy if they are adjacent."""
        if len(places) and places[-1] - places[0] == len(places) - 1:
            return SortedChanges(self.keys.slice(places[0], len(places)), self.rows.slice(places[0], len(places)))
        return SortedChanges(self.keys.take(pa.array(places)), self.rows.take(pa.array(places)))


@dataclass(frozen=True, slots=True)
class PartitionPiece:
    """Per partition: the first key to read, the first key with a wanted result, and both states' carried values."""

    prefixes: pa.BinaryArray
    firsts: pa.BinaryArray
    wanted: pa.BinaryArray
    old: CarriedValues
    new: CarriedValues

    def select_partitions(self, chosen: Mask) -> "PartitionPiece":
        """The chosen partitions."""
        places = np.flatnonzero(chosen)
        prefixes, firsts, wanted = (
            column.take(pa.array(places)) for column in (self.prefixes, self.firsts, self.wanted)
        )
        return PartitionPiece(
            prefixes, firsts, wanted, self.old.take_partitions(places), self.new.take_partitions(places)
        )


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Stored and inserted rows in key order. Each belongs to the old state, to the new state, or to both."""

    keys: pa.BinaryArray
    rows: pa.Table
    partition: Positions
    was: Mask
    now: Mask
    more: Mask  # (partitions,) whether more rows follow these

    def in_all(self, state: Mask) -> Mask:
        """(n,) whether a row belongs to a state (`was` or `now`), or the state has no row of its partition here."""
        some = np.zeros(len(self.more), np.bool_)
        some[self.partition[state]] = True
        return state | ~some[self.partition]


@dataclass(frozen=True, slots=True)
class EvaluatedCalls:
    """The results of all calls in one state. `places` are the positions of its rows among the merged rows."""

    places: Positions
    ordered: OrderedRows
    values: tuple[WindowResult, ...]

    @property
    def results(self) -> pa.Table:
        return pa.table([v.values for v in self.values], names=[f"r{i}" for i in range(len(self.values))])

    def carried_at(self, rows: Positions) -> CarriedValues:
        """The values that chosen rows carry."""
        at = self.ordered
        before = Before(at.number[rows] - 1, at.rank[rows], at.dense_rank[rows])
        return CarriedValues(before, [values.carry(rows) for values in self.values])


class Changes:
    """An epoch's changes in the order of the state's keys, merged with the stored rows piece by piece."""

    def __init__(self, chunk: pa.Table, table: StateTable, key: Sequence[int]) -> None:
        """Raises ChangeError if a row is inserted or deleted twice.

        Cost: an encoding and a sort of the keys; if the chunk is not insert-only, also the cost of `split_halves`.
        """
        self._table, self._key = table, list(key)
        if (coming := located_rows(chunk, table, key)) is not None:
            located, rows = coming
            self.come = SortedChanges(located.keys, rows.combine_chunks())
            self.gone = SortedChanges(pa.array([], pa.binary()), rows.slice(0, 0))
            self._new, self._ends = np.ones(len(located.keys), np.bool_), np.zeros(0, np.bool_)
            return
        parts = split_halves(chunk, table.name, key)
        self.gone, going = self._sort_changes(parts.gone)
        self.come, arriving = self._sort_changes(parts.come)
        self._new, self._ends = ~parts.is_replacing[arriving], ~parts.is_replaced[going]

    def write_state(self) -> None:
        """Write the new state: delete rows without a replacement, and put the inserted rows."""
        self._table.delete_rows(some_rows(self.gone.rows, self._ends))
        every = np.ones(len(self.come.keys), np.bool_)
        self._table.replace_located(
            LocatedKeys(np.arange(len(every)), self.come.keys, as_given=True), self.come.rows, ~every, every
        )

    def _sort_changes(self, rows: pa.Table) -> tuple["SortedChanges", Positions]:
        keys = self._table.layout.keys_of_rows(self._table.layout.as_rows(rows))
        order = probe_order(keys) if len(keys) else np.zeros(0, np.int64)  # keys are distinct
        return SortedChanges(take_keys(keys, order), rows.take(pa.array(order))), order

    def merge_rows(self, firsts: pa.BinaryArray, ends: pa.BinaryArray, limit: int | None) -> MergedRows:
        """The rows between each pair of keys, at most about `limit` stored and `limit` inserted ones per pair.

        Raises ChangeError if a deleted row does not exist, or an inserted row already does.
        """
        stored = self._table.scan_between(firsts, ends, limit)
        index = stored.index.to_numpy()
        more = np.zeros(len(firsts), np.bool_)
        low, high = _ranges_between(self.come.keys, firsts, ends)
        if limit is not None:
            counts = np.bincount(index, minlength=len(firsts))
            read, many = counts == limit, high - low > limit
            more = read | many
            if more.any():
                nearer = _next_keys(ends, many, self.come.keys, low + limit - 1)
                ends = pc.min_element_wise(_next_keys(ends, read, stored.keys, np.cumsum(counts) - 1), nearer)
                low, high = _ranges_between(self.come.keys, firsts, ends)
        come, partition = _expand_pairs(low, high)
        coming = self.come.take_rows(come)
        if not len(index) and not len(self.gone.keys):  # e.g. in a first load
            nothing = np.zeros(len(come), np.bool_)
            return MergedRows(coming.keys, coming.rows, partition, nothing, ~nothing, more)
        keys, rows = stored.keys, stored.rows
        del stored
        if limit is not None:
            is_before_end = np.asarray(pc.less(keys, ends.take(pa.array(index))))
            keys = keys.filter(pa.array(is_before_end))
            rows = some_rows(rows, is_before_end)
            index = index[is_before_end]
        gone, _ = _expand_pairs(*_ranges_between(self.gone.keys, firsts, ends))
        now = np.ones(len(keys), np.bool_)
        now[self._locate_deleted(keys, gone, come)] = False
        at = SortedKeys(keys).count_below(Probes(coming.keys, ascending=True), slice(None)) if len(come) else come
        chosen = np.insert(np.arange(len(keys)), at, len(keys) + np.arange(len(come)))
        was, now = chosen < len(keys), np.concatenate([now, np.ones(len(come), np.bool_)])[chosen]
        both = [rows, coming.rows]
        del rows
        merged = take_columns(both, pa.array(chosen))
        both_keys = pa.concat_arrays([keys, coming.keys])
        del keys
        return MergedRows(
            take_keys(both_keys, chosen), merged, np.concatenate([index, partition])[chosen], was, now, more
        )

    def rows_between(
        self, firsts: pa.BinaryArray, ends: pa.BinaryArray
    ) -> tuple[tuple[Positions, Positions], tuple[Positions, Positions]]:
        """The positions of the inserted rows between the pairs of keys, and each row's pair; then the deleted rows."""
        come, gone = (_expand_pairs(*_ranges_between(s.keys, firsts, ends)) for s in (self.come, self.gone))
        return come, gone

    def count_between(self, firsts: pa.BinaryArray, ends: pa.BinaryArray) -> tuple[Positions, Positions]:
        """The number of inserted and of deleted rows between each pair of keys. A replaced row counts as both."""
        ranges = (_ranges_between(s.keys, firsts, ends) for s in (self.come, self.gone))
        come, gone = (high - low for low, high in ranges)
        return come, gone

    def are_deleted(self, keys: pa.BinaryArray) -> Mask:
        """(n,) whether each key's row is deleted without a replacement."""
        places, there = _search_keys(self.gone.keys, keys)
        there[there] = self._ends[places[there]]
        return there

    def require_stored(self, firsts: pa.BinaryArray, ends: pa.BinaryArray) -> None:
        """Raises ChangeError if a deleted row between the keys is not stored, or an inserted one already is.

        Cost: a look-up of these rows. `merge_rows` checks the same.
        """
        (come, _), (gone, _) = self.rows_between(firsts, ends)
        new = come[self._new[come]]
        for side, places, stored in ((self.gone, gone, True), (self.come, new, False)):
            keys = side.take_rows(places).keys
            is_stored = self._table.get_located(LocatedKeys(np.arange(len(keys)), keys, as_given=True)).found
            right = is_stored.to_numpy(zero_copy_only=False) == stored
            self._require_all(right, NO_ROW if stored else TWO_ROWS, side.rows, places)

    def has_changes_between(self, firsts: pa.BinaryArray, ends: pa.BinaryArray) -> Mask:
        """Whether a row between each pair of keys is inserted or deleted."""
        has_changes = np.zeros(len(firsts), np.bool_)
        for side in (self.gone, self.come):
            low, high = _ranges_between(side.keys, firsts, ends)
            has_changes |= high > low
        return has_changes

    def _locate_deleted(self, stored: pa.BinaryArray, gone: Positions, come: Positions) -> Positions:
        """The positions of the deleted rows."""
        places, there = _search_keys(stored, self.gone.take_rows(gone).keys)
        self._require_all(there, NO_ROW, self.gone.rows, gone)
        new = come[self._new[come]]
        self._require_all(~_search_keys(stored, self.come.take_rows(new).keys)[1], TWO_ROWS, self.come.rows, new)
        return places

    def _require_all(self, right: Mask, problem: str, rows: pa.Table, chosen: Positions) -> None:
        if not right.all():
            raise change_error(self._table.name, problem, rows.select(self._key), int(chosen[~right][0]))


@dataclass(frozen=True, slots=True)
class Cut:
    """Per partition, the end of its final results and the start of the next piece (-1: none), as merged row indexes."""

    ends: Positions
    again: Positions

    @staticmethod
    def find_cut(merged: MergedRows, states: Sequence[EvaluatedCalls], calls: Sequence[Over]) -> "Cut | None":
        """None if a frame is longer than the piece."""
        partitions = np.arange(len(merged.more))
        begin, ends = (np.searchsorted(merged.partition, partitions, side) for side in ("left", "right"))
        if not merged.more.any():
            return Cut(ends, np.full(len(ends), -1))
        # The next piece reads the last row again, and that row determines how far back the piece begins.
        ends = np.where(merged.more, ends - 1, ends)
        for state in states:
            open_rows = np.flatnonzero(_is_unfinished(state.ordered, calls) & merged.more[state.ordered.partition])
            np.minimum.at(ends, state.ordered.partition[open_rows], state.places[open_rows])
        new = np.append(differs_from_previous(merged.keys), True)
        ends -= ~new[ends]  # a row and its replacement have equal keys, and are emitted together
        back = ends.copy()
        for state in states:
            rows = np.searchsorted(state.places, ends)
            rows = np.where(_are_of(state, rows, partitions), rows, rows - 1)
            here = np.flatnonzero(_are_of(state, rows, partitions) & merged.more)
            read = (
                _read_from(state.ordered, calls, rows[here]) - state.ordered.partition[rows[here]] - 1
            )  # places to rows
            np.minimum.at(back, here, state.places[read])
        may = merged.in_all(merged.was) & merged.in_all(merged.now)
        stays = np.maximum.accumulate(np.where(may, np.arange(len(may)), -1))
        again = np.where(merged.more, stays[np.minimum(back, len(stays) - 1)], -1)
        return Cut(ends, again) if (again > begin)[merged.more].all() else None

    def rows_to_emit(self, merged: MergedRows, piece: PartitionPiece) -> Mask:
        """(merged rows,) whether a row's results are final and not emitted yet."""
        final: Mask = np.arange(len(merged.keys)) < self.ends[merged.partition]
        if piece.wanted is not piece.firsts:  # otherwise none is emitted yet
            final &= np.asarray(pc.greater_equal(merged.keys, piece.wanted.take(pa.array(merged.partition))))
        return final

    def next_piece(
        self, piece: PartitionPiece, merged: MergedRows, old: EvaluatedCalls, new: EvaluatedCalls
    ) -> PartitionPiece:
        """The next piece, for the partitions that continue."""
        if not merged.more.any():
            return piece.select_partitions(merged.more)
        on = np.flatnonzero(merged.more)
        rows = self.again[on]
        carried = []
        for state, so_far in ((old, piece.old), (new, piece.new)):
            places = np.searchsorted(state.places, rows)
            there = _are_of(state, places, on)  # otherwise the state has no row of the partition here
            so_far = so_far.take_partitions(on)
            carried.append(
                state.carried_at(np.where(there, places, 0)).choose_from(there, so_far) if len(state.places) else so_far
            )
        firsts, wanted = (merged.keys.take(pa.array(places)) for places in (rows, self.ends[on]))
        # A piece may be too short for a single final row.
        wanted = pc.max_element_wise(wanted, piece.wanted.take(pa.array(on)))
        return PartitionPiece(piece.prefixes.take(pa.array(on)), firsts, wanted, *carried)


def _is_unfinished(ordered: OrderedRows, calls: Sequence[Over]) -> Mask:
    """(n,) whether rows that are not loaded yet may change a result."""
    is_unfinished = np.zeros(len(ordered), np.bool_)
    for call in calls:
        if call.rows_after:
            is_unfinished |= ordered.places + call.rows_after >= ordered.end_place
        if call.reads_peers:
            is_unfinished |= ordered.frame_bounds(call)[1] >= ordered.end_place
    return is_unfinished


def _read_from(ordered: OrderedRows, calls: Sequence[Over], rows: Positions) -> Positions:
    """(rows,) the first place that a call reads for each row, except for carried values."""
    places = ordered.places[rows]
    first_places = places.copy()
    for call in calls:
        first_places = np.minimum(first_places, places - call.rows_before)
        if call.reads_peers:
            low, high = ordered.frame_bounds(call)
            first_places = (
                first_places if call.lower.edge is FrameEdge.UNBOUNDED else np.minimum(first_places, low[rows])
            )
            first_places = np.minimum(first_places, high[rows] - 1)  # the frame's last row
        if call.setback:
            first_places = np.minimum(first_places, ordered.places_back(call.setback)[rows])
    return np.maximum(first_places, ordered.first_place[rows])


def _are_of(state: EvaluatedCalls, rows: Positions, partitions: Positions) -> Mask:
    """Whether the rows exist and belong to these partitions."""
    there = (rows >= 0) & (rows < len(state.places))
    if len(state.places):
        there &= state.ordered.partition[np.clip(rows, 0, len(state.places) - 1)] == partitions
    return there


def _ranges_between(keys: pa.BinaryArray, firsts: pa.BinaryArray, ends: pa.BinaryArray) -> tuple[Positions, Positions]:
    """The range of positions of the keys between each pair."""
    low, high = (np.asarray(pc.search_sorted(keys, needles)).astype(np.int64) for needles in (firsts, ends))
    return low, np.maximum(low, high)


def _expand_pairs(first: Positions, end: Positions) -> tuple[Positions, Positions]:
    """Concatenate the ranges first[i] … end[i] - 1. Also returns the pair of each position."""
    counts = end - first
    return expand_ranges(first, counts), np.repeat(np.arange(len(counts)), counts)


def _next_keys(otherwise: pa.BinaryArray, chosen: Mask, keys: pa.BinaryArray, places: Positions) -> pa.BinaryArray:
    """Where `chosen` is true, the key after the one at a position; otherwise `otherwise`."""
    at = np.flatnonzero(chosen)
    choices = np.arange(len(chosen))
    choices[at] = len(chosen) + np.arange(len(at))
    return pa.concat_arrays([otherwise, successors(keys.take(pa.array(places[at])))]).take(pa.array(choices))


def _search_keys(stored: pa.BinaryArray, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
    """Each key's position among the stored keys, and whether it is stored."""
    if not len(stored) or not len(keys):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
    return SortedKeys(stored).find_probes(Probes(keys), slice(None))
