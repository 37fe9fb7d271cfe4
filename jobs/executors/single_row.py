"""SingleRow: the row of a scalar subquery.

State: the output row, and whether the input has a row. A second row is an error, as in Spark: the epoch stops, and the
previous version remains. An epoch may replace the row; only the number of rows at its end counts.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import chunk_of_difference, empty_chunk, rows_of, to_inserts
from tussock.jobs.executors.base import NO_ROW, change_error, net_chunk, no_columns, state_table, take_rows, weights_of
from tussock.jobs.executors.operator import Actor, Executor, PlainNode
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type


class TooManyRowsError(InputError):
    """A scalar subquery returned more than one row.

    `outer_row`: the row of the outer query; empty if the subquery reads none.
    """

    outer_row: str = ""

    def __str__(self) -> str:
        of = f" for the row ({self.outer_row})" if self.outer_row else ""
        return (
            f"[SCALAR_SUBQUERY_TOO_MANY_ROWS] more than one row was returned by a subquery used as an expression{of}. "
            "Aggregate in the subquery, or change its input rows so that it returns at most one row."
        )


class SingleRowNode(PlainNode, frozen=True, tag="SingleRow"):
    """The only row of the input, or NULLs if the input is empty.

    A singleton that emits its row from its first epoch on, even without input.
    """

    emits_without_input: ClassVar[bool] = True

    types: tuple[str, ...]

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The row, and the number of input rows: 0 or 1."""
        return (state_table("single_row", (*self.types, "bigint"), [], ()),)

    def explain_text(self) -> str:
        return "SingleRow"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return SingleRowExecutor(self, tables)


class SingleRowExecutor:
    """Invariant: the sum of all output chunks is the only row of the sum of all input chunks, or a row of NULLs."""

    def __init__(self, node: SingleRowNode, tables: Sequence[StateTable]) -> None:
        """`tables`: in the layout of `node.state_tables()`."""
        self._types = node.types
        (self._table,) = tables

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises TooManyRowsError, and ChangeError if a deleted row does not exist.

        Cost: one read and netting of the chunk.
        """
        (chunk,) = chunks
        stored_rows = self._table.get_rows(no_columns(1))
        there = stored_rows.found[0].as_py()
        stored = stored_rows.rows.rename_columns([f"c{i}" for i in range(stored_rows.rows.num_columns)])
        width = len(self._types)
        before = stored.select(list(range(width)))
        had_row = there and stored.column(width)[0].as_py() == 1
        if there and chunk.num_rows == 0:
            return empty_chunk(self._types)
        content = net_chunk(pa.concat_tables([to_inserts(before), chunk]) if had_row else chunk)
        weights = weights_of(content)
        if (weights < 0).any():
            raise change_error(self._table.name, NO_ROW, rows_of(content), int(np.flatnonzero(weights < 0)[0]))
        if weights.sum() > 1:
            raise TooManyRowsError
        after = rows_of(content) if len(weights) else self._null_row()
        same = there and same_rows(before, after)[0]
        # If one unit had sent the changes of all, changes that cancel out would not have come.
        if not (same and had_row == bool(len(weights))):
            count = pa.array([len(weights)], pa.int64())
            state = after.append_column(f"c{width}", count) if width else pa.table([count], names=["c0"])
            self._table.insert_rows(state)
        if same:
            return empty_chunk(self._types)
        return chunk_of_difference(before if there else take_rows(before, np.zeros(0, np.int64)), after)

    def _null_row(self) -> pa.Table:
        columns = [pa.nulls(1, arrow_type(t)) for t in self._types]
        return pa.table(columns, names=[f"c{i}" for i in range(len(columns))]) if columns else no_columns(1)
