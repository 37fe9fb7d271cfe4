"""Catalyst's aggregate functions, split into arguments, constants and order.

Catalyst's optimizer rewrites many of them (`python -m tussock.jobs.sql.show --help` shows the plan of any query):

    bool_and, every          Min                    bool_or, some, any       Max
    count_if(c)              Count(if not c null)   regr_count(y, x)         Count of rows in which none is NULL
    any_value, first_value   First                  array_agg                CollectList
    std, stddev, variance    StddevSamp, …Samp      regr_avgx, regr_avgy     Average(if both are not NULL)
    median, percentile_cont  Percentile             regr_sxx, regr_syy       RegrReplacement(if both are not NULL)

A query with several DISTINCT (or one with a FILTER) is also rewritten. Each row is expanded into one copy per DISTINCT
(numbered by `gid`) and one copy for the plain aggregates, which are computed first. The outer aggregation then has
`first(x, true) FILTER (WHERE gid = 0)` for their only value; it is called `Only` here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from py4j.java_gateway import JavaObject, JVMView

from tussock.jobs.sql.sandbox import items

Params = tuple[tuple[str, str], ...]

_BY_CHANCE = "Spark's answer depends on the order in which it reads the rows"
_SKETCH = "a sketch cannot remove values; use approx_count_distinct, count(DISTINCT …) or percentile"
_SKETCHES = (
    *("CountMinSketchAgg", "HllSketchAgg", "HllUnionAgg", "ThetaSketchAgg", "ThetaUnionAgg", "ThetaIntersectionAgg"),
    *("ApproxTopKAccumulate", "ApproxTopKCombine"),
    *(f"Kll{does}Agg{kind}" for does in ("Sketch", "Merge") for kind in ("Bigint", "Double", "Float")),
    *(f"Tuple{does}Agg{kind}" for does in ("Sketch", "Union", "Intersection") for kind in ("Double", "Integer")),
)
#: Functions that are rejected, with the reason.
REFUSED = {
    **dict.fromkeys(_SKETCHES, _SKETCH),
    "HistogramNumeric": f"{_BY_CHANCE}; group by a bin of the value",
    "ApproxTopK": f"{_BY_CHANCE}; count by value, ORDER BY that and LIMIT",
    "Measure": "it reads a measure of a metric view, and pipelines have none; write the aggregate",
    "SchemaOfVariantAgg": "only Spark merges schemas, and cannot shrink them; use collect_set(schema_of_variant(…))",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a function.

    `args` are expressions, `order` SortOrders, `params` constants as text, `name` an AggFunction's.
    """

    name: str
    args: Sequence[JavaObject]
    params: Params = ()
    order: Sequence[JavaObject] = ()


def parts_of(node: JavaObject, jvm: JVMView) -> Parts:
    """Split the function of an AggregateExpression into its parts."""
    function = node.aggregateFunction()
    name = function.productPrefix()
    if name == "HyperLogLogPlusPlus":
        return _parts_of_sketch(name, function, jvm)
    if name == "ApproximatePercentile":
        return _approximate_percentile(function)
    if name == "ListAgg":
        return _parts_of_listagg(name, function, node.isDistinct())
    read = _READERS.get(name)
    if read is None:
        return Parts(name, list(items(function.children())))
    if name == "First" and _is_the_only_one(node):
        return Parts("Only", [function.child()])
    return read(name, function)


def _is_the_only_one(node: JavaObject) -> bool:
    """Whether this is the optimizer's `first(x, true) FILTER (WHERE gid = 0)`. No relation qualifies its column."""
    condition = node.filter()
    if (
        not node.aggregateFunction().ignoreNulls()
        or not condition.isDefined()
        or condition.get().productPrefix() != "EqualTo"
    ):
        return False
    column = condition.get().left()
    return bool(
        column.productPrefix() == "AttributeReference" and column.name() == "gid" and column.qualifier().isEmpty()
    )


