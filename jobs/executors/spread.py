"""Spread: assign the rows of a non-equality join to places, where they meet the rows of the other side.

Without an equality, every row meets every row. To divide the work between actors, the pairs form a grid. The hash of
its stream key gives a left row a line and a right row a column, and each place of its line or column gets a copy of it.
Each pair meets at exactly one place, which then serves as a join key (hash_join.py).

    inner     4 lines x 4 columns     each side is stored 4 times, since the larger side is not known in advance
    left, semi, anti, existence       8 lines x 1 column: one place must know whether a left row has a partner, so
                                      the left side is stored once and the right side 8 times
    right                             the mirror image
    full                              one place
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT, make_chunk, rows_of
from tussock.jobs.executors.base import Positions, take_rows
from tussock.jobs.executors.operator import (
    Actor,
    ComputedColumn,
    Executor,
    Origin,
    PassedColumn,
    PlainNode,
    column_list,
)
from tussock.jobs.executors.unbounded import ALL_PAIRS, UnboundedCost
from tussock.jobs.logical.nodes import JoinKind
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import one_array, vnodes_of

PLACE = "int"


class Spread(PlainNode, frozen=True):
    """Output: each row, followed by its place, once per place.

    The stream key's hash selects one of `lines`, `line_step` apart. A line has `copies` places, `copy_step` apart.
    """

    key: tuple[int, ...]  # the stream key
    lines: int  # a power of two
    line_step: int
    copies: int
    copy_step: int
    types: tuple[str, ...]

    def column_origins(self) -> tuple[Origin, ...]:
        return (*(PassedColumn(i) for i in range(len(self.types) - 1)), ComputedColumn("place"))

    def explain_text(self) -> str:
        return f"Spread {self.lines} by [{column_list(self.key)}], {self.copies} copies"

    def describe_cost(self) -> str:
        return f"changed rows x {self.copies}; each meets every row of the other side"

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        return (ALL_PAIRS,)

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return SpreadExecutor(self)


def spread_of(kind: JoinKind, key: Sequence[int], types: Sequence[str], is_left: bool) -> Spread:
    """The Spread node for one side of a join of this kind."""
    match kind:
        case JoinKind.INNER:
            lines, columns = 4, 4
        case JoinKind.FULL:
            lines, columns = 1, 1
        case JoinKind.RIGHT:
            lines, columns = 1, 8
        case _:
            lines, columns = 8, 1
    steps = (lines, columns, columns, 1) if is_left else (columns, 1, lines, columns)
    return Spread(tuple(key), *steps, (*types, PLACE))


class SpreadExecutor:
    """No state: a row's places depend on its stream key alone."""

    def __init__(self, node: Spread) -> None:
        self._node = node

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Cost: a hash per row, and a copy of the rows per place."""
        (chunk,) = chunks
        node, rows = self._node, chunk.num_rows
        lines: Positions = np.zeros(rows, np.int64)
        if node.lines > 1 and node.key and rows:
            lines = np.asarray(vnodes_of([one_array(chunk.column(k)) for k in node.key], node.lines)).astype(np.int64)
        places = lines[None, :] * node.line_step + np.arange(node.copies)[:, None] * node.copy_step
        copied = chunk if node.copies == 1 else take_rows(chunk, np.tile(np.arange(rows), node.copies))
        return make_chunk([*rows_of(copied).columns, pa.array(places.ravel().astype(np.int32))], copied[WEIGHT])
