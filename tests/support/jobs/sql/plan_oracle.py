"""Runs a logical plan with Spark's DataFrame API, node by node, to show that the plan still means its query.

Columns are referred to by position only.
"""

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tussock.jobs.logical.nodes import (
    AggCall,
    Aggregate,
    Call,
    Column,
    Expand,
    Expr,
    Filter,
    FrameEdge,
    Generate,
    Generator,
    Join,
    JoinKind,
    Literal,
    Plan,
    Project,
    Range,
    Scan,
    SingleRow,
    TemporalFilter,
    TopN,
    Union,
    Values,
    Window,
    WindowCall,
    WindowFunction,
)

ORDERS = "id BIGINT, shop INT, item STRING, amount DECIMAL(10,2), price DOUBLE, at TIMESTAMP, day DATE"
SHOPS = "id INT, name STRING, city STRING"
CITIES = "name STRING, country STRING, people INT"
ACCOUNTS = "id BIGINT, owner STRING, balance DECIMAL(10,2), opened TIMESTAMP, rate DOUBLE"
_NOON = datetime(2020, 1, 2, 12)
ROWS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "orders": (
        ORDERS,
        [
            (1, 1, "apple", Decimal("1.50"), 1.5, _NOON, date(2020, 1, 2)),
            (2, 1, "pear", Decimal("2.25"), 2.5, _NOON, date(2020, 1, 2)),
            (3, 2, "apple", None, 0.5, _NOON, date(2020, 2, 29)),
            (4, 2, None, Decimal("10.00"), None, None, None),
            (5, None, "fig", Decimal("-3.00"), -1.0, _NOON, date(2021, 1, 1)),
            (6, 3, "apple", Decimal("7.00"), 4.0, _NOON, date(2020, 1, 2)),
            (7, 9, "apple", Decimal("7.00"), 4.0, _NOON, date(2020, 1, 2)),
        ],
    ),
    "shops": (SHOPS, [(1, "north", "Oslo"), (2, "south", "Rome"), (3, None, "Oslo"), (None, "lost", None)]),
    "cities": (CITIES, [("Oslo", "NO", 700_000), ("Rome", "IT", 2_800_000), (None, "??", None)]),
    "accounts": (
        ACCOUNTS,
        [
            (1, "ann", Decimal("5.00"), _NOON, 0.1),
            (2, None, Decimal("-5.00"), None, None),
            (3, "ann", None, _NOON, 0.3),
        ],
    ),
}
_OPERATORS = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "And": "AND",
    "Or": "OR",
}
_FUNCTIONS = {
    "Coalesce": "coalesce",
    "Upper": "upper",
    "Length": "length",
    "StartsWith": "startswith",
    "Year": "year",
    "Substring": "substring",
    "UnixDate": "unix_date",
    "UnixMicros": "unix_micros",
    "UnixSeconds": "unix_seconds",
    "MicrosToTimestamp": "timestamp_micros",
    "CreateNamedStruct": "named_struct",
}


