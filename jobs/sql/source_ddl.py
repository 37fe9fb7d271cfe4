"""Bind ALTER SOURCE. Spark's parser parses the columns as a table's."""

from collections.abc import Sequence

from tussock.jobs.logical.errors import sql_error
from tussock.jobs.logical.nodes import Expr, Field
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import AddSourceColumns, BoundSourceOptions, SetSourceColumns
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.sql.catalyst import bind_projection
from tussock.jobs.sql.grammar import Cursor, option_names, read_options
from tussock.jobs.sql.sandbox import Sandbox, items, seq_of
from tussock.jobs.sql.table_ddl import column_of, declared_fields, offset_of, word_of
from tussock.statestore.meta.catalog import RelationKind

_EXPECTED = (
    "expected ADD COLUMN name type, ADD COLUMNS (name type, …), RENAME COLUMN name TO name, ALTER COLUMN name TYPE "
    "type, SET OPTIONS (name 'value', …), or UNSET OPTIONS (name, …)"
)


BoundAlterSource = AddSourceColumns | SetSourceColumns | BoundSourceOptions


def bind_alter_source(sandbox: Sandbox, cursor: Cursor) -> BoundAlterSource:
    """A statement after ALTER SOURCE: ADD, RENAME or ALTER COLUMN, or SET or UNSET OPTIONS. Raises SqlError."""
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
    known = tuple(Field(c.name, c.type) for c in relation.columns)
    if cursor.accept("RENAME", "COLUMN"):
        return _rename_column(cursor, name, known)
    if cursor.accept("ALTER", "COLUMN") or cursor.accept("ALTER"):
        return _widen_column(sandbox, cursor, name, known)
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
    fields = declared_fields(source, offset, [(c.colName(), c.dataType()) for c in columns])
    taken = {f.name.lower() for f in known}
    for field in fields:
        if field.name.lower() in taken:
            raise sql_error(
                source, offset_of(source, offset, field.name), f"source {name!r} already has a column {field.name!r}"
            )
    return AddSourceColumns(name, known, fields)


def bind_record_condition(sandbox: Sandbox, fields: Sequence[Field], text: str) -> Expr:
    """An expression over a record of a source, bound once as in a view. Raises SqlError, UnsupportedQueryError."""
    source = SourceText(text)
    with sandbox.active(), translating_errors(source):
        records = sandbox.empty_dataset([f.name for f in fields], [f.type for f in fields])
        frame = records.selectExpr(seq_of(sandbox, [text]))
    (bound,) = bind_projection(sandbox, source, frame, "an option")
    return bound


def _rename_column(cursor: Cursor, name: str, known: tuple[Field, ...]) -> SetSourceColumns:
    """A statement after ALTER SOURCE name RENAME COLUMN."""
    column = column_of(cursor, "source", name, known)
    cursor.expect("TO")
    begin = cursor.at
    new = word_of(cursor, "the column's new name").value()
    change = _change_column(cursor, begin, name, known, column, Field(new, known[column].type))
    cursor.end()
    return change


def _widen_column(sandbox: Sandbox, cursor: Cursor, name: str, known: tuple[Field, ...]) -> SetSourceColumns:
    """A statement after ALTER SOURCE name ALTER COLUMN. Spark parses the type, as an added column's."""
    column = column_of(cursor, "source", name, known)
    word = cursor.at
    cursor.accept("SET", "DATA") or cursor.accept("DATA")
    cursor.expect("TYPE")
    begin, source, text = cursor.at, cursor.source, cursor.source.text
    start = cursor.offset
    lines = "".join(c if c == "\n" else " " for c in text[:start])  # places in Spark's errors stay right
    as_table = f"ALTER TABLE {name} ADD COLUMN c "
    head = lines[: lines.find("\n")] if "\n" in lines else lines
    parsed = sandbox.parse_statement(
        SourceText(as_table.ljust(len(head)) + lines[len(head) :] + text[start:], source.start)
    )
    columns = list(items(parsed.columnsToAdd())) if parsed.productPrefix() == "AddColumns" else []
    extras = [e for c in columns for e in (c.path(), c.default(), c.comment(), c.position())]
    if len(columns) != 1 or any(extra.isDefined() for extra in extras) or not columns[0].nullable():
        cursor.at = word
        raise cursor.complaint("expected TYPE and a type, and nothing after it")
    (field,) = declared_fields(source, start, [(known[column].name, columns[0].dataType())])
    return _change_column(cursor, begin, name, known, column, field)


def _change_column(
    cursor: Cursor, begin: int, name: str, known: tuple[Field, ...], column: int, to: Field
) -> SetSourceColumns:
    """The statement that changes one column. Raises SqlError at the token `begin`."""
    fields = tuple(to if i == column else field for i, field in enumerate(known))
    if any(f.name.lower() == to.name.lower() for i, f in enumerate(known) if i != column):
        cursor.at = begin
        raise cursor.complaint(f"source {name!r} already has a column {to.name!r}")
    return SetSourceColumns(name, known, fields)


def _as_table(cursor: Cursor) -> SourceText:
    """The statement with TABLE in place of SOURCE, padded so that offsets after it do not change."""
    source, word = cursor.source, cursor.tokens[1]
    text = source.text
    return SourceText(
        f"{text[: word.start]}{'TABLE'.ljust(len(word.text))}{text[word.start + len(word.text) :]}", source.start
    )
