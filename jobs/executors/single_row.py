"""SingleRow: the one row of a scalar subquery.

State: the row as it is put out, and whether the input has one. A second row is Spark's error: the epoch stops, and the version before
stands. Two rows may pass each other within an epoch: what counts is how many are left at its end.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.executors.base import NO_ROW, change_error, net, no_columns, state_table, take_rows, weights_of
from tussock.jobs.executors.operator import Actor, Executor, Origin, Passed, PlainNode
from tussock.jobs.flow.chunk import difference, empty_chunk, inserts, rows_of
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type


class TooManyRowsError(InputError):
    """A scalar subquery found a second row. `found` says of which row of the query around it; empty where it reads none."""

    def __init__(self, found: str = "") -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        of = f" for the row ({self.found})" if self.found else ""
        return (
            f"[SCALAR_SUBQUERY_TOO_MANY_ROWS] more than one row was returned by a subquery used as an expression{of}. "
            "Aggregate in the subquery, or change the rows it reads so that it finds one at most."
        )


class SingleRowNode(PlainNode, frozen=True, tag="SingleRow"):
    """The input's only row, NULLs where it has none. A singleton that emits its one row from its first epoch, also without input."""

    types: tuple[str, ...]

    @property
    def emits_without_input(self) -> bool:
        return True

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The row, and how many rows the input has: 0 or 1."""
        return (state_table("single_row", (*self.types, "bigint"), [], ()),)

    def lineage(self) -> tuple[Origin, ...]:
        return tuple(Passed(i) for i in range(len(self.types)))

    def text(self) -> str:
        return "SingleRow"

    def cost(self) -> str:
        return "changed rows"

    def executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return SingleRowExecutor(self, tables)


class SingleRowExecutor:
    """Invariant: the sum of all output chunks is the one row of the sum of all input chunks, or a row of NULLs."""

    def __init__(self, node: SingleRowNode, tables: Sequence[StateTable]) -> None:
        """`tables`: as `node.state_tables()` lays them out."""
        self._types = node.types
        (self._table,) = tables

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises TooManyRowsError, and ChangeError for a row that goes and was not there. Cost: one read and the netting of the chunk."""
        (chunk,) = chunks
        found = self._table.get_rows(no_columns(1))
        there = found.found[0].as_py()
        stored = found.rows.rename_columns([f"c{i}" for i in range(found.rows.num_columns)])
        width = len(self._types)
        before = stored.select(list(range(width)))
        held = there and stored.column(width)[0].as_py() == 1
        if there and chunk.num_rows == 0:
            return empty_chunk(self._types)
        content = net(pa.concat_tables([inserts(before), chunk]) if held else chunk)
        weights = weights_of(content)
        if (weights < 0).any():
            raise change_error(self._table.name, NO_ROW, rows_of(content), int(np.flatnonzero(weights < 0)[0]))
        if weights.sum() > 1:
            raise TooManyRowsError
        after = rows_of(content) if len(weights) else self._nulls()
        count = pa.array([len(weights)], pa.int64())
        self._table.insert_rows(after.append_column(f"c{width}", count) if width else pa.table([count], names=["c0"]))
        if there and same_rows(before, after)[0]:
            return empty_chunk(self._types)
        return difference(before if there else take_rows(before, np.zeros(0, np.int64)), after)

    def _nulls(self) -> pa.Table:
        columns = [pa.nulls(1, arrow_type(t)) for t in self._types]
        return pa.table(columns, names=[f"c{i}" for i in range(len(columns))]) if columns else no_columns(1)