def answer_of_query(spark: SparkSession, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and sorted rows of a SELECT over ROWS, computed by Spark."""
    for name in ROWS:
        _frame(spark, name).createOrReplaceTempView(name)
    frame = spark.sql(sql)
    return frame.columns, _rows(frame)


def answer_of_plan(spark: SparkSession, plan: Plan) -> list[tuple[Any, ...]]:
    """Sorted rows of the plan over ROWS."""
    return _rows(_run(spark, plan))


def _frame(spark: SparkSession, name: str) -> DataFrame:
    schema, rows = ROWS[name]
    return spark.createDataFrame(rows, schema)


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows = [
        tuple(round(v, 9) if isinstance(v, float) and math.isfinite(v) else v for v in row) for row in frame.collect()
    ]
    return sorted(rows, key=repr)


def _run(spark: SparkSession, plan: Plan) -> DataFrame:
    """The plan's rows; column i is named c{i}."""
    match plan:
        case Scan():
            frame = _frame(spark, plan.relation)
            return _named(frame.select(*(frame[frame.columns[i]] for i in plan.columns)))
        case Values():
            return _values(spark, plan)
        case Range():
            return _named(spark.range(plan.start, plan.end, plan.step))
        case Project():
            return _named(_run(spark, plan.input).select(*(_column(e) for e in plan.exprs)))
        case Expand():
            below = _run(spark, plan.input)
            return _named(
                reduce(DataFrame.union, (_named(below.select(*(_column(e) for e in p))) for p in plan.projections))
            )
        case Generate():
            return _generated(_run(spark, plan.input), plan)
        case Filter():
            return _run(spark, plan.input).where(_column(plan.condition))
        case TemporalFilter():
            moment = re.sub(r"\bc0\b", "current_timestamp()", _text(plan.bound))
            return _run(spark, plan.input).where(f"{_text(plan.value)} {plan.comparison.sql} {moment}")
        case Join():
            left, right = _run(spark, plan.left), _run(spark, plan.right)
            width = len(left.columns)
            right = right.toDF(*(f"c{width + i}" for i in range(len(right.columns))))
            on = [
                f"({_text(a)}) {'<=>' if safe else '='} ({_text(b, width)})"
                for a, b, safe in zip(plan.left_keys, plan.right_keys, plan.null_safe, strict=True)
            ]
            on += [] if plan.condition is None else [_text(plan.condition)]
            if plan.kind is JoinKind.NULL_AWARE_ANTI:
                on = [f"(({on[0]}) OR ({on[0]}) IS NULL)"]
            where = F.expr(" AND ".join(f"({c})" for c in on) or "true")
            if plan.kind is JoinKind.EXISTENCE:
                parts = (
                    left.join(right, where, how).withColumn(f"c{width}", F.lit(how == "semi"))
                    for how in ("semi", "anti")
                )
                return reduce(DataFrame.union, parts)
            how = {JoinKind.NULL_AWARE_ANTI: "anti", JoinKind.SINGLE: "left"}.get(plan.kind, str(plan.kind))
            return left.join(right, where, how)
        case SingleRow():
            below = _run(spark, plan.input)
            assert below.count() <= 1
            return spark.range(1).join(below, F.lit(True), "left").drop("id")
        case Union():
            return _named(reduce(DataFrame.union, (_run(spark, below) for below in plan.inputs)))
        case Aggregate():
            below = _run(spark, plan.input)
            keys = [_column(k) for k in plan.keys]
            if not plan.calls:
                return _named(below.select(*keys).distinct())
            return _named(below.groupBy(*keys).agg(*(F.expr(_call(c)) for c in plan.calls)))
        case TopN():
            order = [
                getattr(
                    _column(k.expr), f"{'desc' if k.descending else 'asc'}_nulls_{'last' if k.nulls_last else 'first'}"
                )()
                for k in plan.order
            ]
            after = _run(spark, plan.input).orderBy(*order).offset(plan.offset)
            return after if plan.limit is None else after.limit(plan.limit)
        case Window():
            below = _run(spark, plan.input)
            if plan.calls[0].function is WindowFunction.SESSION:
                return _sessions(below, plan)
            return _named(below.select("*", *(F.expr(_over(c, plan)) for c in plan.calls)))


def _sessions(below: DataFrame, plan: Window) -> DataFrame:
    """A session begins after all that began before it."""
    (call,) = plan.calls
    start, end = (_text(a) for a in call.args)
    keys = ", ".join(_text(e) for e in plan.partition) or "true"
    over = f"OVER (PARTITION BY {keys} ORDER BY {start} ROWS BETWEEN UNBOUNDED PRECEDING AND"
    until = below.withColumn("until", F.expr(f"max({end}) {over} 1 PRECEDING)"))
    begun = until.withColumn("own", F.expr(f"IF({start} <= until, NULL, {start})"))
    return _named(begun.withColumn("session", F.expr(f"max(own) {over} CURRENT ROW)")).drop("until", "own"))


def _over(call: WindowCall, plan: Window) -> str:
    order = [
        f"{_text(k.expr)} {'DESC' if k.descending else 'ASC'} NULLS {'LAST' if k.nulls_last else 'FIRST'}"
        for k in plan.order
    ]
    window = f"PARTITION BY {', '.join(_text(e) for e in plan.partition) or 'true'}" + (
        f" ORDER BY {', '.join(order)}" if order else ""
    )
    if call.function.shifts_rows:
        args = [_text(call.args[0]), str(call.number), *(_text(a) for a in call.args[1:])]
        return f"{call.function.sql}({', '.join(args)}) OVER ({window})"
    if not call.function.numbers_rows:
        window += f" {'ROWS' if call.frame.by_rows else 'RANGE'} BETWEEN {_edge(call, False)} AND {_edge(call, True)}"
    args = [_text(a) for a in call.args] or (["*"] if call.function.sql == "count" else [])
    return f"{call.function.sql}({', '.join(args)}) OVER ({window})"


def _edge(call: WindowCall, upper: bool) -> str:
    bound = call.frame.upper if upper else call.frame.lower
    if bound.edge is FrameEdge.UNBOUNDED:
        return f"UNBOUNDED {'FOLLOWING' if upper else 'PRECEDING'}"
    if bound.edge is FrameEdge.CURRENT:
        return "CURRENT ROW"
    if bound.value is None:
        return f"{abs(bound.rows)} {'FOLLOWING' if bound.rows > 0 else 'PRECEDING'}"
    assert isinstance(bound.value, Call)  # the order's value and an offset; the case's order is descending
    return f"{_text(bound.value.args[1])} PRECEDING"


def _generated(below: DataFrame, plan: Generate) -> DataFrame:
    argument = _text(plan.argument)
    if plan.generator is Generator.REPLICATE:
        return _named(below.withColumn("n", F.expr(f"explode(array_repeat(0, cast({argument} AS int)))")).drop("n"))
    kept = [below.columns[i] for i in plan.passed_columns]
    made = f"{plan.generator}{'_outer' if plan.outer else ''}({argument})"
    return _named(below.select(*kept, F.expr(made)))


def _values(spark: SparkSession, plan: Values) -> DataFrame:
    if not plan.fields:
        return spark.range(plan.rows).select()
    rows = [[Literal(c[i], f.type) for c, f in zip(plan.columns, plan.fields, strict=True)] for i in range(plan.rows)]
    selects = [f"SELECT {', '.join(f'{_literal(v)} AS c{i}' for i, v in enumerate(row))}" for row in rows]
    empty = f"SELECT {', '.join(f'NULL AS c{i}' for i in range(len(plan.fields)))} WHERE false"
    return spark.sql(" UNION ALL ".join(selects or [empty]))


def _named(frame: DataFrame) -> DataFrame:
    return frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))


