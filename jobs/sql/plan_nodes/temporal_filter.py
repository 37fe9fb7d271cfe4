"""Comparisons of a row with the epoch's moment (tussock.jobs.sql.now), which become temporal filters.

They are conjuncts of a filter or of an inner join.
"""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.expression_tree import join_by_and, join_by_or, needs_spark
from tussock.jobs.logical.nodes import Call, Column, Comparison, Expr, Literal, TemporalFilter
from tussock.jobs.settings.zone_errors import UnknownZoneError
from tussock.jobs.spark.zones import zone_in_jvm
from tussock.jobs.sql.now import ELSEWHERE
from tussock.jobs.sql.plan_nodes.moment_alone import count_in_unit, difference_of, length_of, moved_over
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk
from tussock.jobs.sql.sandbox import items
from tussock.statestore.zones import name_of

_DAY = 86_400_000_000  # microseconds
_UNITS = frozenset({"year", "yyyy", "yy", "quarter", "month", "mon", "mm", "week"})  # of trunc
_UNITS_OF_TIME = _UNITS | {"day", "dd", "hour", "minute", "second", "millisecond", "microsecond"}  # of date_trunc
_NO_ORDER = "the moment can be compared only by <, <=, =, >= and >, with an expression of the row on the other side; "
_BOUND = (
    "this expression of the moment is not supported; add or subtract a constant, truncate it, or convert it to a "
    "date or seconds"
)
_ADDED = frozenset(
    {"TimestampAddInterval", "TimestampAddYMInterval", "DateAdd", "DateSub", "AddMonths", "Add", "Subtract"}
)
_ALONE = "write it as ts > now() - INTERVAL …, with everything about the row on one side"
_KEPT_TYPES = ("date", "timestamp", "timestamp_ntz", "tinyint", "smallint", "int", "bigint", "string")

#: Per type, a value below and a value above every bound that a moment can have: years 1 and 9999.
_ENDS: dict[str, tuple[int, int]] = {
    "date": (-719_162, 2_932_896),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), (-62_135_596_800_000_000, 253_402_300_799_999_999)),
    **{
        name: (-(1 << bits), (1 << bits) - 1)
        for name, bits in (("tinyint", 7), ("smallint", 15), ("int", 31), ("bigint", 63))
    },
}
#: An expression of the row, a comparison, and the bound.
_Part = tuple[Expr, Comparison, Expr]


def split_by_moment(walk: PlanWalk, condition: JavaObject) -> tuple[list[JavaObject], list[JavaObject]]:
    """The conjuncts of a condition (Catalyst's) without the moment, and those with it."""
    if not _moment_subqueries(walk, condition):
        return [condition], []
    if condition.productPrefix() != "And":
        return [], [condition]
    sides = [split_by_moment(walk, side) for side in (condition.left(), condition.right())]
    return sides[0][0] + sides[1][0], sides[0][1] + sides[1][1]


def with_moment_compared(walk: PlanWalk, below: BoundNode, conditions: Sequence[JavaObject]) -> BoundNode:
    """`below` with a temporal filter for each comparison. Raises UnsupportedQueryError for other conditions.

    Comparisons that let rows in come first, so that the filters after them store no row before it appears.
    """
    filters = [part for condition in conditions for part in _comparisons_of(walk, below, condition)]
    plan = below.plan
    for value, comparison, bound in sorted(filters, key=lambda part: not part[1].lets_in):
        plan = TemporalFilter(plan, value, comparison, bound, _never_goes_back(bound, _is_fixed(walk)))
    return BoundNode(plan, below.ids, below.made)


def _comparisons_of(walk: PlanWalk, below: BoundNode, condition: JavaObject) -> list[_Part]:
    """A condition as comparisons of a value of the row with a bound. An equality becomes two."""
    name = condition.productPrefix()
    if name == "IsNotNull" and condition.references().isEmpty():  # added by the optimizer; the moment is never NULL
        return []
    if name == "Or":
        return _with_others(walk, below, condition)
    if name != "EqualTo" and name not in list(Comparison):
        raise walk.refusal_of(condition, None, f"{_NO_ORDER}{ELSEWHERE}" if name in _OTHER_COMPARISONS else ELSEWHERE)
    if name == "EqualTo":
        both = (Comparison.LESS_OR_EQUAL, Comparison.GREATER_OR_EQUAL)
        return [_of_comparison(walk, below, condition, comparison) for comparison in both]
    return [_of_comparison(walk, below, condition, Comparison(name))]


def _of_comparison(walk: PlanWalk, below: BoundNode, condition: JavaObject, comparison: Comparison) -> _Part:
    """`left comparison right`, if one of them contains the moment."""
    left, right = condition.left(), condition.right()
    if _moment_subqueries(walk, left):  # move it to the right
        left, right, comparison = right, left, comparison.mirrored_comparison
    if _moment_subqueries(walk, left):
        raise walk.refusal_of(condition, None, f"{_NO_ORDER}{_ALONE}")
    if not right.references().isEmpty():
        return _of_difference(walk, below, condition, right, left, comparison.mirrored_comparison)
    bound = _bind_moment(walk, right)
    value = walk.expressions.expression(left, below.scope())
    _check_bound(walk, right, bound)
    if value.type not in _KEPT_TYPES:
        raise walk.refusal_of(
            left, None, f"rows cannot be ordered by a {value.type}; cast it to a timestamp, a date or a number"
        )
    return value, comparison, bound


