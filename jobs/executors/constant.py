"""Values and Range: constant rows, emitted in the first epoch of their view.

No state is needed, because the catalog shows whether it is the first epoch.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import empty_chunk, to_inserts
from tussock.jobs.executors.operator import Actor, ComputedColumn, Executor, Origin, PlainNode
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Literal, Physical
from tussock.statestore.table.state_table import StateTable


class ValuesNode(PlainNode, frozen=True, tag="Values"):
    """The rows of a VALUES clause, with their numbers as a hidden last column.

    `columns` are in the form of `Literal.value`.
    """

    emits_without_input: ClassVar[bool] = True

    rows: int
    columns: tuple[tuple[Physical, ...], ...]
    names: tuple[str, ...]
    types: tuple[str, ...]  # including the type of the number

    def dry_run(self, kernel: Kernel) -> None:
        kinds = self.types[: len(self.columns)]
        kernel.dry_run([Literal(v, t) for column, t in zip(self.columns, kinds, strict=True) for v in column[:1]])

    def column_origins(self) -> tuple[Origin, ...]:
        return (*(ComputedColumn(name) for name in self.names), ComputedColumn(""))

    def explain_text(self) -> str:
        return f"Values rows={self.rows} [{', '.join(self.names)}]"

    def describe_cost(self) -> str:
        return "the rows, in the first epoch"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return ValuesExecutor(self, actor)


class ValuesExecutor:
    """Invariant: the sum of all output chunks is the list of VALUES, from the first epoch on."""

    def __init__(self, node: ValuesNode, actor: Actor) -> None:
        self._node, self._actor = node, actor

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Has no input. Cost: in the first epoch, one kernel query over the text of all values."""
        node = self._node
        if not self._actor.new or not node.rows:
            return empty_chunk(node.types)
        return to_inserts(self._actor.kernel.make_constants((*node.columns, range(node.rows)), node.types))


class RangeNode(PlainNode, frozen=True, tag="Range"):
    """The numbers start, start + step, … before `end`. Each actor emits its share."""

    emits_without_input: ClassVar[bool] = True

    start: int
    end: int
    step: int
    name: str

    @property
    def types(self) -> tuple[str, ...]:
        return ("bigint",)

    def column_origins(self) -> tuple[Origin, ...]:
        return (ComputedColumn(self.name),)

    def explain_text(self) -> str:
        return f"Range {self.name} from {self.start} to {self.end} by {self.step}"

    def describe_cost(self) -> str:
        return "the numbers, in the first epoch"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return RangeExecutor(self, actor)


class RangeExecutor:
    """Splits the numbers into one equal piece per vnode. An actor emits the pieces of its vnodes."""

    def __init__(self, node: RangeNode, actor: Actor) -> None:
        self._node, self._actor = node, actor

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Has no input. Cost: in the first epoch, 16 bytes per number of this actor."""
        node, actor = self._node, self._actor
        count = len(range(node.start, node.end, node.step)) if actor.new else 0
        pieces = [np.empty(0, np.int64)]
        for vnode in actor.vnodes:
            first, end = count * vnode // actor.vnode_count, count * (vnode + 1) // actor.vnode_count
            pieces.append(node.start + node.step * np.arange(first, end, dtype=np.int64))
        return to_inserts(pa.table([pa.array(np.concatenate(pieces))], names=["c0"]))
