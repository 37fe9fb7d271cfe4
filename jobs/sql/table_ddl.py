"""Bind CREATE TABLE, with columns or AS SELECT, and ALTER TABLE, as Spark's parser parses them."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
from py4j.java_gateway import JavaObject

from tussock.jobs.logical.errors import sql_error
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.relation_names import schema_of
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import AddColumns, AlterTable, BoundCreateTableAs, CreateTable, Default
from tussock.jobs.logical.text_lengths import fitted_texts, has_length, lengths_of
from tussock.jobs.logical.tokens import Token, tokens_of
from tussock.jobs.spark.collected import collect_rows
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.assign import default_of
from tussock.jobs.sql.dml import bind_rows, named_table
from tussock.jobs.sql.grammar import Cursor
from tussock.jobs.sql.sandbox import Sandbox, items, table_of, text_of
from tussock.jobs.sql.table_words import read_table_words
from tussock.jobs.sql.used_schema import with_schema
from tussock.statestore.hummock.row_shape import value_bytes
from tussock.statestore.nested import relabel_column
from tussock.statestore.types import UnsupportedTypeError, arrow_type
from tussock.statestore.vnode import one_array


def bind_table(sandbox: Sandbox, source: SourceText, cursor: Cursor) -> CreateTable | BoundCreateTableAs:
    """A statement after CREATE TABLE. Raises SqlError: syntax, types, a bad key, unsupported clauses."""
    cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("the table")
    begin, words = cursor.offset, read_table_words(cursor)
    source, cursor = words.text, Cursor(words.text, cursor.at)
    parsed = sandbox.parse_statement(source)
    kind = parsed.productPrefix()
    if kind not in ("CreateTable", "CreateTableAsSelect"):
        raise sql_error(source, begin, "expected CREATE TABLE name (column type, …) or CREATE TABLE name AS SELECT …")
    spec = parsed.tableSpec()
    extras = (spec.provider(), spec.location(), spec.serde(), spec.collation())
    if (
        any(extra.isDefined() for extra in extras)
        or not spec.properties().isEmpty()
        or not parsed.partitioning().isEmpty()
    ):
        reason = (
            "a table has only columns and a PRIMARY KEY; USING, PARTITIONED BY, TBLPROPERTIES and similar do not apply"
        )
        raise sql_error(source, begin, reason)
    table = CreateTable(
        name, (), (), parsed.ignoreIfExists(), comment=text_of(spec.comment()), append_only=words.append_only
    )
    if kind == "CreateTableAsSelect":
        source = with_schema(sandbox, source)
        cursor, parsed = Cursor(source, cursor.at), sandbox.parse_statement(source)
        return _table_as(sandbox, source, cursor, table, parsed)
    columns = list(items(parsed.columns()))
    fields = declared_fields(source, begin, [(c.name(), c.dataType()) for c in columns], lengths=True)
    places = offsets_of(source, begin, [f.name for f in fields])
    key = () if words.key is None else words.key.places_in(fields)
    for field, column, place in zip(fields, columns, places, strict=True):
        if column.generationExpression().isDefined() or column.identityColumnSpec().isDefined():
            raise sql_error(source, place, f"column {field.name!r}: GENERATED and IDENTITY are not supported")
    return CreateTable(
        name,
        fields,
        key,
        table.if_not_exists,
        tuple(i for i, column in enumerate(columns) if i not in key and not column.nullable()),
        tuple(
            default_of(sandbox, source, place, i, field, column.defaultValue().get().originalSQL())
            for i, (field, column, place) in enumerate(zip(fields, columns, places, strict=True))
            if column.defaultValue().isDefined()
        ),
        table.comment,
        tuple((i, text) for i, column in enumerate(columns) if (text := text_of(column.comment())) is not None),
        lengths_of([name_of_type(column.dataType()) for column in columns]),
        table.append_only,
    )


def bind_alter(sandbox: Sandbox, cursor: Cursor) -> AlterTable | AddColumns:
    """A statement after ALTER TABLE: ADD COLUMN[S], RENAME TO, RENAME COLUMN … TO, or ALTER [COLUMN] … COMMENT.

    Raises: SqlError.
    """
    table = table_of(named_table(sandbox, cursor))
    if cursor.accept("RENAME", "TO"):
        to = msgspec.structs.replace(table, name=_new_name(cursor, table))
    elif cursor.accept("RENAME", "COLUMN"):
        column = column_of(cursor, "table", table.name, table.fields)
        cursor.expect("TO")
        begin = cursor.offset
        name = word_of(cursor, "the column's new name").value()
        if any(f.name.lower() == name.lower() for i, f in enumerate(table.fields) if i != column):
            raise sql_error(cursor.source, begin, f"table {table.name!r} already has a column {name!r}")
        fields = tuple(Field(name, f.type) if i == column else f for i, f in enumerate(table.fields))
        to = msgspec.structs.replace(table, fields=fields)
    elif cursor.accept("ALTER"):
        cursor.accept("COLUMN")
        column = column_of(cursor, "table", table.name, table.fields)
        cursor.expect("COMMENT")
        to = _with_comment(table, column, _read_comment(cursor))
    elif cursor.comes("ADD"):
        return _added_columns(sandbox, cursor, table)
    else:
        raise cursor.error(
            "expected ADD COLUMNS (name type, …), RENAME TO …, RENAME COLUMN … TO … or ALTER COLUMN … COMMENT '…'"
        )
    cursor.end()
    return AlterTable(table, to)


def _new_name(cursor: Cursor, table: CreateTable) -> str:
    """The new name of a table. Without a schema, the table stays in its own."""
    source = replace(cursor.source, schema=schema_of(table.name))
    named = Cursor(source, cursor.at)
    name = named.name("the table")
    cursor.at = named.at
    return name


def _added_columns(sandbox: Sandbox, cursor: Cursor, table: CreateTable) -> AddColumns:
    """The table with the added columns. Existing rows get the current value of each DEFAULT for good."""
    source, begin = cursor.source, cursor.offset
    parsed = sandbox.parse_statement(source)
    if parsed.productPrefix() != "AddColumns":
        raise cursor.error("expected ADD COLUMN name type [NOT NULL] [DEFAULT value] [COMMENT '…'], or ADD COLUMNS (…)")
    columns = list(items(parsed.columnsToAdd()))
    if any(c.path().isDefined() for c in columns):
        raise sql_error(source, begin, "fields cannot be added to an existing struct; add a column of the whole struct")
    if any(c.position().isDefined() for c in columns):
        raise sql_error(source, begin, "columns are added after the existing ones; FIRST and AFTER do not apply")
    own = len(table.fields)
    fields = declared_fields(source, begin, [(c.colName(), c.dataType()) for c in columns], lengths=True)
    places = offsets_of(source, begin, [f.name for f in fields])
    taken = {f.name.lower() for f in table.fields}
    defaults: list[Default] = []
    held_values: list[bytes] = []
    for i, (field, column, place) in enumerate(zip(fields, columns, places, strict=True)):
        if field.name.lower() in taken:
            raise sql_error(source, place, f"table {table.name!r} already has a column {field.name!r}")
        sql = "NULL"
        if column.default().isDefined():
            sql = column.default().get().originalSQL()
            defaults.append(default_of(sandbox, source, place, own + i, field, sql))
        value = _value_now(sandbox, source, place, field, sql)
        added = CreateTable(table.name, (field,), (), lengths=lengths_of([name_of_type(column.dataType())]))
        value = one_array(fitted_texts(added, pa.table([value], names=["c"])).column(0))
        if not column.nullable() and value.null_count:
            reason = (
                f"column {field.name!r} is NOT NULL, but the table's rows would get NULL; give it a DEFAULT that is "
                "not NULL"
            )
            raise sql_error(source, place, reason)
        held_values.append(value_bytes(value))
    lengths = (*table.lengths, *lengths_of([name_of_type(c.dataType()) for c in columns], own))
    to = msgspec.structs.replace(
        table,
        lengths=lengths,
        fields=(*table.fields, *fields),
        not_null=(*table.not_null, *(own + i for i, column in enumerate(columns) if not column.nullable())),
        defaults=(*table.defaults, *defaults),
        comments=(
            *table.comments,
            *((own + i, text) for i, c in enumerate(columns) if (text := text_of(c.comment())) is not None),
        ),
    )
    return AddColumns(table, to, tuple(held_values))


def _value_now(sandbox: Sandbox, source: SourceText, place: int, field: Field, sql: str) -> pa.Array:
    """The current value of an expression without rows, as an array of length 1 of the field's type.

    Raises: SqlError if the expression is not deterministic.
    """
    frame = sandbox.session.range(1).selectExpr(f"CAST(({sql}) AS {field.type}) AS c")
    if not frame._jdf.queryExecution().analyzed().deterministic():
        reason = (
            f"the default of column {field.name!r} ({sql}) differs from row to row, but the existing rows all get "
            "one value"
        )
        raise sql_error(source, place, reason)
    value = collect_rows(frame).column(0).combine_chunks()
    return one_array(relabel_column(value, arrow_type(field.type)))


def bind_comment(sandbox: Sandbox, cursor: Cursor) -> AlterTable:
    """A statement after COMMENT ON: TABLE name IS text, or COLUMN name.column IS text. NULL removes the comment.

    Raises: SqlError.
    """
    if cursor.accept("COLUMN"):
        begin = cursor.at
        end = next((i for i in range(begin, len(cursor.tokens)) if cursor.tokens[i].text.upper() == "IS"), begin)
        dot = next((i for i in reversed(range(begin, end)) if cursor.tokens[i].text == "."), None)
        if dot is None:
            raise cursor.error("expected table.column")
        del cursor.tokens[dot]  # the table's name ends here
        table = table_of(named_table(sandbox, cursor))
        column = column_of(cursor, "table", table.name, table.fields)
        cursor.expect("IS")
        to = _with_comment(table, column, _read_comment(cursor))
    else:
        cursor.expect("TABLE")
        table = table_of(named_table(sandbox, cursor))
        cursor.expect("IS")
        to = msgspec.structs.replace(table, comment=_read_comment(cursor))
    cursor.end()
    return AlterTable(table, to)


def _with_comment(table: CreateTable, column: int, comment: str | None) -> CreateTable:
    comments = {c: text for c, text in table.comments if c != column} | ({} if comment is None else {column: comment})
    return msgspec.structs.replace(table, comments=tuple(sorted(comments.items())))


def _read_comment(cursor: Cursor) -> str | None:
    if cursor.accept("NULL"):
        return None
    token = cursor.next("a text in quotes, or NULL")
    if token.kind != "string":
        cursor.at -= 1
        raise cursor.error("expected a text in quotes, or NULL")
    return token.value()


def word_of(cursor: Cursor, what: str) -> Token:
    """The next token, which must be a name. Raises SqlError."""
    token = cursor.next(what)
    if token.kind not in ("word", "name"):
        cursor.at -= 1
        raise cursor.error(f"expected {what}")
    return token


def column_of(cursor: Cursor, kind: str, relation: str, fields: Sequence[Field]) -> int:
    """The place of the column that is named next. Raises SqlError. `kind`: of the relation, for the error."""
    begin = cursor.offset
    name = word_of(cursor, "the name of a column").value()
    for i, field in enumerate(fields):
        if field.name.lower() == name.lower():
            return i
    reason = f"{kind} {relation!r} has no column {name!r}; its columns: {', '.join(f.name for f in fields)}"
    raise sql_error(cursor.source, begin, reason)


def _table_as(
    sandbox: Sandbox, source: SourceText, cursor: Cursor, table: CreateTable, parsed: JavaObject
) -> BoundCreateTableAs:
    """CREATE TABLE … AS SELECT. Its columns are the query's, because Spark's grammar allows no key there."""
    if cursor.accept("COMMENT"):
        cursor.next("a comment")
    cursor.accept("AS")
    select = source.take_part(cursor.offset)
    with sandbox.files_readable():
        frame = sandbox.analyze(select, parsed.query())
    output = [(a.name(), a.dataType()) for a in items(frame.queryExecution().analyzed().output())]
    fields = declared_fields(source, cursor.offset, output)
    rows = bind_rows(
        sandbox, select, frame, parsed.query(), CreateTable(table.name, fields, ()), tuple(range(len(fields)))
    )
    return BoundCreateTableAs(msgspec.structs.replace(table, fields=fields), rows)


def declared_fields(
    source: SourceText, offset: int, columns: Sequence[tuple[str, JavaObject]], lengths: bool = False
) -> tuple[Field, ...]:
    """Declared columns with unique names and types that can be stored.

    `lengths`: also char(n) and varchar(n), as strings.
    """
    fields: dict[str, Field] = {}
    for name, kind in columns:
        type_name = name_of_type(kind)
        type_name = "string" if lengths and has_length(type_name) else type_name
        try:
            arrow_type(type_name)
        except UnsupportedTypeError as err:
            raise sql_error(source, offset_of(source, offset, name), f"column {name!r}: {err}") from err
        if name.lower() in fields:
            raise sql_error(source, offset_of(source, offset, name), f"column {name!r} is declared twice")
        fields[name.lower()] = Field(name, type_name)
    return tuple(fields.values())


def offset_of(source: SourceText, offset: int, name: str) -> int:
    """The first offset of a name at or after `offset`, or `offset` if the text lacks it. Cost: linear in the text."""
    return offsets_of(source, offset, [name])[0]


def offsets_of(source: SourceText, offset: int, names: Sequence[str]) -> list[int]:
    """As `offset_of`, for many names in one pass over the text."""
    first: dict[str, int] = {}
    for token in tokens_of(source):
        if token.start >= offset:
            first.setdefault(token.value().lower(), token.start)
    return [first.get(name.lower(), offset) for name in names]