def _of_difference(
    walk: PlanWalk, below: BoundNode, condition: JavaObject, node: JavaObject, other: JavaObject, comparison: Comparison
) -> _Part:
    """`node comparison other`, if `node` is a difference between the moment and the row, and `other` has no moment."""
    difference, zone = difference_of(node), walk.expressions.sandbox.time_zone
    refusal = walk.refusal_of(condition, None, f"{_NO_ORDER}{_ALONE}")
    if difference is None:
        raise refusal
    of_moment = [bool(_moment_subqueries(walk, end)) for end in (difference.minuend, difference.subtrahend)]
    moment, end = (
        (difference.minuend, difference.subtrahend) if of_moment[0] else (difference.subtrahend, difference.minuend)
    )
    if all(of_moment) or not moment.references().isEmpty():
        raise refusal
    length = length_of(walk.expressions.expression(other, below.scope()), comparison, difference.unit)
    if length is None:
        raise refusal
    comparison, by = length
    of_row = _bind_moment(walk, moment), walk.expressions.expression(end, below.scope())
    bound, value = (count_in_unit(node, of, zone) for of in of_row)
    _check_bound(walk, moment, bound)
    # moment - row < by: row + by > moment;  row - moment < by: row - by < moment
    return (
        moved_over(value, by, adds=of_moment[0]),
        comparison.mirrored_comparison if of_moment[0] else comparison,
        bound,
    )


def _with_others(walk: PlanWalk, below: BoundNode, condition: JavaObject) -> list[_Part]:
    """`others OR (own AND comparison AND …)`: rows that satisfy others get a value that passes at every moment."""
    disjuncts = _split_disjuncts(condition)
    temporal = [d for d in disjuncts if _moment_subqueries(walk, d)]
    if len(temporal) > 1:
        raise walk.refusal_of(condition, None, f"under OR only one side may contain the moment; {ELSEWHERE}")
    scope = below.scope()
    others = [walk.expressions.expression(d, scope) for d in disjuncts if not _moment_subqueries(walk, d)]
    plain, compared = split_by_moment(walk, temporal[0])
    own = [walk.expressions.expression(c, scope) for c in plain]
    parts: list[_Part] = []
    for value, comparison, bound in (part for c in compared for part in _comparisons_of(walk, below, c)):
        if value.type not in _ENDS:
            raise walk.refusal_of(
                condition, None, f"under OR a {value.type} cannot be compared with the moment; {ELSEWHERE}"
            )
        passes = Literal(_ENDS[value.type][0 if comparison.lets_in else 1], value.type)
        chosen: Expr = Call("If", value.type, (join_by_and(own), value, Literal(None, value.type))) if own else value
        chosen = Call("If", value.type, (join_by_or(others), passes, chosen))
        if needs_spark(chosen):
            raise walk.refusal_of(
                condition, None, "it has no kernel; compute the part that depends only on the row in a subquery"
            )
        parts.append((chosen, comparison, bound))
    if not parts:
        raise walk.refusal_of(condition, None, ELSEWHERE)
    return parts


def _split_disjuncts(condition: JavaObject) -> list[JavaObject]:
    if condition.productPrefix() != "Or":
        return [condition]
    return [*_split_disjuncts(condition.left()), *_split_disjuncts(condition.right())]


def _bind_moment(walk: PlanWalk, moment: JavaObject) -> Expr:
    """An expression of the moment, over one column."""
    return walk.expressions.bind_tree(
        moment, {node.exprId().id(): Column(0, "timestamp") for node in _moment_subqueries(walk, moment)}
    )


def _check_bound(walk: PlanWalk, moment: JavaObject, bound: Expr) -> None:
    has_kernel = walk.expressions.has_kernel
    if not _is_known(bound) or (has_kernel is not None and not has_kernel(bound)):
        raise walk.refusal_of(moment, None, _BOUND)


_OTHER_COMPARISONS = frozenset({"EqualNullSafe", "Not", "In", "InSet"})


def _moment_subqueries(walk: PlanWalk, node: JavaObject) -> list[JavaObject]:
    """The scalar subqueries of an expression that represent the moment, without nested ones."""
    sandbox = walk.expressions.sandbox
    if not sandbox.knows_moment or not node.containsPattern(sandbox.tree_pattern("SCALAR_SUBQUERY")):
        return []
    if sandbox.is_moment(node):
        return [node]
    return [subquery for child in items(node.children()) for subquery in _moment_subqueries(walk, child)]


def _is_known(bound: Expr) -> bool:
    """Whether an expression of the moment is never NULL, and raises no error at any moment of this era."""
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
        case Call("UnixTimestamp", _, (of, Literal(str()))):
            return _is_known(of)
        case Call("Cast" | "LastDay" | "UnixMicros" | "UnixMillis" | "UnixSeconds" | "UnixDate" | "Year", _, (of,)):
            return _is_known(of)
        case _:
            return False


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, int)


def _never_goes_back(bound: Expr, fixed: bool) -> bool:
    """Whether the bound only rises while the moment rises.

    `fixed`: local time does too, because clocks are never set back.
    """
    match bound:
        case Column():
            return True
        case Call("TimestampAddInterval", "timestamp", (of, Literal(int(by)))):
            return _never_goes_back(of, fixed) and (fixed or abs(by) < _DAY)
        case Call("UnixMicros" | "UnixMillis" | "UnixSeconds", _, (of,)):
            return _never_goes_back(of, fixed)
        case Call("UnixTimestamp", _, (of, _)):
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
    """Whether the pipeline's time zone has a fixed offset from UTC."""
    sandbox = walk.expressions.sandbox
    try:
        zone = zone_in_jvm(sandbox.jvm, name_of(sandbox.time_zone))
    except UnknownZoneError:
        return False
    return bool(zone.getRules().isFixedOffset())
