"""HashJoin: equi-joins of two changing inputs: inner, left, right, full, semi, anti, existence and single.

State: one table per side, `join key | stream key -> row`, so that the rows with one key are adjacent.

**Pairs.** An epoch changes each side X from X before to X after. Let X⁻ be the deleted rows, X⁺ the inserted rows
and Xs the unchanged rows (X before = Xs + X⁻, X after = Xs + X⁺). The change of the pairs is

    L after ⋈ R after − L before ⋈ R before  =  ΔL ⋈ Rs  +  Ls ⋈ ΔR  +  L⁺ ⋈ R⁺  −  L⁻ ⋈ R⁻

Every pair on the right side of this formula exists before or after the epoch, and none occurs twice. The condition is
therefore never computed on a pair that did not exist (an old row of one side with a new row of the other), and nothing
remains to be netted. Deletes are applied first, so that the tables contain the unchanged rows. The last two terms need
no reads.

**Rows without a partner.** A row is *matched* if it is in a pair whose condition is true. Left, full and anti joins
emit the unmatched left rows (left and full pad them with NULL). Right and full joins emit the unmatched right rows.
Semi joins emit the matched left rows. Existence joins emit every left row and whether it is matched. A single join is a
left join that stops the epoch if a row has two partners. Let U be the rows without a partner:

    ΔU  =  rows of X⁺ unmatched after  −  rows of X⁻ unmatched before
           ±  rows of Xs that lost their last partner or got a first one

A row's *degree* is the number of its partners. The state stores it as the last column, and the pairs above change it. A
row is matched if its degree is above 0. Semi and anti joins without a condition need no pairs: all rows with one key
have the same partners. One read of the other side per key shows whether the key has a partner, if the other side's rows
of the key were only inserted or only deleted. A hot key then costs no write per row.

Rows with a NULL key never match (except with `<=>`). They are neither stored nor looked up, and pass through if rows
without a partner are emitted.

**Keys.** Inner and left joins: the left stream key and the right one, which is NULL in a padded row. A left row is
either padded or matched, never both. Right joins: the mirror image. Semi and anti joins: the left stream key. A row of
a full join may lack either side. Its key starts with the join key, which both sides have (hidden columns
`coalesce(left, right)`), and ends with the sides that exist, since unmatched left and right rows may be equal in all
other columns.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import empty_chunk, make_chunk, some_rows
from tussock.jobs.executors.base import Positions, key_ids, located_rows, split_halves, state_table, take_rows
from tussock.jobs.executors.operator import (
    Actor,
    ComputedColumn,
    Executor,
    MakesPieces,
    Origin,
    PassedColumn,
    PlainNode,
    expression_error,
    show_row,
)
from tussock.jobs.executors.single_row import TooManyRowsError
from tussock.jobs.executors.unbounded import JOINED_ROWS, UnboundedCost
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.expression_tree import columns_of
from tussock.jobs.logical.nodes import Expr, JoinKind
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import LocatedKeys, StateTable
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import normalise_floats

Mask = npt.NDArray[np.bool_]

PIECE_BYTES = 16 << 20  # size of the pairs that are processed together, before the condition
_PAIR_BYTES = 64  # memory of a pair besides its columns: indexes, the condition's result
_LEAST_PAIRS = 1024
DEGREE = "bigint"

SIDES = "tinyint"  # type of the last column of a full join's row
BOTH, LEFT_ALONE, RIGHT_ALONE = 0, 1, 2


class HashJoin(PlainNode, frozen=True, omit_defaults=True):
    """Equi-join.

    State: one table per side, `join key | stream key -> row`, followed by the row's degree if that is needed.

    Output: the left columns, then the right columns. Semi and anti joins emit the left columns only, and existence
    joins add whether the row is matched. Full joins add the join key's columns and the sides that exist.
    """

    left_types: tuple[str, ...]
    right_types: tuple[str, ...]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    left_stream_key: tuple[int, ...]
    right_stream_key: tuple[int, ...]
    condition: Expr | None
    types: tuple[str, ...]
    kind: JoinKind = JoinKind.INNER

    @property
    def left_degree(self) -> bool:
        """Whether the state stores the degrees of left rows."""
        return self.kind.judges_left and self.looks_at_pairs

    @property
    def right_degree(self) -> bool:
        """Whether the state stores the degrees of right rows."""
        return self.kind.judges_right and self.looks_at_pairs

    @property
    def looks_at_pairs(self) -> bool:
        """Whether single pairs matter: they are emitted, or a condition selects some of them."""
        return self.kind.emits_pairs or self.condition is not None

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The left rows, then the right rows.

        If a column is joined twice, the key contains it once, and the distribution contains it as often as it is
        hashed.
        """
        left = (*self.left_types, DEGREE) if self.left_degree else self.left_types
        right = (*self.right_types, DEGREE) if self.right_degree else self.right_types
        return (
            _side_table("join_left", left, self.left_keys, self.left_stream_key),
            _side_table("join_right", right, self.right_keys, self.right_stream_key),
        )

    def column_origins(self) -> tuple[Origin, ...]:
        both = range(len(self.left_types) + len(self.right_types))
        if self.kind is JoinKind.EXISTENCE:
            return (*(PassedColumn(i) for i in range(len(self.left_types))), ComputedColumn("exists"))
        if self.kind is not JoinKind.FULL:
            return tuple(PassedColumn(i) for i in both[: len(self.types)])
        keys = zip(self.left_keys, self.right_keys, strict=True)
        return (
            *map(PassedColumn, both),
            *(ComputedColumn(f"coalesce(c{a}, c{len(self.left_types) + b})") for a, b in keys),
            ComputedColumn(""),
        )

    def expressions(self) -> tuple[Expr, ...]:
        return () if self.condition is None else (self.condition,)

    def explain_text(self) -> str:
        keys = zip(self.left_keys, self.right_keys, self.null_safe, strict=True)
        pairs = (f"c{a} {'<=>' if safe else '='} right c{b}" for a, b, safe in keys)
        where = "" if self.condition is None else f" where {expression_text(self.condition)}"
        return f"HashJoin {self.kind} on {' and '.join(pairs)}{where}"

    def describe_cost(self) -> str:
        return "changed rows + rows joined"

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        judges_by_first = not self.looks_at_pairs  # of the right rows of a key, one is read
        right_repeats = not judges_by_first and not set(self.right_stream_key) <= set(self.right_keys)
        return (JOINED_ROWS,) if right_repeats or not set(self.left_stream_key) <= set(self.left_keys) else ()

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return HashJoinExecutor(self, tables, actor.kernel)


