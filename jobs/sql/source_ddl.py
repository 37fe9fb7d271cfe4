"""Bind ALTER SOURCE. Spark's parser parses the columns as those of a table."""

from tussock.jobs.logical.errors import sql_error
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import AddSourceColumns, BoundSourceOptions
from tussock.jobs.sql.grammar import Cursor, option_names, read_options
from tussock.jobs.sql.sandbox import Sandbox, items
from tussock.jobs.sql.table_ddl import declared_fields, offset_of
from tussock.statestore.meta.catalog import RelationKind

_EXPECTED = (
    "expected ADD COLUMN name type, ADD COLUMNS (name type, …), SET OPTIONS (name 'value', …), or "
    "UNSET OPTIONS (name, …)"
)


def bind_alter_source(sandbox: Sandbox, cursor: Cursor) -> AddSourceColumns | BoundSourceOptions:
    """A statement after ALTER SOURCE: name ADD COLUMN[S] name type, …, or SET or UNSET OPTIONS. Raises SqlError."""
    source, begin = cursor.source, cursor.at
    name = cursor.name("the source")
    relation = sandbox.relations.get(name)
    if relation is None or relation.kind is not RelationKind.SOURCE:
        cursor.at = begin
        there = (
            ", ".join(sorted(r.name for r in sandbox.relations.values() if r.kind is RelationKind.SOURCE)) or "none yet"
        )
        what = f"there is no source {name!r}" if relation is None else f"{name!r} is a {relation.kind}"
        raise cursor.complaint(f"{what}; sources that exist: {there}")
    if cursor.accept("SET", "OPTIONS"):
        options = read_options(cursor)
        cursor.end()
        return BoundSourceOptions(name, options)
    if cursor.accept("UNSET", "OPTIONS"):
        removed = option_names(cursor)
        cursor.end()
        return BoundSourceOptions(name, {}, removed)
    offset = cursor.offset
    if not cursor.comes("ADD"):
        raise cursor.error(_EXPECTED)
    parsed = sandbox.parse_statement(_as_table(cursor))
    if parsed.productPrefix() != "AddColumns":
        raise cursor.error(_EXPECTED)
    columns = list(items(parsed.columnsToAdd()))
    for column in columns:
        extras = (column.path(), column.default(), column.comment(), column.position())
        if any(extra.isDefined() for extra in extras) or not column.nullable():
            at = offset_of(source, offset, column.colName())
            raise sql_error(
                source,
                at,
                "a new column of a source is only a name and a type, after the existing columns; its values come "
                "from files",
            )
    known = tuple(Field(c.name, c.type) for c in relation.columns)
    fields = declared_fields(source, offset, [(c.colName(), c.dataType()) for c in columns])
    taken = {f.name.lower() for f in known}
    for field in fields:
        if field.name.lower() in taken:
            raise sql_error(
                source, offset_of(source, offset, field.name), f"source {name!r} already has a column {field.name!r}"
            )
    return AddSourceColumns(name, known, fields)


def _as_table(cursor: Cursor) -> SourceText:
    """The statement with TABLE in place of SOURCE, padded so that offsets after it do not change."""
    source, word = cursor.source, cursor.tokens[1]
    text = source.text
    return SourceText(
        f"{text[: word.start]}{'TABLE'.ljust(len(word.text))}{text[word.start + len(word.text) :]}", source.start
    )
