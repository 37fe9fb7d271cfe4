"""Filter: keep the changes of rows whose condition is true."""

from collections.abc import Sequence

import pyarrow as pa

from tussock.jobs.executors.base import net_chunk
from tussock.jobs.executors.operator import Actor, Executor, PlainNode, TakesPieces, expression_error
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Expr
from tussock.statestore.table.state_table import StateTable


class FilterNode(PlainNode, frozen=True, tag="Filter"):
    """Keeps the rows whose condition is true."""

    condition: Expr
    types: tuple[str, ...]

    def expressions(self) -> tuple[Expr, ...]:
        return (self.condition,)

    def explain_text(self) -> str:
        return f"Filter {expression_text(self.condition)}"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return FilterExecutor(self, actor.kernel)


class FilterExecutor(TakesPieces):
    """Tests each half of an update separately.

    If an update changes the condition's result, only one half is emitted.
    """

    row_by_row = True

    def __init__(self, node: FilterNode, kernel: Kernel) -> None:
        self._node, self._kernel = node, kernel

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ExpressionError if the condition raises on a row. Cost: one kernel query."""
        (chunk,) = chunks
        try:
            return net_chunk(self._kernel.filter_rows(chunk, self._node.condition) if chunk.num_rows else chunk)
        except RowError as err:
            raise expression_error(err, 0, self._node.condition, chunk) from err
