"""Catalyst's optimized plan -> `logical.Plan`: the walk that binds a view.

The analyzed plan is asked first for what the optimizer would hide (now() becomes a literal, a session window a plain group); then the
optimized plan, in which CTEs are inlined, DISTINCT is an Aggregate and names are gone, is walked from its leaves. What no executor can
keep up with is refused with its place. How expressions look is in `expressions.py`.

Cost: parsing, analysis and optimization about 15-100 ms, the walk about 25 ms for 65 nodes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from jobs.sql.errors import SqlError, UnsupportedQueryError, sql_error, translated
from jobs.sql.expression_tree import columns_of, conjunction, conjuncts, renumbered, without_places
from jobs.sql.expressions import ExpressionWalk
from jobs.sql.logical import (
    AggCall,
    Aggregate,
    Call,
    Column,
    Expr,
    Field,
    Filter,
    Join,
    JoinKind,
    Literal,
    Plan,
    Project,
    Scan,
    SortKey,
    TopN,
    Union,
)
from jobs.sql.prune import prune
from jobs.sql.refusals import refuse_unstable
from jobs.sql.sandbox import Sandbox, items
from jobs.sql.source_text import SourceText
from statestore.meta.catalog import ColumnSpec, Relation
from statestore.types import UnsupportedTypeError, arrow_type

_REASONS: dict[str, tuple[str, str]] = {
    "Window": ("a window function", "window functions are not kept yet"),
    "Expand": ("ROLLUP, CUBE, GROUPING SETS or a sliding window", "one input row counts in several groups; make a view per grouping"),
    "Generate": ("EXPLODE or LATERAL VIEW", "rows that make several rows are not kept yet"),
    "LocalRelation": ("a list of VALUES", "rows must come from a relation; put them into a table"),
    "OneRowRelation": ("a SELECT without FROM", "rows must come from a relation"),
    "Range": ("range()", "rows must come from a relation"),
    "Sample": ("TABLESAMPLE", "it picks other rows on every run"),
    "LogicalRelation": ("a relation of Spark's own catalog", "only relations made here are known; declare it with CREATE SOURCE"),
    "Offset": ("OFFSET without LIMIT", "add a LIMIT"),
}
_DECLARED = re.compile(r"(\w+)\s+(\w+(?:\([^)]*\))?)")
_SORT = (
    "ORDER BY without LIMIT",
    "a view is a set of rows without order; leave it out, and order the query that reads the view, or add a LIMIT",
)
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
_LIMIT = ("LIMIT without ORDER BY", "which rows remain would be chance; add an ORDER BY")


@dataclass(frozen=True, slots=True)
class Bound:
    """A plan and the expression ids of its output columns, in order."""

    plan: Plan
    ids: tuple[int, ...]

    def scope(self, shift: int = 0) -> dict[int, Expr]:
        """What each expression id means to a reader of this plan's output (after `shift` other columns)."""
        return {i: Column(shift + k, f.type) for k, (i, f) in reversed(list(enumerate(zip(self.ids, self.plan.fields, strict=True))))}


def bind_view(sandbox: Sandbox, source: SourceText) -> Plan:
    """The plan of a SELECT that a view is to maintain.

    Args:
        source: the SELECT; whatever stands before it in its statement is blank, so that places are right.

    Returns:
        A plan whose fields are the view's columns; scans read only columns that are used.

    Raises:
        SqlError: it does not parse, names what does not exist, has mismatched types, or repeats a column name.
        UnsupportedQueryError: it cannot be kept incrementally.
    """
    with sandbox.active():
        return _bind_view(sandbox, source)


