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
    keys = _GroupingKeys()
    for grouping in items(node.groupingExpressions()):
        is_session = sessions is not None and grouping.exprId().id() == sessions.id
        expr = sessions.start if sessions is not None and is_session else walk.expressions.expression(grouping, scope)
        keys.add_key(grouping, expr)
    result = _AggregateResult(walk.expressions, scope, keys, above)
    if sessions is not None:
        start = Column(keys.columns_by_id[sessions.id], sessions.start.type)
        result.stand_for(sessions.id, sessions.session_struct(start, result.number_call(sessions.end)))
    columns = _ResultColumns()
    for named in results:
        if named.productPrefix() == "Alias" and (pivot := pivot_of(named.child())) is not None:
            columns.add_pivot(walk, named, [result.number_call(c) for c in pivot_calls(walk.expressions, pivot, scope)])
        else:
            columns.add_column(walk, named, result.bind_column(named))
    types = [e.type for e in keys.exprs] + [c.type for c in result.calls]
    names = columns.names_of_outputs()
    inner = tuple(walk.output_field(node, names.get(i, f"_{i}"), kind) for i, kind in enumerate(types))
    plan: Plan = Aggregate(below.plan, tuple(keys.exprs), tuple(result.calls), inner)
    exprs = columns.exprs
    if row is not None:
        plan = Join(plan, row.plan, JoinKind.INNER, (), (), ())
        to = {i: i for i in range(len(plan.fields))} | {_ABOVE + i: len(types) + i for i in range(len(row.ids))}
        exprs = [renumber_columns(e, to) for e in exprs]
    if tuple(columns.fields) != plan.fields or any(
        not isinstance(e, Column) or e.index != i for i, e in enumerate(exprs)
    ):
        plan = Project(plan, tuple(exprs), tuple(columns.fields))
    return BoundNode(plan, tuple(columns.ids), tuple(columns.placed_results))


class _GroupingKeys:
    """The keys of an Aggregate, each once."""

    def __init__(self) -> None:
        self.exprs: list[Expr] = []
        self.columns: dict[Expr, int] = {}  # without places -> output column
        self.columns_by_id: dict[int, int] = {}  # of the keys that are attributes

    def add_key(self, node: JavaObject, expr: Expr) -> None:
        column = self.columns.setdefault(without_places(expr), len(self.columns))
        if column == len(self.exprs):
            self.exprs.append(expr)
        if node.productPrefix() == "AttributeReference":
            self.columns_by_id[node.exprId().id()] = column


class _ResultColumns:
    """The columns of the SELECT, over the outputs of an Aggregate. A pivot has a column per value."""

    def __init__(self) -> None:
        self.exprs: list[Expr] = []
        self.ids: list[int] = []
        self.fields: list[Field] = []
        self.placed_results: list[tuple[int, Expr]] = []

    def add_column(self, walk: PlanWalk, named: JavaObject, expr: Expr) -> None:
        self.exprs.append(expr)
        self.ids.append(named.exprId().id())
        self.fields.append(walk.output_field(named, named.name(), expr.type))

    def add_pivot(self, walk: PlanWalk, named: JavaObject, calls: Sequence[Column]) -> None:
        first = len(self.exprs)
        for call in calls:
            self.exprs.append(call)
            self.ids.append(-len(self.exprs))  # never looked up
            self.fields.append(walk.output_field(named, f"_{len(self.exprs)}", call.type))
        elements = tuple(Column(first + i, call.type) for i, call in enumerate(calls))
        self.placed_results.append((named.exprId().id(), Call("CreateArray", f"array<{elements[0].type}>", elements)))

    def names_of_outputs(self) -> dict[int, str]:
        """The name of the first column that is an output of the Aggregate, by the output's index."""
        pairs = zip(reversed(self.exprs), reversed(self.fields), strict=True)
        return {e.index: f.name for e, f in pairs if isinstance(e, Column)}


class _AggregateResult:
    """Rewrites result expressions of an Aggregate over its keys and calls, and collects the calls."""

    def __init__(
        self,
        walk: ExpressionWalk,
        scope: dict[int, Expr],
        keys: _GroupingKeys,
        above: dict[int, Expr],
    ) -> None:
        self._walk, self._scope, self._keys = walk, scope, keys
        self._key_scope: dict[int, Expr] = {
            i: Column(column, keys.exprs[column].type) for i, column in keys.columns_by_id.items()
        } | above
        self._has_computed_keys = len(keys.exprs) > len({*keys.columns_by_id.values()})
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
        if not self._has_computed_keys or node.productPrefix() == "Literal" or _has_aggregate(node):
            return None
        try:
            return self._key_of(node)
        except UnsupportedQueryError:  # the variable of a lambda
            return None

    def _key_of(self, node: JavaObject) -> Column | None:
        """The key that an expression is."""
        column = self._keys.columns.get(without_places(self._walk.expression(node, self._scope)))
        return None if column is None else Column(column, self._keys.exprs[column].type)

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
        if self._has_computed_keys and not _has_aggregate(node) and (key := self._key_of(node)) is not None:
            return key
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
        return Column(len(self._keys.exprs) + at, call.type)


def _aggregates_in(node: JavaObject) -> Iterator[JavaObject]:
    if node.productPrefix() == "AggregateExpression":
        yield node
    else:
        for child in items(node.children()):
            yield from _aggregates_in(child)


def _has_aggregate(node: JavaObject) -> bool:
    return node.productPrefix() == "AggregateExpression" or any(_has_aggregate(c) for c in items(node.children()))
