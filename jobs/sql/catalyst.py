"""Catalyst's optimized plan -> `logical.Plan`: the walk that binds a view.

The analyzed plan is examined first for constructs that the optimizer hides: now() becomes a literal, a session window a
plain group. Then the walk goes through the optimized plan from its leaves. There, CTEs are inlined, DISTINCT is an
Aggregate, and names are gone. Constructs that no executor can maintain are rejected with their place. `expressions.py`
describes the form of expressions.

Cost: parsing, analysis and optimization about 15-100 ms, the walk about 25 ms for 65 nodes.
"""

import re
from collections.abc import Sequence
from functools import partial

import msgspec
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError, sql_error
from tussock.jobs.logical.nodes import Column, Expr, Field, Plan, Project
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.expressions import ExpressionWalk
from tussock.jobs.sql.filters_below import below_expands
from tussock.jobs.sql.frame_text import FrameText
from tussock.jobs.sql.now import analyzed_with_moment, has_clock
from tussock.jobs.sql.plan_nodes import (  # noqa: F401 - importing them registers the nodes that they bind
    aggregate,
    constant,
    expand,
    generate,
    join,
    limit,
    project,
    repartition,
    scan,
    union,
    window,
)
from tussock.jobs.sql.plan_nodes.refused import REASONS
from tussock.jobs.sql.plan_nodes.walk import PlanWalk
from tussock.jobs.sql.prune import prune_scans
from tussock.jobs.sql.refusals import refuse_unstable
from tussock.jobs.sql.sandbox import Sandbox, items
from tussock.jobs.sql.spark_text import TWICE_NAMED, NoTextError, SparkText
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind
from tussock.statestore.types import UnsupportedTypeError, arrow_type, twice_named

_DECLARED = re.compile(r"(\w+)\s+(\w+(?:\([^)]*\))?)")


def bind_view(
    sandbox: Sandbox, source: SourceText, names: Sequence[str] | None = None, notes: list[str] | None = None
) -> Plan:
    """The plan of a SELECT for a view.

    Args:
        source: the SELECT. The text before it in its statement is blank, so that places are right.
        names: the view's column list, if the statement has one.
        notes: receives notes for the user about the plan.

    Returns:
        A plan whose fields are the view's columns. Scans read only columns that are used.

    Raises:
        SqlError: a syntax error, an unknown name, mismatched types, or a repeated column name.
        UnsupportedQueryError: it cannot be maintained incrementally.
    """
    with sandbox.active():
        return _bind_view(sandbox, source, names, [] if notes is None else notes)


def _bind_view(sandbox: Sandbox, source: SourceText, names: Sequence[str] | None, notes: list[str]) -> Plan:
    execution = sandbox.analyze(source, sandbox.parse_query(source)).queryExecution()
    written = ExpressionWalk(sandbox, source)
    refuse_unstable(written, execution.analyzed())
    fields = _view_fields(written, execution, names)
    if has_clock(sandbox, execution.analyzed()):
        source, execution = analyzed_with_moment(sandbox, source, execution.analyzed())
    return _plan_of_execution(sandbox, source, execution, fields, notes)


def bind_dataframe(sandbox: Sandbox, analyzed: JavaObject, notes: list[str]) -> Plan:
    """The plan of a DataFrame for a view, from its analyzed plan (JVM).

    Requires: the sandbox is active and has the relation of each LogicalRDD.
    Raises: SqlError, UnsupportedQueryError; without a place, since there is no text.
    """
    source = SourceText("")
    walk = ExpressionWalk(sandbox, source)
    refuse_unstable(walk, analyzed)
    if has_clock(sandbox, analyzed):
        raise UnsupportedQueryError(
            "now(), or the date of today, in a DataFrame",
            "only the text of a SELECT can name it; create the view by SQL",
        )
    with translating_errors(source):
        execution = (
            sandbox.java("org.apache.spark.sql.classic.Dataset")
            .ofRows(sandbox.session._jsparkSession, analyzed)
            .queryExecution()
        )
    try:
        return _plan_of_execution(sandbox, source, execution, _view_fields(walk, execution, None), notes)
    except SqlError as err:
        if err.place is None:
            raise
        raise SqlError(err.reason) from err


def text_of_dataframe(sandbox: Sandbox, analyzed: JavaObject, plan: Plan) -> str | None:
    """A SELECT with the same plan as a DataFrame bound by `bind_dataframe`.

    It is bound again to be sure. None if none is found.
    """
    try:
        return proven_text(sandbox, analyzed, plan)
    except NoTextError:
        return None


def proven_text(sandbox: Sandbox, analyzed: JavaObject, plan: Plan, *, names_views: bool = False) -> str:
    """As `text_of_dataframe`. `names_views`: the SELECT names plain views, instead of repeating their queries.

    Raises: NoTextError with the reason.
    """
    try:
        text = FrameText(sandbox, names_views=names_views).select_text(analyzed)
        again = _bind_view(sandbox, SourceText(text), None, [])
    except SqlError as err:
        raise NoTextError(err.reason) from err
    except Py4JError as err:  # a node has another shape than its name suggests
        raise NoTextError("an unknown operator") from err
    if not _plans_alike(again, plan) and not _projected_alike(sandbox, analyzed, text):
        raise NoTextError("Spark plans the SELECT in another way than the DataFrame")
    return text


def _projected_alike(sandbox: Sandbox, analyzed: JavaObject, text: str) -> bool:
    """Whether a DataFrame and a SELECT have the same plan before the optimizer merges projections."""
    with sandbox.keeping_projections():
        return _plans_alike(bind_dataframe(sandbox, analyzed, []), _bind_view(sandbox, SourceText(text), None, []))


