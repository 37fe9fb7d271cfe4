"""UnionAll: the rows of several inputs with equal columns.

One column is the number of the branch, so no rows coincide.
"""

from collections.abc import Sequence

import pyarrow as pa

from tussock.jobs.executors.base import net
from tussock.jobs.executors.operator import Actor, Executor, Origin, Passed, PlainNode
from tussock.statestore.table.state_table import StateTable


class UnionAll(PlainNode, frozen=True):
    """All rows of all inputs. No state."""

    types: tuple[str, ...]

    def lineage(self) -> tuple[Origin, ...]:
        return tuple(Passed(i) for i in range(len(self.types)))  # with the names of the first branch, as in SQL

    def text(self) -> str:
        return "UnionAll"

    def cost(self) -> str:
        return "changed rows"

    def executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return UnionAllExecutor()


class UnionAllExecutor:
    """Invariant: the sum of all output chunks is the sum of all inputs' chunks."""

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """One chunk per branch. Cost: no copy; one grouping if signs differ, since senders net only their rows."""
        return net(pa.concat_tables(chunks))
