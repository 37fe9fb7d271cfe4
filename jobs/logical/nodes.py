"""The logical plan: a bound and typed query whose columns Tussock numbers.

Each node defines its inputs (`inputs`), its expressions (`expressions`) and its output columns (`fields`). A pass that
needs only these handles all node classes alike.

Plans are built from Catalyst's optimized plan and stored in the catalog as JSON, so that a running view does not
depend on how another Spark version binds it. Types are Spark's catalog strings (tussock.statestore.types). A column
reference is an index into the output of the node's input. In a join condition, left columns come before right columns.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec


class AggFunction(StrEnum):
    """The supported aggregates. The values are Catalyst's class names and are stored."""

    COUNT = "Count"
    SUM = "Sum"
    AVERAGE = "Average"
    MIN = "Min"
    MAX = "Max"
    BIT_AND = "BitAndAgg"
    BIT_OR = "BitOrAgg"
    BIT_XOR = "BitXorAgg"
    STDDEV_POP = "StddevPop"
    STDDEV_SAMP = "StddevSamp"
    VAR_POP = "VariancePop"
    VAR_SAMP = "VarianceSamp"
    SKEWNESS = "Skewness"
    KURTOSIS = "Kurtosis"
    COVAR_POP = "CovPopulation"
    COVAR_SAMP = "CovSample"
    CORR = "Corr"
    REGR_SXX = "RegrReplacement"  # regr_sxx and regr_syy: over one of two columns, in rows that have both
    REGR_SXY = "RegrSXY"
    REGR_R2 = "RegrR2"
    REGR_SLOPE = "RegrSlope"
    REGR_INTERCEPT = "RegrIntercept"
    ONLY = "Only"  # the only value: Spark rewrites several DISTINCT to first(x, true) FILTER (WHERE gid = 0)
    FIRST = "First"
    LAST = "Last"
    MIN_BY = "MinBy"
    MAX_BY = "MaxBy"
    MODE = "Mode"
    PERCENTILE = "Percentile"
    PERCENTILE_DISC = "PercentileDisc"
    LISTAGG = "ListAgg"
    COLLECT_LIST = "CollectList"
    COLLECT_SET = "CollectSet"
    APPROX_COUNT_DISTINCT = "HyperLogLogPlusPlus"
    BITMAP_CONSTRUCT = "BitmapConstructAgg"
    BITMAP_OR = "BitmapOrAgg"
    BITMAP_AND = "BitmapAndAgg"
    VECTOR_SUM = "VectorSum"
    VECTOR_AVG = "VectorAvg"

    @property
    def sql(self) -> str:
        """The name that a user writes."""
        return _SQL_NAMES.get(self, self.name.lower())


_SQL_NAMES = {
    AggFunction.AVERAGE: "avg",
    AggFunction.REGR_SXX: "regr_sxx",
    AggFunction.BITMAP_CONSTRUCT: "bitmap_construct_agg",
    AggFunction.BITMAP_OR: "bitmap_or_agg",
    AggFunction.BITMAP_AND: "bitmap_and_agg",
}


