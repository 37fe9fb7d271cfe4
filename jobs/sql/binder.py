"""The binder: turns the text of one statement into a bound statement."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError, sql_error
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Expr, Field
from tussock.jobs.logical.script import digest_under
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import (
    Bound,
    BoundChange,
    BoundCreateTableAs,
    BoundInsertSelect,
    CreatePlainView,
    CreateSource,
    CreateView,
    Drop,
    Explain,
    KeyedBy,
    Query,
    RelationAt,
)
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.catalyst import bind_dataframe, bind_view, proven_text, text_of_dataframe
from tussock.jobs.sql.dml import bind_delete, bind_insert, bind_merge, bind_truncate, bind_update
from tussock.jobs.sql.flow import bind_flow
from tussock.jobs.sql.flow_words import FlowHeader, find_flow
from tussock.jobs.sql.function_ddl import bind_function
from tussock.jobs.sql.grammar import Cursor, ViewHeader, read_describe, read_drop, read_show, read_source, read_view
from tussock.jobs.sql.sandbox import Sandbox, items
from tussock.jobs.sql.show import show_plan
from tussock.jobs.sql.source_ddl import bind_alter_source, bind_record_condition
from tussock.jobs.sql.table_ddl import bind_alter, bind_comment, bind_table, declared_fields
from tussock.jobs.sql.table_words import read_column_list
from tussock.jobs.sql.time_travel import Epochs, at_their_epochs, refuse_epochs
from tussock.jobs.sql.used_schema import with_schema
from tussock.statestore.meta.catalog import Relation, RelationKind

_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})
_READS = _QUERY_WORDS | {"INSERT", "UPDATE", "DELETE", "MERGE"}  # first words of statements that read rows once

#: The first words of a view's text if its SELECT is unknown: a comment that contains its plan.
OF_A_DATAFRAME = "/* made of a DataFrame (Session.create_view); it keeps"
_OPEN_ENDED = frozenset({"WHERE", "HAVING"})


class Binder:
    """Binds statements against a catalog's relations.

    Creating one costs about 0.1 s (an isolated Spark session). Reuse it, and pass changes by `set_relations`. Not
    thread-safe.
    """

    def __init__(
        self,
        spark: SparkSession,
        relations: Sequence[Relation],
        time_zone: str,
        formats: Collection[str],
        has_kernel: Callable[[Expr], bool] | None = None,
        without_path: Collection[str] = (),
        hidden: Callable[[Relation], tuple[HiddenColumn, ...]] = lambda _: (),
    ) -> None:
        """
        Args:
            spark: a classic session. Only its context and JVM are used; its views and settings do not change.
            relations: the catalog's live relations, to which names may refer.
            time_zone: the pipeline's, for timestamps in texts and casts.
            formats: the formats of sources, in lower case (tussock.jobs.sources.registry).
            has_kernel: whether a kernel implements an expression (jobs/kernels/render.py). Spark computes the other
                expressions of a view. None: Spark computes nothing.
            without_path: the formats whose sources have no path.
            hidden: the hidden columns of a relation.
        """
        self._sandbox = Sandbox(spark, relations, time_zone, has_kernel, hidden)
        self._formats, self._without_path = formats, without_path
        self.notes: list[str] = []  # notes for the user about the last bound statement

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox in which statements are bound."""
        return self._sandbox

    def set_relations(self, relations: Sequence[Relation]) -> None:
        """Replace the relations to which names may refer."""
        self._sandbox.set_relations(relations)

    def bind(self, statement: SourceText | str, epochs: Epochs | None = None) -> Bound:
        """Bind one statement, without its semicolon.

        Args:
            statement: its text, with its place in the user's script for error messages.
            epochs: resolves references to other epochs. None: such references are rejected.

        Raises:
            SqlError: with the reason, the place, and the line with a caret.
            UnsupportedQueryError: a SELECT of a view, or a condition, that cannot be maintained incrementally.
            NullKeyError: an INSERT with NULL in the primary key.
        """
        self.notes = []
        with self._sandbox.active():
            return self._bind_text(SourceText(statement) if isinstance(statement, str) else statement, epochs)

    def bind_frame(self, name: str, analyzed: JavaObject, leaves: Mapping[int, str], if_not_exists: bool) -> CreateView:
        """A view that maintains a DataFrame's query.

        Args:
            analyzed: the DataFrame's plan (JVM).
            leaves: the numbers of the RDDs that represent relations, and the names of these relations.

        Raises: SqlError for a bad name, duplicate column names, or a column that cannot be stored;
            UnsupportedQueryError.
        """
        self.notes = []
        header = Cursor(SourceText(name))
        name = header.name("the view")
        header.end()
        with self._sandbox.active(), self._sandbox.standing_for(leaves):
            plan = bind_dataframe(self._sandbox, analyzed, self.notes)
            select = text_of_dataframe(self._sandbox, analyzed, plan)
        return CreateView(name, select or f"{OF_A_DATAFRAME}\n{show_plan(plan)}\n*/", plan, if_not_exists)

    def select_of_frame(self, analyzed: JavaObject) -> str:
        """The SELECT of a DataFrame over this binder's relations, with the names of plain views.

        Args:
            analyzed: the DataFrame's plan (JVM).

        Raises: NoTextError with the reason; as `bind_frame`.
        """
        with self._sandbox.active():
            plan = bind_dataframe(self._sandbox, analyzed, [])
            return proven_text(self._sandbox, analyzed, plan, names_views=True)

    def bind_again(
        self, name: str, sql: str, columns: Sequence[str], *, materialized: bool
    ) -> CreateView | CreatePlainView:
        """An existing view bound to the current relations, as a replacement for itself.

        Args:
            sql: its SELECT.
            columns: the column list of its statement. Empty: the SELECT names the columns.

        Raises: as `bind`; UnsupportedQueryError for a view made from a DataFrame.
        """
        self.notes = []
        if sql.startswith(OF_A_DATAFRAME):
            raise UnsupportedQueryError("its query", "it was made from a DataFrame, so its SELECT is unknown")
        source, header = SourceText(sql), ViewHeader(name, False, True, tuple(columns) or None, 0)
        with self._sandbox.active():
            return self._bind_view(source, header) if materialized else self._plain_view(source, header)

    def _bind_text(self, source: SourceText, epochs: Epochs | None) -> Bound:
        cursor = Cursor(source)
        if not cursor.tokens:
            raise SqlError("the statement is empty")
        last = cursor.tokens[-1]
        if (
            last.text.upper() in _OPEN_ENDED
        ):  # Spark would read it as an alias of the relation before it, and select every row
            raise sql_error(source, last.start, f"the statement ends in {last.text}: a condition is missing")
        if cursor.tokens[0].text.upper() in _READS:
            source = with_schema(self._sandbox, source)
        if cursor.tokens[0].text.upper() in _READS or cursor.comes("CREATE", "TABLE"):
            source, at = at_their_epochs(self._sandbox, source, epochs)
            return _with_epochs(self._bind_statement(source, Cursor(source)), at)
        return self._bind_statement(source, cursor)

    def _bind_statement(self, source: SourceText, cursor: Cursor) -> Bound:
        if cursor.accept("INSERT"):
            return bind_insert(self._sandbox, source)
        if cursor.accept("UPDATE"):
            return bind_update(self._sandbox, source)
        if cursor.accept("DELETE"):
            return bind_delete(self._sandbox, source)
        if cursor.accept("MERGE"):
            return bind_merge(self._sandbox, source)
        if cursor.accept("TRUNCATE"):
            return bind_truncate(self._sandbox, source)
        if cursor.accept("ALTER", "TABLE"):
            return bind_alter(self._sandbox, cursor)
        if cursor.accept("ALTER", "SOURCE"):
            return bind_alter_source(self._sandbox, cursor)
        if cursor.accept("COMMENT", "ON"):
            return bind_comment(self._sandbox, cursor)
        if cursor.accept("CREATE"):
            return self._bind_create(source, cursor)
        if cursor.accept("DROP"):
            return self._bind_drop(cursor)
        if cursor.accept("SHOW"):
            return read_show(cursor)
        if cursor.accept("DESCRIBE") or cursor.accept("DESC"):
            return read_describe(cursor)
        if cursor.accept("EXPLAIN"):
            return self._bind_explain(source, cursor)
        if cursor.tokens[0].text.upper() in _QUERY_WORDS:
            return self._bind_query(source)
        raise cursor.error(
            "expected SELECT, WITH, CREATE, ALTER, DROP, INSERT, UPDATE, DELETE, MERGE, TRUNCATE, SHOW, DESCRIBE or "
            "EXPLAIN"
        )

    def _bind_create(self, source: SourceText, cursor: Cursor) -> Bound:
        if (flow := find_flow(cursor)) is not None:
            return self._bind_flow(source, flow)
        or_replace = cursor.accept("OR", "REPLACE")
        if cursor.accept("MATERIALIZED"):
            cursor.expect("VIEW")
            return self._bind_view(source, read_view(cursor, or_replace))
        if cursor.accept("VIEW"):
            return self._plain_view(source, read_view(cursor, or_replace))
        if cursor.accept("FUNCTION"):
            return bind_function(self._sandbox, source, cursor, or_replace)
        if or_replace:
            raise cursor.complaint(
                "OR REPLACE is for views and functions: the rows of a table or source cannot be computed again"
            )
        if cursor.accept("SOURCE"):
            return self._bind_create_source(source, cursor)
        if cursor.accept("TABLE"):
            return bind_table(self._sandbox, source, cursor)
        raise cursor.error(
            "expected CREATE MATERIALIZED VIEW, CREATE VIEW, CREATE TABLE, CREATE SOURCE, CREATE FLOW or CREATE "
            "FUNCTION"
        )

    def _bind_flow(self, source: SourceText, flow: FlowHeader) -> CreateView:
        return bind_flow(self._sandbox, source, flow, self._bind_view)

    def _bind_view(self, source: SourceText, header: ViewHeader) -> CreateView:
        select = with_schema(self._sandbox, source.take_part(header.select))
        refuse_epochs(self._sandbox, select, "a materialized view")
        plan = bind_view(self._sandbox, select, header.columns, self.notes)
        uses = self._sandbox.plain_views(select)
        return CreateView(
            header.name,
            select.text[header.select :],
            plan,
            header.if_not_exists,
            header.columns or (),
            uses,
            header.or_replace,
            written=digest_under(source.schema, source.text[header.select :]),
        )

    def _plain_view(self, source: SourceText, header: ViewHeader) -> CreatePlainView:
        select = with_schema(self._sandbox, source.take_part(header.select))
        refuse_epochs(self._sandbox, select, "a view")
        analyzed = self._sandbox.analyze(select, self._sandbox.parse_query(select)).queryExecution().analyzed()
        own = [(a.name(), name_of_type(a.dataType())) for a in items(analyzed.output())]
        names = header.columns or tuple(name for name, _ in own)
        if len(names) != len(own):
            raise sql_error(
                source, header.select, f"the view has {len(names)} column names, but its SELECT has {len(own)} columns"
            )
        for of, column_names in (("SELECT", [name for name, _ in own]), ("view", names)):
            if twice := [
                name for i, name in enumerate(column_names) if name.lower() in {n.lower() for n in column_names[:i]}
            ]:
                raise sql_error(
                    source,
                    header.select,
                    f"two columns of the {of} are named {twice[0]!r}; rename one of them with AS",
                )
        fields = tuple(Field(name, kind) for name, (_, kind) in zip(names, own, strict=True))
        uses = tuple(r.name for r in self._sandbox.relations_mentioned(select))
        return CreatePlainView(
            header.name,
            select.text[header.select :],
            fields,
            tuple(name for name, _ in own),
            uses,
            header.if_not_exists,
            header.or_replace,
            digest_under(source.schema, source.text[header.select :]),
        )

    def _bind_drop(self, cursor: Cursor) -> Drop:
        """DROP VIEW drops both kinds of views."""
        drop = read_drop(cursor)
        relation = self._sandbox.relations.get(drop.name)
        plain = drop.kind is RelationKind.VIEW and relation is not None and relation.kind is RelationKind.PLAIN_VIEW
        return msgspec.structs.replace(drop, kind=RelationKind.PLAIN_VIEW) if plain else drop

    def _bind_explain(self, source: SourceText, cursor: Cursor) -> Explain:
        if cursor.accept("CREATE"):
            view = self._bind_explained(source, cursor)
            return Explain(view.name, view.sql, view.plan, tuple(self.notes))
        select = with_schema(self._sandbox, source.take_part(cursor.offset))
        refuse_epochs(self._sandbox, select, "a materialized view")
        return Explain(
            None, source.text[cursor.offset :], bind_view(self._sandbox, select, notes=self.notes), tuple(self.notes)
        )

    def _bind_explained(self, source: SourceText, cursor: Cursor) -> CreateView:
        if (flow := find_flow(cursor)) is not None:
            return self._bind_flow(source, flow)
        cursor.expect("MATERIALIZED", "VIEW")
        return self._bind_view(source, read_view(cursor))

    def _bind_query(self, source: SourceText) -> Query:
        analyzed = self._sandbox.analyze(source, self._sandbox.parse_query(source)).queryExecution().analyzed()
        fields = tuple(Field(a.name(), name_of_type(a.dataType())) for a in items(analyzed.output()))
        return Query(source, tuple(r.name for r in self._sandbox.relations_mentioned(source)), fields)

    def _bind_create_source(self, source: SourceText, cursor: Cursor) -> CreateSource:
        header = read_source(cursor, self._formats, self._without_path)
        fields: tuple[Field, ...] = ()
        keyed: KeyedBy | None = None
        if header.columns is not None:
            words = read_column_list(source, *header.columns)
            with translating_errors(words.text):
                schema = self._sandbox.parser().parseTableSchema(words.text.for_spark)
            declared = [(f.name(), f.dataType()) for f in schema.fields()]
            fields = declared_fields(words.text, header.columns[0], declared)
            keyed = None if words.key is None else KeyedBy(words.key.places_in(fields))
        if keyed is not None and (condition := header.options.get("delete_when")) is not None:
            keyed = msgspec.structs.replace(keyed, delete_when=bind_record_condition(self._sandbox, fields, condition))
        return CreateSource(header.name, header.format, fields, header.options, header.if_not_exists, keyed=keyed)


def _with_epochs(bound: Bound, at: tuple[RelationAt, ...]) -> Bound:
    """The statement with the relations that it names at other epochs."""
    match bound:
        case Query() | BoundInsertSelect() | BoundChange():
            return msgspec.structs.replace(bound, at=at)
        case BoundCreateTableAs(rows=BoundInsertSelect() as rows):
            return msgspec.structs.replace(bound, rows=msgspec.structs.replace(rows, at=at))
        case _:
            return bound