def _side_table(name: str, types: Sequence[str], keys: tuple[int, ...], stream_key: tuple[int, ...]) -> TableSchema:
    return state_table(name, types, [KeyColumn(k) for k in _table_key(keys, stream_key)], keys)


def _table_key(keys: Sequence[int], stream_key: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*keys, *stream_key)))


def joined_types(
    kind: JoinKind, left: Sequence[str], right: Sequence[str], left_keys: Sequence[int]
) -> tuple[str, ...]:
    """The types of a join's output."""
    if not kind.emits_pairs:
        return (*left, "boolean") if kind is JoinKind.EXISTENCE else tuple(left)
    return (*left, *right, *((*(left[k] for k in left_keys), SIDES) if kind is JoinKind.FULL else ()))


@dataclass(frozen=True, slots=True)
class _Side:
    """One input in one epoch: its changes, deletes before inserts."""

    table: StateTable
    keys: Sequence[int]
    judged: bool  # whether the output depends on which of its rows are matched
    degree: bool  # whether the last column of the table is the row's degree
    rows: pa.Table
    gone: int  # number of deleted rows
    signs: Positions  # (rows,) -1 for deleted rows, 1 for inserted rows
    joinable: Mask  # (rows,) whether the key may equal another key: only these rows are stored
    located: LocatedKeys | None  # the rows' keys in the table, if the rows are insert-only and in its order

    def positions_of_half(self, come: bool) -> Positions:
        """The positions of the joinable rows that are inserted (`come`) or deleted."""
        places = np.flatnonzero(self.joinable)
        half: Positions = places[(places >= self.gone) == come]
        return half

    def key_columns(self, places: Positions) -> list[pa.ChunkedArray]:
        """The key columns of some changes."""
        chosen = pa.array(places)
        return [self.rows.column(k).take(chosen) for k in self.keys]

    def apply_deletes(self) -> None:
        """Apply the deletes. The table then contains the unchanged rows."""
        leaving = take_rows(self.rows, self.positions_of_half(come=False))
        if leaving.num_rows:
            self.table.delete_rows(
                _with_degree(leaving, np.zeros(leaving.num_rows, np.int64)) if self.degree else leaving
            )

    def apply_inserts(self, hits: Positions) -> None:
        """Apply the inserts. `hits`: (rows,) the degrees of the changes."""
        if self.located is not None:
            rows = _with_degree(self.rows, hits) if self.degree else self.rows
            self.table.replace_located(self.located, rows, np.zeros(len(self.joinable), np.bool_), self.joinable)
        elif len(places := self.positions_of_half(come=True)):
            coming = take_rows(self.rows, places)
            self.table.insert_rows(_with_degree(coming, hits[places]) if self.degree else coming)


