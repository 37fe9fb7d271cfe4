"""Bind CREATE FLOW … AS AUTO CDC as the view that it maintains."""

from collections.abc import Callable

import msgspec
from py4j.java_gateway import JavaObject

from tussock.jobs.logical.errors import NoRelationError, SqlError, UnsupportedQueryError, sql_error
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.source_text import SourceText, edit_source
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.flow_select import flow_select
from tussock.jobs.sql.flow_words import FlowHeader, TextSpan
from tussock.jobs.sql.grammar import ViewHeader
from tussock.jobs.sql.sandbox import Sandbox, items, table_of
from tussock.statestore.decoding import decode_json
from tussock.statestore.meta.catalog import Relation, RelationKind

BindView = Callable[[SourceText, ViewHeader], CreateView]


class _DeclaredKey(msgspec.Struct):
    keyed: dict[str, object] | None = None


class _SourceDefinition(msgspec.Struct):
    """The needed part of a source's definition: whether it has a key."""

    statement: _DeclaredKey | None = None


def bind_flow(sandbox: Sandbox, source: SourceText, flow: FlowHeader, bind_view: BindView) -> CreateView:
    """The view that a flow maintains.

    Args:
        bind_view: binds a SELECT as a view.

    Raises: SqlError and UnsupportedQueryError with places in the flow's text.
    """
    relation = _source_of(sandbox, source, flow)
    select = f"{_as_comment(source.text)}\n{flow_select(source, flow, [c.name for c in relation.columns])}"
    for span in (flow.delete_when, flow.truncate_when):
        if span is not None:
            _require_condition(sandbox, source, flow, span)
    _require_sequence(sandbox, source, flow)
    header = ViewHeader(flow.target, False, flow.or_replace, None, 0)
    try:
        return bind_view(SourceText(select), header)
    except UnsupportedQueryError as err:  # its place is in the SELECT, which the user did not write
        offset = flow.sequence.begin
        place, excerpt = source.place_at(offset), source.line_with_caret(offset)
        raise UnsupportedQueryError(err.construct, err.reason, place, excerpt, f"the target {flow.target}") from err
    except SqlError as err:
        raise sql_error(source, flow.sequence.begin, err.reason) from err


def _as_comment(text: str) -> str:
    """The user's text before the SELECT, so that SHOW CREATE and the pages show it."""
    return f"/* {text.strip().replace('/*', '/ *').replace('*/', '* /')} */"


def _source_of(sandbox: Sandbox, source: SourceText, flow: FlowHeader) -> Relation:
    """The relation whose rows are the changes. Raises SqlError if its rows are replaced."""
    relation = sandbox.relations.get(flow.source)
    if relation is None or relation.kind is RelationKind.FUNCTION:
        names = tuple(sorted(r.name for r in sandbox.relations.values() if r.kind is not RelationKind.FUNCTION))
        place, excerpt = source.place_at(flow.source_offset), source.line_with_caret(flow.source_offset)
        raise NoRelationError(quote_name(flow.source), names, place, excerpt)
    replaced = False
    if relation.kind is RelationKind.TABLE:
        table = table_of(relation)
        replaced = bool(table.key) and not table.append_only
    elif relation.kind is RelationKind.SOURCE:
        statement = decode_json(relation.definition, _SourceDefinition).statement
        replaced = statement is not None and statement.keyed is not None
    if replaced:
        reason = (
            f"{relation.kind} {relation.name!r} has a PRIMARY KEY, so it keeps only the newest row of each key, and no "
            "changes; use a source without a key, or an APPEND ONLY table, that keeps every change"
        )
        raise sql_error(source, flow.source_offset, reason)
    return relation


def _require_condition(sandbox: Sandbox, source: SourceText, flow: FlowHeader, span: TextSpan) -> None:
    if (kind := _type_of(sandbox, source, flow, span)) != "boolean":
        raise sql_error(source, span.begin, f"expected a condition, but this expression is a {kind}")


def _require_sequence(sandbox: Sandbox, source: SourceText, flow: FlowHeader) -> None:
    kind = _type_of(sandbox, source, flow, flow.sequence)
    if kind.startswith(("map<", "array<")) or kind in ("variant", "boolean", "void") or kind.startswith("interval"):
        reason = f"expected a number, a text, a time or a struct of these, but this expression is a {kind}"
        raise sql_error(source, flow.sequence.begin, reason)


def _type_of(sandbox: Sandbox, source: SourceText, flow: FlowHeader, span: TextSpan) -> str:
    """The type of an expression over the flow's source. Raises SqlError at its place."""
    parts = {(0, span.begin): "SELECT ", (span.end, len(source.text)): f" FROM {quote_name(flow.source)}"}
    text = edit_source(source, parts)
    analyzed: JavaObject = sandbox.analyze(text, sandbox.parse_query(text)).queryExecution().analyzed()
    (output,) = items(analyzed.output())
    return name_of_type(output.dataType())
