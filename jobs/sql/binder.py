"""The binder: one statement's text in, a bound statement out."""

from collections.abc import Collection, Sequence

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from jobs.sql.catalyst import bind_view
from jobs.sql.dml import bind_delete, bind_insert, bind_update
from jobs.sql.errors import SqlError, sql_error, translated
from jobs.sql.grammar import Cursor, ViewHeader, read_describe, read_drop, read_show, read_source, read_view
from jobs.sql.logical import Field, Place
from jobs.sql.sandbox import Sandbox, items
from jobs.sql.source_text import SourceText
from jobs.sql.statements import Bound, CreateSource, CreateTable, CreateView, Explain, Query
from jobs.sql.tokens import tokens_of
from jobs.sql.type_names import name_of_type
from statestore.meta.catalog import Relation
from statestore.types import UnsupportedTypeError, arrow_type

_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})


_OPEN_ENDED = frozenset({"WHERE", "HAVING"})


class Binder:
    """Binds statements against a catalog's relations.

    Making one costs about 0.1 s (an isolated Spark session); keep it, and give it changes by `set_relations`. Not for several threads at
    once.
    """

    def __init__(self, spark: SparkSession, relations: Sequence[Relation], time_zone: str, formats: Collection[str]) -> None:
        """
        Args:
            spark: a classic session; only its context and JVM are used, its views and settings stay as they are.
            relations: what names may mean: the catalog's live relations.
            time_zone: the pipeline's, for timestamps in texts and casts.
            formats: those that a source can have, in lower case (jobs.sources.registry).
        """
        self._sandbox = Sandbox(spark, relations, time_zone)
        self._formats = formats

    def set_relations(self, relations: Sequence[Relation]) -> None:
        """What names may mean from now on."""
        self._sandbox.set_relations(relations)

    def bind(self, text: str, start: Place = Place(1, 1)) -> Bound:  # noqa: B008  a frozen value
        """Bind one statement, without its semicolon.

        Args:
            text: the statement.
            start: the place of its first character in the user's script, which errors then name.

        Raises:
            SqlError: what is wrong, where, and the line with a caret.
            UnsupportedQueryError: a SELECT of a view, or a condition, that cannot be kept incrementally.
            NullKeyError: an INSERT with NULL in the primary key.
        """
        with self._sandbox.active():
            return self._bind(SourceText(text, start))

    def _bind(self, source: SourceText) -> Bound:
        cursor = Cursor(source)
        if not cursor.tokens:
            raise SqlError("the statement is empty")
        last = cursor.tokens[-1]
        if last.text.upper() in _OPEN_ENDED:  # Spark reads it as another name of the relation before it, and takes every row
            raise sql_error(source, last.start, f"the statement ends in {last.text}: a condition is missing")
        if cursor.accept("INSERT"):
            return bind_insert(self._sandbox, source)
        if cursor.accept("UPDATE"):
            return bind_update(self._sandbox, source)
        if cursor.accept("DELETE"):
            return bind_delete(self._sandbox, source)
        if cursor.accept("CREATE"):
            return self._create(source, cursor)
        if cursor.accept("DROP"):
            return read_drop(cursor)
        if cursor.accept("SHOW"):
            return read_show(cursor)
        if cursor.accept("DESCRIBE") or cursor.accept("DESC"):
            return read_describe(cursor)
        if cursor.accept("EXPLAIN"):
            return self._explain(source, cursor)
        if cursor.tokens[0].text.upper() in _QUERY_WORDS:
            return self._query(source)
        raise cursor.error("expected SELECT, CREATE, DROP, INSERT, UPDATE, DELETE, SHOW, DESCRIBE or EXPLAIN")

    def _create(self, source: SourceText, cursor: Cursor) -> Bound:
        if cursor.accept("MATERIALIZED", "VIEW"):
            return self._view(source, read_view(cursor))
        if cursor.accept("SOURCE"):
            return self._source(source, cursor)
        if cursor.accept("TABLE"):
            return self._table(source, cursor)
        if cursor.comes("VIEW"):
            raise cursor.complaint("plain views are not kept; write CREATE MATERIALIZED VIEW")
        if cursor.comes("OR", "REPLACE"):
            raise cursor.complaint("OR REPLACE is not supported: drop it and create it again")
        raise cursor.error("expected CREATE MATERIALIZED VIEW, CREATE TABLE or CREATE SOURCE")

    def _view(self, source: SourceText, header: ViewHeader) -> CreateView:
        select = source.part(header.select)
        return CreateView(header.name, source.text[header.select :], bind_view(self._sandbox, select), header.if_not_exists)

    def _explain(self, source: SourceText, cursor: Cursor) -> Explain:
        if cursor.accept("CREATE"):
            cursor.expect("MATERIALIZED", "VIEW")
            view = self._view(source, read_view(cursor))
            return Explain(view.name, view.sql, view.plan)
        select = source.part(cursor.offset)
        return Explain(None, source.text[cursor.offset :], bind_view(self._sandbox, select))

    def _query(self, source: SourceText) -> Query:
        analyzed = self._sandbox.analyze(source, self._sandbox.parse_query(source)).queryExecution().analyzed()
        fields = tuple(Field(a.name(), name_of_type(a.dataType())) for a in items(analyzed.output()))
        return Query(source.text, tuple(r.name for r in self._sandbox.mentioned(source)), fields)

    def _source(self, source: SourceText, cursor: Cursor) -> CreateSource:
        header = read_source(cursor, self._formats)
        fields: tuple[Field, ...] = ()
        if header.columns is not None:
            begin, end = header.columns
            columns = source.part(begin, end)
            with translated(columns):
                schema = self._sandbox.parser().parseTableSchema(columns.for_spark)
            fields = _fields(source, begin, [(f.name(), f.dataType()) for f in schema.fields()])
        return CreateSource(header.name, header.format, fields, header.options, header.if_not_exists)

    def _table(self, source: SourceText, cursor: Cursor) -> CreateTable:
        cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name("the table")
        begin = cursor.offset
        parsed = self._sandbox.parse_statement(source)
        if parsed.productPrefix() != "CreateTable":
            raise sql_error(source, begin, "expected CREATE TABLE name (column type, …, PRIMARY KEY (column, …))")
        spec = parsed.tableSpec()
        extras = (spec.provider(), spec.comment(), spec.location(), spec.serde(), spec.collation())
        if any(extra.isDefined() for extra in extras) or not spec.properties().isEmpty() or not parsed.partitioning().isEmpty():
            raise sql_error(
                source,
                begin,
                "a table is columns and a PRIMARY KEY; USING, PARTITIONED BY, COMMENT, TBLPROPERTIES and the like do not apply",
            )
        columns = list(items(parsed.columns()))
        fields = _fields(source, begin, [(c.name(), c.dataType()) for c in columns])
        key = _primary_key(source, begin, fields, list(items(spec.constraints())))
        for i, column in enumerate(columns):
            at = _offset_of(source, begin, fields[i].name)
            if column.defaultValue().isDefined() or column.generationExpression().isDefined() or column.identityColumnSpec().isDefined():
                raise sql_error(
                    source,
                    at,
                    f"column {fields[i].name!r}: DEFAULT, GENERATED and IDENTITY are not supported",
                )
            if i not in key and not column.nullable():
                raise sql_error(
                    source,
                    at,
                    f"column {fields[i].name!r}: NOT NULL is kept for key columns only; leave it out",
                )
        return CreateTable(name, fields, key, parsed.ignoreIfExists())


