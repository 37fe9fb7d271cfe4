"""One value of every stored document, and of every class in a catalog's definitions and the log's statements.

Fields have values other than their defaults, so that a renamed field or a changed default is noticed.
"""

import msgspec

from tussock.jobs.catalog.definition import (
    FunctionDefinition,
    PlainViewDefinition,
    SourceDefinition,
    TableDefinition,
    ViewDefinition,
)
from tussock.jobs.executors.agg_call import Agg
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
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.partial_agg import PartialAgg
from tussock.jobs.executors.project import ProjectNode
from tussock.jobs.executors.registry import Node
from tussock.jobs.executors.row_digest import RowDigest
from tussock.jobs.executors.row_join import RowJoin
from tussock.jobs.executors.single_row import SingleRowNode
from tussock.jobs.executors.spread import Spread
from tussock.jobs.executors.table_replay import TableReplay
from tussock.jobs.executors.temporal_filter import TemporalFilterNode
from tussock.jobs.executors.top_n import TopNNode
from tussock.jobs.executors.unexpired import Unexpired
from tussock.jobs.executors.union_all import UnionAll
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.logical import nodes as logical
from tussock.jobs.logical import statements
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Call,
    Column,
    Comparison,
    Field,
    Frame,
    FrameBound,
    FrameEdge,
    JoinKind,
    Literal,
    Place,
    SortKey,
    WindowCall,
    WindowFunction,
)
from tussock.jobs.logical.statements import (
    CreateFunction,
    CreatePlainView,
    CreateSource,
    CreateTable,
    CreateTableAs,
    CreateView,
    Default,
    Delete,
    Drop,
    FunctionModule,
    Insert,
    KeyedBy,
    Update,
)
from tussock.jobs.plan.fragments import Dispatch, Fragment, Input, Operator, Output
from tussock.jobs.sources.file_documents import document_of
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.ports import Port
from tussock.statestore.meta.barrier import Barrier, Mutation, MutationKind, Undo
from tussock.statestore.meta.catalog import (
    ALL_READ,
    Build,
    Catalog,
    ColumnSpec,
    Hold,
    KeyColumn,
    Relation,
    RelationKind,
    TableSchema,
)
from tussock.statestore.meta.delta import (
    BranchEnded,
    BranchOpened,
    CompactionClosed,
    CompactionCommitted,
    CompactionOpened,
    CompactionsRenewed,
    EpochCommitted,
    FloorRaised,
    MappingChanged,
    Published,
    RelationsForgotten,
    SstsMoved,
    VersionChange,
    VersionDelta,
)
from tussock.statestore.meta.manifest import HotKey, RowCounts, SealedManifest, StepSeconds, UnitWork
from tussock.statestore.meta.pages import PageInfo
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.settings import BranchOrigin, StoreSettings
from tussock.statestore.meta.snapshots import Head, PageDocument, VersionRoot
from tussock.statestore.meta.statement_log import Claim, LogEntry
from tussock.statestore.meta.version import (
    Branch,
    CompactionTask,
    HeldBack,
    HummockVersion,
    KeyRange,
    LevelInput,
    SectionInfo,
    SstInfo,
    VnodeMapping,
)
from tussock.statestore.objectstore.requests import Requests
from tussock.statestore.zones import YearlyChange, zone_rules

LAST = 2**64 - 1

# --- expressions and logical plans ---------------------------------------------------------------------------------

_K = Column(0, "int")
_TEN = Literal(10, "int")
_SUM = Call("Add", "int", (_K, _TEN), "ANSI", (("timeZone", "UTC"),), Place(3, 14))
_BIG = Call("GreaterThan", "boolean", (_SUM, Literal("7", "string")))
_FIELDS = (Field("k", "int"), Field("g", "string"))

