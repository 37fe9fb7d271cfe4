"""The operators there are. A new one is a file of this room and a line in each of the two lists; a match over `Node` that forgets it
fails in mypy."""

from jobs.executors.constant import Range, Values
from jobs.executors.expand import Expand
from jobs.executors.filter import Filter
from jobs.executors.first_rows import FirstRows
from jobs.executors.generate import Generate
from jobs.executors.group_top_n import GroupTopN
from jobs.executors.hash_agg import HashAgg
from jobs.executors.hash_join import HashJoin
from jobs.executors.materialize import Materialize
from jobs.executors.null_aware_anti import NullAwareAnti
from jobs.executors.number_copies import NumberCopies
from jobs.executors.operator import OperatorNode
from jobs.executors.over_window import OverWindow
from jobs.executors.partial_agg import PartialAgg
from jobs.executors.project import Project
from jobs.executors.row_digest import RowDigest
from jobs.executors.row_join import RowJoin
from jobs.executors.single_row import SingleRow
from jobs.executors.spread import Spread
from jobs.executors.table_replay import TableReplay
from jobs.executors.temporal_filter import TemporalFilter
from jobs.executors.top_n import TopN
from jobs.executors.unexpired import Unexpired
from jobs.executors.union_all import UnionAll

Node = (
    TableReplay
    | Values
    | Range
    | Project
    | Expand
    | Generate
    | Filter
    | Unexpired
    | TemporalFilter
    | HashJoin
    | NullAwareAnti
    | RowJoin
    | SingleRow
    | Spread
    | UnionAll
    | RowDigest
    | NumberCopies
    | PartialAgg
    | FirstRows
    | HashAgg
    | TopN
    | GroupTopN
    | OverWindow
    | Materialize
)

#: The same, as mypy checks each against the face that all have.
OPERATORS: tuple[type[OperatorNode], ...] = (
    TableReplay,
    Values,
    Range,
    Project,
    Expand,
    Generate,
    Filter,
    Unexpired,
    TemporalFilter,
    HashJoin,
    NullAwareAnti,
    RowJoin,
    SingleRow,
    Spread,
    UnionAll,
    RowDigest,
    NumberCopies,
    PartialAgg,
    FirstRows,
    HashAgg,
    TopN,
    GroupTopN,
    OverWindow,
    Materialize,
)
