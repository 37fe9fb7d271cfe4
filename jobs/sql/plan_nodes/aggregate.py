"""Aggregate: keys, calls, and the SELECT's expressions over both."""

from collections.abc import Iterator, Sequence

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.errors import UnsupportedQueryError
from tussock.jobs.logical.expression_tree import renumber_columns, without_places
from tussock.jobs.logical.nodes import AggCall, Aggregate, Call, Column, Expr, Field, Join, JoinKind, Plan, Project
from tussock.jobs.sql.expressions import ExpressionWalk
from tussock.jobs.sql.plan_nodes.pivot import element_of_pivot, pivot_calls, pivot_of
from tussock.jobs.sql.plan_nodes.session import sessions_of
from tussock.jobs.sql.plan_nodes.subquery import subquery_row, with_scalars, with_subqueries
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items

_ABOVE = 1 << 20  # a temporary number for the first subquery column, until the number of calls is known


@binds_nodes("Aggregate")
def bind_aggregate(walk: PlanWalk, node: JavaObject) -> BoundNode:
    """An Aggregate for the keys and calls, each once, and a Project for the SELECT's expressions over them."""
    results = list(items(node.aggregateExpressions()))
    calls = (call for named in with_scalars(walk, results) for call in _aggregates_in(named))
    below = with_subqueries(walk, walk.bind(node.child()), [*items(node.groupingExpressions()), *calls])
    sessions = sessions_of(walk, node, below)
    below = below if sessions is None else sessions.below
    row = subquery_row(walk, results, outside="AggregateExpression")
    above = {} if row is None else row.scope(_ABOVE)
    scope = {**above, **below.scope()}
    keys: dict[Expr, int] = {}  # without places -> output column
    key_ids: dict[int, int] = {}
    key_exprs: list[Expr] = []
    for grouping in items(node.groupingExpressions()):
        is_session = sessions is not None and grouping.exprId().id() == sessions.id
        expr = sessions.start if sessions is not None and is_session else walk.expressions.expression(grouping, scope)
        column = keys.setdefault(without_places(expr), len(keys))
        if column == len(key_exprs):
            key_exprs.append(expr)
        if grouping.productPrefix() == "AttributeReference":
            key_ids[grouping.exprId().id()] = column
    result = _AggregateResult(walk.expressions, scope, keys, key_ids, key_exprs, above)
    if sessions is not None:
        result.stand_for(
            sessions.id,
            sessions.session_struct(
                Column(key_ids[sessions.id], sessions.start.type), result.number_call(sessions.end)
            ),
        )
    exprs: list[Expr] = []
    ids: list[int] = []
    fields: list[Field] = []
    placed_results: list[tuple[int, Expr]] = []
    for named in results:
        if named.productPrefix() == "Alias" and (pivot := pivot_of(named.child())) is not None:
            first = len(exprs)
            for call in pivot_calls(walk.expressions, pivot, scope):
                exprs.append(result.number_call(call))
                ids.append(-len(exprs))  # never looked up
                fields.append(walk.output_field(named, f"_{len(exprs)}", call.type))
            elements = tuple(Column(i, exprs[i].type) for i in range(first, len(exprs)))
            placed_results.append((named.exprId().id(), Call("CreateArray", f"array<{elements[0].type}>", elements)))
            continue
        expr = result.bind_column(named)
        exprs.append(expr)
        ids.append(named.exprId().id())
        fields.append(walk.output_field(named, named.name(), expr.type))
    outputs = {e.index: f.name for e, f in zip(reversed(exprs), reversed(fields), strict=True) if isinstance(e, Column)}
    types = [e.type for e in key_exprs] + [c.type for c in result.calls]
    inner = tuple(walk.output_field(node, outputs.get(i, f"_{i}"), kind) for i, kind in enumerate(types))
    plan: Plan = Aggregate(below.plan, tuple(key_exprs), tuple(result.calls), inner)
    if row is not None:
        plan = Join(plan, row.plan, JoinKind.INNER, (), (), ())
        inner = plan.fields
        to = {i: i for i in range(len(inner))} | {_ABOVE + i: len(types) + i for i in range(len(row.ids))}
        exprs = [renumber_columns(e, to) for e in exprs]
    if tuple(fields) != inner or any(not isinstance(e, Column) or e.index != i for i, e in enumerate(exprs)):
        plan = Project(plan, tuple(exprs), tuple(fields))
    return BoundNode(plan, tuple(ids), tuple(placed_results))