def _plans_alike(one: Plan, other: Plan) -> bool:
    """Whether two plans give the same rows and columns.

    Expressions name columns by index. So the names that Spark gives to the columns between two operators do not count.
    """
    first, second = (_without_names(msgspec.to_builtins(plan)) for plan in (one, other))
    return one.fields == other.fields and first == second


def _without_names(value: object) -> object:
    """A plan without places in the text, and without the names of the columns of operators that have an input."""
    if isinstance(value, dict):
        fields = [f["type"] for f in value["fields"]] if "input" in value and "fields" in value else value.get("fields")
        inner = {k: _without_names(v) for k, v in value.items() if k not in ("place", "fields")}
        return inner if fields is None else inner | {"fields": fields}
    return [_without_names(v) for v in value] if isinstance(value, list | tuple) else value


def _plan_of_execution(
    sandbox: Sandbox, source: SourceText, execution: JavaObject, fields: tuple[Field, ...], notes: list[str]
) -> Plan:
    """The plan of a view with these columns, from its QueryExecution (JVM)."""
    expressions = ExpressionWalk(
        sandbox, source, has_kernel=sandbox.has_kernel, texts=SparkText(sandbox, execution.analyzed())
    )
    with translating_errors(source):
        optimized = execution.optimizedPlan()
    walk = PlanWalk(expressions, notes, limit.order_of(optimized))
    bound = walk.bind(optimized)
    if tuple(f.type for f in bound.plan.fields) != tuple(f.type for f in fields):
        raise SqlError(
            f"the optimizer changed the types of the view's columns from {fields} to {bound.plan.fields}; please "
            "report this query"
        )
    plan = prune_scans(below_expands(bound.plan))
    if plan.fields != fields:  # the optimizer drops aliases that it considers redundant
        plan = Project(plan, tuple(Column(i, f.type) for i, f in enumerate(fields)), fields)
    return plan


def bind_projection(sandbox: Sandbox, source: SourceText, frame: JavaObject, within: str) -> tuple[Expr, ...]:
    """The columns of a frame as expressions over the columns of its relation.

    The frame is a JVM Dataset with only projections over one relation.

    Raises: UnsupportedQueryError unless they are row-wise expressions with the same value on every run.
    """
    execution = frame.queryExecution()
    walk = ExpressionWalk(sandbox, source, within)
    refuse_unstable(walk, execution.analyzed(), clock_is_fixed=True)
    with translating_errors(source):
        optimized = execution.optimizedPlan()
    scope = _projected_scope(walk, optimized)
    return tuple(scope[a.exprId().id()] for a in items(optimized.output()))


def relation_of_ddl(id: int, text: str) -> Relation:
    """A source for tests and tools from `name (column type, …)`.

    Types are named as in statestore/types.py, in any case. Needs no JVM.
    """
    name, _, columns = text.partition("(")
    specs = tuple(ColumnSpec(column, kind.lower()) for column, kind in _DECLARED.findall(columns))
    for spec in specs:
        arrow_type(spec.type)
    return Relation(id, name.strip(), RelationKind.SOURCE, specs, msgspec.Raw(b"{}"))


def _projected_scope(walk: ExpressionWalk, node: JavaObject) -> dict[int, Expr]:
    name = node.productPrefix()
    if name == "LogicalRDD":
        return {a.exprId().id(): Column(i, name_of_type(a.dataType())) for i, a in enumerate(items(node.output()))}
    if name == "Project":
        below = _projected_scope(walk, node.child())
        return {e.exprId().id(): walk.expression(e, below) for e in items(node.projectList())}
    raise walk.refusal_of(node, *REASONS.get(name, (name, "only expressions over the row itself are allowed here")))


def _view_fields(walk: ExpressionWalk, execution: JavaObject, names: Sequence[str] | None) -> tuple[Field, ...]:
    """The columns of a view, from its QueryExecution: at least one, with unique names and types that can be stored."""
    source = walk.source
    select = len(source.text) - len(source.text[source.begin :].lstrip())  # the offset of its first word
    fields: list[Field] = []
    seen: dict[str, int] = {}
    outputs = list(items(execution.analyzed().output()))
    if names is not None and len(names) != len(outputs):
        raise sql_error(
            source,
            select,
            f"the view has {len(names)} column names ({', '.join(names)}), but its SELECT has {len(outputs)} columns",
        )
    for i, output in enumerate(outputs):
        name, kind = output.name() if names is None else names[i], name_of_type(output.dataType())
        begin = partial(_begin_of_output, walk, execution.logical(), i, len(outputs), select)
        if (first := seen.setdefault(name.lower(), i)) != i:
            reason = (
                f"columns {first + 1} and {i + 1} of the SELECT are both named {name!r}; rename one of them with AS"
            )
            raise sql_error(source, begin(), reason)
        try:
            twice = twice_named(arrow_type(kind))
        except UnsupportedTypeError as err:
            raise sql_error(source, begin(), f"column {name!r}: {err}") from err
        if twice is not None:
            raise sql_error(source, begin(), f"column {name!r}: {TWICE_NAMED.format(twice)}")
        fields.append(Field(name, kind))
    if not fields:
        raise sql_error(
            source, select, "this SELECT has no columns, because EXCEPT removes all of them; a view needs at least one"
        )
    return tuple(fields)


def _begin_of_output(walk: ExpressionWalk, parsed: JavaObject, column: int, columns: int, otherwise: int) -> int:
    """The offset of a result column in the text. `otherwise` if it is unknown (a star, a set operation).

    Uses the parsed plan, because a column that the analyzer has resolved may have the place of another one.
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
