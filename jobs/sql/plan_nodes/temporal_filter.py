"""Comparisons of a row with the epoch's moment (jobs.sql.now): conjuncts of a filter, or of an inner join; they become temporal
filters."""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError

from jobs.sql.logical import Call, Column, Comparison, Expr, Literal, TemporalFilter
from jobs.sql.now import ELSEWHERE
from jobs.sql.plan_nodes.walk import Bound, PlanWalk
from jobs.sql.sandbox import items

_DAY = 86_400_000_000  # microseconds
_UNITS = frozenset({"year", "yyyy", "yy", "quarter", "month", "mon", "mm", "week"})  # of trunc
_UNITS_OF_TIME = _UNITS | {"day", "dd", "hour", "minute", "second", "millisecond", "microsecond"}  # of date_trunc
_NO_ORDER = "the moment is compared by <, <=, =, >= and > alone, with an expression of the row on the other side; "
_BOUND = "this expression of the moment is not kept; add or subtract a constant, truncate it, or make a date or a number of seconds of it"
_ADDED = frozenset({"TimestampAddInterval", "TimestampAddYMInterval", "DateAdd", "DateSub", "AddMonths", "Add", "Subtract"})
_KEPT_TYPES = ("date", "timestamp", "timestamp_ntz", "tinyint", "smallint", "int", "bigint", "string")


def apart(walk: PlanWalk, condition: JavaObject) -> tuple[list[JavaObject], list[JavaObject]]:
    """The parts of a condition (Catalyst's) that hold no moment, and those that do; together they are all its conjuncts."""
    if not _moments(walk, condition):
        return [condition], []
    if condition.productPrefix() != "And":
        return [], [condition]
    sides = [apart(walk, side) for side in (condition.left(), condition.right())]
    return sides[0][0] + sides[1][0], sides[0][1] + sides[1][1]


def with_moment_compared(walk: PlanWalk, below: Bound, conditions: Sequence[JavaObject]) -> Bound:
    """`below` under a temporal filter for each comparison; what lets rows in comes first, so that those behind it keep no row before it
    comes. Raises UnsupportedQueryError for what is no such comparison."""
    filters = [part for condition in conditions for part in _compared(walk, below, condition)]
    plan = below.plan
    for value, comparison, bound in sorted(filters, key=lambda part: not part[1].lets_in):
        plan = TemporalFilter(plan, value, comparison, bound, _never_goes_back(bound, _is_fixed(walk)))
    return Bound(plan, below.ids, below.made)


def _compared(walk: PlanWalk, below: Bound, condition: JavaObject) -> list[tuple[Expr, Comparison, Expr]]:
    """A condition as comparisons of a value of the row with a bound: two of an equality."""
    name = condition.productPrefix()
    if name == "IsNotNull" and condition.references().isEmpty():  # the optimizer's own; the moment always is known
        return []
    if name != "EqualTo" and name not in list(Comparison):
        raise walk.refuse(condition, None, f"{_NO_ORDER}{ELSEWHERE}" if name in _OTHER_COMPARISONS else ELSEWHERE)
    left, right = condition.left(), condition.right()
    turned = bool(_moments(walk, left))
    row, moment = (right, left) if turned else (left, right)
    if _moments(walk, row) or not moment.references().isEmpty():
        raise walk.refuse(condition, None, f"{_NO_ORDER}write it as ts > now() - INTERVAL …, with all that is of the row on one side")
    bound = walk.expressions.tree(moment, {node.exprId().id(): Column(0, "timestamp") for node in _moments(walk, moment)})
    value = walk.expressions.expression(row, below.scope())
    has_kernel = walk.expressions.has_kernel
    if not _is_known(bound) or (has_kernel is not None and not has_kernel(bound)):
        raise walk.refuse(moment, None, _BOUND)
    if value.type not in _KEPT_TYPES:
        raise walk.refuse(row, None, f"rows are not kept in the order of a {value.type}; cast it to a timestamp, a date or a number")
    if name == "EqualTo":
        return [(value, comparison, bound) for comparison in (Comparison.LESS_OR_EQUAL, Comparison.GREATER_OR_EQUAL)]
    comparison = Comparison(name)
    return [(value, comparison.turned if turned else comparison, bound)]


_OTHER_COMPARISONS = frozenset({"EqualNullSafe", "Not", "In", "InSet"})


def _moments(walk: PlanWalk, node: JavaObject) -> list[JavaObject]:
    """The scalar subqueries in an expression that stand for the moment, not those within subqueries."""
    sandbox = walk.expressions.sandbox
    if not sandbox.knows_moment or not node.containsPattern(sandbox.scalar_subquery):
        return []
    if sandbox.is_moment(node):
        return [node]
    return [found for child in items(node.children()) for found in _moments(walk, child)]


def _is_known(bound: Expr) -> bool:
    """Whether an expression of the moment is one that is never NULL, and that raises at no moment of this era."""
    match bound:
        case Column():
            return True
        case Call(node, _, (of, by)) if node in _ADDED:
            return _is_known(of) and _is_number(by)
        case Call("TimestampAdd", _, (by, of)):
            return _is_known(of) and _is_number(by)
        case Call("TruncTimestamp", _, (Literal(str(unit)), of)):
            return _is_known(of) and unit.lower() in _UNITS_OF_TIME
        case Call("TruncDate", _, (of, Literal(str(unit)))):
            return _is_known(of) and unit.lower() in _UNITS
        case Call("DateFormatClass", _, (of, Literal(str()))):
            return _is_known(of)
        case Call("Cast" | "LastDay" | "UnixMicros" | "UnixMillis" | "UnixSeconds" | "UnixDate" | "Year", _, (of,)):
            return _is_known(of)
        case _:
            return False


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, int)


def _never_goes_back(bound: Expr, fixed: bool) -> bool:
    """Whether the bound only rises while the moment does. `fixed`: local time does, where clocks are never set back."""
    match bound:
        case Column():
            return True
        case Call("TimestampAddInterval", "timestamp", (of, Literal(int(by)))):
            return _never_goes_back(of, fixed) and (fixed or abs(by) < _DAY)
        case Call("UnixMicros" | "UnixMillis" | "UnixSeconds", _, (of,)):
            return _never_goes_back(of, fixed)
        case Call("Add" | "Subtract", "int" | "bigint", (of, Literal())):
            return _never_goes_back(of, fixed)
        case Call("Cast", "date" | "timestamp" | "timestamp_ntz" | "bigint", (of,)):
            return _never_goes_back(of, fixed) and (fixed or bound.type == "bigint")
        case Call("TruncTimestamp", _, (_, of)) | Call("TruncDate" | "DateAdd" | "DateSub" | "AddMonths", _, (of, _)):
            return fixed and _never_goes_back(of, fixed)
        case Call("LastDay" | "UnixDate" | "Year", _, (of,)):
            return fixed and _never_goes_back(of, fixed)
        case _:
            return False


def _is_fixed(walk: PlanWalk) -> bool:
    """Whether the pipeline's time zone is at the same distance from UTC always."""
    sandbox = walk.expressions.sandbox
    try:
        zone = sandbox.jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(sandbox.time_zone)
    except Py4JJavaError:
        return False
    return bool(zone.getRules().isFixedOffset())