class JoinKind(StrEnum):
    """The pairs and rows that a join returns."""

    INNER = "inner"  # every matching pair
    LEFT = "left"  # also every left row without a match, padded with NULL
    RIGHT = "right"  # also every right row without a match, padded with NULL
    FULL = "full"  # both of these
    SEMI = "semi"  # the left rows with a match
    ANTI = "anti"  # the left rows without a match
    NULL_AWARE_ANTI = "null_aware_anti"  # NOT IN: the left rows whose key certainly differs from every right key
    EXISTENCE = "existence"  # every left row, and whether it has a match
    SINGLE = "single"  # like LEFT, but a second match is an error: a correlated scalar subquery

    @property
    def emits_pairs(self) -> bool:
        """Whether the output has the columns of both sides.

        Otherwise it has the left columns, plus a flag for EXISTENCE.
        """
        return self in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SINGLE)

    @property
    def judges_left(self) -> bool:
        """Whether the output of a left row depends on whether it has a match."""
        return self not in (JoinKind.INNER, JoinKind.RIGHT)

    @property
    def judges_right(self) -> bool:
        """Whether the output of a right row depends on whether it has a match."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def keeps_matched(self) -> bool:
        """Whether the returned left rows are those with a match."""
        return self is JoinKind.SEMI


class Generator(StrEnum):
    """The kinds of functions that turn one row into several."""

    EXPLODE = "explode"  # the elements of an array, or the keys and values of a map
    POSEXPLODE = "posexplode"  # the same with their positions, from 0
    INLINE = "inline"  # the structs of an array, one column per field
    REPLICATE = "replicate"  # n copies of the row, for a number n


class WindowFunction(StrEnum):
    """The supported window functions by Catalyst's class names: ranks, values of other rows, and aggregates."""

    ROW_NUMBER = "RowNumber"
    RANK = "Rank"
    DENSE_RANK = "DenseRank"
    PERCENT_RANK = "PercentRank"
    CUME_DIST = "CumeDist"
    NTILE = "NTile"
    LAG = "Lag"
    LEAD = "Lead"
    FIRST = AggFunction.FIRST
    LAST = AggFunction.LAST
    NTH = "NthValue"
    COUNT = AggFunction.COUNT
    SUM = AggFunction.SUM
    AVERAGE = AggFunction.AVERAGE
    MIN = AggFunction.MIN
    MAX = AggFunction.MAX
    BIT_AND = AggFunction.BIT_AND
    BIT_OR = AggFunction.BIT_OR
    BIT_XOR = AggFunction.BIT_XOR
    STDDEV_POP = AggFunction.STDDEV_POP
    STDDEV_SAMP = AggFunction.STDDEV_SAMP
    VAR_POP = AggFunction.VAR_POP
    VAR_SAMP = AggFunction.VAR_SAMP
    SKEWNESS = AggFunction.SKEWNESS
    KURTOSIS = AggFunction.KURTOSIS
    COVAR_POP = AggFunction.COVAR_POP
    COVAR_SAMP = AggFunction.COVAR_SAMP
    CORR = AggFunction.CORR
    REGR_SXX = AggFunction.REGR_SXX
    REGR_SXY = AggFunction.REGR_SXY
    REGR_R2 = AggFunction.REGR_R2
    REGR_SLOPE = AggFunction.REGR_SLOPE
    REGR_INTERCEPT = AggFunction.REGR_INTERCEPT
    MIN_BY = AggFunction.MIN_BY
    MAX_BY = AggFunction.MAX_BY
    MODE = AggFunction.MODE
    PERCENTILE = AggFunction.PERCENTILE
    PERCENTILE_DISC = AggFunction.PERCENTILE_DISC
    LISTAGG = AggFunction.LISTAGG
    COLLECT_LIST = AggFunction.COLLECT_LIST
    COLLECT_SET = AggFunction.COLLECT_SET
    APPROX_COUNT_DISTINCT = AggFunction.APPROX_COUNT_DISTINCT
    BITMAP_CONSTRUCT = AggFunction.BITMAP_CONSTRUCT
    BITMAP_OR = AggFunction.BITMAP_OR
    BITMAP_AND = AggFunction.BITMAP_AND
    VECTOR_SUM = AggFunction.VECTOR_SUM
    VECTOR_AVG = AggFunction.VECTOR_AVG
    SESSION = "SessionStart"  # over each row's own start and end, ordered by start: the start of the row's session

    @property
    def sql(self) -> str:
        """The name that a user writes."""
        return _OVER_NAMES.get(self) or (
            AggFunction(self.value).sql if self.value in _AGGREGATES else self.value.lower()
        )

    @property
    def numbers_rows(self) -> bool:
        """Whether it numbers the rows of a partition, as a top-n per group requires."""
        return self in (WindowFunction.ROW_NUMBER, WindowFunction.RANK, WindowFunction.DENSE_RANK)

    @property
    def shifts_rows(self) -> bool:
        """Whether its value comes from a row at a fixed distance before or after."""
        return self in (WindowFunction.LAG, WindowFunction.LEAD)

    @property
    def reads_frames(self) -> bool:
        """Whether it must read all rows of a frame, because no state can be carried from one row to the next."""
        return self in _READ_FRAMES


_OVER_NAMES = {
    WindowFunction.ROW_NUMBER: "row_number",
    WindowFunction.DENSE_RANK: "dense_rank",
    WindowFunction.PERCENT_RANK: "percent_rank",
    WindowFunction.CUME_DIST: "cume_dist",
    WindowFunction.FIRST: "first_value",
    WindowFunction.LAST: "last_value",
    WindowFunction.NTH: "nth_value",
    WindowFunction.AVERAGE: "avg",
    WindowFunction.SESSION: "session",
}