def _parts_of_first(name: str, function: JavaObject) -> Parts:
    # Before RESPECT NULLS came to collect_list and collect_set, they had no such field and ignored nulls.
    has_choice = "ignoreNulls" in items(function.productElementNames().toSeq())
    return Parts(name, [function.child()], (("ignoreNulls", _boolean_text(not has_choice or function.ignoreNulls())),))


def _first_by(name: str, function: JavaObject) -> Parts:
    """max_by(x, y, k) and min_by(x, y, k)."""
    return Parts(
        "MinBy" if function.reverse() else "MaxBy",
        [function.valueExpr(), function.orderingExpr()],
        (("k", str(function.k())),),
    )


def _parts_of_mode(name: str, function: JavaObject) -> Parts:
    """mode(x).

    Among equally frequent values, Spark picks by its reversed order (`true`: the least), or leaves the choice open.
    """
    reverse = function.reverseOpt()
    return Parts(
        name, [function.child()], (("prefer", "least" if reverse.get() else "greatest"),) if reverse.isDefined() else ()
    )


def _parts_of_percentile(name: str, function: JavaObject) -> Parts:
    args = [function.child()]
    if name == "Percentile":
        frequency = function.frequencyExpression()
        args += [] if frequency.productPrefix() == "Literal" and frequency.value() == 1 else [frequency]
    value = function.percentageExpression().eval(None)
    percentages = [value] if isinstance(value, float) else list(value.toDoubleArray())
    params = (("percentages", ",".join(map(repr, percentages))), ("reverse", _boolean_text(function.reverse())))
    return Parts(name, args, params)


def _approximate_percentile(function: JavaObject) -> Parts:
    """approx_percentile as the exact percentile, which is within every error that Spark allows.

    With up to ACCURACY rows it equals Spark's own answer, up to the order of rows within a group.
    """
    error = 1.0 / function.accuracyExpression().eval(None)
    value = function.percentageExpression().eval(None)
    shares = [value] if isinstance(value, float) else list(value.toDoubleArray())
    ends = [0.0 if share <= error else 1.0 if share >= 1.0 - error else share for share in shares]
    return Parts(
        "PercentileDisc",
        [function.child()],
        (("percentages", ",".join(map(repr, ends))), ("reverse", "false"), ("exact", "")),
    )


def _parts_of_sketch(name: str, function: JavaObject, jvm: JVMView) -> Parts:
    """approx_count_distinct: the number of hash bits that choose a register, and Spark's correction tables.

    The view stores the tables, so that another Spark release does not change it.
    """
    precision = math.ceil(2.0 * math.log(1.106 / function.relativeSD()) / math.log(2.0))
    helper = getattr(jvm, "org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper")
    params = [("precision", str(precision)), ("threshold", repr(float(list(helper.THRESHOLDS())[precision - 4])))]
    for label, table in (("estimates", helper.RAW_ESTIMATE_DATA()), ("biases", helper.BIAS_DATA())):
        params.append((label, ",".join(repr(float(value)) for value in table[precision - 4])))
    return Parts(name, [function.child()], tuple(params))


def _parts_of_listagg(name: str, function: JavaObject, distinct: bool) -> Parts:
    """listagg.

    Distinct values are sorted by value, or by the second argument, which is their value before the cast to text.
    """
    order = list(items(function.orderExpressions()))
    args = [function.child()]
    if distinct and order and not order[0].child().semanticEquals(function.child()):
        args.append(order[0].child())
    delimiter = function.delimiter().eval(None)
    if delimiter is None:
        text = ""
    elif isinstance(delimiter, bytes | bytearray):
        text = bytes(delimiter).hex()
    else:
        text = delimiter.toString()
    return Parts(name, args, (("delimiter", text),), order)


def _boolean_text(value: bool) -> str:
    return str(value).lower()


_READERS: dict[str, Callable[[str, JavaObject], Parts]] = {
    "First": _parts_of_first,
    "Last": _parts_of_first,
    "CollectList": _parts_of_first,
    "CollectSet": _parts_of_first,
    "MaxMinByK": _first_by,
    "Mode": _parts_of_mode,
    "Percentile": _parts_of_percentile,
    "PercentileDisc": _parts_of_percentile,
}
