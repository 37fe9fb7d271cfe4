"""The logical plan: what a query means, bound and typed, columns numbered by us.

A node says what it reads (`inputs`), which expressions it computes (`expressions`) and what comes out (`fields`), so that a pass that needs
no more knows no node by name.

Produced by walking Catalyst's optimized plan, stored in the catalog as JSON, so that a running view never depends on how
another Spark version would bind it. Types are Spark's catalog strings (tussock.statestore.types). A column reference is an index into the
output of the node's input (for a join condition: left columns, then right columns).
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec


class AggFunction(StrEnum):
    """The aggregates that are kept, by Catalyst's class names, which are stored."""

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
    REGR_SXX = "RegrReplacement"  # regr_sxx and regr_syy: of one of the two, where both are there
    REGR_SXY = "RegrSXY"
    REGR_R2 = "RegrR2"
    REGR_SLOPE = "RegrSlope"
    REGR_INTERCEPT = "RegrIntercept"
    ONLY = "Only"  # the one value there is: what Spark's rewrite of several DISTINCT writes as first(x, true) FILTER (WHERE gid = 0)
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
    """Which pairs and which rows a join puts out."""

    INNER = "inner"  # every pair that matches
    LEFT = "left"  # and every left row without partner, padded with NULL
    RIGHT = "right"  # and every right row without partner, padded
    FULL = "full"  # and both
    SEMI = "semi"  # the left rows that have a partner
    ANTI = "anti"  # the left rows that have none
    NULL_AWARE_ANTI = "null_aware_anti"  # NOT IN: the left rows whose key is known to equal none of the right ones
    EXISTENCE = "existence"  # every left row, and whether it has a partner
    SINGLE = "single"  # as left; a second partner is an error: a correlated scalar subquery

    @property
    def emits_pairs(self) -> bool:
        """Whether columns of both sides come out; else the left ones alone, and of existence whether there is a partner."""
        return self in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SINGLE)

    @property
    def judges_left(self) -> bool:
        """Whether left rows come out, or not, by whether they have a partner."""
        return self not in (JoinKind.INNER, JoinKind.RIGHT)

    @property
    def judges_right(self) -> bool:
        """Whether right rows come out by whether they have a partner."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def keeps_matched(self) -> bool:
        """Whether the left rows that come out are those with a partner."""
        return self is JoinKind.SEMI


class Generator(StrEnum):
    """What several rows are made of."""

    EXPLODE = "explode"  # the elements of an array, or the keys and values of a map
    POSEXPLODE = "posexplode"  # with their places, from 0
    INLINE = "inline"  # the structs of an array, each field a column
    REPLICATE = "replicate"  # a number: as many copies of the row


class WindowFunction(StrEnum):
    """What is kept OVER a window, by Catalyst's class names: functions of a row's place, values of other rows, and aggregates."""

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
    SESSION = "SessionStart"  # of a row's own start and end, in the order of starts: the start of the session that it belongs to

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return _OVER_NAMES.get(self) or (
            AggFunction(self.value).sql if self.value in _AGGREGATES else self.value.lower()
        )

    @property
    def numbers(self) -> bool:
        """Whether it is the number of a row in its partition, which a top-n of each group needs."""
        return self in (WindowFunction.ROW_NUMBER, WindowFunction.RANK, WindowFunction.DENSE_RANK)

    @property
    def shifts(self) -> bool:
        """Whether it is the value of a row some places before or after."""
        return self in (WindowFunction.LAG, WindowFunction.LEAD)

    @property
    def reads_frames(self) -> bool:
        """Whether nothing short of its rows says what it is of a frame, so that nothing can be carried from row to row."""
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
    """Where a frame begins or ends."""

    UNBOUNDED = "unbounded"  # with the partition
    CURRENT = "current"  # at the row (ROWS), with its peers (RANGE)
    OFFSET = "offset"  # so many rows from it (ROWS), at a value (RANGE)


class Field(msgspec.Struct, frozen=True):
    """An output column: name and type."""

    name: str
    type: str


class Place(msgspec.Struct, frozen=True):
    """Where in the user's SQL text; both count from 1."""

    line: int
    column: int


class Column(msgspec.Struct, frozen=True, tag_field="expr", tag=True):
    """The input's column at `index`."""

    index: int
    type: str


Physical = bool | int | str | None


