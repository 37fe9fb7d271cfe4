"""KeyedChanges: apply the changes that the records of a source describe to the rows of its table, one per key.

    rows       key -> row, for readers, and the position of the change that gave it, hidden from them
    deleted    key -> position of the change that deleted it, moment of that epoch
    late       vnode -> changes that came too late so far (late_changes.py)
    history    key, position -> deletes, row: every change, if changes can be taken back; otherwise empty
    truncated  vnode, position: the truncations (once per vnode)

If the values of a change identify it (`by_value`), equal changes have one position. `history` and `truncated` then also
contain their number.

The change of a key with the greatest position decides its row (positions: tussock.jobs.sources.row_changes). A change
that is older than the present one of its key is dropped and counted. A deleted key remembers its position for the
period of `tombstones`, by the moments of epochs.

A truncation deletes every key whose change is older. So a key without a newer change counts as deleted at the position
of the newest truncation.

A change may omit values that it leaves as they are, as the log of a database does with long ones. They are those of the
change of the key before, or of its present row.

A change that is taken back leaves the history. If it decided its key, the greatest one that is left decides it. If
changes cannot be taken back, only those that an epoch adds more often than it removes count: a rewritten file removes
and adds the same ones.

Cost: one read per changed key, and another one for a key without a row; for a truncation, all keys. Once in a seventh
of the period of `tombstones`, also the deleted keys.
Memory: changes and truncated keys are applied by part of the vnodes, about _PART_ROWS of them at once, and sealed from
time to time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import chunk_of_difference, empty_chunk, make_chunk, rows_of
from tussock.jobs.executors.base import NO_ROW, Positions, change_error, key_ids, state_table, take_rows, weights_of
from tussock.jobs.executors.broadcast_row import place_of_each_vnode
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.input_parts import InputPart, even_parts, input_parts, scanned_parts, vnodes_of_rows
from tussock.jobs.executors.late_changes import LateChanges, late_changes_table
from tussock.jobs.executors.operator import Actor, Executor, MakesPieces, Origin, Own, PlainNode, column_list
from tussock.jobs.executors.unbounded import WHOLE_SOURCES, UnboundedCost
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.nested import conform_rows
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array

_PURGES_PER_PERIOD = 7
_PART_ROWS = 1 << 17  # changes that are applied at once
_Flags = npt.NDArray[np.bool_]


class KeyedChanges(PlainNode, frozen=True, omit_defaults=True, rename={"keeps_history": "remembers"}):
    """Applies changes by key.

    Inputs: changes (the columns of the row, possibly the columns that it omits, whether the change deletes its key, and
    its position), and possibly truncations (their positions).
    Output: the changes of the rows.
    """

    keeps_relation: ClassVar[bool] = True

    key: tuple[int, ...]
    types: tuple[str, ...]
    tombstones_us: int
    keeps_history: bool = False  # changes can be taken back
    truncates: bool = False  # a record may delete all keys
    omits: bool = False  # a change may omit values: a binary with a bit per column follows the row
    by_value: bool = False  # equal changes have equal positions

    def state_tables(self) -> tuple[TableSchema, ...]:
        """See the module. `rows` comes first."""
        key = tuple(self.types[k] for k in self.key)
        places = [KeyColumn(i) for i in range(len(key))]
        whole, width = tuple(range(len(key))), len(key)
        rows = state_table("rows", (*self.types, "binary"), [KeyColumn(k) for k in self.key], self.key)
        counts = ("bigint",) if self.by_value else ()
        change = (*key, "binary", "boolean", *counts, *self.types)
        return (
            rows,
            state_table("deleted", (*key, "binary", "bigint"), places, whole),
            late_changes_table(),
            state_table("history", change, [*places, KeyColumn(width)], whole),
            state_table("truncated", ("bigint", "binary", *counts), [KeyColumn(0), KeyColumn(1)], (0,)),
        )

    def column_origins(self) -> tuple[Origin, ...]:
        return tuple(Own(i) for i in range(len(self.types)))

    def explain_text(self) -> str:
        return f"KeyedChanges key=[{column_list(self.key)}]" + (" remembers changes" if self.keeps_history else "")

    def describe_cost(self) -> str:
        return "changed keys; all keys for each truncation"

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        return (WHOLE_SOURCES,) if self.truncates else ()

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return KeyedChangesExecutor(self, tables, actor)


@dataclass(frozen=True, slots=True)
class _Latest:
    """The change that decides each of some keys.

    Args:
        position: (keys,) binary; NULL: no change is known.
        deletes: (keys,) whether it deletes the key.
        rows: (keys,) the rows; the values of deleting changes have no meaning.
    """

    position: pa.Array
    deletes: _Flags
    rows: pa.Table

    @property
    def known(self) -> _Flags:
        return np.asarray(self.position.is_valid())

    def cover(self, truncated: bytes | None) -> "_Latest":
        """This change, or the deletion by a truncation that is newer or equal."""
        if truncated is None:
            return self
        at = _repeat_position(truncated, len(self.deletes))
        newer = _is_later(self.position, at)
        return _Latest(pc.if_else(pa.array(newer), self.position, at), self.deletes | ~newer, self.rows)

    def where(self, chosen: _Flags, other: "_Latest") -> "_Latest":
        """This change for the chosen keys, and the other one for the rest."""
        places = np.where(chosen, np.arange(len(chosen)), np.arange(len(chosen)) + len(chosen))
        return _Latest(
            pc.if_else(pa.array(chosen), self.position, other.position),
            np.where(chosen, self.deletes, other.deletes),
            take_rows(pa.concat_tables([self.rows, other.rows]).combine_chunks(), places),
        )


@dataclass(frozen=True, slots=True)
class _Counted:
    """The distinct changes whose number of copies differs.

    Args:
        first: (changes,) the first row of each.
        before, after: (changes,) the number of copies.
    """

    first: Positions
    before: Positions
    after: Positions


class KeyedChangesExecutor(MakesPieces):
    """Applies the changes of one actor's keys.

    Invariant: the sum of all output chunks is the content of `rows` on these vnodes.
    """

    by_key = True

    def __init__(self, node: KeyedChanges, tables: Sequence[StateTable], actor: Actor) -> None:
        self._node, self._actor, self._tables = node, actor, tables
        self._rows, self._deleted, late, self._history, self._truncated = tables
        self._late = LateChanges(late, actor)
        self._schema = pa.schema([(f"c{i}", arrow_type(t)) for i, t in enumerate(node.types)])

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Like `make_pieces`, with the whole output in memory."""
        return pa.concat_tables([empty_chunk(self._node.types), *self.make_pieces(*chunks)])

    def make_pieces(self, *chunks: pa.Table) -> Iterator[pa.Table]:
        """Apply a chunk of changes, and one of truncations. Weights are 1, or -1 for a change that is taken back.

        Yields: at most one -old and one +new row per key.
        """
        chunk, *truncations = chunks
        was, now = self._truncate(truncations[0] if truncations else None)
        parts = input_parts(self._actor, chunk, self._node.key)
        del chunk, chunks
        for part in even_parts(parts, self._node.key, _PART_ROWS, self._actor.vnode_count):
            for some, truncated in self._with_truncated(part, was, now):
                yield self._apply_changes(some, truncated, was, now)
                self._actor.seal_written(self._tables)

    def _with_truncated(
        self, part: InputPart, was: bytes | None, now: bytes | None
    ) -> Iterator[tuple[InputPart, list[pa.Table]]]:
        """Yield the changes of a part, and further keys that a truncation concerns; divided if the keys are many."""
        if was == now:
            yield part, []
            return
        keys, vnode_count = range(len(self._node.key)), self._actor.vnode_count
        of_rows = vnodes_of_rows(part.rows, self._node.key, vnode_count)
        scanned = self._keys_between(was, now, part.vnodes)
        for vnodes, truncated in scanned_parts(scanned, part.vnodes, keys, _PART_ROWS, vnode_count):
            mine = (of_rows >= vnodes[0]) & (of_rows <= vnodes[-1])
            yield InputPart(vnodes, part.rows.filter(pa.array(mine))), truncated

    def _apply_changes(
        self, part: InputPart, truncated: list[pa.Table], was: bytes | None, now: bytes | None
    ) -> pa.Table:
        """Apply the changes of some vnodes.

        Args:
            truncated: further keys, which a truncation concerns.
            was, now: the newest truncation before and after this epoch.
        """
        vnodes, chunk = part
        self._purge_deleted(vnodes)
        if self._node.by_value:
            chunk = self._count_changes(chunk)
        if chunk.num_rows == 0 and was == now:
            return empty_chunk(self._node.types)
        weights = weights_of(chunk)
        changes = rows_of(chunk)
        gone, come = (changes.filter(pa.array(weights * sign > 0)) for sign in (-1, 1))
        if self._node.keeps_history and not self._node.by_value:
            self._history.delete_rows(self._as_history(gone))
            self._history.insert_rows(self._as_history(come))
        keys = pa.concat_tables([self._keys_of(changes), *truncated])
        ids, first = key_ids(keys.columns, keys.num_rows)
        keys, ids = take_rows(keys, first), ids[: len(weights)]
        before, was_deleted = self._latest_before(keys)
        before = before.cover(was)
        taken_back = self._decided_by(before.position, gone, ids[weights < 0])
        if self._node.omits:
            come = self._with_omitted(come, ids[weights > 0], before.rows)
        arrived = self._newest_of(come, ids[weights > 0], len(first))
        self._count_late(come, ids[weights > 0], before.position, taken_back)
        after = arrived.where(_is_later(arrived.position, before.position), before)
        if _is_later_truncation(was, now):
            taken_back |= _is_same(before.position, _repeat_position(was, len(first)))
        if taken_back.any():
            after = self._newest_left(keys, taken_back).where(taken_back, after)
        return self._write(keys, before, after.cover(now), now, was_deleted)

    def _truncate(self, truncations: pa.Table | None) -> tuple[bytes | None, bytes | None]:
        """Record truncations. Returns the newest position before and after this epoch; None: there is none."""
        if truncations is None:
            return None, None
        was = self._newest_truncation()
        weights, stored = weights_of(truncations), rows_of(truncations)
        if self._node.by_value:
            place = place_of_each_vnode(self._actor.vnode_count)[list(self._actor.vnodes)[:1]]
            places = pa.array(np.repeat(place, stored.num_rows))
            keys = pa.table([places, *stored.columns], names=["c0", "c1"])
            counted = self._count_equal(self._truncated, keys, weights, 2)
            stored = take_rows(stored, counted.first).append_column("copies", pa.array(counted.after))
            weights = np.where(counted.after > 0, 1, -1)
        for sign, write in ((-1, self._truncated.delete_rows), (1, self._truncated.insert_rows)):
            if sign > 0 or self._node.keeps_history:
                write(self._at_each_vnode(stored.filter(pa.array(weights * sign > 0))))
        return was, self._newest_truncation()

    def _at_each_vnode(self, rows: pa.Table) -> pa.Table:
        """A copy of the rows for each vnode, behind its place."""
        places = place_of_each_vnode(self._actor.vnode_count)[list(self._actor.vnodes)]
        copies = take_rows(rows, np.tile(np.arange(rows.num_rows), len(places)))
        columns = [pa.array(np.repeat(places, rows.num_rows)), *copies.columns]
        return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])

    def _count_changes(self, chunk: pa.Table) -> pa.Table:
        """Count equal changes in the history, and return those of which it has the first copy now, or none any more."""
        rows, width = rows_of(chunk), len(self._node.key)
        keys = self._as_history(rows).select(range(width + 1))
        counted = self._count_equal(self._history, keys, weights_of(chunk), width + 2)
        changed, before, after = take_rows(rows, counted.first), counted.before, counted.after
        if self._node.keeps_history:
            history = self._as_history(changed)
            history = history.add_column(width + 2, "copies", pa.array(after))
            self._history.delete_rows(history.filter(pa.array(after == 0)))
            self._history.insert_rows(history.filter(pa.array(after > 0)))
        weights = (after > 0).astype(np.int64) - (before > 0).astype(np.int64)
        return make_chunk(changed.columns, pa.array(weights)).filter(pa.array(weights != 0))

    def _count_equal(self, table: StateTable, keys: pa.Table, weights: Positions, copies: int) -> _Counted:
        """The number of copies of each key that changes, from the column `copies`.

        Raises ChangeError if more copies are deleted than exist.
        """
        ids, first = key_ids(keys.columns, keys.num_rows)
        change = np.zeros(len(first), np.int64)
        np.add.at(change, ids, weights)
        first, change = first[change != 0], change[change != 0]
        before = np.zeros(len(first), np.int64)
        if not self._node.keeps_history:
            return _Counted(first[change > 0], before[change > 0], change[change > 0])
        if len(first) and not table.is_empty():
            before = integer_values(table.get_rows(take_rows(keys, first)).rows.column(copies))
        after = before + change
        if (after < 0).any():
            raise change_error(table.name, NO_ROW, take_rows(keys, first), int(np.argmin(after)))
        return _Counted(first, before, after)

    def _newest_truncation(self) -> bytes | None:
        place = place_of_each_vnode(self._actor.vnode_count)[list(self._actor.vnodes)[:1]]
        truncation = self._truncated.scan_prefix(pa.table([pa.array(place)], names=["c0"]), limit=1, reverse=True).rows
        return truncation.column(1)[0].as_py() if truncation.num_rows else None

    def _keys_between(self, was: bytes | None, now: bytes | None, vnodes: Sequence[int]) -> Iterator[pa.Table]:
        """The keys of some vnodes that a new truncation may delete, or that may return as one is taken back."""
        if _is_later_truncation(was, now):
            table, low, high, columns = self._history, now, was, tuple(range(len(self._node.key) + 1))
        else:
            table, low, high, columns = self._rows, was, now, (*self._node.key, len(self._node.types))
        # This epoch has not written these vnodes yet.
        for scanned in table.stored.scan(columns, vnodes):
            for start in range(0, scanned.num_rows, _PART_ROWS // 2):
                rows = scanned.slice(start, _PART_ROWS // 2)
                chosen = pc.less_equal(rows.column(-1), pa.scalar(high, pa.binary()))
                if low is not None:
                    chosen = pc.and_(chosen, pc.greater(rows.column(-1), pa.scalar(low, pa.binary())))
                yield self._named_keys(rows.filter(chosen).columns[:-1])

    def _keys_of(self, rows: pa.Table) -> pa.Table:
        return self._named_keys([rows.column(k) for k in self._node.key])

    def _named_keys(self, columns: Sequence[pa.ChunkedArray]) -> pa.Table:
        kinds = [self._schema.field(k).type for k in self._node.key]
        schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])
        return conform_rows(pa.table(list(columns), names=schema.names), schema)

    def _latest_before(self, keys: pa.Table) -> tuple[_Latest, _Flags]:
        """The change that decided each key before this epoch, and whether `deleted` has the key.

        The row is the present one.
        """
        live = self._rows.get_rows(keys)
        has_row, position = np.asarray(live.found), one_array(live.rows.column(-1))
        rows = conform_rows(live.rows.select(range(len(self._node.types))), self._schema)
        was_deleted = np.zeros(len(has_row), np.bool_)
        if len(absent := np.flatnonzero(~has_row)):  # a key with a row is not deleted
            dead = self._deleted.get_rows(take_rows(keys, absent))
            was_deleted[absent] = np.asarray(dead.found)
            since = self._actor.moment - self._node.tombstones_us
            remembered = pc.fill_null(pc.greater_equal(one_array(dead.rows.column(-1)), since), False)
            if dead.found.true_count:
                at = pc.if_else(remembered, one_array(dead.rows.column(-2)), pa.scalar(None, pa.binary()))
                position = pc.replace_with_mask(position, pa.array(~has_row), at)
        return _Latest(position, ~has_row, rows), was_deleted

    def _decided_by(self, position: pa.Array, gone: pa.Table, ids: Positions) -> _Flags:
        """(keys,) whether the change that decided a key is taken back.

        It may be any change of a key without a known one: the history still contains a deletion that is forgotten.
        """
        decided = np.zeros(len(position), np.bool_)
        if gone.num_rows:
            same = pc.equal(position.take(pa.array(ids)), one_array(gone.column(-1)))
            decided[ids[np.asarray(pc.fill_null(same, True))]] = True
        return decided

    def _with_omitted(self, come: pa.Table, ids: Positions, rows: pa.Table) -> pa.Table:
        """The changes with the values that they omit. `rows`: (keys,) the present ones."""
        width, flags = len(self._node.types), one_array(come.column(len(self._node.types)))
        if flags.null_count == len(flags):
            return come
        order, nbytes = _order_of(come, ids), -(-width // 8)
        bits = pc.fill_null(flags, bytes(nbytes)).cast(pa.binary(nbytes))
        omits = np.unpackbits(
            np.frombuffer(bits.buffers()[1], np.uint8).reshape(-1, nbytes), axis=1, count=width, bitorder="little"
        )[order].astype(np.bool_)
        places, sorted_ids = np.arange(len(order)), ids[order]
        begins = np.maximum.accumulate(np.where(np.diff(sorted_ids, prepend=-1) != 0, places, 0))
        columns = list(come.columns)
        for c in map(int, np.flatnonzero(omits.any(axis=0))):
            last = np.maximum.accumulate(np.where(omits[:, c], -1, places))  # the last change with a value
            takes = np.empty(len(order), np.int64)
            takes[order] = np.where(last >= begins, order[last], len(order) + sorted_ids)
            both = pa.chunked_array([*come.column(c).chunks, *rows.column(c).chunks], come.column(c).type)
            columns[c] = both.combine_chunks().take(pa.array(takes))
        return pa.table(columns, names=come.column_names)

    def _newest_of(self, come: pa.Table, ids: Positions, keys: int) -> _Latest:
        """The change with the greatest position of each key."""
        order = _order_of(come, ids)
        last = np.full(keys, -1, np.int64)
        last[ids[order]] = order  # NumPy keeps the last write to a place: the greatest position
        there = last >= 0
        picked = pa.array(last, mask=~there)
        rows = conform_rows(_take_or_null(come.select(list(range(len(self._node.types)))), picked), self._schema)
        deletes = pc.fill_null(one_array(come.column(-2)).take(picked), False)
        return _Latest(one_array(come.column(-1)).take(picked), np.asarray(deletes), rows)

    def _newest_left(self, keys: pa.Table, chosen: _Flags) -> _Latest:
        """The change with the greatest position in the history of the chosen keys; none for the others."""
        some = np.flatnonzero(chosen)
        newest = self._history.scan_prefix(take_rows(keys, some), limit=1, reverse=True)
        places = np.full(len(chosen), -1, np.int64)
        places[some[np.asarray(newest.index)]] = np.arange(newest.rows.num_rows)
        picked, width = pa.array(places, mask=places < 0), len(self._node.key)
        first = width + 2 + self._node.by_value  # of the row's columns
        rows = conform_rows(
            _take_or_null(newest.rows.select(list(range(first, newest.rows.num_columns))), picked), self._schema
        )
        deletes = pc.fill_null(one_array(newest.rows.column(width + 1)).take(picked), True)
        return _Latest(one_array(newest.rows.column(width)).take(picked), np.asarray(deletes), rows)

    def _write(
        self, keys: pa.Table, before: _Latest, after: _Latest, truncated: bytes | None, was_deleted: _Flags
    ) -> pa.Table:
        """Write the keys whose deciding change is another one, and return the difference of the rows.

        `was_deleted`: whether `deleted` has the key.
        """
        had, has = ~before.deletes, after.known & ~after.deletes
        moved = ~np.asarray(_is_same(before.position, after.position))
        by_key = after.known & ~_is_same(after.position, _repeat_position(truncated, len(has)))
        if not (had & has).all():
            at = pa.repeat(pa.scalar(self._actor.moment, pa.int64()), keys.num_rows)
            dead = keys.append_column("position", after.position).append_column("at", at)
            self._deleted.insert_rows(dead.filter(pa.array(moved & by_key & ~has)))
            self._deleted.delete_rows(dead.filter(pa.array(moved & was_deleted & ~(by_key & ~has))))
        same = had & has & same_rows(before.rows, after.rows)
        removed, written = pa.array(had & ~has), pa.array(has & (moved | ~same))
        self._rows.delete_rows(_with_position(before, removed))
        self._rows.insert_rows(_with_position(after, written))
        return chunk_of_difference(before.rows.filter(pa.array(had & ~same)), after.rows.filter(pa.array(has & ~same)))

    def _count_late(self, come: pa.Table, ids: Positions, position: pa.Array, taken_back: _Flags) -> None:
        """Count the changes that are older than the one that decided their key before this epoch."""
        if not come.num_rows:
            return
        late = ~np.asarray(_is_later(one_array(come.column(-1)), position.take(pa.array(ids)))) & ~taken_back[ids]
        if not late.any():
            return
        rows = come.filter(pa.array(late))
        self._late.add_changes([rows.column(k) for k in self._node.key])

    def _purge_deleted(self, vnodes: Sequence[int]) -> None:
        """Forget deleted keys of some vnodes whose period is over, once in a part of the period."""
        part = max(1, self._node.tombstones_us // _PURGES_PER_PERIOD)
        if self._actor.moment // part == self._actor.moment_before // part:
            return
        since = self._actor.moment - self._node.tombstones_us
        for rows in self._deleted.scan(vnodes):
            self._deleted.delete_rows(rows.filter(pc.less(rows.column(-1), since)))

    def _as_history(self, changes: pa.Table) -> pa.Table:
        """The changes as rows of the history."""
        keys = [changes.column(k) for k in self._node.key]
        columns = [*keys, changes.column(-1), changes.column(-2), *changes.columns[:-2]]
        return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


def _order_of(changes: pa.Table, ids: Positions) -> Positions:
    """(changes,) their order by key, and by position within a key."""
    order = pc.sort_indices(
        pa.table({"id": pa.array(ids), "position": changes.column(-1)}),
        sort_keys=[("id", "ascending"), ("position", "ascending")],
    )
    return order.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _with_position(latest: _Latest, chosen: pa.Array) -> pa.Table:
    """The chosen rows, as `rows` stores them."""
    return latest.rows.append_column("position", latest.position).filter(chosen)


def _is_later_truncation(one: bytes | None, other: bytes | None) -> bool:
    return one is not None and (other is None or one > other)


def _repeat_position(position: bytes | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(position, pa.binary()), count)


def _is_later(position: pa.Array, than: pa.Array) -> _Flags:
    """(n,) whether a position is known, and greater than another one, if that is known."""
    later = pc.or_(than.is_null(), pc.fill_null(pc.greater(position, than), False))
    return np.asarray(pc.and_(position.is_valid(), later))


def _is_same(one: pa.Array, other: pa.Array) -> _Flags:
    """(n,) whether positions are equal, or both are unknown."""
    both_unknown = pc.and_(one.is_null(), other.is_null())
    return np.asarray(pc.or_(both_unknown, pc.fill_null(pc.equal(one, other), False)))


def _take_or_null(rows: pa.Table, picked: pa.Array) -> pa.Table:
    """Rows by place; NULLs for a NULL."""
    return rows.combine_chunks().take(picked)
