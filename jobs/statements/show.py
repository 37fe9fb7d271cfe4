"""Answers to SHOW and EXPLAIN, as columns of text and as text."""

from collections.abc import Iterator, Mapping, Sequence

from tussock.jobs.catalog.definition import (
    FunctionDefinition,
    PlainViewDefinition,
    SourceDefinition,
    TableDefinition,
    definition_of,
    find_relation,
    functions_of,
)
from tussock.jobs.catalog.schemas import schemas_of
from tussock.jobs.logical.hidden_columns import hidden_types
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import PLAIN_NAME, quote_if_needed
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView, Explain, Show, Shown
from tussock.jobs.schedule.explain import explain_relation
from tussock.jobs.sources.rejects import rejects_name
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind

_KINDS = {
    Shown.SOURCES: {RelationKind.SOURCE},
    Shown.TABLES: {RelationKind.TABLE},
    Shown.VIEWS: {RelationKind.VIEW, RelationKind.PLAIN_VIEW},
}
_QUERY = "the query"  # the name of a bare SELECT in EXPLAIN; no relation can have it


def answer_show(
    catalog: Catalog,
    statement: Show,
    rejected: Mapping[str, int] | None = None,
    held: Mapping[str, int] | None = None,
    *,
    hidden: bool = False,
) -> Mapping[str, Sequence[str]]:
    """The answer to SHOW, by column.

    Lists relations with their kind, columns and state (paused, held, built, rejects); or the columns of one relation;
    or the statement that created it.

    Args:
        rejected: by source, the number of records in its table of rejects.
        held: views that are held back, with the epoch that readers see (tussock.statestore.meta.sight).
        hidden: also list the hidden columns of a source, and mark them.
    """
    if statement.name is not None:
        relation = find_relation(catalog, statement.name)
        if statement.what is Shown.COLUMNS:
            return _with_hidden(relation, _list_columns(relation)) if hidden else _list_columns(relation)
        return {"statement": [_created_by(relation)]}
    if statement.what is Shown.SCHEMAS:
        return {"name": schemas_of(catalog)}
    if statement.what is Shown.FUNCTIONS:
        return _list_functions(catalog)
    kinds = _KINDS.get(statement.what, {kind for kinds in _KINDS.values() for kind in kinds})
    live, built = catalog.live_relations(), [(build, r) for build in catalog.builds for r in build.relations]
    names = {r.name for r in live}
    relations = [
        r for r in (*live, *(r for _, r in built if r.name not in names)) if r.kind in kinds and not r.is_internal
    ]
    building = {
        r.name: f"{'being rebuilt' if r.name in names else 'being built'} {build.progress}" for build, r in built
    }
    columns = [", ".join(f"{c.name} {c.type}" for c in r.columns) for r in relations]
    states = [
        "; ".join(
            [
                *_describe_state(r),
                *_describe_visibility(r, held or {}),
                *_describe_rejects(r, rejected or {}),
                *_describe_build(r, building),
            ]
        )
        for r in relations
    ]
    return {
        "name": [r.name for r in relations],
        "kind": [r.kind for r in relations],
        "columns": columns,
        "state": states,
    }


def _describe_state(relation: Relation) -> Iterator[str]:
    if relation.paused is not None:
        yield f"paused since epoch {relation.paused}{relation.paused_for and ': '}{relation.paused_for}"
    yield from (f"held since epoch {h.since}: {h.reason}" for h in relation.holds)


def _describe_visibility(relation: Relation, held_views: Mapping[str, int]) -> Iterator[str]:
    if (epoch := held_views.get(relation.name)) is not None:
        yield f"held back by a suite, seen as of epoch {epoch}" if epoch else "held back by a suite, not visible yet"


def _describe_build(relation: Relation, building: Mapping[str, str]) -> Iterator[str]:
    if (state := building.get(relation.name)) is not None:
        yield state


def _describe_rejects(relation: Relation, rejected: Mapping[str, int]) -> Iterator[str]:
    if count := rejected.get(relation.name):
        yield f"rejects in {rejects_name(relation.name)}: {count:,}"


def answer_explain(catalog: Catalog, statement: Explain, epoch: int) -> str:
    """The answer to EXPLAIN: the plan of the view if it were created now. Raises the errors that CREATE would raise."""
    from tussock.jobs.catalog.checks import admit_statement  # imports all kernels, which SHOW does not need

    name = statement.name or _QUERY
    view = CreateView(name, statement.sql, statement.plan)
    planned = admit_statement(catalog, view, epoch)
    return "\n".join(
        [explain_relation(planned, find_relation(planned, name)), *(f"note: {note}" for note in statement.notes)]
    )