class Literal(msgspec.Struct, frozen=True, tag_field="expr", tag=True):
    """A constant in physical form: NULL is None; booleans and integers as they are; dates as days and timestamps as microseconds
    since 1970 (int); float and double as repr text (`nan`, `inf`, `0.1`); decimals as plain text; strings as they are; binary as base64;
    arrays, structs and maps as the JSON text of a list: of their elements, of their fields' values, of pairs of key and value, each in
    this form."""

    value: Physical
    type: str


class Call(msgspec.Struct, frozen=True, tag_field="expr", tag=True):
    """An expression node: `node` is Catalyst's class name (`Add`, `Cast`, `CaseWhen`, …), `mode` its eval mode (ANSI, TRY, LEGACY) where it
    has one, `params` what else the class carries that changes its result (e.g. a Cast's time zone), as text."""

    node: str
    type: str
    args: tuple["Expr", ...]
    mode: str | None = None
    params: tuple[tuple[str, str], ...] = ()
    place: Place | None = None


Expr = Column | Literal | Call

#: The `node` of a Call whose text no other row of the projection's input has, the same while the row exists; its arguments are the
#: stream's key.
ROW_KEY = "RowKey"
#: The `node` of a Call that Spark computes between two levels: its one param is the SQL text, in which `a0`, `a1`, … are the arguments.
BY_SPARK = "Spark"
#: The `node` of a Call of a user's Python function; its params: the function's name, and the digest of its code.
PYTHON = "PythonFunction"


class SortKey(msgspec.Struct, frozen=True):
    """One ORDER BY item."""

    expr: Expr
    descending: bool
    nulls_last: bool


class AggCall(msgspec.Struct, frozen=True):
    """An aggregate. Count without args counts rows. `params` are constants that change its result (ignoreNulls, percentage, …), as text;
    `order` is its WITHIN GROUP."""

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
    def expressions(self) -> tuple[Expr, ...]:
        """Its arguments, its order, its FILTER."""
        return (*self.args, *(k.expr for k in self.order), *(() if self.filter is None else (self.filter,)))

    def over(self, move: Callable[[Expr], Expr], place: Place | None) -> "AggCall":
        """The same call with `move` of each of its expressions."""
        return msgspec.structs.replace(
            self,
            args=tuple(move(a) for a in self.args),
            filter=None if self.filter is None else move(self.filter),
            order=tuple(SortKey(move(k.expr), k.descending, k.nulls_last) for k in self.order),
            place=place,
        )


class FrameBound(msgspec.Struct, frozen=True):
    """One end of a frame. At an OFFSET: `rows` after the row (negative: before it); or, of RANGE, the order's `value` there."""

    edge: FrameEdge
    rows: int = 0
    value: Expr | None = None


class Frame(msgspec.Struct, frozen=True):
    """The rows of its partition that a row's call reads: counted (ROWS), or by the value they are ordered by (RANGE)."""

    by_rows: bool
    lower: FrameBound
    upper: FrameBound


class WindowCall(msgspec.Struct, frozen=True):
    """A function OVER a window. Lag and lead: the value, and what stands in where there is no such row. `number`: rows before (lag) or
    after (lead), NTILE's buckets, NTH_VALUE's n. `params` and `order` of an aggregate: as AggCall has them. `filter`: of one in which NULLs
    count; what the FILTER of any other leaves out is NULL in an argument."""

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
        """All that it computes of a row."""
        bounds = (b.value for b in (self.frame.lower, self.frame.upper) if b.value is not None)
        return (*self.args, *(k.expr for k in self.order), *(() if self.filter is None else (self.filter,)), *bounds)


class _Leaf(msgspec.Struct, frozen=True, tag=True):
    """A node that reads no other and computes nothing."""

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return ()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()


class _OverOne(msgspec.Struct, frozen=True, tag=True):
    """A node over one other. Unless it says otherwise it computes nothing and puts out its input's columns."""

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
    """All rows of a relation, `columns` of them, in that order."""

    relation: str  # name in the catalog
    columns: tuple[int, ...]  # indices into the relation's columns
    fields: tuple[Field, ...]


class Values(_Leaf, frozen=True):
    """Constant rows, column by column, each value as a Literal of its type holds it. SELECT without FROM is one row without columns."""

    rows: int
    columns: tuple[tuple[Physical, ...], ...]
    fields: tuple[Field, ...]


