"""KeyedDeliveries: replace the rows of a table by the rows of deliveries, one row per key.

    rows    key -> row, for readers
    late    vnode -> rows that came too late so far (late_changes.py)
    begun   vnode, scope -> position of the newest delivery with rows of this scope (once per vnode)

A delivery replaces the rows whose scope (the values of some columns) occurs in it, or all rows without a scope. So the
newest delivery of a row's scope is the delivery of the row, and no position is stored per row: only the rows that
differ are written. An epoch reads whole deliveries (pinned_deliveries.py). One that is taken back leaves `begun`, and
the epoch that takes it back reads the one that counts then.

Cost: a read of all rows for each epoch with a delivery; writes for the rows that differ.
Memory: the rows of a part of the vnodes (jobs/task/vnode_parts.py), those of _PART_ROWS rows, and the rows that differ
in a part. The written rows are sealed from time to time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.chunks.chunk import chunk_of_difference, empty_chunk, rows_of
from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.executors.base import Positions, key_ids, state_table, take_rows, weights_of
from tussock.jobs.executors.broadcast_row import place_of_each_vnode
from tussock.jobs.executors.equal_rows import pair_equal_rows
from tussock.jobs.executors.input_parts import input_parts
from tussock.jobs.executors.late_changes import LateChanges, late_changes_table
from tussock.jobs.executors.operator import Actor, Executor, MakesPieces, Origin, Own, PlainNode, column_list, show_row
from tussock.jobs.executors.unbounded import WHOLE_SOURCES, UnboundedCost
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.nested import conform_rows
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array, vnodes_of

_NONE = -1  # no delivery, or no row
_PART_ROWS = 1 << 17  # present rows, or rows that come, that are compared at once
_WHOLE_PARTS = 4  # so many times more rows that come are compared without dividing them by vnode
_Flags = npt.NDArray[np.bool_]


class DuplicateKeyError(SourceFileError):
    """A delivery of a keyed source contains a key twice."""

    key: str
    delivery: str

    def __str__(self) -> str:
        of = f"source {self.source!r}" if self.source else "the source"
        return (
            f"delivery {self.delivery} of {of} contains more than one row with the key ({self.key}), and a snapshot "
            "must contain each key once. Write the file without the duplicate, and the next run reads it. If more "
            "columns identify a row, create the source again with all of them in its PRIMARY KEY. Until then, the rows "
            "of the delivery before stay."
        )


class KeyedDeliveries(PlainNode, frozen=True, omit_defaults=True):
    """Replaces rows by deliveries.

    Inputs: the rows of deliveries (with the number of their file), and the deliveries (the columns of their scope,
    their position, and the number of a file).
    Output: the changes of the rows.
    """

    keeps_relation: ClassVar[bool] = True

    key: tuple[int, ...]
    types: tuple[str, ...]
    scope: tuple[int, ...] = ()

    def state_tables(self) -> tuple[TableSchema, ...]:
        """See the module. `rows` comes first."""
        scope = tuple(self.types[c] for c in self.scope)
        places = [KeyColumn(i) for i in range(1 + len(scope))]
        return (
            state_table("rows", self.types, [KeyColumn(k) for k in self.key], self.key),
            late_changes_table(),
            state_table("begun", ("bigint", *scope, "binary"), places, (0,)),
        )

    def column_origins(self) -> tuple[Origin, ...]:
        return tuple(Own(i) for i in range(len(self.types)))

    def explain_text(self) -> str:
        scope = f" scope=[{column_list(self.scope)}]" if self.scope else ""
        return f"KeyedDeliveries key=[{column_list(self.key)}]{scope}"

    def describe_cost(self) -> str:
        return "all rows for each delivery"

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        return (WHOLE_SOURCES,)

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return KeyedDeliveriesExecutor(self, tables, actor)


@dataclass(frozen=True, slots=True)
class _Scopes:
    """The scopes of an epoch, numbered, with their newest deliveries by rank. _NONE: there is none.

    Args:
        values: the columns of each scope.
        was, now: (scopes,) the newest delivery before and after this epoch.
        replaced: (scopes,) whether this epoch reads the delivery that counts now, or none counts any more.
        positions: (ranks,) the positions of the deliveries. A position ends with the delivery's name (natural_order).
        files, ranks: (files,) the files that come, ascending, and their deliveries. One that is taken back may have the
            number of one that comes.
    """

    values: pa.Table
    was: Positions
    now: Positions
    replaced: _Flags
    positions: pa.Array
    files: Positions
    ranks: Positions

    def name_of(self, rank: int) -> str:
        """The name of a delivery."""
        position: bytes = self.positions[rank].as_py()
        return position.rpartition(b"\0")[2].decode()

    def ranks_of(self, files: Positions) -> Positions:
        """(rows,) the delivery of each row that comes, by its file."""
        return self.ranks[np.searchsorted(self.files, files)]


@dataclass(slots=True)
class _Difference:
    """The rows that differ, from each part: deleted ones, those with a new row, and new rows."""

    removed: list[pa.Table]
    replaced: list[pa.Table]
    new: list[pa.Table]


class KeyedDeliveriesExecutor(MakesPieces):
    """Replaces the rows of one actor's keys.

    The present rows are read once, in the order of vnodes. They are compared in parts of a few vnodes, with the rows
    that come for these. So only a part of the rows is in memory, and the numbering of its keys works in the CPU's
    cache. For 10 million keys at once, it took most of an epoch. Equal rows leave before the rest is numbered.

    Invariant: the sum of all output chunks is the content of `rows` on these vnodes.
    """

    by_key = True

    def __init__(self, node: KeyedDeliveries, tables: Sequence[StateTable], actor: Actor) -> None:
        self._node, self._actor, self._tables = node, actor, tables
        self._rows, late, self._begun = tables
        self._late = LateChanges(late, actor)
        self._schema = pa.schema([(f"c{i}", arrow_type(t)) for i, t in enumerate(node.types)])

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Like `make_pieces`, with the whole output in memory."""
        return pa.concat_tables([empty_chunk(self._node.types), *self.make_pieces(*chunks)])

    def make_pieces(self, *chunks: pa.Table) -> Iterator[pa.Table]:
        """Apply the rows of deliveries, and the deliveries. A delivery that is taken back has the weight -1.

        Yields: at most one -old and one +new row per key. Raises DuplicateKeyError.
        """
        chunk, begun = chunks
        if not begun.num_rows:
            return
        scopes = self._number_scopes(begun)
        self._actor.counters.update(present=0, deleted=0)
        for vnodes, rows in input_parts(self._actor, chunk, self._node.key):
            yield self._replace_rows(vnodes, rows, scopes)
            self._actor.seal_written(self._tables)

    def _replace_rows(self, vnodes: Sequence[int], rows: pa.Table, scopes: _Scopes) -> pa.Table:
        """Replace the rows of some vnodes, and return the difference."""
        none = self._schema.empty_table()
        difference = _Difference([none], [none], [none])
        come = self._as_rows(rows.columns[: len(self._node.types)]).combine_chunks()
        ranks = scopes.ranks_of(rows.column(len(self._node.types)).to_numpy())
        for present, places in self._divide_rows(come, vnodes):
            some, of_some = (come, ranks) if places is None else (take_rows(come, places), ranks[places])
            self._compare_part(*self._without_equals(present, some, of_some, scopes), scopes, difference)
        removed, new = pa.concat_tables(difference.removed), pa.concat_tables(difference.new)
        self._rows.delete_rows(removed)
        self._rows.insert_rows(new)
        return chunk_of_difference(pa.concat_tables([*difference.replaced, removed]), new)

    def _as_rows(self, columns: Sequence[pa.ChunkedArray]) -> pa.Table:
        return conform_rows(pa.table(list(columns), names=self._schema.names), self._schema)

    def _divide_rows(self, come: pa.Table, mine: Sequence[int]) -> Iterator[tuple[pa.Table, Positions | None]]:
        """Yield the present rows of some of the vnodes, and the places of the rows that come for these; None: all."""
        scanned = map(self._as_rows, (rows.columns for rows in self._rows.scan(mine, _PART_ROWS)))
        first = [self._schema.empty_table()]
        while sum(rows.num_rows for rows in first) <= _PART_ROWS and (rows := next(scanned, None)) is not None:
            first.append(rows)
        if rows is None and come.num_rows <= _WHOLE_PARTS * _PART_ROWS:
            yield pa.concat_tables(first), None
            return
        vnodes = self._vnodes_of(come)
        order = np.argsort(vnodes, kind="stable")
        ends = np.cumsum(np.bincount(vnodes, minlength=self._actor.vnode_count))
        start, waiting = 0, [self._schema.empty_table()]
        for rows in chain(first[1:], scanned):
            of_rows = self._vnodes_of(rows)
            last = int(of_rows[-1])  # the next rows may be of this vnode too
            if cut := int(np.searchsorted(of_rows, last)):
                end = int(ends[last - 1])
                yield from self._halve_part(pa.concat_tables([*waiting, rows.slice(0, cut)]), order[start:end], vnodes)
                start, waiting = end, waiting[:1]
            waiting.append(rows.slice(cut))
        yield from self._halve_part(pa.concat_tables(waiting), order[start:], vnodes)

    def _halve_part(
        self, present: pa.Table, places: Positions, vnodes: npt.NDArray[np.uint16]
    ) -> Iterator[tuple[pa.Table, Positions]]:
        """Divide a part for which too many rows come. Rows of one vnode stay together."""
        of_places = vnodes[places]
        if len(places) <= _PART_ROWS or of_places[0] == of_places[-1]:
            yield present, places
            return
        bound = max(of_places[len(places) // 2], of_places[0] + 1)
        of_present, cut = self._vnodes_of(present), int(np.searchsorted(of_places, bound))
        below = int(np.searchsorted(of_present, bound))
        yield from self._halve_part(present.slice(0, below), places[:cut], vnodes)
        yield from self._halve_part(present.slice(below), places[cut:], vnodes)

    def _vnodes_of(self, rows: pa.Table) -> npt.NDArray[np.uint16]:
        return vnodes_of([one_array(rows.column(k)) for k in self._node.key], self._actor.vnode_count)

    def _number_scopes(self, begun: pa.Table) -> _Scopes:
        """Number scopes and deliveries, and record the newest delivery of each scope."""
        stored, width = self._stored_scopes(), len(self._node.scope)
        weights, rows = weights_of(begun), rows_of(begun)
        both = pa.concat_tables([self._as_scopes(stored), self._as_scopes(rows)])
        numbers, first = key_ids(both.columns, stored.num_rows + rows.num_rows)
        of_stored, of_begun = np.split(numbers, [stored.num_rows])
        (of_was, of_now), known = _rank_positions([one_array(stored.column(width)), one_array(rows.column(width))])
        was = np.full(len(first), _NONE)
        was[of_stored] = of_was
        now, gone = was.copy(), weights < 0
        now[of_begun[gone & (was[of_begun] == of_now)]] = _NONE
        np.maximum.at(now, of_begun[~gone], of_now[~gone])
        replaced = (was != _NONE) & (now == _NONE)
        replaced[of_begun[~gone & (now[of_begun] == of_now)]] = True
        values = take_rows(both, first)
        self._store_scopes(values, was, now, known)
        files, one = np.unique(rows.column(width + 1).to_numpy()[~gone], return_index=True)
        return _Scopes(values, was, now, replaced, known, files, of_now[~gone][one])

    def _as_scopes(self, rows: pa.Table) -> pa.Table:
        """The columns of scopes, which come first in the rows."""
        kinds = [self._schema.field(c).type for c in self._node.scope]
        columns = [pa.chunked_array(c.chunks, kind) for c, kind in zip(rows.columns, kinds, strict=False)]
        return pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])

    def _stored_scopes(self) -> pa.Table:
        """The newest deliveries by scope: the columns of the scope, and the position."""
        place = place_of_each_vnode(self._actor.vnode_count)[list(self._actor.vnodes)[:1]]
        return self._begun.scan_prefix(pa.table([pa.array(place)], names=["c0"])).rows.remove_column(0)

    def _store_scopes(self, scopes: pa.Table, was: Positions, now: Positions, known: pa.Array) -> None:
        moved = np.flatnonzero(was != now)
        places = place_of_each_vnode(self._actor.vnode_count)[list(self._actor.vnodes)]
        for chosen, write in (
            (moved[now[moved] == _NONE], self._begun.delete_rows),
            (moved[now[moved] != _NONE], self._begun.insert_rows),
        ):
            at = known.take(pa.array(np.maximum(now, 0)[chosen])) if len(known) else pa.array([], pa.binary())
            rows = take_rows(scopes, chosen).columns if self._node.scope else []
            copies = np.tile(np.arange(len(chosen)), len(places))
            columns = [pa.array(np.repeat(places, len(chosen))), *(c.take(pa.array(copies)) for c in (*rows, at))]
            write(pa.table(columns, names=[f"c{i}" for i in range(len(columns))]))

    def _without_equals(
        self, present: pa.Table, come: pa.Table, rank: Positions, scopes: _Scopes
    ) -> tuple[pa.Table, pa.Table, Positions]:
        """End the rows that a delivery repeats: most rows of most deliveries.

        Requires: as in `_compare_part`. Returns the others, as its arguments. Cost: one hash pass.
        """
        whole = not self._node.scope and (rank == scopes.now[0]).all() and bool(scopes.replaced[0])
        if not whole or not present.num_rows or not come.num_rows:
            return present, come, rank
        of_present, of_come = pair_equal_rows(present, come, self._node.key)
        self._actor.counters.update(present=len(of_present))
        stays, comes = np.ones(present.num_rows, np.bool_), np.ones(come.num_rows, np.bool_)
        stays[of_present], comes[of_come] = False, False
        return present.filter(pa.array(stays)), come.filter(pa.array(comes)), rank[comes]

    def _compare_part(
        self, present: pa.Table, come: pa.Table, rank: Positions, scopes: _Scopes, difference: _Difference
    ) -> None:
        """Add the difference of some vnodes' rows.

        Args:
            rank: (rows,) the delivery of each row that comes.
        """
        keys = [
            pa.chunked_array([*present.column(k).chunks, *come.column(k).chunks], self._schema.field(k).type)
            for k in self._node.key
        ]
        ids, first = key_ids(keys, present.num_rows + come.num_rows)
        of_present, of_come = ids[: present.num_rows], ids[present.num_rows :]
        scope_of_present, scope_of_come = self._scopes_of(present, come, scopes)
        counts = rank == scopes.now[scope_of_come]
        arrived = self._newest_by_key(come, of_come, np.where(counts, rank, _NONE), len(first), scopes)
        named = np.full(len(first), _NONE)  # the newest delivery with the key, in whichever scope
        np.maximum.at(named, of_come, rank)
        arrived[_ranks_at(rank, arrived) < named] = _NONE
        before = np.full(len(first), _NONE)
        before[of_present] = np.arange(present.num_rows)
        survives = before != _NONE
        survives[of_present] &= ~scopes.replaced[scope_of_present]
        newer = np.full(len(first), _NONE)
        newer[of_present] = scopes.was[scope_of_present]
        stays = survives & (newer > named)
        self._count_late(come, ~counts | stays[of_come])
        had, has = before != _NONE, stays | (arrived != _NONE)
        both = np.flatnonzero(had & ~stays & (arrived != _NONE))
        same = same_rows(take_rows(present, before[both]), take_rows(come, arrived[both]))
        differs, added = both[~same], np.flatnonzero(~had & (arrived != _NONE))
        removed = np.flatnonzero(had & ~has)
        self._actor.counters.update(present=int(had.sum()), deleted=len(removed))
        difference.removed.append(take_rows(present, before[removed]))
        difference.replaced.append(take_rows(present, before[differs]))
        difference.new.append(take_rows(come, arrived[np.concatenate([differs, added])]))

    def _scopes_of(self, present: pa.Table, come: pa.Table, scopes: _Scopes) -> tuple[Positions, Positions]:
        """(rows,) the number of the scope of each present row, and of each row that comes."""
        known, size = len(scopes.was), present.num_rows
        if not self._node.scope:
            return np.zeros(size, np.int64), np.zeros(come.num_rows, np.int64)
        parts = [scopes.values, *(rows.select(list(self._node.scope)) for rows in (present, come))]
        columns = [
            pa.chunked_array([a for part in parts for a in part.column(i).chunks], self._schema.field(c).type)
            for i, c in enumerate(self._node.scope)
        ]
        numbers, _ = key_ids(columns, known + size + come.num_rows)  # known scopes come first, in their order
        return numbers[known : known + size], numbers[known + size :]

    def _newest_by_key(self, come: pa.Table, ids: Positions, rank: Positions, keys: int, scopes: _Scopes) -> Positions:
        """(keys,) the row that comes of the newest delivery; _NONE: no row that counts comes.

        Raises DuplicateKeyError if a delivery contains a key twice.
        """
        order = np.flatnonzero(rank != _NONE)
        ranks = rank[order]
        if len(order) and ranks.min() != ranks.max():
            order = order[np.argsort(ranks, kind="stable")]
        newest = np.full(keys, _NONE)
        newest[ids[order]] = order  # NumPy keeps the last write to a place: the greatest rank
        lost = order[newest[ids[order]] != order]
        if len(repeated := lost[rank[lost] == rank[newest[ids[lost]]]]):
            key = come.slice(int(repeated[0]), 1).select(list(self._node.key))
            raise DuplicateKeyError(show_row(key, 0), scopes.name_of(int(rank[repeated[0]])))
        return newest

    def _count_late(self, come: pa.Table, late: _Flags) -> None:
        if late.any():
            rows = come.filter(pa.array(late))
            self._late.add_changes([rows.column(k) for k in self._node.key])


def _rank_positions(parts: Sequence[pa.Array]) -> tuple[list[Positions], pa.Array]:
    """Number the distinct positions in their order: the numbers of each part, and the positions by number.

    Cost: one hash pass; positions are few, and only they are sorted.
    """
    encoded = pa.chunked_array(parts, pa.binary()).combine_chunks().dictionary_encode()
    known = encoded.dictionary.to_pylist()
    order = sorted(range(len(known)), key=known.__getitem__)
    rank = np.empty(len(known), np.int64)
    rank[order] = np.arange(len(known))
    numbers = rank[encoded.indices.to_numpy()] if len(encoded) else np.empty(0, np.int64)
    ordered = encoded.dictionary.take(pa.array(order, pa.int64()))
    return np.split(numbers, np.cumsum([len(part) for part in parts])[:-1]), ordered


def _ranks_at(ranks: Positions, places: Positions) -> Positions:
    """(n,) the rank at each place; _NONE for _NONE."""
    return np.append(ranks, _NONE)[places]