def _fields(source: SourceText, offset: int, columns: Sequence[tuple[str, JavaObject]]) -> tuple[Field, ...]:
    """Declared columns: names unique, types that can be stored."""
    fields: list[Field] = []
    for name, kind in columns:
        type_name = name_of_type(kind)
        at = _offset_of(source, offset, name)
        try:
            arrow_type(type_name)
        except UnsupportedTypeError as err:
            raise sql_error(source, at, f"column {name!r}: {err}") from err
        if name.lower() in {f.name.lower() for f in fields}:
            raise sql_error(source, at, f"column {name!r} is declared twice")
        fields.append(Field(name, type_name))
    return tuple(fields)


def _offset_of(source: SourceText, offset: int, name: str) -> int:
    """Where a name occurs first at or after `offset`; `offset` where it does not."""
    fitting = (t.start for t in tokens_of(source) if t.start >= offset and t.value().lower() == name.lower())
    return next(fitting, offset)


def _primary_key(source: SourceText, offset: int, fields: Sequence[Field], constraints: Sequence[JavaObject]) -> tuple[int, ...]:
    keys = [c for c in constraints if c.productPrefix() == "PrimaryKeyConstraint"]
    if len(keys) != len(constraints):
        raise sql_error(
            source, offset, "the only constraint of a table is its PRIMARY KEY; UNIQUE, CHECK and FOREIGN KEY are not supported"
        )
    if len(keys) != 1:
        raise sql_error(source, offset, "a table needs one PRIMARY KEY (column, …): it says which row an INSERT overwrites")
    index = {f.name.lower(): i for i, f in enumerate(fields)}
    names = [str(c) for c in items(keys[0].columns())]
    unknown = [n for n in names if n.lower() not in index]
    if unknown:
        raise sql_error(
            source, offset, f"PRIMARY KEY names {unknown[0]!r}, which is no column; the columns: {', '.join(f.name for f in fields)}"
        )
    key = tuple(index[n.lower()] for n in names)
    if len(set(key)) < len(key):
        raise sql_error(source, offset, f"PRIMARY KEY ({', '.join(names)}) names a column twice")
    return key