@dataclass(frozen=True, slots=True)
class _Matched:
    """The matches of a side's rows: of its changes, and of its unchanged rows that meet changes of the other side."""

    hits: Positions  # (rows,) number of partners: before the epoch for deleted rows, after it for inserted rows
    stays: pa.Table  # unchanged rows, as stored
    was: Mask  # (stays,) matched before the epoch
    now: Mask  # (stays,) matched after it


class _Degrees:
    """Counts the partners of a side's rows, pair by pair."""

    def __init__(self, side: _Side, stays: pa.Table | None) -> None:
        """`stays`: the unchanged rows that meet changes of the other side, as stored. None if there are none."""
        self.side, self.stays = side, side.table.layout.rows.empty_table() if stays is None else stays
        self.hits = np.zeros(side.rows.num_rows, np.int64)
        self.change = np.zeros(self.stays.num_rows, np.int64)  # change of the degrees of `stays`

    def count_pairs(self, rows: pa.Table, places: Positions, signs: Positions) -> None:
        """Count pairs.

        `rows` are the side's changes or its unchanged rows, `places` the positions of the pairs' rows in them.
        """
        if not self.side.degree:
            return
        if rows is self.side.rows:
            self.hits = self.hits + np.bincount(places, minlength=rows.num_rows)
        else:
            self.change = self.change + np.bincount(places, weights=signs, minlength=rows.num_rows).astype(np.int64)

    @property
    def degrees_after(self) -> Positions:
        """(stays,) the degrees after the epoch."""
        return self._degrees_before + self.change

    @property
    def _degrees_before(self) -> Positions:
        degrees: Positions = self.stays.column(self.stays.num_columns - 1).to_numpy()
        return degrees

    def write_changed(self) -> _Matched:
        """Write the changed degrees of unchanged rows.

        Without degrees, `was` and `now` are empty, since no such join reads them.
        """
        if not self.side.degree:
            return _Matched(self.hits, self.stays, np.zeros(0, np.bool_), np.zeros(0, np.bool_))
        after = self.degrees_after
        changed = np.flatnonzero(self.change)
        if len(changed):
            rows = take_rows(self.stays, changed)
            self.side.table.insert_rows(rows.set_column(rows.num_columns - 1, "degree", pa.array(after[changed])))
        return _Matched(self.hits, self.stays, self._degrees_before > 0, after > 0)


