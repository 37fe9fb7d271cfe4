"""Join: its kind, the equalities between its sides, and the rest of its condition."""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject

from jobs.sql.expression_tree import columns_of, conjunction, conjuncts, renumbered, without_places
from jobs.sql.logical import Call, Column, Expr, Join, JoinKind, Place, Project
from jobs.sql.plan_nodes.subquery import with_subqueries
from jobs.sql.plan_nodes.walk import Bound, PlanWalk, binds

_JOINS = {
    "Inner": JoinKind.INNER,
    "Cross": JoinKind.INNER,
    "LeftOuter": JoinKind.LEFT,
    "RightOuter": JoinKind.RIGHT,
    "FullOuter": JoinKind.FULL,
    "LeftSemi": JoinKind.SEMI,
    "LeftAnti": JoinKind.ANTI,
    "ExistenceJoin": JoinKind.EXISTENCE,
    "LeftSingle": JoinKind.SINGLE,
}


@binds("Join")
def bind_join(walk: PlanWalk, node: JavaObject) -> Bound:
    name = node.joinType().toString().split("(")[0]
    if name not in _JOINS:
        raise walk.refuse(node, f"a {name} join", "it has no executor")
    kind = _JOINS[name]
    left, right = walk.bind(node.left()), walk.bind(node.right())
    own, conditions = left, list[Expr]()
    if node.condition().isDefined():
        left = with_subqueries(walk, left, [node.condition().get()])
        scope = {**right.scope(len(left.plan.fields)), **left.scope()}
        conditions = conjuncts(walk.expressions.expression(node.condition().get(), scope))
    found = joined(left, right, kind, conditions, walk.expressions.place_of(node))
    if kind is JoinKind.EXISTENCE:
        found = Bound(found.plan, (*found.ids, node.joinType().exists().exprId().id()))
    return found if own is left else _without(found, own, left)


def joined(left: Bound, right: Bound, kind: JoinKind, conditions: Sequence[Expr], place: Place | None) -> Bound:
    """The join of two plans by all conditions (over left columns, then right ones); equalities between the sides are its keys."""
    width = len(left.plan.fields)
    rest: list[Expr] = []
    pairs: list[tuple[Expr, Expr, bool]] = []
    for conjunct in conditions:
        pair = _key_pair(conjunct, width)
        if pair is None:
            rest.append(conjunct)
        else:
            pairs.append(pair)
    if kind is JoinKind.ANTI and not pairs and len(rest) == 1 and (unknown := _not_in_pair(rest[0], width)) is not None:
        kind, rest, pairs = JoinKind.NULL_AWARE_ANTI, [], [unknown]
    to_right = {width + i: i for i in range(len(right.plan.fields))}
    plan = Join(
        left.plan,
        right.plan,
        kind,
        tuple(a for a, _, _ in pairs),
        tuple(renumbered(b, to_right) for _, b, _ in pairs),
        tuple(null_safe for _, _, null_safe in pairs),
        conjunction(rest) if rest else None,
        place,
    )
    return Bound(plan, left.ids + right.ids if kind.emits_pairs else left.ids)


def _without(found: Bound, own: Bound, left: Bound) -> Bound:
    """A join's output without the columns that `left` has beyond `own`: the scalar subqueries of its condition."""
    kept = [i for i in range(len(found.ids)) if not len(own.ids) <= i < len(left.ids)]
    fields = tuple(found.plan.fields[i] for i in kept)
    columns = tuple(Column(i, f.type) for i, f in zip(kept, fields, strict=True))
    return Bound(Project(found.plan, columns, fields), tuple(found.ids[i] for i in kept))


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