SCAN = logical.Scan("orders", (1, 0), _FIELDS)
_THREE = (Field("a", "int"), Field("b", "double"), Field("c", "boolean"))
PROJECT = logical.Project(SCAN, (_SUM, Literal(None, "double"), Literal(True, "boolean")), _THREE)
FILTER = logical.Filter(SCAN, _BIG)
_YESTERDAY = Call(
    "TimestampAddInterval", "timestamp", (Column(0, "timestamp"), Literal(-86_400_000_000, "interval day"))
)
TEMPORAL = logical.TemporalFilter(SCAN, Column(1, "string"), Comparison.GREATER_OR_EQUAL, _YESTERDAY, True)
JOIN = logical.Join(SCAN, FILTER, JoinKind.INNER, (_K,), (Column(1, "int"),), (True,), _BIG, Place(1, 2))
CALLS = (
    AggCall(AggFunction.SUM, "bigint", (_K,), "ANSI", True, _BIG, Place(2, 3)),
    AggCall(AggFunction.COUNT, "bigint", ()),
)
AGGREGATE = logical.Aggregate(JOIN, (_K,), CALLS, (Field("k", "int"), Field("s", "bigint"), Field("n", "bigint")))
_LISTAGG = AggCall(
    AggFunction.LISTAGG,
    "string",
    (Column(1, "string"),),
    params=(("delimiter", "-"),),
    order=(SortKey(_K, True, True),),
)
ORDERED_AGGREGATE = logical.Aggregate(SCAN, (), (_LISTAGG,), (Field("l", "string"),))
TOP_N = logical.TopN(AGGREGATE, (SortKey(_K, True, True),), 5, 2)
SORT = logical.Sort(SCAN, (SortKey(_K, True, True), SortKey(_SUM, False, False)))

UNION = logical.Union((SCAN, logical.Join(SCAN, SCAN, JoinKind.NULL_AWARE_ANTI, (_K,), (_K,), (False,))), _FIELDS)

SUBQUERY = logical.Join(SCAN, logical.SingleRow(PROJECT), JoinKind.SEMI, (), (), (), _BIG)
VALUES = logical.Values(2, ((1, None), ("x", "y")), _FIELDS)
CONSTANTS = logical.Union((VALUES, logical.Range(0, 10, 3, (Field("id", "bigint"),))), _FIELDS)

EXPAND = logical.Expand(SCAN, ((_K, _TEN), (_SUM, _TEN)), _FIELDS)

GENERATE = logical.Generate(SCAN, logical.Generator.POSEXPLODE, Column(1, "string"), True, (Field("p", "int"),))

_BOUNDS = (FrameBound(FrameEdge.UNBOUNDED), FrameBound(FrameEdge.OFFSET, -2, _SUM))
_OVER_CALL = WindowCall(
    WindowFunction.NTH, "int", (_K,), Frame(True, *_BOUNDS), 2, True, "ANSI", Place(2, 3), (("delimiter", ","),)
)
_CHOSEN = WindowCall(
    WindowFunction.COLLECT_LIST,
    "array<int>",
    (_K,),
    Frame(True, *_BOUNDS),
    params=(("ignoreNulls", "false"),),
    order=(SortKey(_K, True, True),),
    filter=Call("IsNotNull", "boolean", (_K,)),
)
WINDOW = logical.Window(
    SCAN, (Column(1, "string"),), (SortKey(_K, True, True),), (_OVER_CALL,), (*_FIELDS, Field("n", "int"))
)
WINDOW_CHOSEN = msgspec.structs.replace(WINDOW, calls=(_CHOSEN,), fields=(*_FIELDS, Field("n", "array<int>")))

# --- statements ----------------------------------------------------------------------------------------------------

_KEYED_SOURCE = CreateSource(
    "customers",
    "csv",
    _FIELDS,
    {"path": "/data/customers", "changes": "upsert", "delete_when": "g IS NULL"},
    keyed=KeyedBy((0,), Call("IsNull", "boolean", (Column(1, "string"),))),
)
_CREATE_SOURCE = CreateSource("sales", "csv", _FIELDS, {"path": "/data/sales", "header": "true"}, True)
_RELATIVE = statements.RelativePath("data/sales", "/a/shop", "../shop")
_MOVED = statements.EarlierBase("/z/shop", "/a/shop", 2)
_CREATE_TABLE = CreateTable("orders", _FIELDS, (0,), True)
_ROWS = "meta/payload/00112233445566778899aabbccddeeff"
_DEFAULTS = (Default(1, "'x'", Literal("x", "string")), Default(0, "rand()", None))
_KEYLESS = CreateTable(
    "events", _FIELDS, (), False, (1,), _DEFAULTS, "what happened", ((0, "which"),), ((1, "varchar(9)"),)
)
_CODE = (FunctionModule("pricing", "def taxed(x): return x"),)
_CREATE_FUNCTION = CreateFunction("taxed", _FIELDS, "double", "pricing", "taxed", _CODE, "with tax", True, True)
_YEARLY = (
    YearlyChange(3, -1, 7, 3600, "utc", 3600, 3600, 7200),
    YearlyChange(10, 25, 7, 7200, "standard", 3600, 7200, 3600),
)
_ZONE = zone_rules("Europe/Berlin", "Java 17", 3208, ((-2_422_054_408, 3600),), _YEARLY)