class _AggregateResult:
    """Rewrites result expressions of an Aggregate over its keys and calls, and collects the calls."""

    def __init__(
        self,
        walk: ExpressionWalk,
        scope: dict[int, Expr],
        keys: dict[Expr, int],
        key_ids: dict[int, int],
        key_exprs: Sequence[Expr],
        above: dict[int, Expr],
    ) -> None:
        self._walk, self._scope, self._keys, self._key_exprs = walk, scope, keys, key_exprs
        self._key_scope: dict[int, Expr] = {
            i: Column(column, key_exprs[column].type) for i, column in key_ids.items()
        } | above
        self._plain_keys = len(key_ids)
        self._seen: dict[AggCall, int] = {}
        self.calls: list[AggCall] = []

    def stand_for(self, id: int, value: Expr) -> None:
        """Replace the attribute of a key by `value`, an expression over keys and calls."""
        self._key_scope[id] = value

    def bind_column(self, node: JavaObject) -> Expr:
        """One column of the SELECT."""
        return self._walk.bind_whole(node, lambda: self.expression(node), self._key_or_call)

    def _key_or_call(self, node: JavaObject) -> Expr | None:
        """The key or call that a node is. None for expressions over them."""
        if (element := self._of_pivot(node)) is not None:
            return element
        if node.productPrefix() == "AggregateExpression":
            return self.number_call(self._walk.bind_aggregate_call(node, self._scope))
        if node.productPrefix() in ("AttributeReference", "ScalarSubquery"):
            return self._key_scope.get(node.exprId().id())
        if len(self._keys) == self._plain_keys or node.productPrefix() == "Literal" or _has_aggregate(node):
            return None
        try:
            column = self._keys.get(without_places(self._walk.expression(node, self._scope)))
        except UnsupportedQueryError:  # the variable of a lambda
            return None
        return None if column is None else Column(column, self._key_exprs[column].type)

    def expression(self, node: JavaObject) -> Expr:
        name = node.productPrefix()
        if name == "Alias":
            return self.expression(node.child())
        if name == "AggregateExpression":
            return self.number_call(self._walk.bind_aggregate_call(node, self._scope))
        if name == "GetArrayItem" and (element := self._of_pivot(node)) is not None:
            return element
        children = list(items(node.children()))
        if name in ("AttributeReference", "Literal", "ScalarSubquery") or not children:
            return self._walk.expression(node, self._key_scope)
        if len(self._keys) > self._plain_keys and not _has_aggregate(
            node
        ):  # some keys are expressions, and this may be one of them
            column = self._keys.get(without_places(self._walk.expression(node, self._scope)))
            if column is not None:
                return Column(column, self._key_exprs[column].type)
        return self._walk.bind_call(node, tuple(self.expression(child) for child in children))

    def _of_pivot(self, node: JavaObject) -> Column | None:
        if (pivot_and_place := element_of_pivot(node)) is None:
            return None
        pivot, place = pivot_and_place
        return self.number_call(pivot_calls(self._walk, pivot, self._scope)[place])

    def number_call(self, call: AggCall) -> Column:
        identity = call.map_expressions(without_places, None)
        at = self._seen.setdefault(identity, len(self.calls))
        if at == len(self.calls):
            self.calls.append(call)
        return Column(len(self._key_exprs) + at, call.type)


def _aggregates_in(node: JavaObject) -> Iterator[JavaObject]:
    if node.productPrefix() == "AggregateExpression":
        yield node
    else:
        for child in items(node.children()):
            yield from _aggregates_in(child)


def _has_aggregate(node: JavaObject) -> bool:
    return node.productPrefix() == "AggregateExpression" or any(_has_aggregate(c) for c in items(node.children()))
