"""Project: compute columns and keep the weights."""

from collections.abc import Sequence

import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT
from tussock.jobs.executors.base import net_chunk
from tussock.jobs.executors.operator import (
    Actor,
    ComputedColumn,
    Executor,
    Origin,
    PassedColumn,
    PlainNode,
    TakesPieces,
    expression_error,
)
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Column, Expr
from tussock.statestore.table.state_table import StateTable


class ProjectNode(PlainNode, frozen=True, tag="Project"):
    """One output column per expression. Weights are unchanged."""

    exprs: tuple[Expr, ...]
    types: tuple[str, ...]

    def column_origins(self) -> tuple[Origin, ...]:
        return tuple(
            PassedColumn(e.index) if isinstance(e, Column) else ComputedColumn(expression_text(e)) for e in self.exprs
        )

    def expressions(self) -> tuple[Expr, ...]:
        return self.exprs

    def explain_text(self) -> str:
        return f"Project [{', '.join(map(expression_text, self.exprs))}]"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return ProjectExecutor(self, actor.kernel)


class ProjectExecutor(TakesPieces):
    """One output column per expression. Changes that affect no output column are netted away.

    If each input column is passed on, there are none, because the input is netted.
    """

    row_by_row = True

    def __init__(self, node: ProjectNode, kernel: Kernel) -> None:
        self._node, self._kernel = node, kernel
        self._passed = {e.index for e in node.exprs if isinstance(e, Column)}

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ExpressionError if an expression raises on a row. Cost: one kernel query; none for plain columns."""
        (chunk,) = chunks
        try:
            projection = self._kernel.project_columns(chunk, self._node.exprs, self._node.types, keep=(WEIGHT,))
        except RowError as err:
            raise expression_error(err, err.expression, self._node.exprs[err.expression], chunk) from err
        return projection if len(self._passed) == chunk.num_columns - 1 else net_chunk(projection)