def _bind_view(sandbox: Sandbox, source: SourceText) -> Plan:
    execution = sandbox.analyze(source, sandbox.parse_query(source)).queryExecution()
    analyzed = execution.analyzed()
    walk = PlanWalk(ExpressionWalk(sandbox, source))
    refuse_unstable(walk.expressions, analyzed)
    fields = _view_fields(walk.expressions, execution)
    with translated(source):
        optimized = execution.optimizedPlan()
    bound = walk.bind(optimized)
    if tuple(f.type for f in bound.plan.fields) != tuple(f.type for f in fields):
        raise SqlError(
            f"the optimizer changed the types of the view's columns from {fields} to {bound.plan.fields}; please report this query"
        )
    plan = prune(bound.plan)
    if plan.fields != fields:  # the optimizer drops aliases it thinks redundant
        plan = Project(plan, tuple(Column(i, f.type) for i, f in enumerate(fields)), fields)
    return plan


def bind_projection(sandbox: Sandbox, source: SourceText, frame: JavaObject, within: str) -> tuple[Expr, ...]:
    """The columns of a frame (JVM Dataset: only projections over one relation) as expressions over that relation's columns.

    Raises UnsupportedQueryError for anything but a row-wise expression whose value is the same on every run.
    """
    execution = frame.queryExecution()
    walk = ExpressionWalk(sandbox, source, within)
    refuse_unstable(walk, execution.analyzed(), clock_is_fixed=True)
    with translated(source):
        optimized = execution.optimizedPlan()
    scope = _projected_scope(walk, optimized)
    return tuple(scope[a.exprId().id()] for a in items(optimized.output()))


def bind_expressions(spark: SparkSession, columns: Sequence[Field], texts: Sequence[str], time_zone: str = "UTC") -> list[Expr]:
    """SQL expressions over some columns, bound: for tests and tools. Raises as `bind_view`."""
    relation = Relation(1, "t", "source", tuple(ColumnSpec(c.name, c.type) for c in columns), msgspec.Raw(b"{}"))
    sandbox = Sandbox(spark, [relation], time_zone)
    source = SourceText("SELECT " + ",\n".join(f"{text} AS c{i}" for i, text in enumerate(texts)) + " FROM t")
    with sandbox.active():
        return list(bind_projection(sandbox, source, sandbox.analyze(source, sandbox.parse_query(source)), "an expression"))


def relation_of_ddl(id: int, text: str) -> Relation:
    """A source for tests and tools from `name (column type, …)`; types by the names of statestore.types, in any case. Needs no JVM."""
    name, _, columns = text.partition("(")
    specs = tuple(ColumnSpec(column, kind.lower()) for column, kind in _DECLARED.findall(columns))
    for spec in specs:
        arrow_type(spec.type)
    return Relation(id, name.strip(), "source", specs, msgspec.Raw(b"{}"))


def _projected_scope(walk: ExpressionWalk, node: JavaObject) -> dict[int, Expr]:
    name = node.productPrefix()
    if name == "LogicalRDD":
        return {a.exprId().id(): Column(i, a.dataType().catalogString()) for i, a in enumerate(items(node.output()))}
    if name == "Project":
        below = _projected_scope(walk, node.child())
        return {e.exprId().id(): walk.expression(e, below) for e in items(node.projectList())}
    raise walk.refuse(node, *_REASONS.get(name, (name, "only expressions over the row itself can stand here")))


def _view_fields(walk: ExpressionWalk, execution: JavaObject) -> tuple[Field, ...]:
    """The columns of a view (of its QueryExecution): at least one, their names unique, their types ones that can be stored."""
    source = walk.source
    select = len(source.text) - len(source.text[source.begin :].lstrip())  # where it begins
    fields: list[Field] = []
    seen: dict[str, int] = {}
    outputs = list(items(execution.analyzed().output()))
    for i, output in enumerate(outputs):
        name, kind = output.name(), output.dataType().catalogString()
        begin = partial(_begin_of_output, walk, execution.logical(), i, len(outputs), select)
        if (first := seen.setdefault(name.lower(), i)) != i:
            reason = f"columns {first + 1} and {i + 1} of the SELECT are both named {name!r}; give one of them another name with AS"
            raise sql_error(source, begin(), reason)
        try:
            arrow_type(kind)
        except UnsupportedTypeError as err:
            raise sql_error(source, begin(), f"column {name!r}: {err}") from err
        fields.append(Field(name, kind))
    if not fields:
        raise sql_error(source, select, "this SELECT has no columns: a view needs at least one, and EXCEPT leaves none here")
    return tuple(fields)


