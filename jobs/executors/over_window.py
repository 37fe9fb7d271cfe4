"""OverWindow: functions over ordered partitions, maintained under inserts and deletes.

State: `over_rows`, `partition | order | stream key -> row`. If a call accumulates all rows before a row, there is also
`over_marks`: the same key -> the values carried from the rows before it, for about one row in MARK_EVERY. The hash of a
row's stream key decides whether it is a mark, so that inserts and deletes do not move other marks.

For each touched partition, an epoch reads the rows from the first changed one until the calls carry their old values
again (for row numbers, to the end). It also reads the rows that frames look back on, and the rows since the last mark.
If a call needs the partition's size or all following rows, it reads the whole partition, except for ntile alone
(window_tiles.py). See docs/design/windows.md.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import chunk_of_difference, empty_chunk, some_rows
from tussock.jobs.executors.base import Positions, same_rows, state_table
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.operator import (
    Actor,
    ComputedColumn,
    Executor,
    MakesPieces,
    Origin,
    PassedColumn,
    PlainNode,
    column_list,
    show_row,
)
from tussock.jobs.executors.order import TIES, Order, leaves_ties
from tussock.jobs.executors.unbounded import UnboundedCost
from tussock.jobs.executors.value_state import State
from tussock.jobs.executors.window_call import Over
from tussock.jobs.executors.window_frame import Before, OrderedRows, ordered_key
from tussock.jobs.executors.window_pieces import (
    CarriedValues,
    Changes,
    Cut,
    EvaluatedCalls,
    Mask,
    MergedRows,
    PartitionPiece,
)
from tussock.jobs.executors.window_start import Start, Starts
from tussock.jobs.executors.window_tiles import Tiles
from tussock.jobs.executors.window_values import WindowResult, carried_types, values_of
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import WindowFunction
from tussock.statestore.allocator import give_back_freed_memory
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array, vnodes_of

MARK_EVERY = 64
_SESSION_MARK_EVERY = 8  # a session's mark is small, and most changes end with the session
PIECE_ROWS = 256 * 1024  # rows read and computed at once, in all partitions together
_MANY_ROWS = 1024 * 1024
_FIRST_PIECE = 4096  # rows of the first piece: a change may end near its beginning
_LEAST = 1024  # rows per partition
_NEAR = 16  # the same, if only the neighbours of a changed row see it
_FURTHER = 4  # factor by which a piece grows if a frame is longer
_PLACES = ("bigint", "bigint", "bigint")  # of a mark: number of earlier rows, rank, dense rank


class OverWindow(PlainNode, frozen=True):
    """Input rows, followed by one column per call. The stream key is the input's."""

    partition: tuple[int, ...]
    order: tuple[Order, ...]
    stream_key: tuple[int, ...]
    distribution: tuple[int, ...]  # a subset of the partition's columns
    calls: tuple[Over, ...]
    input_types: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def needs_partition(self) -> bool:
        """Whether a change in a partition may affect any of its rows."""
        return any(call.needs_partition for call in self.calls)

    @property
    def has_marks(self) -> bool:
        """Whether values are carried from row to row, so that earlier rows need not be read."""
        return not self.needs_partition and any(call.is_running for call in self.calls)

    @property
    def has_borders(self) -> bool:
        """Whether all functions are ntile, whose borders are stored."""
        return all(call.function is WindowFunction.NTILE for call in self.calls)

    @property
    def can_settle(self) -> bool:
        """Whether later results are unchanged once the calls carry their old values again: no call counts rows."""
        return not any(call.function.numbers_rows or call.function is WindowFunction.NTH for call in self.calls)

    @property
    def _carries_aggregates(self) -> bool:
        """Whether a change may affect far rows. It ends with the next session, if calls carry nothing else."""
        return any(call.is_running and call.function is not WindowFunction.SESSION for call in self.calls)

    @property
    def mark_every(self) -> int:
        """One row in so many is a mark: an epoch reads from the mark before the first row that may differ."""
        return MARK_EVERY if self._carries_aggregates else min(MARK_EVERY, _SESSION_MARK_EVERY)

    @property
    def least_piece(self) -> int:
        """Rows to read at least of each partition from its first row that may differ."""
        if not self.can_settle or self._carries_aggregates:
            return _LEAST
        return _NEAR + 2 * max(call.rows_before + call.rows_after for call in self.calls)

    @property
    def key(self) -> tuple[KeyColumn, ...]:
        """The state's key."""
        return ordered_key(self.partition, self.order, self.stream_key)[0]

    @property
    def ordering(self) -> tuple[KeyColumn, ...]:
        """The part of the key that comes from ORDER BY."""
        return ordered_key(self.partition, self.order, self.stream_key)[1]

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The rows, and the marks or the borders of tiles.

        The columns of a mark are the key, three bigints, and the carried values of each call.
        """
        rows = state_table("over_rows", self.input_types, self.key, self.distribution)
        if self.has_borders:
            partition = tuple(dict.fromkeys(self.partition))
            columns = (*(self.input_types[c] for c in partition), "bigint", *(["array<binary>"] * len(self.calls)))
            distribution = [partition.index(c) for c in self.distribution]
            return (rows, state_table("over_borders", columns, [*map(KeyColumn, range(len(partition)))], distribution))
        if not self.has_marks:
            return (rows,)
        places = {k.column: i for i, k in enumerate(self.key)}
        types = [self.input_types[k.column] for k in self.key]
        carried = [t for call in self.calls for t in carried_types(call)]
        key = [KeyColumn(i, k.descending, k.nulls_last) for i, k in enumerate(self.key)]
        return (
            rows,
            state_table("over_marks", (*types, *_PLACES, *carried), key, [places[c] for c in self.distribution]),
        )

    def column_origins(self) -> tuple[Origin, ...]:
        return (
            *(PassedColumn(i) for i in range(len(self.input_types))),
            *(ComputedColumn(call.explain_text()) for call in self.calls),
        )

    def explain_text(self) -> str:
        order = ", ".join(o.explain_text() for o in self.order)
        calls = ", ".join(call.explain_text() for call in self.calls)
        return f"OverWindow partition=[{column_list(self.partition)}] order=[{order}] calls=[{calls}]"

    def describe_cost(self) -> str:
        if self.has_borders:
            read = "changed rows + rows that change their tile"
        elif self.needs_partition:
            read = "touched partitions"
        else:
            read = "touched partitions, each from its first changed row on"
        if any(call.lays_out_frames for call in self.calls):
            read = f"{read}; for each row its frame"
        ordered = (*self.partition, *(o.column for o in self.order))
        tied = (
            [call.function.sql for call in self.calls if call.tells_ties_apart]
            if leaves_ties(ordered, self.stream_key)
            else []
        )
        return "; ".join([read, *dict.fromkeys(f"{function}: {TIES}" for function in tied)])

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        if self.has_borders:
            return ()
        costs = (call.unbounded_cost for call in self.calls)
        return tuple(dict.fromkeys(cost for cost in costs if cost is not None))

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return OverWindowExecutor(self, tables, actor.kernel)


class OverWindowExecutor(MakesPieces):
    """Computes old and new results from the first row that may differ, and emits the difference.

    Invariant: the sum of all output chunks is the batch answer over the sum of all input chunks. The stream key breaks
    ties.
    """

    by_key = True

    def __init__(self, node: OverWindow, tables: Sequence[StateTable], kernel: Kernel) -> None:
        """`tables`: in the layout of `node.state_tables()`."""
        self._node, self._kernel = node, kernel
        self._rows, self._marks = tables[0], tables[1] if node.has_marks else None
        self._key = tuple(k.column for k in node.key)
        partition = tuple(dict.fromkeys(node.partition))
        numbers = [call.number for call in node.calls]
        self._tiles = Tiles(partition, numbers, *tables) if node.has_borders else None
        self._starts = Starts(node.partition, node.ordering, node.calls, node.needs_partition, self._rows, self._marks)

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises AggregateOverflowError; ChangeError if a row is inserted or deleted twice, or a deleted one is
        missing.

        Cost: one scan of the touched partitions from the first row that may differ, and one or two scans of earlier
            rows.
        """
        return pa.concat_tables([empty_chunk(self._node.types), *self.make_pieces(*chunks)])

    def make_pieces(self, *chunks: pa.Table) -> Iterator[pa.Table]:
        """Like `apply`, in one piece, except for partitions that are computed as a whole.

        Frees the chunk after sorting it.
        """
        return self._evaluate_pieces(list(chunks))

    def _evaluate_pieces(self, chunks: list[pa.Table]) -> Iterator[pa.Table]:
        among = Changes(chunks.pop(), self._rows, self._key)
        if not len(among.gone.keys) and not len(among.come.keys):
            return
        if len(among.come.keys) >= _MANY_ROWS:
            give_back_freed_memory()  # of the input before it was sorted
        start = self._starts.starts_of_changes(among)
        if self._tiles is not None:
            yield from self._tiled_partitions(self._tiles, among, start.prefixes)
            return
        if self._node.needs_partition:
            yield from self._whole_partitions(among, start)
        else:
            yield pa.concat_tables(self._from_start(among, start))
        among.write_state()

    # --- partitions from the first row that may differ -----------------------------------------------

    def _from_start(self, among: Changes, start: Start) -> list[pa.Table]:
        """The difference.

        It is one piece: an insert and a delete of one row may be in different pieces of the partition.
        """
        carried = self._read_carried(start)
        piece = PartitionPiece(start.prefixes, start.firsts, start.firsts, carried, carried)
        out, most, least = [], _FIRST_PIECE, self._node.least_piece
        while len(piece.firsts):
            merged = among.merge_rows(piece.firsts, successors(piece.prefixes), max(most // len(piece.firsts), least))
            old = self._evaluate_rows(merged, merged.was, piece.old)
            new = self._evaluate_rows(merged, merged.now, piece.new)
            least = min(least * _FURTHER, max(least, _LEAST))
            if (cut := Cut.find_cut(merged, (old, new), self._node.calls)) is None:
                most *= _FURTHER
                continue
            most = min(most * _FURTHER, max(most, PIECE_ROWS))
            wanted = cut.rows_to_emit(merged, piece)
            out.append(self._emit_difference(merged, old, new, wanted))
            self._write_marks(merged, old, new, wanted)
            piece = cut.next_piece(piece, merged, old, new)
            if self._node.can_settle and len(piece.firsts):
                piece = piece.select_partitions(
                    ~piece.old.equals_per_partition(piece.new)
                    | among.has_changes_between(piece.firsts, successors(piece.prefixes))
                )
        return out

    # --- partitions by the borders of their tiles -------------------------------------------------------

    def _tiled_partitions(self, tiles: Tiles, among: Changes, prefixes: pa.BinaryArray) -> Iterator[pa.Table]:
        """The difference: deleted and inserted rows first. Writes the changes."""
        touched, follows = tiles.find_partitions(among, prefixes)
        followed, others = touched.select_partitions(follows), touched.select_partitions(~follows)
        rest = iter([empty_chunk(self._node.types)])
        if len(others.before):
            start = Start(others.prefixes, others.prefixes, None)
            rest = self._whole_partitions(among, start, lambda merged: tiles.write_borders_of_rows(others, merged))
        first = next(rest)
        among.require_stored(followed.prefixes, successors(followed.prefixes))
        among.write_state()
        if len(followed.before):
            first = pa.concat_tables([first, tiles.follow_borders(followed, among)])
        yield first
        yield from rest

    # --- partitions computed as a whole ---------------------------------------------------------------

    def _whole_partitions(
        self, among: Changes, start: Start, use_merged: Callable[[MergedRows], None] | None = None
    ) -> Iterator[pa.Table]:
        """The difference: deleted and inserted rows, then unchanged rows with changed results by PIECE_ROWS."""
        merged, carried = among.merge_rows(start.firsts, successors(start.prefixes), None), self._read_carried(start)
        rows, was, now = merged.rows, merged.was, merged.now
        old = [v.without_carry() for v in self._evaluate_rows(merged, was, carried).values]
        new = [v.without_carry() for v in self._evaluate_rows(merged, now, carried).values]
        if use_merged is not None:
            use_merged(merged)
        del merged  # frees the keys
        if len(was) > PIECE_ROWS:
            give_back_freed_memory()
        goes, comes = was & ~now, now & ~was
        coming = some_rows(rows, comes)
        of_coming = [v.select_rows(comes[now]) for v in new]
        self._raise_first_error(of_coming, coming)
        yield chunk_of_difference(
            _append_results(some_rows(rows, goes), [v.select_rows(goes[was]) for v in old]),
            _append_results(coming, of_coming),
        )
        before = after = 0  # rows of each state in earlier pieces
        for low in range(0, len(was), PIECE_ROWS):
            here = slice(low, low + PIECE_ROWS)
            ends = before + int(np.count_nonzero(was[here])), after + int(np.count_nonzero(now[here]))
            stays = was[here] & now[here]
            left = [v.slice_rows(before, ends[0]).select_rows(stays[was[here]]) for v in old]
            right = [v.slice_rows(after, ends[1]).select_rows(stays[now[here]]) for v in new]
            before, after = ends
            differs = ~same_rows(_append_results(None, left), _append_results(None, right))
            if not differs.any():
                continue
            changed = some_rows(some_rows(rows.slice(low, PIECE_ROWS), stays), differs)
            left, right = ([v.select_rows(differs) for v in values] for values in (left, right))
            self._raise_first_error(right, changed)
            yield chunk_of_difference(_append_results(changed, left), _append_results(changed, right))

    # --- old and new results --------------------------------------------------------------------------

    def _read_carried(self, start: Start) -> CarriedValues:
        """The values that each partition's first row carries, by call; NULL or 0 at the beginning of a partition."""
        count = len(start.prefixes)
        if start.marks is None:
            nothing, calls = np.zeros(count, np.int64), self._node.calls if self._marks is not None else ()
            carry = [[pa.nulls(count, arrow_type(t)) for t in carried_types(call)] for call in calls]
            return CarriedValues(Before(nothing, nothing, nothing), carry or [[] for _ in self._node.calls])
        places = np.full(count, -1, np.int64)
        places[start.marks.index.to_numpy()] = np.arange(len(start.marks.keys))
        chosen = pa.array(places, mask=places < 0)
        columns = [one_array(c).take(chosen) for c in start.marks.rows.columns[len(self._key) :]]
        numbers = [integer_values(c) for c in columns[: len(_PLACES)]]
        rest = columns[len(_PLACES) :]
        carried: list[State] = []
        for call in self._node.calls:
            size = len(carried_types(call))
            carried.append(rest[:size])
            rest = rest[size:]
        return CarriedValues(Before(*numbers), carried)

    def _evaluate_rows(self, merged: MergedRows, there: Mask, carried: CarriedValues) -> EvaluatedCalls:
        places = np.flatnonzero(there)
        partition = merged.partition if len(places) == len(there) else merged.partition[places]
        at = OrderedRows(some_rows(merged.rows, there), partition, self._node.ordering, carried.before)
        if self._node.needs_partition and len(at) > PIECE_ROWS:
            give_back_freed_memory()
        calls = zip(self._node.calls, carried.calls, strict=True)
        return EvaluatedCalls(places, at, tuple(values_of(call, at, of_call, self._kernel) for call, of_call in calls))

    def _emit_difference(self, merged: MergedRows, old: EvaluatedCalls, new: EvaluatedCalls, wanted: Mask) -> pa.Table:
        """The deleted and inserted rows. Unchanged rows with unchanged results are not included."""
        stays = merged.was & merged.now
        in_old, in_new = stays[old.places], stays[new.places]
        before, after = old.results, new.results
        same = same_rows(before.filter(pa.array(in_old)), after.filter(pa.array(in_new)))
        goes, comes = ~in_old, ~in_new
        goes[in_old], comes[in_new] = ~same, ~same
        goes, comes = goes & wanted[old.places], comes & wanted[new.places]
        self._raise_first_error(new.values, new.ordered.rows, comes)
        return chunk_of_difference(
            _join_results(old.ordered.rows, before, goes), _join_results(new.ordered.rows, after, comes)
        )

    def _raise_first_error(self, values: Sequence[WindowResult], rows: pa.Table, chosen: Mask | None = None) -> None:
        """Raise the error of the first row, among those chosen, on which Spark raises."""
        for call, result in zip(self._node.calls, values, strict=True):
            if result.overflow is None or call.mode == "TRY":
                continue
            bad = np.flatnonzero(result.overflow if chosen is None else result.overflow & chosen)
            if len(bad):
                raise result.error(
                    call.explain_text(), call.type, show_row(rows.select(list(self._node.partition)), int(bad[0]))
                )

    # --- marks ----------------------------------------------------------------------------------------

    def _write_marks(self, merged: MergedRows, old: EvaluatedCalls, new: EvaluatedCalls, wanted: Mask) -> None:
        """Write the marks that changed."""
        if self._marks is None:
            return
        marked = np.flatnonzero(self._is_mark(merged.rows) & wanted)
        before, after = self._marks_at(old, marked), self._marks_at(new, marked)
        stays = merged.was[marked] & merged.now[marked]
        in_old, in_new = stays[merged.was[marked]], stays[merged.now[marked]]
        same = same_rows(before.filter(pa.array(in_old)), after.filter(pa.array(in_new)))
        comes = ~in_new
        comes[in_new] = ~same
        self._marks.delete_rows(before.filter(pa.array(~in_old)))
        self._marks.insert_rows(after.filter(pa.array(comes)))

    def _is_mark(self, rows: pa.Table) -> Mask:
        """(n,) whether each row is a mark, by the hash of its stream key. A row without a key is not."""
        if not self._node.stream_key:
            return np.zeros(rows.num_rows, np.bool_)
        hashed = vnodes_of([one_array(rows.column(c)) for c in self._node.stream_key], self._node.mark_every)
        return np.asarray(hashed == 0)

    def _marks_at(self, state: EvaluatedCalls, marked: Positions) -> pa.Table:
        """The marks at those merged rows that belong to this state."""
        rows = np.flatnonzero(np.isin(state.places, marked, assume_unique=True))
        key = [state.ordered.rows.column(c).take(pa.array(rows)) for c in self._key]
        carried_values = state.carried_at(rows)
        numbers = (carried_values.before.rows, carried_values.before.rank, carried_values.before.dense_rank)
        columns = [*key, *(pa.array(n) for n in numbers), *(c for carried in carried_values.calls for c in carried)]
        return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


def _join_results(rows: pa.Table, results: pa.Table, chosen: Mask) -> pa.Table:
    """The chosen rows with their results."""
    both = pa.table(
        [*rows.columns, *results.columns], names=[f"c{i}" for i in range(rows.num_columns + results.num_columns)]
    )
    return some_rows(both, chosen)


def _append_results(rows: pa.Table | None, values: Sequence[WindowResult]) -> pa.Table:
    """Rows with their results."""
    columns = [*(rows.columns if rows is not None else ()), *(v.values for v in values)]
    return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