STATEMENTS: dict[str, msgspec.Struct] = {
    "create_table_keyless": _KEYLESS,
    "create_table_append_only": msgspec.structs.replace(_KEYLESS, append_only=True),
    "create_table_as": CreateTableAs(_KEYLESS, 3, _ROWS),
    "alter_table": statements.AlterTable(_KEYLESS, _CREATE_TABLE),
    "add_columns": statements.AddColumns(
        _CREATE_TABLE, statements.CreateTable("orders", (*_FIELDS, Field("n", "int")), (0,), True), (b"held",)
    ),
    "create_schema": statements.CreateSchema("staging", if_not_exists=True),
    "drop_schema": statements.DropSchema("staging", if_exists=True, cascade=True),
    "record_zone": statements.RecordZone(_ZONE, "0123456789abcdef"),
    "change": statements.Change("orders", 3, _ROWS),
    "change_after": statements.Change("orders", 3, _ROWS, (7, 9)),
    "insert_after": Insert("orders", 3, _ROWS, (7,)),
    "create_table_as_after": statements.CreateTableAs(_CREATE_TABLE, 3, _ROWS, (7,)),
    "transaction": statements.Transaction(
        (CreateView("top", "SELECT …", TOP_N, or_replace=True), statements.Change("orders", 3, _ROWS)),
        ((1, "0a1b/1"),),
    ),
    "add_source_columns": statements.AddSourceColumns("sales", _FIELDS, (Field("n", "int"),)),
    "set_source_columns": statements.SetSourceColumns("sales", _FIELDS, _FIELDS[::-1], declared=_FIELDS),
    "move_source": statements.MoveSource("sales", "/a/shop", "/b/shop"),
    "set_source_path": statements.SetSourceOptions("sales", {"path": "/a"}, {"path": "/b"}, relative=_RELATIVE),
    "set_source_options": statements.SetSourceOptions("sales", {"path": "/a"}, {"path": "/b"}, declared=True),
    "create_source": _CREATE_SOURCE,
    "create_keyed_source": _KEYED_SOURCE,
    "create_table": _CREATE_TABLE,
    "create_view": CreateView("top", "SELECT …", TOP_N, True),
    "create_plain_view": CreatePlainView("named", "SELECT k AS a …", _FIELDS, ("a", "b"), ("orders",), True),
    "create_function": _CREATE_FUNCTION,
    "create_view_ordered": CreateView("o", "SELECT k …", SORT),
    "create_view_rebuilt": CreateView("top", "SELECT …", TOP_N, or_replace=True, rebuilt=True),
    "create_view_by_names": CreateView("p", "SELECT k + 10", PROJECT, columns=("a", "b", "c"), uses=("named",)),
    "create_view_behind": CreateView("o", "SELECT k …", logical.TopN(SCAN, (), None, 2)),
    "create_view_project": CreateView("p", "SELECT k + 10 AS a", PROJECT),
    "create_view_subquery": CreateView("s", "SELECT k, g …", SUBQUERY),
    "create_view_union": CreateView("u", "SELECT k, g …", UNION),
    "create_view_constants": CreateView("c", "VALUES …", CONSTANTS),
    "create_view_expand": CreateView("e", "SELECT …", EXPAND),
    "create_view_generate": CreateView("x", "SELECT …", GENERATE),
    "create_view_temporal": CreateView("f", "SELECT k, g … WHERE …", TEMPORAL),
    "create_view_window": CreateView("w", "SELECT k, nth_value(…) OVER …", WINDOW),
    "create_view_window_chosen": CreateView(
        "w",
        "SELECT k, collect_list(k) FILTER (WHERE …) OVER …",
        WINDOW_CHOSEN,
    ),
    "drop": Drop(RelationKind.VIEW, "top", True, True),
    "insert": Insert("orders", 3, "meta/payload/00112233445566778899aabbccddeeff"),
    "update": Update("orders", ((1, Literal("x", "string")),), _BIG),
    "delete": Delete("orders", _BIG),
    "create_view_ordered_aggregate": CreateView("l", "SELECT …", ORDERED_AGGREGATE),
}

# --- stream nodes and definitions ----------------------------------------------------------------------------------