def _list_functions(catalog: Catalog) -> Mapping[str, Sequence[str]]:
    functions = functions_of(catalog.live_relations())
    return {
        "name": [f.name for f in functions],
        "parameters": [_declare_fields(f.fields) for f in functions],
        "returns": [f.returns for f in functions],
        "code": [f"{f.module}:{f.function}" for f in functions],
        "digest": [f.digest[:12] for f in functions],
        "comment": [f.comment or "" for f in functions],
    }


def _list_columns(relation: Relation) -> Mapping[str, Sequence[str]]:
    """A relation's columns; for a table also their constraints, defaults and comments."""
    shown = {"column": [c.name for c in relation.columns], "type": [c.type for c in relation.columns]}
    definition = definition_of(relation)
    if isinstance(definition, TableDefinition):
        table = definition.statement
        defaults, comments = {d.column: d.sql for d in table.defaults}, dict(table.comments)
        places = range(len(table.fields))
        shown["type"] = [table.declared_type(i) for i in places]
        shown["constraint"] = [
            "PRIMARY KEY" if i in table.key else "NOT NULL" if i in table.not_null else "" for i in places
        ]
        shown["default"] = [defaults.get(i, "") for i in places]
        shown["comment"] = [comments.get(i, "") for i in places]
    return shown


def _with_hidden(relation: Relation, shown: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    if not (type_by_name := hidden_columns(relation)):
        return shown
    marks = [*("" for _ in shown["column"]), *("hidden: SELECT * omits it" for _ in type_by_name)]
    return {
        "column": [*shown["column"], *type_by_name],
        "type": [*shown["type"], *type_by_name.values()],
        "note": marks,
    }


def hidden_columns(relation: Relation) -> Mapping[str, str]:
    """Return the types of a source's hidden columns, by name. Empty for other relations."""
    from tussock.jobs.catalog.create import hidden_of  # imports all readers

    return hidden_types(hidden_of(relation), [c.name for c in relation.columns])


def _created_by(relation: Relation) -> str:
    match definition_of(relation):
        case SourceDefinition(statement):
            options = ", ".join(f"{_quote_option(k)} {_quote_text(v)}" for k, v in statement.options.items())
            return (
                f"CREATE SOURCE {relation.name} ({declared_text(statement)}) USING {statement.format} OPTIONS "
                f"({options})"
            )
        case TableDefinition(statement):
            return f"CREATE TABLE {statement.name} {_create_table_text(statement)}"
        case FunctionDefinition(function):
            comment = "" if function.comment is None else f" COMMENT {_quote_text(function.comment)}"
            head = f"CREATE FUNCTION {function.name} ({_declare_fields(function.fields)}) RETURNS {function.returns}"
            return f"{head}{comment} LANGUAGE PYTHON AS {_quote_text(f'{function.module}:{function.function}')}"
        case PlainViewDefinition(view):
            return f"CREATE VIEW {view.name} ({', '.join(quote_if_needed(f.name) for f in view.fields)}) AS {view.sql}"
        case view:
            columns = f" ({', '.join(map(quote_if_needed, view.columns))})" if view.columns else ""
            return f"CREATE MATERIALIZED VIEW {relation.name}{columns} AS {view.sql}"


def declared_text(of: CreateTable | CreateSource) -> str:
    """The part of a CREATE TABLE after the table's name. For a source, the part between the parentheses."""
    if isinstance(of, CreateTable):
        return _create_table_text(of)
    key = () if of.keyed is None else of.keyed.columns
    return ", ".join(part for part in (_declare_fields(of.fields), _declare_key(of.fields, key)) if part)


def _create_table_text(table: CreateTable) -> str:
    defaults = {d.column: f" DEFAULT {d.sql}" for d in table.defaults}
    comments = {column: f" COMMENT {_quote_text(text)}" for column, text in table.comments}
    columns = [
        f"{quote_if_needed(f.name)} {table.declared_type(i)}{' NOT NULL' if i in table.not_null else ''}"
        f"{defaults.get(i, '')}{comments.get(i, '')}"
        for i, f in enumerate(table.fields)
    ]
    columns += [key] if (key := _declare_key(table.fields, table.key)) else []
    comment = "" if table.comment is None else f" COMMENT {_quote_text(table.comment)}"
    return f"({', '.join(columns)}){' APPEND ONLY' if table.append_only else ''}{comment}"


def _declare_key(fields: Sequence[Field], key: Sequence[int]) -> str:
    return f"PRIMARY KEY ({', '.join(quote_if_needed(fields[k].name) for k in key)})" if key else ""


def _declare_fields(fields: Sequence[Field]) -> str:
    return ", ".join(f"{quote_if_needed(f.name)} {f.type}" for f in fields)


def _quote_option(name: str) -> str:
    return name if all(PLAIN_NAME.fullmatch(part.lower()) for part in name.split(".")) else quote_if_needed(name)


def _quote_text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