def _begin_of_output(walk: ExpressionWalk, parsed: JavaObject, column: int, columns: int, otherwise: int) -> int:
    """Where in the text a column of the result is written; `otherwise` where that can't be said (a star, a set operation).

    By the parsed plan: a column that the analyzer has resolved may name the place of another.
    """
    node = parsed
    while node.productPrefix() not in ("Project", "Aggregate"):
        children = list(items(node.children()))
        if len(children) != 1:
            return otherwise
        node = children[0]
    named = list(items(node.projectList() if node.productPrefix() == "Project" else node.aggregateExpressions()))
    span = walk.span_of(named[column]) if len(named) == columns else None
    return otherwise if span is None else span[0]


@dataclass(frozen=True, slots=True)
class PlanWalk:
    """Walks one statement's plan."""

    expressions: ExpressionWalk

    def bind(self, node: JavaObject) -> Bound:
        """The plan under a Catalyst node. Raises UnsupportedQueryError."""
        name = node.productPrefix()
        if name == "LogicalRDD":
            return self._scan(node)
        if name == "Project":
            return self._project(node)
        if name == "Filter":
            return self._filter(node)
        if name == "Aggregate":
            return self._aggregate(node)
        if name == "Join":
            return self._join(node)
        if name == "Union":
            return self._union(node)
        if name == "GlobalLimit":
            return self._limit(node)
        if name == "Sort":
            raise self._refuse(node, *_SORT)
        if name == "Window":
            raise self._refuse(next(items(node.windowExpressions())), *_REASONS[name])
        if name == "Expand" and any(a.name() == "gid" for a in items(node.output())):
            raise self._refuse(
                node,
                "DISTINCT in several aggregates",
                "DISTINCT inside an aggregate is not kept yet; aggregate over SELECT DISTINCT … instead",
            )
        raise self._refuse(node, *_REASONS.get(name, (f"the operator {name}", "it has no executor")))

    def _refuse(self, node: JavaObject, construct: str, reason: str) -> UnsupportedQueryError:
        return self.expressions.refuse(node, construct, reason)

    def _field(self, node: JavaObject, name: str, kind: str) -> Field:
        try:
            arrow_type(kind)
        except UnsupportedTypeError as err:
            raise self._refuse(node, f"column {name!r} of type {kind}", "its rows cannot be kept; " + str(err)) from err
        return Field(name, kind)

    def _scan(self, node: JavaObject) -> Bound:
        relation = self.expressions.sandbox.relation_of(node)
        if relation is None:
            raise self._refuse(node, "a relation that is not in the catalog", "declare it with CREATE SOURCE or CREATE TABLE")
        fields = tuple(Field(c.name, c.type) for c in relation.columns)
        return Bound(Scan(relation.name, tuple(range(len(fields))), fields), tuple(a.exprId().id() for a in items(node.output())))

    def _project(self, node: JavaObject) -> Bound:
        return self._projected(node, self.bind(node.child()))

    def _projected(self, node: JavaObject, below: Bound) -> Bound:
        """The Project `node` over `below`."""
        scope = below.scope()
        ids, exprs, fields = [], [], []
        for named in items(node.projectList()):
            expr = self.expressions.expression(named, scope)
            ids.append(named.exprId().id())
            exprs.append(expr)
            fields.append(self._field(named, named.name(), expr.type))
        if tuple(fields) == below.plan.fields and all(isinstance(e, Column) and e.index == i for i, e in enumerate(exprs)):
            return Bound(below.plan, tuple(ids))
        return Bound(Project(below.plan, tuple(exprs), tuple(fields)), tuple(ids))

    def _filter(self, node: JavaObject) -> Bound:
        below = self.bind(node.child())
        condition = self.expressions.expression(node.condition(), below.scope())
        if condition == Literal(True, "boolean"):
            return below
        return Bound(Filter(below.plan, condition), below.ids)

    def _aggregate(self, node: JavaObject) -> Bound:
        """One Aggregate for keys and calls, each once, and a Project for what the SELECT makes of them."""
        below = self.bind(node.child())
        scope = below.scope()
        keys: dict[Expr, int] = {}  # without places -> output column
        key_ids: dict[int, int] = {}
        key_exprs: list[Expr] = []
        for grouping in items(node.groupingExpressions()):
            expr = self.expressions.expression(grouping, scope)
            column = keys.setdefault(without_places(expr), len(keys))
            if column == len(key_exprs):
                key_exprs.append(expr)
            if grouping.productPrefix() == "AttributeReference":
                key_ids[grouping.exprId().id()] = column
        result = _AggregateResult(self.expressions, scope, keys, key_ids, key_exprs)
        exprs, ids, fields = [], [], []
        for named in items(node.aggregateExpressions()):
            expr = result.expression(named)
            exprs.append(expr)
            ids.append(named.exprId().id())
            fields.append(self._field(named, named.name(), expr.type))
        outputs = {e.index: f.name for e, f in zip(reversed(exprs), reversed(fields), strict=True) if isinstance(e, Column)}
        types = [e.type for e in key_exprs] + [c.type for c in result.calls]
        inner = tuple(self._field(node, outputs.get(i, f"_{i}"), kind) for i, kind in enumerate(types))
        plan: Plan = Aggregate(below.plan, tuple(key_exprs), tuple(result.calls), inner)
        if tuple(fields) != inner or any(not isinstance(e, Column) or e.index != i for i, e in enumerate(exprs)):
            plan = Project(plan, tuple(exprs), tuple(fields))
        return Bound(plan, tuple(ids))

    def _join(self, node: JavaObject) -> Bound:
        name = node.joinType().toString()
        if name not in _JOINS:
            raise self._refuse(node, *_REFUSED_JOINS.get(name.split("(")[0], (f"a {name} join", "it has no executor")))
        kind = _JOINS[name]
        left, right = self.bind(node.left()), self.bind(node.right())
        width = len(left.plan.fields)
        condition = node.condition()
        rest: list[Expr] = []
        pairs: list[tuple[Expr, Expr, bool]] = []
        if condition.isDefined():
            scope = {**right.scope(width), **left.scope()}
            for conjunct in conjuncts(self.expressions.expression(condition.get(), scope)):
                pair = _key_pair(conjunct, width)
                if pair is None:
                    rest.append(conjunct)
                else:
                    pairs.append(pair)
        if not pairs and kind is JoinKind.ANTI and (unknown := [_not_in_pair(conjunct, width) for conjunct in rest]) and all(unknown):
            if len(unknown) > 1:
                raise self._refuse(node, *_NOT_IN_COLUMNS)
            kind, rest, pairs = JoinKind.NULL_AWARE_ANTI, [], [pair for pair in unknown if pair is not None]
        if not pairs:
            raise self._refuse(node, *_NO_EQUALITY)
        to_right = {width + i: i for i in range(len(right.plan.fields))}
        plan = Join(
            left.plan,
            right.plan,
            kind,
            tuple(a for a, _, _ in pairs),
            tuple(renumbered(b, to_right) for _, b, _ in pairs),
            tuple(null_safe for _, _, null_safe in pairs),
            conjunction(rest) if rest else None,
            self.expressions.place_of(node),
        )
        return Bound(plan, left.ids + right.ids if kind.emits_pairs else left.ids)

    def _union(self, node: JavaObject) -> Bound:
        inputs = tuple(self.bind(child).plan for child in items(node.children()))
        output = list(items(node.output()))
        fields = tuple(self._field(node, a.name(), a.dataType().catalogString()) for a in output)
        return Bound(Union(inputs, fields), tuple(a.exprId().id() for a in output))

    def _limit(self, node: JavaObject) -> Bound:
        """GlobalLimit [Offset] [LocalLimit] Project* Sort: top-n, the projections above it."""
        limit = self._constant(node, node.limitExpr())
        offset = 0
        child = node.child()
        while child.productPrefix() in ("LocalLimit", "Offset"):
            if child.productPrefix() == "Offset":
                offset = self._constant(child, child.offsetExpr())
            child = child.child()
        projects: list[JavaObject] = []
        while child.productPrefix() == "Project":
            projects.append(child)
            child = child.child()
        if child.productPrefix() != "Sort":
            raise self._refuse(node, *_LIMIT)
        below = self.bind(child.child())
        order = []
        for key in items(child.order()):
            expr = self.expressions.expression(key.child(), below.scope())
            order.append(SortKey(expr, key.direction().sql() == "DESC", key.nullOrdering().sql() == "NULLS LAST"))
        bound = Bound(TopN(below.plan, tuple(order), limit, offset), below.ids)
        for project in reversed(projects):
            bound = self._projected(project, bound)
        return bound

    def _constant(self, node: JavaObject, expr: JavaObject) -> int:
        found = self.expressions.expression(expr, {})
        if isinstance(found, Literal) and isinstance(found.value, int):
            return found.value
        raise self._refuse(node, "a LIMIT or OFFSET that is no constant", "write a number")