_AGG = Agg(AggFunction.SUM, 1, "int", "bigint", "TRY")
_COUNT = Agg(AggFunction.COUNT, None, None, "bigint")
_FIRST = Agg(AggFunction.FIRST, 1, "string", "string", filter_column=2, params=(("ignoreNulls", "false"),))
_COVAR = Agg(AggFunction.COVAR_POP, 3, "double", "double", None, (4,), ("double",), True)
_LAST_TEXTS = Agg(
    AggFunction.LISTAGG, 1, "string", "string", params=(("delimiter", "-"),), order=(Order(0, True, True),)
)
_WIDE = ("int", "string", "boolean", "double", "double")
_BY = (Order(0, True, True),)
_ENDS = (FrameEnd(FrameEdge.UNBOUNDED), FrameEnd(FrameEdge.OFFSET, 3, 1))
_OVER = Over(WindowFunction.NTH, (0,), "int", "int", True, *_ENDS, 2, True, "ANSI", ("string",), (("delimiter", ","),))
_TILL_HERE = (FrameEnd(FrameEdge.UNBOUNDED), FrameEnd(FrameEdge.CURRENT))
_CHOSEN_OVER = msgspec.structs.replace(
    _OVER, function=WindowFunction.COLLECT_LIST, type="array<int>", order=_BY, filter_column=1
)
_SESSION = Over(WindowFunction.SESSION, (0, 1), "timestamp", "timestamp", True, *_TILL_HERE)
NODES: dict[str, Node] = {
    "table_replay": TableReplay(7, (0,), ("int", "string")),
    "values": ValuesNode(2, ((1, None), ("x", "y")), ("k", "g"), ("int", "string", "bigint")),
    "range": RangeNode(0, 10, 3, "id"),
    "expand": ExpandNode(((_K, _TEN), (_SUM, _TEN)), (0,), ("int", "int", "int", "int")),
    "generate": GenerateNode(logical.Generator.INLINE, Column(1, "string"), True, 2, ("int", "string", "int", "int")),
    "table_replay_keyless": TableReplay(7, (2,), ("int", "string", "bigint"), True),
    "table_replay_append_only": TableReplay(7, (0,), ("int", "string"), False, True),
    "project": ProjectNode((_SUM,), ("int",)),
    "filter": FilterNode(_BIG, ("int", "string")),
    "unexpired": Unexpired(TemporalFilterNode(1, Comparison.GREATER, _YESTERDAY, True, (0,), (0,), ("int", "string"))),
    "temporal_filter": TemporalFilterNode(1, Comparison.LESS, _YESTERDAY, True, (0,), (0,), ("int", "string")),
    "hash_join": HashJoin(("int",), ("int", "string"), (0,), (0,), (True,), (0,), (1,), _BIG, ("int", "int", "string")),
    "left_join": HashJoin(("int",), ("int",), (0,), (0,), (False,), (0,), (0,), None, ("int", "int"), JoinKind.LEFT),
    "null_aware_anti": NullAwareAnti(("int", "string"), ("int",), (0,), (0,), (1,), (0,), ("int", "string")),
    "row_join": RowJoin(("int", "string"), ("int",), (1,), (0,), _BIG, True, ("int", "string", "int")),
    "single_row": SingleRowNode(("int", "string")),
    "spread": Spread((1,), 4, 1, 8, 2, ("int", "string", "int")),
    "row_digest": RowDigest(("int", "bigint", "bigint")),
    "number_copies": NumberCopies(("int", "bigint", "bigint", "bigint")),
    "union_all": UnionAll(("int", "int", "string")),
    "partial_agg": PartialAgg(("int", "int"), (0,), (_AGG,), True, ("int", "bigint")),
    "hash_agg": HashAgg(("int", "int"), (0,), (_AGG, _COUNT), (1,), True, True, ("int", "bigint", "bigint")),
    "hash_agg_ordered": HashAgg(
        _WIDE, (0,), (_FIRST, _COVAR, _LAST_TEXTS), (0,), False, False, ("int", "string", "double", "string")
    ),
    "top_n": TopNNode((Order(1, True, True),), 5, 2, (0,), ("int", "bigint")),
    "top_n_without_limit": TopNNode((), None, 2, (0,), ("int", "bigint")),
    "top_n_append_only": TopNNode((Order(1, True, True),), 5, 2, (0,), ("int", "bigint"), True),
    "first_rows": FirstRows((KeyColumn(1, True, True), KeyColumn(0)), 7, ("int", "bigint")),
    "group_top_n": GroupTopN(
        (1,), _BY, (0,), (1,), WindowFunction.RANK, 3, ("int", "string"), ("int", "string", "int")
    ),
    "over_window": OverWindow((1,), _BY, (0,), (1,), (_OVER,), ("int", "string"), ("int", "string", "int")),
    "over_window_chosen": OverWindow(
        (1,), _BY, (0,), (1,), (_CHOSEN_OVER,), ("int", "boolean"), ("int", "boolean", "array<int>")
    ),
    "over_window_sessions": OverWindow(
        (1,), _BY, (0,), (1,), (_SESSION,), ("timestamp", "timestamp"), ("timestamp",) * 3
    ),
    "materialize": Materialize(9, (0,), (0,), ("int", "bigint")),
    "materialize_ordered": Materialize(9, (0,), (0,), ("int", "bigint"), (Order(1, True, True),)),
}
_OUTPUT = Output(("int", "bigint"), (0,), (0,), True, 12)