def _column(expr: Expr) -> SparkColumn:
    return F.expr(_text(expr))


def _call(call: AggCall) -> str:
    where = "" if call.filter is None else f" FILTER (WHERE {_text(call.filter)})"
    params = dict(call.params)
    constants = (
        [params["percentages"]]
        if "percentages" in params
        else [repr(params["delimiter"])]
        if "delimiter" in params
        else []
    )
    order = ", ".join(f"{_text(k.expr)} {'DESC' if k.descending else 'ASC'}" for k in call.order)
    within = f" WITHIN GROUP (ORDER BY {order})" if order else ""
    args = ", ".join([*(_text(a) for a in call.args), *constants]) or "*"
    return f"{call.function.sql}({'DISTINCT ' if call.distinct else ''}{args}){within}{where}"


def _text(expr: Expr, shift: int = 0) -> str:
    """The expression as SQL over columns c{shift + index}, for the nodes in case files."""
    if isinstance(expr, Column):
        return f"c{expr.index + shift}"
    if isinstance(expr, Literal):
        return _literal(expr)
    assert isinstance(expr, Call)
    args: Sequence[str] = [_text(a, shift) for a in expr.args]
    if expr.node == "Cast":
        return f"{'try_cast' if expr.mode == 'TRY' else 'cast'}({args[0]} AS {expr.type})"
    if expr.node in _OPERATORS:
        return f"({args[0]} {_OPERATORS[expr.node]} {args[1]})"
    if expr.node in _FUNCTIONS:
        return f"{_FUNCTIONS[expr.node]}({', '.join(args)})"
    if expr.node == "CaseWhen":
        otherwise = f" ELSE {args[-1]}" if len(args) % 2 else ""
        return (
            "CASE"
            + "".join(f" WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2))
            + otherwise
            + " END"
        )
    return {
        "Not": lambda: f"(NOT {args[0]})",
        "IsNotNull": lambda: f"({args[0]} IS NOT NULL)",
        "If": lambda: f"if({', '.join(args)})",
        "IsNull": lambda: f"({args[0]} IS NULL)",
        "In": lambda: f"({args[0]} IN ({', '.join(args[1:])}))",
        "GetStructField": lambda: f"{args[0]}.{('start', 'end')[int(dict(expr.params)['ordinal'])]}",
        "TimestampAddInterval": lambda: f"({args[0]} + {args[1]})",
        "DateSub": lambda: f"date_sub({args[0]}, {args[1]})",
        "TruncTimestamp": lambda: f"date_trunc({args[0]}, {args[1]})",
    }[expr.node]()


def _literal(literal: Literal) -> str:
    if literal.value is None:
        return f"CAST(NULL AS {literal.type})"
    if literal.type == "timestamp":
        return f"timestamp_micros({literal.value})"
    if literal.type.startswith("interval") and "month" not in literal.type:
        assert isinstance(literal.value, int)
        return f"make_dt_interval(0, 0, 0, {literal.value / 1_000_000})"
    if literal.type == "date":
        return f"date_from_unix_date({literal.value})"
    return f"CAST('{literal.value}' AS {literal.type})"