def _with_degree(rows: pa.Table, degrees: Positions) -> pa.Table:
    return rows.append_column("degree", pa.array(degrees))


@dataclass(frozen=True, slots=True)
class _Matches:
    """Pairs with equal keys, of rows of a left and a right table.

    Row `asking[i]` of one table meets `counts[i]` rows of the other, at `partners[starts[i]]` and the following
    positions.
    """

    left: pa.Table
    right: pa.Table
    asking_is_left: bool
    asking: Positions
    starts: Positions
    counts: Positions
    partners: Positions
    signs: Positions  # (asking,) -1 if the pair is deleted, 1 if it is inserted

    def split_pieces(self) -> Iterator["_Piece"]:
        """The pairs in pieces of `pairs_at_once`. A piece may end within a key."""
        ends = np.cumsum(self.counts)
        shift = self.starts - (ends - self.counts)  # from a pair's number to the index of its partner
        total, size = int(ends[-1]) if len(ends) else 0, self.pairs_at_once
        for low in range(0, total, size):
            high = min(low + size, total)
            first, last = (int(np.searchsorted(ends, at, side="right")) for at in (low, high - 1))
            counts = self.counts[first : last + 1].copy()
            counts[-1] -= ends[last] - high
            counts[0] -= low - (ends[first] - self.counts[first])
            one_each = bool((counts == 1).all())  # e.g. if keys are unique on the other side
            at = slice(first, last + 1) if one_each else np.repeat(np.arange(first, last + 1), counts)
            matched = self.partners[np.arange(low, high) + shift[at]]
            own = self.asking[at]
            yield (
                _Piece(self, own, matched, self.signs[at])
                if self.asking_is_left
                else _Piece(self, matched, own, self.signs[at])
            )

    @property
    def pairs_at_once(self) -> int:
        """The number of pairs that need PIECE_BYTES."""
        return max(_LEAST_PAIRS, PIECE_BYTES // (_row_bytes(self.left) + _row_bytes(self.right) + _PAIR_BYTES))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some pairs: their positions in the left and the right table, and their signs."""

    matches: _Matches
    left: Positions
    right: Positions
    signs: Positions

    def pair_column(self, index: int, left_width: int) -> pa.ChunkedArray:
        """A column of the pairs; left columns come first."""
        if index < left_width:
            return _take_at(self.matches.left.column(index), self.left)
        return _take_at(self.matches.right.column(index - left_width), self.right)

    def select_pairs(self, mask: Mask) -> "_Piece":
        """The pairs selected by a mask."""
        chosen = np.flatnonzero(mask)
        return _Piece(self.matches, self.left[chosen], self.right[chosen], self.signs[chosen])


def _take_at(column: pa.ChunkedArray, places: Positions) -> pa.ChunkedArray:
    """The values at some positions, without a copy if the positions are consecutive."""
    first = int(places[0]) if len(places) else 0
    if len(places) and int(places[-1]) - first == len(places) - 1 and bool((np.diff(places) == 1).all()):
        return column.slice(first, len(places))
    return column.take(pa.array(places))


def _combine_pieces(all_matches: Sequence[_Matches]) -> Iterator[list[_Piece]]:
    """The pieces of several matches, with small pieces combined: a query costs a millisecond for any number of rows."""
    gathered: list[_Piece] = []
    for matches in all_matches:
        for piece in matches.split_pieces():
            if gathered and sum(len(p.signs) for p in gathered) + len(piece.signs) > matches.pairs_at_once:
                yield gathered
                gathered = []
            gathered.append(piece)
    if gathered:
        yield gathered


def _row_bytes(rows: pa.Table) -> int:
    return int(rows.nbytes // max(1, rows.num_rows))


class HashJoinExecutor(MakesPieces):
    """Joins changes with the other side's rows.

    Invariant: the sum of all output chunks is the join of the sums of both inputs. Weights are +1 or -1 per stream key
    and side.
    """

    def __init__(self, node: HashJoin, tables: Sequence[StateTable], kernel: Kernel) -> None:
        """`tables`: in the layout of `node.state_tables()`."""
        self._node, self._kernel = node, kernel
        self._left_table, self._right_table = tables

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Process the left and the right chunk.

        Raises the errors of `make_pieces`. Holds the whole output in memory.
        """
        return pa.concat_tables([empty_chunk(self._node.types), *self.make_pieces(*chunks)])

    def make_pieces(self, *chunks: pa.Table) -> Iterator[pa.Table]:
        """The output in pieces. The state is written after the last piece has been consumed.

        Raises:
            ChangeError: a row of one side is inserted or deleted twice.
            ExpressionError: the condition raised on a pair.
            TooManyRowsError: a left row of a single join has two partners.

        Cost: one prefix scan per side for the distinct keys in the other side's changes, then O(pairs). Without a
            condition, semi and anti joins scan one row per key, and the rows of keys that got or lost their partners.
        Memory: the changes, the rows that they meet, and PIECE_BYTES of pairs.
        """
        node = self._node
        left = self._make_side(
            chunks[0], self._left_table, node.left_keys, node.left_stream_key, node.kind.judges_left, node.left_degree
        )
        right = self._make_side(
            chunks[1],
            self._right_table,
            node.right_keys,
            node.right_stream_key,
            node.kind.judges_right,
            node.right_degree,
        )
        if not left.rows.num_rows and not right.rows.num_rows:
            return
        left.apply_deletes()
        right.apply_deletes()
        if node.looks_at_pairs:
            of_left, of_right = yield from self._emit_joined(left, right)
            yield from (
                self._without_partner(left, of_left, right, of_right)
                if node.kind.emits_pairs
                else self._changes_of_matched(left, of_left)
            )
            left.apply_inserts(of_left.hits)
            right.apply_inserts(of_right.hits)
        else:
            of_left = self._looked_up(left, right)
            yield from self._changes_of_matched(left, of_left)
            left.apply_inserts(of_left.hits)
            right.apply_inserts(np.zeros(right.rows.num_rows, np.int64))

    def _require_single(self, left: _Degrees) -> None:
        """Raises TooManyRowsError if a left row has two partners after the epoch."""
        coming = np.where(left.side.signs > 0, left.hits, 0)
        for rows, degrees in ((left.side.rows, coming), (left.stays, left.degrees_after)):
            if len(many := np.flatnonzero(degrees > 1)):
                raise TooManyRowsError(show_row(rows.select(list(range(len(self._node.left_types)))), int(many[0])))

    # --- the two sides -----------------------------------------------------------------------------

    def _make_side(
        self,
        chunk: pa.Table,
        table: StateTable,
        keys: Sequence[int],
        stream_key: Sequence[int],
        judged: bool,
        degree: bool,
    ) -> _Side:
        if not judged:  # rows that never match affect nothing
            chunk = some_rows(chunk, self._is_joinable(chunk, keys))
        key, located, gone = _table_key(keys, stream_key), None, 0
        if (coming := located_rows(chunk, table, key)) is not None:
            located, rows = coming
        else:
            parts = split_halves(chunk, table.name, key)
            rows, gone = pa.concat_tables([parts.gone, parts.come]), parts.gone.num_rows
        rows = rows.combine_chunks()
        signs = np.where(np.arange(rows.num_rows) < gone, -1, 1)
        return _Side(table, keys, judged, degree, rows, gone, signs, self._is_joinable(rows, keys), located)

    def _is_joinable(self, rows: pa.Table, keys: Sequence[int]) -> Mask:
        """(rows,) whether the key may equal another key."""
        mask = np.ones(rows.num_rows, np.bool_)
        for key, null_safe in zip(keys, self._node.null_safe, strict=True):
            column = rows.column(key)
            if not null_safe and column.null_count:
                mask &= pc.is_valid(column).to_numpy(zero_copy_only=False)
        return mask

    # --- pairs -------------------------------------------------------------------------------------

    def _emit_joined(self, left: _Side, right: _Side) -> Generator[pa.Table, None, tuple[_Matched, _Matched]]:
        """Emit the pairs of the module's formula that satisfy the condition. Returns the matches of both sides."""
        of_right = self._match_changes(left, right, asking_is_left=True)
        of_left = self._match_changes(right, left, asking_is_left=False)
        both = self._both_changed(left, right, come=True), self._both_changed(left, right, come=False)
        ours = _Degrees(left, None if of_left is None else of_left.left)
        theirs = _Degrees(right, None if of_right is None else of_right.right)
        for pieces in _combine_pieces([matches for matches in (of_right, of_left, *both) if matches is not None]):
            yield from self._emit_pairs(pieces, ours, theirs)
        if self._node.kind is JoinKind.SINGLE:
            self._require_single(ours)
        return ours.write_changed(), theirs.write_changed()

    @staticmethod
    def _match_changes(asking: _Side, other: _Side, asking_is_left: bool) -> _Matches | None:
        """Pairs of one side's changes with unchanged rows of the other side; None if there are none."""
        if (asked := _keys_to_look_up(asking, other)) is None:
            return None
        scanned = other.table.scan_prefix(asked.keys)
        index, stays = scanned.index.to_numpy(), scanned.rows.combine_chunks()
        counts = np.bincount(index, minlength=asked.keys.num_rows)  # per distinct key; rows of a key are adjacent
        starts = np.cumsum(counts) - counts
        tables = (asking.rows, stays) if asking_is_left else (stays, asking.rows)
        signs, partners = asking.signs[asked.places], np.arange(len(index))
        return _Matches(*tables, asking_is_left, asked.places, starts[asked.ids], counts[asked.ids], partners, signs)

    @staticmethod
    def _both_changed(left: _Side, right: _Side, come: bool) -> _Matches | None:
        """Pairs of inserted rows of both sides, or of deleted rows of both sides."""
        ours, theirs = left.positions_of_half(come), right.positions_of_half(come)
        if not len(ours) or not len(theirs):
            return None
        columns = [
            pa.chunked_array([*a.chunks, *b.chunks])
            for a, b in zip(left.key_columns(ours), right.key_columns(theirs), strict=True)
        ]
        ids, first = key_ids(columns, len(ours) + len(theirs))
        own, other = ids[: len(ours)], ids[len(ours) :]
        counts = np.bincount(other, minlength=len(first))
        starts = np.cumsum(counts) - counts
        signs = np.full(len(ours), 1 if come else -1)
        return _Matches(
            left.rows, right.rows, True, ours, starts[own], counts[own], theirs[np.argsort(other, kind="stable")], signs
        )

    def _emit_pairs(self, pieces: Sequence["_Piece"], left: _Degrees, right: _Degrees) -> Iterator[pa.Table]:
        """Emit the pairs that satisfy the condition, and add them to the degrees of both sides."""
        condition = self._node.condition
        if condition is not None:
            passed = self._satisfies(condition, pieces)
            pieces = [piece.select_pairs(mask) for piece, mask in zip(pieces, passed, strict=True)]
        for piece in pieces:
            left.count_pairs(piece.matches.left, piece.left, piece.signs)
            right.count_pairs(piece.matches.right, piece.right, piece.signs)
        if self._node.kind.emits_pairs:
            yield from (self._pair_rows(piece) for piece in pieces if len(piece.signs))

    def _satisfies(self, condition: Expr, pieces: Sequence["_Piece"]) -> list[Mask]:
        """(pieces,) of (pairs,) whether the condition is true, from one query over its columns."""
        width = len(self._node.left_types)
        read = sorted(columns_of(condition)) or [self._node.left_keys[0]]
        columns = [
            pa.chunked_array([chunk for piece in pieces for chunk in piece.pair_column(c, width).chunks]) for c in read
        ]
        rows = pa.table(columns, names=[f"c{c}" for c in read])
        ends = np.cumsum([len(piece.signs) for piece in pieces])
        try:
            answer = self._kernel.project_columns(rows, (condition,), ("boolean",))["c0"]
        except RowError as err:
            number = int(np.searchsorted(ends, err.row, side="right"))
            at = err.row - (int(ends[number]) - len(pieces[number].signs))
            pair = self._pair_columns(pieces[number].select_pairs(np.arange(len(pieces[number].signs)) == at))
            shown = pa.table(pair, names=[f"c{i}" for i in range(len(pair))])
            raise expression_error(RowError(err.text, err.reason, 0), 0, condition, shown) from err
        return np.split(pc.fill_null(answer, False).to_numpy(zero_copy_only=False), ends[:-1])

    def _pair_columns(self, piece: "_Piece") -> list[pa.ChunkedArray]:
        """The columns of pairs, without degrees."""
        width = len(self._node.left_types)
        return [piece.pair_column(c, width) for c in range(width + len(self._node.right_types))]

    def _pair_rows(self, piece: "_Piece") -> pa.Table:
        columns = self._pair_columns(piece)
        if self._node.kind is JoinKind.FULL:
            columns += [columns[k] for k in self._node.left_keys]
            columns.append(_side_column(BOTH, len(piece.signs)))
        return make_chunk(columns, pa.array(piece.signs))

    # --- keys alone: semi, anti and existence without a condition -----------------------------------

    def _looked_up(self, left: _Side, right: _Side) -> _Matched:
        """The matches of left rows.

        All rows with a key have the same partners, so one row of the other side decides for a key.
        """
        hits = np.zeros(left.rows.num_rows, np.int64)
        if (asked := _keys_to_look_up(left, right)) is not None:
            there = np.zeros(asked.keys.num_rows, np.bool_)
            there[right.table.scan_prefix(asked.keys, limit=1).index.to_numpy()] = True
            hits[asked.places] += there[asked.ids]
        for come in (True, False):
            if (both := self._both_changed(left, right, come)) is not None:
                hits[both.asking] += both.counts
        stays, was = self._turning_rows(left, right)
        return _Matched(hits, stays, was, ~was)

    @staticmethod
    def _turning_rows(left: _Side, right: _Side) -> tuple[pa.Table, Mask]:
        """The unchanged left rows whose key got its first or lost its last right row, and whether each was matched."""
        asked = _keys_to_look_up(right, left)
        nothing = left.table.layout.rows.empty_table(), np.zeros(0, np.bool_)
        if asked is None:
            return nothing
        goes, keys = right.signs[asked.places] < 0, asked.keys.num_rows
        lost = np.bincount(asked.ids[goes], minlength=keys) > 0
        gained = np.bincount(asked.ids[~goes], minlength=keys) > 0
        places = np.flatnonzero(_has_no_partner(right, left, asked.keys, lost != gained))
        if not len(places):
            return nothing
        scanned = left.table.scan_prefix(take_rows(asked.keys, places))
        return scanned.rows.combine_chunks(), lost[places][scanned.index.to_numpy()]

    # --- matched and unmatched rows -----------------------------------------------------------------

    def _changes_of_matched(self, left: _Side, matched: _Matched) -> list[pa.Table]:
        """The change of the matched left rows (semi), the unmatched ones (anti), or both with a flag (existence)."""
        types, kind = self._node.left_types, self._node.kind
        if kind is not JoinKind.EXISTENCE:
            return [
                make_chunk(rows.columns, pa.array(signs))
                for rows, signs in _changed_matches(left, matched, types, kind.keeps_matched)
            ]
        return [
            make_chunk([*rows.columns, pa.repeat(pa.scalar(exists), rows.num_rows)], pa.array(signs))
            for exists in (True, False)
            for rows, signs in _changed_matches(left, matched, types, exists)
        ]

    def _without_partner(self, left: _Side, of_left: _Matched, right: _Side, of_right: _Matched) -> list[pa.Table]:
        """The change of the rows without a partner, padded with NULL."""
        node, out = self._node, list[pa.Table]()
        if left.judged:
            for rows, signs in _changed_matches(left, of_left, node.left_types, which=False):
                columns = [*rows.columns, *(pa.nulls(len(signs), arrow_type(t)) for t in node.right_types)]
                columns += (
                    [*(rows.column(k) for k in node.left_keys), _side_column(LEFT_ALONE, len(signs))]
                    if right.judged
                    else []
                )
                out.append(make_chunk(columns, pa.array(signs)))
        if right.judged:
            for rows, signs in _changed_matches(right, of_right, node.right_types, which=False):
                columns = [*(pa.nulls(len(signs), arrow_type(t)) for t in node.left_types), *rows.columns]
                columns += (
                    [*(rows.column(k) for k in node.right_keys), _side_column(RIGHT_ALONE, len(signs))]
                    if left.judged
                    else []
                )
                out.append(make_chunk(columns, pa.array(signs)))
        return out


def _changed_matches(
    side: _Side, matched: _Matched, types: Sequence[str], which: bool
) -> Iterator[tuple[pa.Table, Positions]]:
    """The change of a side's matched rows, or of its unmatched ones (`which`): rows with their signs."""
    changes = np.flatnonzero((matched.hits > 0) == which)
    if len(changes):
        yield take_rows(side.rows, changes), side.signs[changes]
    turned = np.flatnonzero(matched.was != matched.now)
    if len(turned):
        yield (
            take_rows(matched.stays.select(list(range(len(types)))), turned),
            np.where(matched.now[turned] == which, 1, -1),
        )


class _Asked(NamedTuple):
    """The keys that one side's changes look up in the other side's table."""

    places: Positions  # positions of the changes that may meet rows there
    ids: Positions  # (places,) index of each change's key
    keys: pa.Table  # the distinct keys, as prefixes of the other side's table


def _keys_to_look_up(asking: _Side, other: _Side) -> _Asked | None:
    """The keys that the changes of `asking` look up. None if the other side's table cannot contain any of them."""
    if other.table.is_empty():
        return None
    # From the other side's column to ours; if it is joined with several, to the first.
    mine = dict(zip(reversed(other.keys), reversed(asking.keys), strict=True))
    mask = asking.joinable
    for column, key in zip(other.keys, asking.keys, strict=True):
        if mine[column] != key and asking.rows.num_rows:  # joined with two of our columns, which must be equal
            one, two = (pa.table([normalise_floats(asking.rows.column(k))], names=["k"]) for k in (key, mine[column]))
            mask = mask & same_rows(one, two)
    places = np.flatnonzero(mask)
    if not len(places):
        return None
    rows = some_rows(asking.rows, mask)
    columns = [rows.column(mine[column]) for column in dict.fromkeys(other.keys)]
    ids, first = key_ids(columns, len(places))
    return _Asked(places, ids, take_rows(pa.table(columns, names=[f"k{i}" for i in range(len(columns))]), first))


def _has_no_partner(asking: _Side, other: _Side, keys: pa.Table, asked: Mask) -> Mask:
    """(keys,) which of the `asked` keys have no unchanged row on the asking side.

    `keys`: prefixes of the other side's table.
    """
    alone, places = asked.copy(), np.flatnonzero(asked)
    if len(places):
        at = {column: i for i, column in enumerate(dict.fromkeys(other.keys))}
        theirs = dict(zip(reversed(asking.keys), reversed(other.keys), strict=True))  # our column -> the other side's
        own = keys.select([at[theirs[column]] for column in dict.fromkeys(asking.keys)])
        there = asking.table.scan_prefix(take_rows(own, places), limit=1)
        alone[places[there.index.to_numpy()]] = False
    return alone


def _side_column(which: int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(which, pa.int8()), rows)