def _fragment(node: Node) -> Fragment:
    """A fragment of this node, with an input of either sort."""
    inputs = (
        Input(3, None, (1, -1), ("int", "bigint"), Dispatch.HASH, (1,)),
        Input(None, 2, (0,), ("int",), Dispatch.SINGLETON),
    )
    return Fragment(inputs, (Operator(node, (-1, 0), (4, 5)),), ("int", "bigint"), True)


_BY_SPARK = Call(
    logical.BY_SPARK, "string", (Column(1, "string"),), params=(("sql", "parse_url(`a0`, 'HOST')"),), place=Place(1, 8)
)
_OF_REJECTS = Input(3, None, (0, 1), ("string", "bigint"), Dispatch.HASH, (0, 1), port=Port.REJECTS)
_ON_THE_WAY = Input(3, None, (1, -1, 0), ("bigint", "string"), Dispatch.STAY, project=(Column(1, "bigint"), _BY_SPARK))
_THROUGH_SPARK = Fragment((_ON_THE_WAY,), (), ("bigint", "string"), False)

_HIDDEN = logical.Scan("orders", (0, *HiddenColumn), (_FIELDS[0], *(Field(c.column, c.type) for c in HiddenColumn)))
_HIDDEN_TYPES = tuple(f.type for f in _HIDDEN.fields)
_OF_HIDDEN = Fragment(
    (Input(3, None, (*_HIDDEN.columns, -1), (*_HIDDEN_TYPES, "bigint"), Dispatch.FORWARD),), (), _HIDDEN_TYPES, False
)

_PAIR = "struct<a:array<int>,`b c`:map<string,decimal(4,1)>>"
_MADE = Call("CreateNamedStruct", "struct<x:int>", (Literal("x", "string"), _K))
_NESTED = Fragment(
    (),
    (Operator(HashAgg((_PAIR, "array<int>"), (0,), (_COUNT,), (0,), False, True, (_PAIR, "bigint")), (-1,), (4,)),),
    (_PAIR, "bigint"),
    False,
)

