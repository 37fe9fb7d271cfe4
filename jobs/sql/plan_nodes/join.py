"""Join: its kind, the equalities between its sides, and the rest of its condition."""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.expression_tree import (
    columns_of,
    join_by_and,
    join_by_or,
    renumber_columns,
    split_conjuncts,
    without_places,
)
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Aggregate,
    Call,
    Column,
    Expr,
    Field,
    Filter,
    Join,
    JoinKind,
    Literal,
    Place,
    Project,
    Union,
)
from tussock.jobs.sql.plan_nodes.subquery import with_subqueries, without_subqueries
from tussock.jobs.sql.plan_nodes.temporal_filter import split_by_moment, with_moment_compared
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes

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


@binds_nodes("Join")
def bind_join(walk: PlanWalk, node: JavaObject) -> BoundNode:
    name = node.joinType().toString().split("(")[0]
    if name not in _JOINS:
        raise walk.refusal_of(node, f"a {name} join", "it has no executor")
    kind = _JOINS[name]
    left, right = walk.bind(node.left()), walk.bind(node.right())
    own, conditions, temporal = left, list[Expr](), list[JavaObject]()
    if node.condition().isDefined():
        asked, temporal = (
            split_by_moment(walk, node.condition().get()) if kind is JoinKind.INNER else ([node.condition().get()], [])
        )
        left = with_subqueries(walk, left, asked)
        scope = {**right.scope(len(left.plan.fields)), **left.scope()}
        conditions = [
            c for whole in asked for c in split_conjuncts(walk.expressions.bind_condition(whole, scope, joins=True))
        ]
    joined_plan = join_plans(left, right, kind, conditions, walk.expressions.place_of(node))
    joined_plan = with_moment_compared(walk, joined_plan, temporal)
    if kind is JoinKind.EXISTENCE:
        joined_plan = BoundNode(joined_plan.plan, (*joined_plan.ids, node.joinType().exists().exprId().id()))
    return without_subqueries(joined_plan, own, left)


def join_plans(
    left: BoundNode, right: BoundNode, kind: JoinKind, conditions: Sequence[Expr], place: Place | None
) -> BoundNode:
    """The join of two plans by conditions over left columns, then right ones.

    Equalities between the sides become its keys.
    """
    width = len(left.plan.fields)
    rest: list[Expr] = []
    pairs: list[tuple[Expr, Expr, bool]] = []
    for conjunct in conditions:
        pair = _key_pair(conjunct, width)
        if pair is None:
            rest.append(conjunct)
        else:
            pairs.append(pair)
    if not pairs and rest and kind in (JoinKind.ANTI, JoinKind.EXISTENCE):
        unknown = [pair for c in rest if (pair := _not_in_pair(c, width)) is not None]
        if len(unknown) == len(rest) == 1 and kind is JoinKind.ANTI:
            kind, rest, pairs = JoinKind.NULL_AWARE_ANTI, [], unknown
        elif len(unknown) == len(rest) == 1:
            return _answers_of_not_in(left, right, unknown[0], place)
        elif len(unknown) == len(rest) and kind is JoinKind.ANTI:
            return _not_in_several(left, right, unknown, join_by_and(rest), place)
    to_right = {width + i: i for i in range(len(right.plan.fields))}
    plan = Join(
        left.plan,
        right.plan,
        kind,
        tuple(a for a, _, _ in pairs),
        tuple(renumber_columns(b, to_right) for _, b, _ in pairs),
        tuple(null_safe for _, _, null_safe in pairs),
        join_by_and(rest) if rest else None,
        place,
    )
    return BoundNode(plan, left.ids + right.ids if kind.emits_pairs else left.ids)


def _answers_of_not_in(
    left: BoundNode, right: BoundNode, pair: tuple[Expr, Expr, bool], place: Place | None
) -> BoundNode:
    """NOT IN as a value, inside OR or CASE: every left row, and whether it has a match.

    A match exists if a right row has its key, if some right key is NULL, or if the left key is NULL and there is any
    right row. The last two are facts about all right rows: one row, which rarely changes.
    """
    width, (key, other, _) = len(left.plan.fields), pair
    other = renumber_columns(other, {width + i: i for i in range(len(right.plan.fields))})
    matched = Join(left.plan, right.plan, JoinKind.EXISTENCE, (key,), (other,), (False,), None, place)
    counts = (AggCall(AggFunction.COUNT, "bigint", ()), AggCall(AggFunction.COUNT, "bigint", (other,)))
    counted = Aggregate(right.plan, (), counts, (Field("rows", "bigint"), Field("known", "bigint")))
    rows, known = Column(0, "bigint"), Column(1, "bigint")
    some = Call("GreaterThan", "boolean", (rows, Literal(0, "bigint")))
    unknown = Call("LessThan", "boolean", (known, rows))
    facts = Project(counted, (some, unknown), (Field("some", "boolean"), Field("unknown", "boolean")))
    there, some_row, some_null = (Column(width + i, "boolean") for i in range(3))
    asks = Call("And", "boolean", (Call("IsNull", "boolean", (key,)), some_row))
    exists = Call("Or", "boolean", (Call("Or", "boolean", (there, some_null)), asks))
    own = tuple(Column(i, f.type) for i, f in enumerate(left.plan.fields))
    joined = Join(matched, facts, JoinKind.INNER, (), (), (), None, place)
    return BoundNode(Project(joined, (*own, exists), matched.fields), left.ids)


def _not_in_several(
    left: BoundNode, right: BoundNode, pairs: Sequence[tuple[Expr, Expr, bool]], condition: Expr, place: Place | None
) -> BoundNode:
    """NOT IN over several columns: the left rows that no right row equals in all columns where both are not NULL.

    Rows without NULL are matched by equality. Only right rows with a NULL are compared with every left row, and only
    left rows with a NULL are compared with every right row.
    """
    width = len(left.plan.fields)
    keys, others = tuple(a for a, _, _ in pairs), tuple(b for _, b, _ in pairs)
    to_right = {width + i: i for i in range(len(right.plan.fields))}
    others = tuple(renumber_columns(b, to_right) for b in others)
    equal = Join(left.plan, right.plan, JoinKind.ANTI, keys, others, (False,) * len(pairs), None, place)
    vague = Filter(right.plan, _any_null(others))
    rest = Join(equal, vague, JoinKind.ANTI, (), (), (), condition, place)
    known = Filter(rest, Call("Not", "boolean", (_any_null(keys),)))
    asking = Join(Filter(rest, _any_null(keys)), right.plan, JoinKind.ANTI, (), (), (), condition, place)
    return BoundNode(Union((known, asking), left.plan.fields), left.ids)


def _any_null(exprs: Sequence[Expr]) -> Expr:
    return join_by_or([Call("IsNull", "boolean", (e,)) for e in exprs])


def _not_in_pair(conjunct: Expr, width: int) -> tuple[Expr, Expr, bool] | None:
    """The key pair of `a = b OR (a = b) IS NULL`, Catalyst's form of NOT IN. None for other conditions."""
    match conjunct:
        case Call(node="Or", args=(equal, Call(node="IsNull", args=(again,)))) if without_places(
            equal
        ) == without_places(again):
            pair = _key_pair(equal, width)
            return pair if pair is not None and not pair[2] else None
        case _:
            return None


def _key_pair(conjunct: Expr, width: int) -> tuple[Expr, Expr, bool] | None:
    """(left key, right key, null safe) if the conjunct equates an expression of each side. Otherwise None."""
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
