"""RowJoin: join each left row with one row that all actors know: a scalar subquery, or a global aggregate in FROM.

The left rows stay on their units, and all actors receive the row (broadcast_row.py). State: the left rows, and the row.

    out  =  left rows x the row, if the condition is true      (a semi join emits the left columns alone)

Let r be the row before the epoch and r' after it, X⁻ the deleted left rows, X⁺ the inserted, Xs the unchanged ones:

    Δout  =  X⁺ x r'  −  X⁻ x r  +  (Xs x r'  −  Xs x r)

If r' equals r, the last term is empty, and the cost of an epoch depends on the changed left rows alone. Otherwise the
unchanged rows are read in batches, and rows whose result changed are emitted: `WHERE x > (SELECT avg(x) …)` reads all
rows and emits those between the old and the new average.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import empty_chunk, make_chunk, some_rows
from tussock.jobs.executors.base import split_halves, state_table, take_rows
from tussock.jobs.executors.broadcast_row import BroadcastRow, broadcast_row_table, row_in
from tussock.jobs.executors.operator import Actor, Executor, MakesPieces, PlainNode, expression_error
from tussock.jobs.executors.unbounded import ONE_ROW, UnboundedCost
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.expression_tree import columns_of
from tussock.jobs.logical.nodes import Expr
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import StateTable

Mask = npt.NDArray[np.bool_]


class RowJoin(PlainNode, frozen=True):
    """Inputs: left rows, and the changes of the row.

    Output: the left columns, then the row's columns if `emits_row`.
    """

    left_types: tuple[str, ...]
    row_types: tuple[str, ...]
    left_stream_key: tuple[int, ...]
    left_distribution: tuple[int, ...]
    condition: Expr | None
    emits_row: bool
    types: tuple[str, ...]

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The left rows, and the row per vnode."""
        left = state_table(
            "row_join_left", self.left_types, [KeyColumn(k) for k in self.table_key], self.left_distribution
        )
        return (left, broadcast_row_table("row_join_row", self.row_types))

    @property
    def table_key(self) -> tuple[int, ...]:
        """The key of the left rows' table."""
        return tuple(dict.fromkeys((*self.left_distribution, *self.left_stream_key)))

    def expressions(self) -> tuple[Expr, ...]:
        return () if self.condition is None else (self.condition,)

    def explain_text(self) -> str:
        where = "" if self.condition is None else f" where {expression_text(self.condition)}"
        return f"RowJoin{'' if self.emits_row else ' semi'}{where}"

    def describe_cost(self) -> str:
        return "changed left rows, all left rows if the row changed"

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        return (ONE_ROW,)

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return RowJoinExecutor(self, tables, actor)


class RowJoinExecutor(MakesPieces):
    """Invariant: the sum of all output chunks is the sum of the left chunks joined with the current row."""

    def __init__(self, node: RowJoin, tables: Sequence[StateTable], actor: Actor) -> None:
        """`tables`: in the layout of `node.state_tables()`."""
        self._node, self._actor = node, actor
        self._left, row = tables
        self._row = BroadcastRow(row, actor)

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Process the left chunk and the changes of the row. Raises the errors of `make_pieces`."""
        return pa.concat_tables([empty_chunk(self._node.types), *self.make_pieces(*chunks)])

    def make_pieces(self, *chunks: pa.Table) -> Iterator[pa.Table]:
        """The output in pieces. The state is written after the last piece has been consumed.

        Raises:
            ChangeError: a left row is inserted or deleted twice.
            ExpressionError: the condition raised on a left row.

        Cost: one kernel query over the left changes; if the row changed, two over all left rows of the actor.
        """
        left, row = chunks
        before = self._row.read_row()
        after = row_in(row)
        if after is None or (before is not None and same_rows(before, after).all()):
            after = before
        parts = split_halves(left, self._left.name, self._node.table_key)
        if parts.gone.num_rows:
            self._left.delete_rows(parts.gone)
            yield from self._join_row(parts.gone, before, -1)
        if after is not before:
            for rows in self._left.scan(self._actor.vnodes):
                yield from self._changes_of_rows(
                    rows.rename_columns([f"c{i}" for i in range(rows.num_columns)]), before, after
                )
            assert after is not None
            self._row.write_row(after)
        if parts.come.num_rows:
            self._left.insert_rows(parts.come)
            yield from self._join_row(parts.come, after, 1)

    def _join_row(self, rows: pa.Table, row: pa.Table | None, weight: int) -> Iterator[pa.Table]:
        """Join left rows with one row. None: the row does not exist yet, so nothing is emitted."""
        if row is not None and (chosen := self._satisfies(rows, row)).any():
            yield self._make_output(rows, chosen, row, weight)

    def _changes_of_rows(self, rows: pa.Table, before: pa.Table | None, after: pa.Table | None) -> Iterator[pa.Table]:
        """The changes for unchanged left rows whose result depends on the changed row."""
        nothing = np.zeros(rows.num_rows, np.bool_)
        was = nothing if before is None else self._satisfies(rows, before)
        now = nothing if after is None else self._satisfies(rows, after)
        if not self._node.emits_row:
            was, now = was & ~now, now & ~was
        if before is not None and was.any():
            yield self._make_output(rows, was, before, -1)
        if after is not None and now.any():
            yield self._make_output(rows, now, after, 1)

    def _make_output(self, rows: pa.Table, chosen: Mask, row: pa.Table, weight: int) -> pa.Table:
        rows = some_rows(rows, chosen)
        columns = [*rows.columns, *(_repeat_row(row, rows.num_rows).columns if self._node.emits_row else ())]
        return make_chunk(columns, pa.array(np.full(rows.num_rows, weight)))

    def _satisfies(self, rows: pa.Table, row: pa.Table) -> Mask:
        """(rows,) whether the condition is true for a left row and the row."""
        condition, width = self._node.condition, len(self._node.left_types)
        if condition is None:
            return np.ones(rows.num_rows, np.bool_)
        read = sorted(columns_of(condition))
        repeated = _repeat_row(row.select([c - width for c in read if c >= width]), rows.num_rows)
        columns = [*(rows.column(c) for c in read if c < width), *repeated.columns]
        read_columns = pa.table(columns or [pa.nulls(rows.num_rows)], names=[f"c{c}" for c in read] or ["c0"])
        try:
            answer = self._actor.kernel.project_columns(read_columns, (condition,), ("boolean",))["c0"]
        except RowError as err:
            whole = [*rows.slice(err.row, 1).columns, *row.columns]
            shown = pa.table(whole, names=[f"c{i}" for i in range(len(whole))])
            raise expression_error(RowError(err.text, err.reason, 0), 0, condition, shown) from err
        mask: Mask = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
        return mask


def _repeat_row(row: pa.Table, times: int) -> pa.Table:
    return take_rows(row, np.zeros(times, np.int64))