class _AggregateResult:
    """Rewrites result expressions of an Aggregate over its keys and calls, and collects the calls."""

    def __init__(
        self, walk: ExpressionWalk, scope: dict[int, Expr], keys: dict[Expr, int], key_ids: dict[int, int], key_exprs: Sequence[Expr]
    ) -> None:
        self._walk, self._scope, self._keys, self._key_exprs = walk, scope, keys, key_exprs
        self._key_scope: dict[int, Expr] = {i: Column(column, key_exprs[column].type) for i, column in key_ids.items()}
        self._seen: dict[AggCall, int] = {}
        self.calls: list[AggCall] = []

    def expression(self, node: JavaObject) -> Expr:
        name = node.productPrefix()
        if name == "Alias":
            return self.expression(node.child())
        if name == "AggregateExpression":
            return self._call(self._walk.aggregate(node, self._scope))
        children = list(items(node.children()))
        if name in ("AttributeReference", "Literal") or not children:
            return self._walk.expression(node, self._key_scope)
        if len(self._keys) > len(self._key_scope) and not _has_aggregate(
            node
        ):  # some key is no plain column: it may be this very expression
            column = self._keys.get(without_places(self._walk.expression(node, self._scope)))
            if column is not None:
                return Column(column, self._key_exprs[column].type)
        return self._walk.call(node, tuple(self.expression(child) for child in children))

    def _call(self, call: AggCall) -> Column:
        identity = AggCall(
            call.function,
            call.type,
            tuple(without_places(a) for a in call.args),
            call.mode,
            call.distinct,
            None if call.filter is None else without_places(call.filter),
        )
        at = self._seen.setdefault(identity, len(self.calls))
        if at == len(self.calls):
            self.calls.append(call)
        return Column(len(self._key_exprs) + at, call.type)


def _not_in_pair(conjunct: Expr, width: int) -> tuple[Expr, Expr, bool] | None:
    """The key pair of `a = b OR (a = b) IS NULL`, which is how Catalyst writes NOT IN's question."""
    match conjunct:
        case Call(node="Or", args=(equal, Call(node="IsNull", args=(again,)))) if without_places(equal) == without_places(again):
            pair = _key_pair(equal, width)
            return pair if pair is not None and not pair[2] else None
        case _:
            return None


def _has_aggregate(node: JavaObject) -> bool:
    return node.productPrefix() == "AggregateExpression" or any(_has_aggregate(c) for c in items(node.children()))


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