DEFINITIONS: dict[str, msgspec.Struct] = {
    "source": SourceDefinition(_CREATE_SOURCE, 11),
    "source_keyed": SourceDefinition(
        _KEYED_SOURCE,
        11,
        fragments=(
            Fragment(
                (
                    Input(
                        7,
                        None,
                        (0, 1, 2, 3),
                        ("int", "string", "boolean", "binary"),
                        Dispatch.HASH,
                        (0,),
                        port=Port.CHANGES,
                    ),
                ),
                (Operator(KeyedChanges((0,), ("int", "string"), 604_800_000_000, True), (-1,), (12, 13, 14, 15, 16)),),
                ("int", "string"),
                False,
            ),
        ),
        output=Output(("int", "string"), (0,), (0,), False, 12),
    ),
    "source_delivered": SourceDefinition(
        msgspec.structs.replace(_KEYED_SOURCE, keyed=KeyedBy((0,))),
        11,
        fragments=(
            Fragment(
                (
                    Input(
                        7,
                        None,
                        (0, 1, 2),
                        ("int", "string", "int"),
                        Dispatch.HASH,
                        (0,),
                        port=Port.CHANGES,
                    ),
                    Input(7, None, (0, 1, 2), ("string", "binary", "int"), Dispatch.BROADCAST, port=Port.TRUNCATIONS),
                ),
                (Operator(KeyedDeliveries((0,), ("int", "string"), (1,)), (-1, -2), (12, 13, 14)),),
                ("int", "string"),
                False,
            ),
        ),
        output=Output(("int", "string"), (0,), (0,), False, 12),
    ),
    "source_altered": SourceDefinition(
        msgspec.structs.replace(_CREATE_SOURCE, widths=(statements.Narrower(1, 3),)), 11, _CREATE_SOURCE, ("0a1b/1",)
    ),
    "source_with_other_options": SourceDefinition(
        msgspec.structs.replace(
            _CREATE_SOURCE, option_changes=(statements.EarlierOptions({"sep": ";"}, ("quote",), 2),)
        ),
        11,
    ),
    "source_with_other_columns": SourceDefinition(
        msgspec.structs.replace(_CREATE_SOURCE, column_changes=(statements.EarlierColumns(_FIELDS, 2),)), 11
    ),
    "source_moved": SourceDefinition(msgspec.structs.replace(_CREATE_SOURCE, relative=_RELATIVE, moves=(_MOVED,)), 11),
    "table": TableDefinition(_CREATE_TABLE, (_fragment(NODES["table_replay"]),), _OUTPUT),
    "table_altered": TableDefinition(_CREATE_TABLE, (_fragment(NODES["table_replay"]),), _OUTPUT, _CREATE_TABLE),
    "table_of_rejects": TableDefinition(
        _CREATE_TABLE,
        (Fragment((_OF_REJECTS,), (Operator(NODES["table_replay"], (-1,), (7,)),), ("string", "bigint"), False),),
        _OUTPUT,
        rejects_of=3,
    ),
    "table_with_statements_that_ran": TableDefinition(
        _CREATE_TABLE, (_fragment(NODES["table_replay"]),), _OUTPUT, ran=("0a1b/1", "0a1b/2")
    ),
    "plain_view": PlainViewDefinition(CreatePlainView("named", "SELECT 1 AS a", _FIELDS, ("a", "b"), ())),
    "function": FunctionDefinition(_CREATE_FUNCTION),
    "view_by_names": ViewDefinition("SELECT …", TOP_N, (), _OUTPUT, ("a", "b")),
    **{
        f"view_{name}": ViewDefinition(
            "SELECT …",
            TOP_N,
            (_fragment(node),),
            _OUTPUT,
        )
        for name, node in NODES.items()
    },
    "view_ordered": ViewDefinition(
        "SELECT …", SORT, (_fragment(NODES["materialize_ordered"]),), msgspec.structs.replace(_OUTPUT, is_ordered=True)
    ),
    "view_nested": ViewDefinition(
        "SELECT …", logical.Project(SCAN, (_MADE,), (Field("s", "struct<x:int>"),)), (_NESTED,), _OUTPUT
    ),
    "view_of_hidden_columns": ViewDefinition("SELECT …", _HIDDEN, (_OF_HIDDEN,), _OUTPUT),
    "view_by_spark": ViewDefinition(
        "SELECT …", logical.Project(SCAN, (_BY_SPARK,), (Field("h", "string"),)), (_THROUGH_SPARK,), _OUTPUT
    ),
}

# --- meta ----------------------------------------------------------------------------------------------------------

_SECTIONS = (SectionInfo(1, b"\x00\xff", b"\xff", 3, 90, 2), SectionInfo(2, b"\x01", b"\x02", 1, 9))
SST = SstInfo("data/018bcfe568000000/ab.sst", 100, 20, 3, LAST - 1, LAST, _SECTIONS)
_SCHEMA = TableSchema(
    12, "orders", (ColumnSpec("k", "int"), ColumnSpec("g", "string")), (KeyColumn(0, True, True), KeyColumn(1)), (0,)
)
_GROWN = TableSchema(
    13,
    "events",
    (ColumnSpec("c0", "int"), ColumnSpec("c2", "string", b"held"), ColumnSpec("c1", "bigint")),
    (KeyColumn(2),),
    (2,),
)
_RELATION = Relation(
    5,
    "orders",
    "view",
    (ColumnSpec("k", "int"),),
    msgspec.Raw(b'{"type":"opaque"}'),
    (_SCHEMA,),
    (3, 4),
    created=10,
    dropped=30,
    paused=20,
)
CATALOG = Catalog((_RELATION,), 6, 13)
_PAUSED = Relation(
    8, "v", RelationKind.VIEW, (), msgspec.Raw(b"{}"), (_SCHEMA,), created=10, paused=20, paused_for="a raised"
)
_HOLDS = (Hold("a", 10, "B"), Hold("c", 11, "D", "/e", "1-2"))
_HELD = Relation(7, "s", RelationKind.SOURCE, (), msgspec.Raw(b"{}"), (_SCHEMA,), holds=_HOLDS)
_BUILD = Build(10, (_PAUSED,), (7,), (_HELD,), {3: 128, 4: ALL_READ}, 700, 1400)
_WIDER = Relation(
    6,
    "events",
    RelationKind.TABLE,
    (ColumnSpec("k", "int"), ColumnSpec("g", "string")),
    msgspec.Raw(b"{}"),
    (_GROWN,),
    created=10,
)
_MAPPING = VnodeMapping(2, (0, 1, 1, 0))
_INPUTS = (LevelInput(0, ("data/018bcfe568000000/ab.sst",)), LevelInput(6, ("data/task-0000000000000001/cd.sst",)))
_TASK = CompactionTask(3, "w", 9, 1_700_000_000_000, 7, _INPUTS, (KeyRange(b"\x00", b"\xff"),))
_FILES = {5: document_of([PinnedFile("/data/a.parquet", 10, "10-1", 0), PinnedFile("s3://b/c.csv", 20, "abc", 1)])}

