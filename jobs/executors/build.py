"""From stream nodes to state tables and executors: the one place that knows which executor runs which node.

Leaves have inputs of their own kind: TableReplay and the reading of sources are run by the actor itself.
"""

from collections.abc import Sequence

from jobs.executors import hash_agg, hash_join, materialize, table_replay, top_n
from jobs.executors.base import Executor
from jobs.executors.filter import FilterExecutor
from jobs.executors.hash_agg import HashAggExecutor
from jobs.executors.hash_join import HashJoinExecutor
from jobs.executors.materialize import MaterializeExecutor
from jobs.executors.partial_agg import PartialAggExecutor, partial_types
from jobs.executors.project import ProjectExecutor
from jobs.executors.top_n import TopNExecutor
from jobs.kernels.kernel import Kernel
from jobs.plan import nodes
from statestore.meta.catalog import TableSchema
from statestore.table.state_table import StateTable

__all__ = ["build", "partial_types", "state_tables"]


def state_tables(node: nodes.Node) -> tuple[TableSchema, ...]:
    """The state tables a node's executor needs, in the order it takes them, with ids 0. Raises UnsupportedTypeError."""
    match node:
        case nodes.TableReplay():
            return table_replay.state_tables(node)
        case nodes.HashJoin():
            return hash_join.state_tables(node)
        case nodes.HashAgg():
            return hash_agg.state_tables(node)
        case nodes.TopN():
            return top_n.state_tables(node)
        case nodes.Materialize():
            return materialize.state_tables(node)
        case nodes.Project() | nodes.Filter() | nodes.PartialAgg():
            return ()


def build(node: nodes.Node, tables: Sequence[StateTable], kernel: Kernel) -> Executor:
    """The executor of a node, over the state tables that `state_tables(node)` lays out. Makes no read."""
    match node:
        case nodes.Project():
            return ProjectExecutor(node, kernel)
        case nodes.Filter():
            return FilterExecutor(node, kernel)
        case nodes.PartialAgg():
            return PartialAggExecutor(node)
        case nodes.HashAgg():
            return HashAggExecutor(node, tables, kernel)
        case nodes.HashJoin():
            return HashJoinExecutor(node, tables, kernel)
        case nodes.TopN():
            return TopNExecutor(node, tables[0])
        case nodes.Materialize():
            return MaterializeExecutor(node, tables[0])
        case nodes.TableReplay():
            raise TypeError("TableReplay is a leaf: its input is the log, so the actor runs it (jobs.actor)")
