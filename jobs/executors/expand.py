"""Expand: several projections of every row, for GROUPING SETS, UNPIVOT, STACK and sliding windows."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk, make_chunk
from tussock.jobs.executors.base import net_chunk
from tussock.jobs.executors.operator import (
    Actor,
    ComputedColumn,
    Executor,
    Origin,
    PassedColumn,
    PlainNode,
    expression_error,
)
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type


class ExpandNode(PlainNode, frozen=True, tag="Expand"):
    """One output row per input row and projection. No state.

    Its columns are the projection's columns, the projection's number, and the input columns `behind`.
    """

    projections: tuple[tuple[Expr, ...], ...]
    behind: tuple[int, ...]
    types: tuple[str, ...]

    def column_origins(self) -> tuple[Origin, ...]:
        """A column is the input's if each projection passes it unchanged or as NULL.

        Other columns and the number are computed.
        """
        return (
            *map(_origin_of, zip(*self.projections, strict=True)),
            ComputedColumn(""),
            *(PassedColumn(c) for c in self.behind),
        )

    def expressions(self) -> tuple[Expr, ...]:
        """All expressions of the projections, without repetition."""
        return tuple(dict.fromkeys(e for projection in self.projections for e in projection if isinstance(e, Call)))

    def distinct_literals(self) -> tuple[Literal, ...]:
        """The constants in its projections, each once."""
        return tuple(dict.fromkeys(e for projection in self.projections for e in projection if isinstance(e, Literal)))

    def dry_run(self, kernel: Kernel) -> None:
        kernel.dry_run(self.expressions())
        kernel.dry_run(self.distinct_literals())

    def explain_text(self) -> str:
        return "Expand " + ", ".join(f"[{', '.join(map(expression_text, p))}]" for p in self.projections)

    def describe_cost(self) -> str:
        return f"{len(self.projections)} x changed rows"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return ExpandExecutor(self, actor.kernel)


def _origin_of(column: tuple[Expr, ...]) -> Origin:
    some = {e for e in column if not (isinstance(e, Literal) and e.value is None)}
    match [*some]:
        case [Column(index)]:
            return PassedColumn(index)
        case _:
            return ComputedColumn(" or ".join(dict.fromkeys(map(expression_text, column))))


class ExpandExecutor:
    """Invariant: the sum of all output chunks is every projection of the sum of all input chunks."""

    def __init__(self, node: ExpandNode, kernel: Kernel) -> None:
        self._node, self._kernel = node, kernel

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ExpressionError if an expression raises on a row.

        Cost: one kernel query for all expressions, none without expressions. Columns that projections share are not
            copied.
        """
        (chunk,), node = chunks, self._node
        if not chunk.num_rows:
            return empty_chunk(node.types)
        exprs = node.expressions()
        try:
            answer = self._kernel.project_columns(chunk, exprs, [e.type for e in exprs])
        except RowError as err:
            raise expression_error(err, err.expression, exprs[err.expression], chunk) from err
        computed = {e: answer.column(i) for i, e in enumerate(exprs)}
        constants = self._literal_values()
        behind = [chunk.column(c) for c in node.behind]
        parts = []
        for number, projection in enumerate(node.projections):
            columns = [_column_of(e, chunk, computed, constants) for e in projection]
            parts.append(
                make_chunk([*columns, pa.array(np.full(chunk.num_rows, number, np.int32)), *behind], chunk[WEIGHT])
            )
        return net_chunk(pa.concat_tables(parts))

    def _literal_values(self) -> Mapping[Literal, pa.Scalar]:
        """The value of each literal in the projections."""
        literals = self._node.distinct_literals()
        unknown = [e for e in literals if e.value is not None]
        one_row = pa.table({WEIGHT: pa.array([1], pa.int64())})
        answer = self._kernel.project_columns(one_row, unknown, [e.type for e in unknown])
        known = {e: answer.column(i)[0] for i, e in enumerate(unknown)}
        return known | {e: pa.scalar(None, arrow_type(e.type)) for e in literals if e.value is None}


def _column_of(
    expr: Expr, chunk: pa.Table, computed: Mapping[Expr, pa.ChunkedArray], constants: Mapping[Literal, pa.Scalar]
) -> pa.ChunkedArray | pa.Array:
    match expr:
        case Column(index):
            return chunk.column(index)
        case Literal():
            return pa.repeat(constants[expr], chunk.num_rows)
        case _:
            return computed[expr]
