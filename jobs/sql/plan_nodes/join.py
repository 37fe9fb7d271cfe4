"""Join: its kind, the equalities between its sides, and the rest of its condition."""

from py4j.java_gateway import JavaObject

from jobs.sql.expression_tree import columns_of, conjunction, conjuncts, renumbered, without_places
from jobs.sql.logical import Call, Expr, Join, JoinKind
from jobs.sql.plan_nodes.walk import Bound, PlanWalk, binds

_JOINS = {
    "Inner": JoinKind.INNER,
    "Cross": JoinKind.INNER,
    "LeftOuter": JoinKind.LEFT,
    "RightOuter": JoinKind.RIGHT,
    "FullOuter": JoinKind.FULL,
    "LeftSemi": JoinKind.SEMI,
    "LeftAnti": JoinKind.ANTI,
}
_REFUSED_JOINS = {
    "ExistenceJoin": (
        "a subquery within OR, NOT, CASE or the SELECT list",
        "it filters no rows but gives each a value; write the OR as a UNION, or the subquery as a LEFT JOIN",
    ),
    "LeftSingle": (
        "a scalar subquery that may find several rows",
        "that is an error which comes and goes with rows of another relation; aggregate in it, or write it as a LEFT JOIN",
    ),
}
_NO_EQUALITY = ("a join without an equality between its sides", "every row would meet every row; join on a = b")
_NOT_IN_COLUMNS = ("NOT IN over several columns", "one unknown column makes the whole row unknown; write it as NOT EXISTS")


@binds("Join")
def bind_join(walk: PlanWalk, node: JavaObject) -> Bound:
    name = node.joinType().toString()
    if name not in _JOINS:
        raise walk.refuse(node, *_REFUSED_JOINS.get(name.split("(")[0], (f"a {name} join", "it has no executor")))
    kind = _JOINS[name]
    left, right = walk.bind(node.left()), walk.bind(node.right())
    width = len(left.plan.fields)
    condition = node.condition()
    rest: list[Expr] = []
    pairs: list[tuple[Expr, Expr, bool]] = []
    if condition.isDefined():
        scope = {**right.scope(width), **left.scope()}
        for conjunct in conjuncts(walk.expressions.expression(condition.get(), scope)):
            pair = _key_pair(conjunct, width)
            if pair is None:
                rest.append(conjunct)
            else:
                pairs.append(pair)
    if not pairs and kind is JoinKind.ANTI and (unknown := [_not_in_pair(conjunct, width) for conjunct in rest]) and all(unknown):
        if len(unknown) > 1:
            raise walk.refuse(node, *_NOT_IN_COLUMNS)
        kind, rest, pairs = JoinKind.NULL_AWARE_ANTI, [], [pair for pair in unknown if pair is not None]
    if not pairs:
        raise walk.refuse(node, *_NO_EQUALITY)
    to_right = {width + i: i for i in range(len(right.plan.fields))}
    plan = Join(
        left.plan,
        right.plan,
        kind,
        tuple(a for a, _, _ in pairs),
        tuple(renumbered(b, to_right) for _, b, _ in pairs),
        tuple(null_safe for _, _, null_safe in pairs),
        conjunction(rest) if rest else None,
        walk.expressions.place_of(node),
    )
    return Bound(plan, left.ids + right.ids if kind.emits_pairs else left.ids)


def _not_in_pair(conjunct: Expr, width: int) -> tuple[Expr, Expr, bool] | None:
    """The key pair of `a = b OR (a = b) IS NULL`, which is how Catalyst writes NOT IN's question."""
    match conjunct:
        case Call(node="Or", args=(equal, Call(node="IsNull", args=(again,)))) if without_places(equal) == without_places(again):
            pair = _key_pair(equal, width)
            return pair if pair is not None and not pair[2] else None
        case _:
            return None


def _key_pair(conjunct: Expr, width: int) -> tuple[Expr, Expr, bool] | None:
    """(left key, right key, null safe) when the conjunct equates an expression of the left side with one of the right."""
    if not (isinstance(conjunct, Call) and conjunct.node in ("EqualTo", "EqualNullSafe")):
        return None
    a, b = conjunct.args
    sides = [{i < width for i in columns_of(e)} for e in (a, b)]
    null_safe = conjunct.node == "EqualNullSafe"
    if sides == [{True}, {False}]:
        return a, b, null_safe
    if sides == [{False}, {True}]:
        return b, a, null_safe
    return None