_AGGREGATES = frozenset(f.value for f in AggFunction)
_READ_FRAMES = frozenset(
    {
        WindowFunction.MIN_BY,
        WindowFunction.MAX_BY,
        WindowFunction.MODE,
        WindowFunction.PERCENTILE,
        WindowFunction.PERCENTILE_DISC,
        WindowFunction.LISTAGG,
        WindowFunction.COLLECT_LIST,
        WindowFunction.COLLECT_SET,
        WindowFunction.BITMAP_CONSTRUCT,
        WindowFunction.BITMAP_OR,
        WindowFunction.BITMAP_AND,
        WindowFunction.VECTOR_SUM,
        WindowFunction.VECTOR_AVG,
        WindowFunction.APPROX_COUNT_DISTINCT,
    }
)


class FrameEdge(StrEnum):
    """The kinds of frame ends."""

    UNBOUNDED = "unbounded"  # at the edge of the partition
    CURRENT = "current"  # at the row (ROWS), at its peers (RANGE)
    OFFSET = "offset"  # at a number of rows from it (ROWS), at a value (RANGE)


class Field(msgspec.Struct, frozen=True):
    """An output column: name and type."""

    name: str
    type: str


class Place(msgspec.Struct, frozen=True):
    """A place in the user's SQL text. Both numbers count from 1."""

    line: int
    column: int


class Column(msgspec.Struct, frozen=True, tag_field="expr", tag=True):
    """The input's column at `index`."""

    index: int
    type: str


Physical = bool | int | str | None


class Literal(msgspec.Struct, frozen=True, tag_field="expr", tag=True):
    """A constant in physical form.

    NULL is None. Booleans, integers and strings are stored as they are. Dates are days and timestamps are
    microseconds since 1970 (int). Float and double are repr texts (`nan`, `inf`, `0.1`), decimals plain texts, binary
    base64. Arrays, structs and maps are the JSON text of a list: the elements, the field values, or [key, value]
    pairs, each in this form.
    """

    value: Physical
    type: str


class Call(msgspec.Struct, frozen=True, tag_field="expr", tag=True):
    """An expression node.

    `node` is Catalyst's class name (`Add`, `Cast`, `CaseWhen`, …). `mode` is the eval mode (ANSI, TRY, LEGACY) of
    classes that have one. `params` are the other attributes that affect the result, as text, such as a Cast's time
    zone.
    """

    node: str
    type: str
    args: tuple["Expr", ...]
    mode: str | None = None
    params: tuple[tuple[str, str], ...] = ()
    place: Place | None = None


Expr = Column | Literal | Call

#: The `node` of a Call with a text that is unique among the rows of the projection's input and stays the same while the
#: row exists. Its arguments are the stream's key.
ROW_KEY = "RowKey"
#: The `node` of a Call that Spark computes between two levels. Its first param is the SQL text with arguments `a0`,
#: `a1`, …. Its param `ZONES` lists the ruled time zones by which Spark may convert, if there are any.
BY_SPARK = "Spark"
ZONES = "zones"
#: The `node` of a Call of a user's Python function. Its params are the function's name and the digest of its code.
PYTHON = "PythonFunction"


class SortKey(msgspec.Struct, frozen=True):
    """One ORDER BY item."""

    expr: Expr
    descending: bool
    nulls_last: bool


