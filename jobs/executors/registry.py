"""The list of all operators. A new operator is a file in this folder and a line in the list.

A match over `Node` that omits an operator fails in mypy.
"""

from tussock.jobs.executors.constant import RangeNode, ValuesNode
from tussock.jobs.executors.expand import ExpandNode
from tussock.jobs.executors.filter import FilterNode
from tussock.jobs.executors.first_rows import FirstRows
from tussock.jobs.executors.generate import GenerateNode
from tussock.jobs.executors.group_top_n import GroupTopN
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.hash_join import HashJoin
from tussock.jobs.executors.keyed_changes import KeyedChanges
from tussock.jobs.executors.keyed_deliveries import KeyedDeliveries
from tussock.jobs.executors.materialize import Materialize
from tussock.jobs.executors.null_aware_anti import NullAwareAnti
from tussock.jobs.executors.number_copies import NumberCopies
from tussock.jobs.executors.operator import OperatorNode
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.partial_agg import PartialAgg
from tussock.jobs.executors.project import ProjectNode
from tussock.jobs.executors.row_digest import RowDigest
from tussock.jobs.executors.row_join import RowJoin
from tussock.jobs.executors.single_row import SingleRowNode
from tussock.jobs.executors.spread import Spread
from tussock.jobs.executors.table_replay import TableReplay
from tussock.jobs.executors.temporal_filter import TemporalFilterNode
from tussock.jobs.executors.top_n import TopNNode
from tussock.jobs.executors.unexpired import Unexpired
from tussock.jobs.executors.union_all import UnionAll

Node = (
    TableReplay
    | KeyedChanges
    | KeyedDeliveries
    | ValuesNode
    | RangeNode
    | ProjectNode
    | ExpandNode
    | GenerateNode
    | FilterNode
    | Unexpired
    | TemporalFilterNode
    | HashJoin
    | NullAwareAnti
    | RowJoin
    | SingleRowNode
    | Spread
    | UnionAll
    | RowDigest
    | NumberCopies
    | PartialAgg
    | FirstRows
    | HashAgg
    | TopNNode
    | GroupTopN
    | OverWindow
    | Materialize
)


def _check_interface(node: Node) -> OperatorNode:
    """Never called. mypy uses it to check each operator against the interface."""
    return node