_MOMENT = 1_700_000_000_123_456
_BRANCH = Branch(3, "pr-142", "w/7", 9, 8, 4, 1_700_000_000_000, 1_700_604_800_000)
CHANGES: dict[str, VersionChange] = {
    "epoch": EpochCommitted(1, LAST, 2, (SST,), 4, CATALOG),
    "epoch_with_the_catalog_unchanged": EpochCommitted(1, LAST, 0, (), 4),
    "publish": Published(7),
    "floor": FloorRaised(7),
    "forget": RelationsForgotten((3, 4)),
    "mapping": MappingChanged(_MAPPING),
    "compaction_open": CompactionOpened(_TASK),
    "compaction": CompactionCommitted(3, (SST,)),
    "compaction_close": CompactionClosed(3, "its lease was over"),
    "compaction_renew": CompactionsRenewed((3, 4), 1_700_000_000_000),
    "move": SstsMoved(_INPUTS, 7),
    "epoch_with_its_moment": EpochCommitted(1, LAST, 0, (), 4, moment=_MOMENT),
    "epoch_with_a_held_source": EpochCommitted(1, LAST, 0, (), 4, Catalog((_HELD,), 8, 14)),
    "epoch_that_paused_a_view": EpochCommitted(1, LAST, 0, (), 4, Catalog((_PAUSED,), 9, 14)),
    "publish_with_views_held_back": Published(8, (HeldBack(5, 7), HeldBack(6, 0))),
    "epoch_with_its_rows": EpochCommitted(1, LAST, 0, (), 4, net={5: 3, 6: -1}),
    "epoch_with_the_rules_of_a_zone": EpochCommitted(1, LAST, 0, (), 4, Catalog((_RELATION,), 6, 13, zones=(_ZONE,))),
    "epoch_with_a_build": EpochCommitted(1, LAST, 0, (), 4, Catalog((_HELD,), 9, 14, (_BUILD,))),
    "branch_open": BranchOpened(_BRANCH),
    "branch_end": BranchEnded(3, "ended by its user"),
    "move_between_pages": SstsMoved(_INPUTS, 7, (KeyRange(b"\x00", b"\x01"), KeyRange(b"\x00", b"\xff"))),
    "epoch_that_undoes": EpochCommitted(1, LAST, 0, (), 4, moment=_MOMENT, undoes=True),
}
DOCUMENTS: dict[str, msgspec.Struct] = {
    "store": StoreSettings(1, 256, 2, "Europe/Berlin"),
    "store_of_a_branch": StoreSettings(1, 256, 2, "Europe/Berlin", BranchOrigin(3, "pr-142", 9, 8)),
    "head": Head(16),
    "head_of_a_root": Head(16, True),
    "pin": Pin(LAST, "w/3", 9, 1_700_000_000_000, 2, True),
    "log_entry": LogEntry(4, "w", "w/1", msgspec.Raw(b'{"type":"opaque"}')),
    "client": Claim("w/1", "w", 3),
    "barrier": Barrier(
        mapping=_MAPPING,
        log_end=9,
        splits=_FILES,
        catalog=CATALOG,
        mutation=Mutation("pause", (5,)),
        run={"interval": "2024-01-01/2024-01-02"},
        skipped=("file /data/b.parquet",),
        unread={5: document_of([PinnedFile("/data/b.parquet", 1, "1-1", 2)])},
        by_spark={5: {"/data/c.parquet": "its variants are shredded"}},
        skipped_entries=(6, 7),
        prev_epoch=1,
        epoch=LAST,
        attempt=2,
        writer="w",
        log_start=5,
    ),
    "barrier_of_nothing": Barrier(
        mapping=_MAPPING, log_end=0, prev_epoch=0, epoch=1, attempt=0, writer="w", log_start=0
    ),
    "barrier_that_undoes": Barrier(
        mapping=_MAPPING,
        log_end=0,
        mutation=Mutation(MutationKind.UNDO, undo=Undo(1, True)),
        moment=_MOMENT,
        prev_epoch=8,
        epoch=LAST,
        attempt=0,
        writer="w",
        log_start=0,
    ),
    "manifest": SealedManifest(
        prev_epoch=1,
        epoch=LAST,
        attempt=2,
        writer="w",
        ssts=(SST,),
        log_end=9,
        catalog=CATALOG,
        rows={"orders": RowCounts(3, 2)},
    ),
    "manifest_with_seconds": SealedManifest(
        prev_epoch=0,
        epoch=1,
        attempt=0,
        writer="w",
        ssts=(),
        log_end=0,
        seconds=StepSeconds(0.5, 12.25, 1.0),
        mutation=Mutation("pause", (5,)),
        skipped=("paused orders",),
    ),
    "manifest_with_what_it_cost": SealedManifest(
        prev_epoch=0,
        epoch=1,
        attempt=0,
        writer="w",
        ssts=(),
        log_end=0,
        rows={"orders": RowCounts(3, 2, -1)},
        units=(UnitWork(0, 3, 100, 0.25, HotKey("per_g", ("g",), "7", 9, 0.75, 2_000)), UnitWork(1, 0, 0)),
        requests=Requests(5, 4, 3, 2, 1_000, 100),
        hosts={"10.0.0.1": (0, 2), "10.0.0.2": (1,)},
    ),
    "manifest_of_nothing": SealedManifest(prev_epoch=0, epoch=1, attempt=0, writer="w", ssts=(), log_end=0),
    "snapshot": HummockVersion(
        16, LAST, 8, 7, 9, ((SST,), (), (SST,)), CATALOG, _MAPPING, (7, 8, LAST), 4, (_TASK,), ("data/x.sst",)
    ),
    "snapshot_with_an_added_column": HummockVersion(17, 9, 8, 7, 9, ((SST,),), Catalog((_WIDER,), 7, 14), _MAPPING),
    "snapshot_with_views_held_back": HummockVersion(
        18, 9, 8, 7, 9, (), CATALOG, _MAPPING, (7, 8), held=(HeldBack(5, 7),)
    ),
    "snapshot_with_a_branch": HummockVersion(16, 9, 8, 7, 9, (), CATALOG, _MAPPING, branches=(_BRANCH,), next_branch=4),
    "snapshot_with_its_rows": HummockVersion(16, 9, 8, 7, 9, (), CATALOG, _MAPPING, rows={5: 3, 6: 0}),
    "root": VersionRoot(
        HummockVersion(16, LAST, 8, 7, 9, ((SST,), (), ()), CATALOG, _MAPPING),
        ((), (), (PageInfo("meta/page/00000000000000000016/ab.json", b"\x00", b"\xff", 2, 30, 400),)),
    ),
    "page": PageDocument((SST, SST)),
    "snapshot_with_its_moment": HummockVersion(16, LAST, 8, 7, 9, (), CATALOG, _MAPPING, (8, LAST), moment=_MOMENT),
    "barrier_with_its_moment": Barrier(
        mapping=_MAPPING, log_end=0, prev_epoch=0, epoch=1, attempt=0, writer="w", log_start=0, moment=_MOMENT
    ),
    "manifest_with_its_moment": SealedManifest(
        prev_epoch=0, epoch=1, attempt=0, writer="w", ssts=(), log_end=0, moment=_MOMENT
    ),
    "barrier_with_the_facts_of_files": Barrier(
        mapping=_MAPPING,
        log_end=0,
        splits={
            5: document_of(
                [
                    PinnedFile("s3://b/c.csv", 20, "abc", 1, weight=-1, modified=1_700_000_000_000, ingested=_MOMENT),
                    PinnedFile("s3://b/c.csv", 30, "def", 2, modified=1_700_000_000_001),
                ]
            )
        },
        prev_epoch=0,
        epoch=1,
        attempt=0,
        writer="w",
        log_start=0,
    ),
    **{f"delta_{name}": VersionDelta(i + 1, "w", change) for i, (name, change) in enumerate(CHANGES.items())},
}