class AggCall(msgspec.Struct, frozen=True):
    """An aggregate call. Count without arguments counts rows.

    `params` are the constants that affect the result (ignoreNulls, percentage, …), as text. `order` is the WITHIN
    GROUP order.
    """

    function: AggFunction
    type: str
    args: tuple[Expr, ...]
    mode: str | None = None
    distinct: bool = False
    filter: Expr | None = None
    place: Place | None = None
    params: tuple[tuple[str, str], ...] = ()
    order: tuple[SortKey, ...] = ()

    @property
    def null_excluding_arg(self) -> int | None:
        """The index of the argument whose NULLs exclude a row, as a FILTER does. None: rows with NULLs count."""
        if self.function in (AggFunction.MIN_BY, AggFunction.MAX_BY):
            return 1
        return None if dict(self.params).get("ignoreNulls") == "false" else 0

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Its arguments, its order and its FILTER."""
        return (*self.args, *(k.expr for k in self.order), *(() if self.filter is None else (self.filter,)))

    def map_expressions(self, move: Callable[[Expr], Expr], place: Place | None) -> "AggCall":
        """The same call with `move` applied to each expression."""
        return msgspec.structs.replace(
            self,
            args=tuple(move(a) for a in self.args),
            filter=None if self.filter is None else move(self.filter),
            order=tuple(SortKey(move(k.expr), k.descending, k.nulls_last) for k in self.order),
            place=place,
        )


class FrameBound(msgspec.Struct, frozen=True):
    """One end of a frame.

    At an OFFSET: `rows` after the current row, negative for before; or, for RANGE, the `value` of the ORDER BY
    expression.
    """

    edge: FrameEdge
    rows: int = 0
    value: Expr | None = None


class Frame(msgspec.Struct, frozen=True):
    """The rows of a partition that a call reads for one row: by count (ROWS), or by ORDER BY value (RANGE)."""

    by_rows: bool
    lower: FrameBound
    upper: FrameBound


class WindowCall(msgspec.Struct, frozen=True):
    """A function OVER a window.

    `args` of lag and lead are the value and its default for a missing row. `number` is the distance of lag and lead,
    the bucket count of NTILE, or the n of NTH_VALUE. `params` and `order` are as in AggCall.
    `filter` is set only for aggregates that count NULLs; in all others, FILTER is rewritten so that an argument is
    NULL in excluded rows.
    """

    function: WindowFunction
    type: str
    args: tuple[Expr, ...]
    frame: Frame
    number: int = 0
    ignore_nulls: bool = False
    mode: str | None = None
    place: Place | None = None
    params: tuple[tuple[str, str], ...] = ()
    order: tuple[SortKey, ...] = ()
    filter: Expr | None = None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All expressions that it computes per row."""
        bounds = (b.value for b in (self.frame.lower, self.frame.upper) if b.value is not None)
        return (*self.args, *(k.expr for k in self.order), *(() if self.filter is None else (self.filter,)), *bounds)


class _Leaf(msgspec.Struct, frozen=True, tag=True):
    """A node without input and expressions."""

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return ()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()


class _OverOne(msgspec.Struct, frozen=True, tag=True):
    """A node with one input. By default it computes nothing and returns the input's columns."""

    input: "Plan"

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.input,)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


class Scan(_Leaf, frozen=True):
    """All rows of a relation, with `columns` in this order."""

    relation: str  # name in the catalog
    columns: tuple[int, ...]  # indices into the relation's columns
    fields: tuple[Field, ...]


class Values(_Leaf, frozen=True):
    """Constant rows, stored by column in the form of Literal. SELECT without FROM is one row without columns."""

    rows: int
    columns: tuple[tuple[Physical, ...], ...]
    fields: tuple[Field, ...]


class Range(_Leaf, frozen=True):
    """The numbers start, start + step, … before `end`, in one bigint column."""

    start: int
    end: int
    step: int
    fields: tuple[Field, ...]


class Project(_OverOne, frozen=True):
    """Computes one output column per expression."""

    exprs: tuple[Expr, ...]
    fields: tuple[Field, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.exprs


class Expand(_OverOne, frozen=True):
    """Every row once per projection, with literals in place of the columns that a projection omits."""

    projections: tuple[tuple[Expr, ...], ...]
    fields: tuple[Field, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(e for projection in self.projections for e in projection)


class Generate(_OverOne, frozen=True):
    """Every row once per row that `generator` makes from `argument`.

    Output: the input's columns `kept` (None: all), then the generated columns. With `outer`, a row that generates
    nothing is returned once, with NULLs.
    """

    generator: Generator
    argument: Expr
    outer: bool
    made: tuple[Field, ...]
    kept: tuple[int, ...] | None = None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.argument,)

    @property
    def passed_columns(self) -> tuple[int, ...]:
        """The columns of the input that the output contains."""
        return tuple(range(len(self.input.fields))) if self.kept is None else self.kept

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*(self.input.fields[i] for i in self.passed_columns), *self.made)


class Filter(_OverOne, frozen=True):
    """Keeps the rows whose condition is true."""

    condition: Expr

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.condition,)


class Comparison(StrEnum):
    """The comparisons of a row's value with a bound. The values are Catalyst's class names and are stored."""

    LESS = "LessThan"
    LESS_OR_EQUAL = "LessThanOrEqual"
    GREATER = "GreaterThan"
    GREATER_OR_EQUAL = "GreaterThanOrEqual"

    @property
    def sql(self) -> str:
        """The SQL operator."""
        return ("<" if self.lets_in else ">") + ("=" if self.takes_equal else "")

    @property
    def lets_in(self) -> bool:
        """Whether rows appear as the bound rises. Otherwise they disappear."""
        return self in (Comparison.LESS, Comparison.LESS_OR_EQUAL)

    @property
    def takes_equal(self) -> bool:
        """Whether a row whose value equals the bound is kept."""
        return self in (Comparison.LESS_OR_EQUAL, Comparison.GREATER_OR_EQUAL)

    @property
    def mirrored_comparison(self) -> "Comparison":
        """The comparison with its sides exchanged."""
        match self:
            case Comparison.LESS:
                return Comparison.GREATER
            case Comparison.GREATER:
                return Comparison.LESS
            case Comparison.LESS_OR_EQUAL:
                return Comparison.GREATER_OR_EQUAL
            case Comparison.GREATER_OR_EQUAL:
                return Comparison.LESS_OR_EQUAL