class Range(_Leaf, frozen=True):
    """The numbers start, start + step, … before `end`, as one bigint column."""

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
    """Every row once per projection, in which literals stand for what a projection leaves out."""

    projections: tuple[tuple[Expr, ...], ...]
    fields: tuple[Field, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(e for projection in self.projections for e in projection)


class Generate(_OverOne, frozen=True):
    """Every row once per row that `generator` makes of `argument`; output: the input's columns `kept` (None: all), then those made.
    `outer`: a row of which none is made comes out once, with NULLs."""

    generator: Generator
    argument: Expr
    outer: bool
    made: tuple[Field, ...]
    kept: tuple[int, ...] | None = None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.argument,)

    @property
    def passed(self) -> tuple[int, ...]:
        """The columns of the input that come out."""
        return tuple(range(len(self.input.fields))) if self.kept is None else self.kept

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*(self.input.fields[i] for i in self.passed), *self.made)


class Filter(_OverOne, frozen=True):
    """Keeps rows whose condition is true."""

    condition: Expr

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.condition,)


class Comparison(StrEnum):
    """How a row's value compares with a bound, by Catalyst's class names, which are stored."""

    LESS = "LessThan"
    LESS_OR_EQUAL = "LessThanOrEqual"
    GREATER = "GreaterThan"
    GREATER_OR_EQUAL = "GreaterThanOrEqual"

    @property
    def sql(self) -> str:
        """As SQL writes it."""
        return ("<" if self.lets_in else ">") + ("=" if self.takes_equal else "")

    @property
    def lets_in(self) -> bool:
        """Whether rows come as the bound rises; else they go."""
        return self in (Comparison.LESS, Comparison.LESS_OR_EQUAL)

    @property
    def takes_equal(self) -> bool:
        """Whether a row whose value is the bound is there."""
        return self in (Comparison.LESS_OR_EQUAL, Comparison.GREATER_OR_EQUAL)

    @property
    def turned(self) -> "Comparison":
        """The same with its sides changed."""
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
    """Keeps rows whose value compares so with a bound that moves with the epoch's moment.

    `bound` is over one column, the moment (a timestamp), and never NULL; it has the value's type. `forgets`: it never goes back.
    """

    value: Expr
    comparison: Comparison
    bound: Expr
    forgets: bool

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.value,)


class Join(msgspec.Struct, frozen=True, tag=True):
    """Join: left_keys[i] = right_keys[i] (`<=>` where null_safe[i]), both already of one type; `condition` over left columns
    then right columns holds too. Output: left columns, then right columns; the left ones alone where the kind puts out no pairs, of
    existence followed by whether there is a partner. Without keys every row meets every row."""

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
    """A scalar subquery's row: the input's only one, NULLs where it has none; two are an error. One row, always."""


class Union(msgspec.Struct, frozen=True, tag=True):
    """UNION ALL: the rows of all inputs, whose columns have equal types."""

    inputs: tuple["Plan", ...]
    fields: tuple[Field, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()


class Aggregate(_OverOne, frozen=True):
    """Groups by `keys`; output: one column per key, then one per call. Without keys: one row, always. Without calls: DISTINCT."""

    keys: tuple[Expr, ...]
    calls: tuple[AggCall, ...]
    fields: tuple[Field, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.keys, *(e for call in self.calls for e in call.expressions))


class Window(_OverOne, frozen=True):
    """The input's columns, then one per call: each computed over a frame of the rows with equal `partition`, in `order`. Calls that say
    otherwise nothing of ties are computed in the order of the stream key there."""

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
    """The first `limit` rows after `offset` in the given order; without a limit all rows after `offset`. Ties go by the stream key."""

    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(key.expr for key in self.order)


class Sort(_OverOne, frozen=True):
    """All rows, in an order. It stands only where the order reaches the view: at the top of a plan, or below nothing but Project, Filter
    and TemporalFilter."""

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


def is_one_row(plan: Plan) -> bool:
    """Whether a plan has one row whatever its relations hold."""
    match plan:
        case SingleRow() | Aggregate(keys=()) | Values(rows=1):
            return True
        case Project(input):
            return is_one_row(input)
        case Join(left, right, JoinKind.INNER, (), condition=None):
            return is_one_row(left) and is_one_row(right)
        case _:
            return False
