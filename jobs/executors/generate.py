"""Generate: expand a list into rows (EXPLODE, POSEXPLODE, INLINE), or repeat rows (INTERSECT ALL, EXCEPT ALL)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, chunk_schema, empty_chunk, make_chunk
from tussock.jobs.executors.base import net_chunk, take_rows
from tussock.jobs.executors.exact_sum import integer_values
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
from tussock.jobs.logical.nodes import Expr, Generator
from tussock.statestore.nested import conform_rows
from tussock.statestore.positions import indices_in_ranges
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import one_array

Counts = npt.NDArray[np.int64]


class GenerateNode(PlainNode, frozen=True, tag="Generate"):
    """Emits each row's columns `kept` (None: all) once per element of list `argument`, or `argument` times.

    The element's columns and its index follow. No state. `outer`: a row with an empty or NULL list is emitted once,
    with NULLs.
    """

    generator: Generator
    argument: Expr
    outer: bool
    width: int  # number of kept columns
    types: tuple[str, ...]
    kept: tuple[int, ...] | None = None

    @property
    def passed_columns(self) -> tuple[int, ...]:
        """The input columns in the output."""
        return tuple(range(self.width)) if self.kept is None else self.kept

    def column_origins(self) -> tuple[Origin, ...]:
        new_count = len(self.types) - self.width - 1
        return (
            *(PassedColumn(c) for c in self.passed_columns),
            *(ComputedColumn(self.explain_text()),) * new_count,
            ComputedColumn(""),
        )

    def expressions(self) -> tuple[Expr, ...]:
        return (self.argument,)

    def explain_text(self) -> str:
        return f"{self.generator}{' outer' if self.outer else ''}({expression_text(self.argument)})"

    def describe_cost(self) -> str:
        return "changed rows x rows generated from each"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return GenerateExecutor(self, actor.kernel)


class GenerateExecutor:
    """Invariant: the sum of all output chunks is the rows generated from the sum of all input chunks."""

    def __init__(self, node: GenerateNode, kernel: Kernel) -> None:
        self._node, self._kernel = node, kernel

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ExpressionError if the argument raises on a row.

        Cost: one kernel query, and a copy of the row per output row.
        """
        (chunk,), node = chunks, self._node
        if not chunk.num_rows:
            return empty_chunk(node.types)
        try:
            argument = one_array(self._kernel.project_columns(chunk, (node.argument,), (node.argument.type,))["c0"])
        except RowError as err:
            raise expression_error(err, 0, node.argument, chunk) from err
        new_columns: list[pa.Array]
        if node.generator is Generator.REPLICATE:
            counts, new_columns = np.maximum(integer_values(argument), 0), []
        else:
            counts, new_columns = _flatten_elements(argument, node.generator)
        rows, places = np.repeat(np.arange(chunk.num_rows), counts), indices_in_ranges(counts).astype(np.int32)
        if node.generator is Generator.POSEXPLODE:
            new_columns = [pa.array(places), *new_columns]
        if node.outer:
            empty = np.flatnonzero(counts == 0)
            rows, places = np.concatenate([rows, empty]), np.concatenate([places, np.zeros(len(empty), np.int32)])
            new_columns = [pa.concat_arrays([column, pa.nulls(len(empty), column.type)]) for column in new_columns]
        taken = take_rows(chunk.select([*(chunk.column_names[c] for c in node.passed_columns), WEIGHT]), rows)
        out = make_chunk([*taken.columns[: node.width], *new_columns, pa.array(places)], taken[WEIGHT])
        return net_chunk(conform_rows(out, chunk_schema(node.types)))


def _flatten_elements(lists: pa.Array, generator: Generator) -> tuple[Counts, list[pa.Array]]:
    """The length of each list (0 for NULL), and the columns of all elements.

    A map has a key and a value column. INLINE has a column per field.
    """
    in_parts = generator is Generator.INLINE
    if pa.types.is_map(lists.type):  # Arrow stores a map as a list of pairs
        pair = pa.struct([lists.type.key_field, lists.type.item_field])
        lists, in_parts = lists.cast(pa.list_(pair)), True
    counts = integer_values(pc.list_value_length(lists))
    values = lists.flatten()
    return counts, values.flatten() if in_parts else [values]
