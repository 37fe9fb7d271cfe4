"""UnionAll: the rows of several inputs with equal columns.

One column is the number of the branch, so no rows coincide.
"""

from collections.abc import Sequence

import pyarrow as pa

from tussock.jobs.executors.base import net_chunk
from tussock.jobs.executors.operator import Actor, Executor, PlainNode
from tussock.statestore.table.state_table import StateTable


class UnionAll(PlainNode, frozen=True):
    """All rows of all inputs. No state."""

    types: tuple[str, ...]

    def explain_text(self) -> str:
        return "UnionAll"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return UnionAllExecutor()


class UnionAllExecutor:
    """Invariant: the sum of all output chunks is the sum of all inputs' chunks."""

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """One chunk per branch. Cost: no copy; one grouping if signs differ, since senders net only their rows."""
        return net_chunk(pa.concat_tables(chunks))
