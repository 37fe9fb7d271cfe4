"""The hidden views of suites without a JVM: handwritten plans stand for the SELECTs of rules on integers."""

from collections.abc import Mapping
from functools import reduce

from tests.support.jobs.driver.embedded import append
from tussock.jobs.catalog.statement_log import pending_catalog
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Aggregate,
    Call,
    Column,
    Expr,
    Field,
    Filter,
    Literal,
    Plan,
    Project,
    Scan,
)
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.quality.expectations import ROWS, Number, RowRule
from tussock.jobs.quality.measures import Measures, failing_view, find_measures, numbers_view, select_statements
from tussock.jobs.quality.suite import Suite
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.store import MetaStore

Columns = Mapping[str, Column]


def apply_suites(meta: MetaStore, *suites: Suite) -> None:
    """Log the hidden views of suites, as `tussock apply` does. Epochs maintain them from the next one on."""
    relations = {r.name: r for r in pending_catalog(meta, meta.read_latest()).live_relations()}
    for suite in suites:
        for condition, measures in find_measures(suite, relations[suite.view]).parts.items():
            assert not condition, "handwritten plans have no row conditions"
            append(meta, *hidden_views(relations[suite.view], measures))


def hidden_views(view: Relation, measures: Measures) -> list[CreateView]:
    """The views of numbers and of failing rows over all rows."""
    fields = tuple(Field(c.name, c.type) for c in view.columns)
    columns = {field.name: Column(i, field.type) for i, field in enumerate(fields)}
    rows = Scan(view.name, tuple(range(len(fields))), fields)
    calls = [call_of(number, measures, columns) for number in measures.numbers]
    named = tuple(Field(n.column, call.type) for n, call in zip(measures.numbers, calls, strict=True))
    views: list[tuple[str, Plan]] = [(numbers_view(view.name, ""), Aggregate(rows, (), tuple(calls), named))]
    if measures.rules:
        fails = [fails_of(rule, columns) for rule in measures.rules.values()]
        flags = tuple(Field(rule.flag, "boolean") for rule in measures.rules.values())
        some = Filter(rows, reduce(lambda a, b: Call("Or", "boolean", (a, b)), fails))
        views.append((failing_view(view.name, ""), Project(some, (*columns.values(), *fails), (*fields, *flags))))
    selects = dict(select_statements(view, measures))
    return [CreateView(name, selects[name], plan, or_replace=True) for name, plan in views]


def call_of(number: Number, measures: Measures, columns: Columns) -> AggCall:
    if number == ROWS:
        return AggCall(AggFunction.COUNT, "bigint", ())
    column = columns[number.columns[0]]
    if number.kind in ("max", "min"):
        return AggCall(AggFunction[number.kind.upper()], column.type, (column,))
    rule = measures.rules.get(number)
    counted = Call("IsNull", "boolean", (column,)) if rule is None else fails_of(rule, columns)
    return AggCall(AggFunction.COUNT, "bigint", (), filter=counted)


def fails_of(rule: RowRule, columns: Columns) -> Expr:
    """The condition of rows that fail a rule on integers."""
    column = columns[rule.columns[0]]
    if rule.metric == "column_values.nonnull":
        return Call("IsNull", "boolean", (column,))
    if rule.metric == "column_values.in_set":
        values = tuple(Literal(value, column.type) for value in rule.arguments["value_set"])
        return Call("Not", "boolean", (Call("In", "boolean", (column, *values)),))
    assert rule.metric == "column_values.between", "no other rule has a handwritten plan"
    signs = {"min_value": "LessThan", "max_value": "GreaterThan"}
    outside: list[Expr] = [
        Call(signs[name], "boolean", (column, Literal(bound, column.type))) for name, bound in rule.arguments.items()
    ]
    return reduce(lambda a, b: Call("Or", "boolean", (a, b)), outside)