class TemporalFilter(_OverOne, frozen=True):
    """Keeps the rows whose value compares as required with a bound that moves with the epoch's moment.

    `bound` is an expression over one column, the moment (a timestamp). It is never NULL and has the value's type.
    `forgets`: the bound never goes back, so rows that it has passed need no state.
    """

    value: Expr
    comparison: Comparison
    bound: Expr
    forgets: bool

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.value,)


class Join(msgspec.Struct, frozen=True, tag=True):
    """Join on left_keys[i] = right_keys[i] (`<=>` if null_safe[i]) and on `condition`.

    Keys of a pair have equal types. The condition is over left columns, then right columns.

    Output: left columns, then right columns. Kinds that return no pairs have only the left columns; EXISTENCE adds a
    flag. Without keys, every left row meets every right row.
    """

    left: "Plan"
    right: "Plan"
    kind: JoinKind
    left_keys: tuple[Expr, ...]  # over left columns
    right_keys: tuple[Expr, ...]  # over right columns
    null_safe: tuple[bool, ...]
    condition: Expr | None = None
    place: Place | None = None

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.left, self.right)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.left_keys, *self.right_keys, *(() if self.condition is None else (self.condition,)))

    @property
    def fields(self) -> tuple[Field, ...]:
        if self.kind is JoinKind.EXISTENCE:
            return (*self.left.fields, Field("exists", "boolean"))
        return self.left.fields + self.right.fields if self.kind.emits_pairs else self.left.fields


class SingleRow(_OverOne, frozen=True):
    """The single row of a scalar subquery: NULLs if the input is empty, an error if it has two rows."""


class Union(msgspec.Struct, frozen=True, tag=True):
    """UNION ALL: the rows of all inputs. Their columns have equal types."""

    inputs: tuple["Plan", ...]
    fields: tuple[Field, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()


class Aggregate(_OverOne, frozen=True):
    """Groups by `keys`.

    Output: one column per key, then one per call. Without keys: always one row. Without calls: DISTINCT.
    """

    keys: tuple[Expr, ...]
    calls: tuple[AggCall, ...]
    fields: tuple[Field, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.keys, *(e for call in self.calls for e in call.expressions))


class Window(_OverOne, frozen=True):
    """The input's columns, then one per call, computed over a frame of the rows with equal `partition`, in `order`.

    Ties are ordered by the stream key for calls that do not define their own order of ties.
    """

    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]
    fields: tuple[Field, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (
            *self.partition,
            *(key.expr for key in self.order),
            *(e for call in self.calls for e in call.expressions),
        )


class TopN(_OverOne, frozen=True):
    """The first `limit` rows (None: all) after `offset` in the given order. Ties are ordered by the stream key."""

    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(key.expr for key in self.order)


class Sort(_OverOne, frozen=True):
    """All rows in an order.

    Occurs only if the order reaches the view: at the top of a plan, or below Project, Filter and TemporalFilter nodes
    only.
    """

    order: tuple[SortKey, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(key.expr for key in self.order)


Plan = (
    Scan
    | Values
    | Range
    | Project
    | Expand
    | Generate
    | Filter
    | TemporalFilter
    | Join
    | SingleRow
    | Union
    | Aggregate
    | TopN
    | Sort
    | Window
)


def walk_plan(plan: Plan) -> Iterator[Plan]:
    """Yield the nodes of a plan, each after the ones that it reads."""
    for below in plan.inputs:
        yield from walk_plan(below)
    yield plan


def scans_of(plan: Plan) -> Iterator[Scan]:
    """Yield the relations that a plan reads, once for each time that it reads them."""
    return (node for node in walk_plan(plan) if isinstance(node, Scan))


def is_one_row(plan: Plan) -> bool:
    """Whether a plan always has one row, whatever its relations contain."""
    match plan:
        case SingleRow() | Aggregate(keys=()) | Values(rows=1):
            return True
        case Project(input):
            return is_one_row(input)
        case Join(left, right, JoinKind.INNER, (), condition=None):
            return is_one_row(left) and is_one_row(right)
        case _:
            return False
