"""A Spark session with the relations of a store as of one epoch, in which the SELECT of a view is computed again.

Tables and other views contribute their stored rows. The rows of sources are read from the taken bytes by Spark's own
reader (`SourceReader.by_spark`), if Spark has one for the format. It shares no code with the reader of epochs.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tussock.jobs.catalog.create import hidden_of
from tussock.jobs.catalog.definition import output_of, source_of, stores_rows
from tussock.jobs.kernels.python_function import call_function
from tussock.jobs.logical.hidden_columns import HiddenColumn, mentions_hidden
from tussock.jobs.logical.months import carried_name, columns_of_carried
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import names_mentioned
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateFunction
from tussock.jobs.reading.query import with_lengths
from tussock.jobs.reading.reader import open_table, relation_frame
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.spark.release import arrow_function
from tussock.jobs.spark.session import SQL, activated_session, sql_session
from tussock.jobs.sql.hidden_columns import WideColumns, with_hidden_columns
from tussock.jobs.sql.now import at_moment
from tussock.jobs.sql.plain_view import plain_view_of, register_view
from tussock.jobs.sql.python_function import function_of
from tussock.jobs.sql.qualified_names import parse_query, query_rows
from tussock.jobs.sql.sandbox import Sandbox
from tussock.jobs.verify.canonical import exact_hash, floats_of
from tussock.jobs.verify.compare import Columns
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.table.storage_table import StorageTable

if TYPE_CHECKING:
    from collections.abc import Callable

_SETTINGS = {
    **SQL,
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.csv.parser.columnPruning.enabled": "false",  # which columns a view reads must not affect parsing
    # Otherwise a part that two expressions share is computed before the CASE that guards it in each.
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.debug.maxToStringFields": "1000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2048",  # the batch size promised to Python functions
}
_CLOCKS = re.compile(r"\b(now|current_timestamp|current_date|curdate|localtimestamp|unix_timestamp)\b", re.IGNORECASE)


class NoMomentError(InputError, hides_row_values=True):
    """A view uses now(), and the moment of its epoch is unknown."""

    epoch: int

    def __str__(self) -> str:
        return (
            f"The store no longer records the value of now() in epoch {self.epoch}. Verify the published epoch instead."
        )


class Inputs:
    """The relations of a store as of one epoch, as views of a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        meta: MetaStore,
        version: HummockVersion,
        epoch: int,
        moment: int | None,
        sandbox: "Callable[[], Sandbox]",
        descending: bool | None = None,
        shared: Collection[int] = (),
    ) -> None:
        """
        Args:
            version: a pinned version in which `epoch` can be read.
            moment: the value of now() in that epoch, Unix microseconds. None: unknown.
            sandbox: for statements over the relations of the epoch; called only for views that read the clock.
            shared: relations whose stored rows are read several times. Spark caches them in memory and on disk until
                `close`.
            descending: sort the rows of each relation by a hash, in this direction. None: leave the stored order.
        """
        self.session = sql_session(spark, version.catalog.resolve_zone(meta.settings.time_zone), _SETTINGS)
        self._meta, self._version, self._epoch, self._moment = meta, version, epoch, moment
        self._sandbox, self._descending, self._shared = sandbox, descending, shared
        self._relations = {r.id: r for r in version.catalog.relations_at(epoch)}
        self._known: set[int] = set()
        self._frames: dict[int, DataFrame] = {}
        self._largest: dict[int, float] = {}
        self._kept: dict[int, DataFrame] = {}

    def answer_of(self, view: Relation, sql: str) -> DataFrame:
        """The rows of a view's SELECT.

        Raises: NoMomentError; Spark's errors; the errors of sources whose bytes are gone.
        """
        self._require_relations(view.depends_on)
        for relation in self._named_in(sql):
            with suppress(InputError):  # the name may not be a relation here; otherwise Spark's error names it
                self._require_relations([relation])
        text = self._at_moment(sql)
        return (
            DataFrame(self._parsed_rows(text), self.session)
            if mentions_hidden(text)
            else query_rows(self.session, text)
        )

    def stored_rows_of(self, relation: Relation) -> DataFrame:
        """The stored rows of a table or view."""
        if (known_rows := self._kept.get(relation.id)) is not None:
            return known_rows
        rows = relation_frame(self.session, self._meta.objects.uri, self._version, relation, self._epoch)
        if relation.id in self._shared:
            rows = self._kept[relation.id] = rows.persist()
        return rows

    def close(self) -> None:
        """Remove the cached rows from Spark."""
        for rows in self._kept.values():
            rows.unpersist()

    def largest_float(self, view: Relation) -> float:
        """The largest absolute float in the input of a view, or 1.0 if it has no floats.

        Cost: a scan of each relation.
        """
        largest_floats = [n for i in self._read_by(view.depends_on) if (n := self._largest_of(i)) is not None]
        return max(largest_floats, default=1.0)

    def _named_in(self, sql: str) -> list[int]:
        """The relations whose name occurs in a text.

        The plan of a view omits relations that it turned out not to need.
        """
        words = names_mentioned(re.findall(r"\w+|\.", sql))
        return [r.id for r in self._relations.values() if r.name in words]

    def _largest_of(self, relation: int) -> float | None:
        if relation not in self._largest:
            frame = self._frames.get(relation)
            columns = None if frame is None else Columns.of_schema(frame.schema, ())
            floats = None if columns is None else floats_of(columns.texts)
            if frame is None or columns is None or floats is None:
                return None
            maximum = (
                columns.number_columns(frame)
                .select(F.max(F.expr(f"array_max(transform({floats}, x -> abs(x)))")))
                .first()
            )
            self._largest[relation] = 0.0 if maximum is None or maximum[0] is None else float(maximum[0])
        return self._largest[relation]

    def _read_by(self, relations: Iterable[int]) -> set[int]:
        """These relations, and the ones that plain views among them read."""
        by_name = {r.name: r.id for r in self._relations.values()}
        ids, pending = set[int](), list(relations)
        while pending:
            if (at := pending.pop()) in ids or at not in self._relations:
                continue
            ids.add(at)
            if (relation := self._relations[at]).kind is RelationKind.PLAIN_VIEW:
                pending += [by_name[name] for name in plain_view_of(relation).uses if name in by_name]
        return ids

    def _require_relations(self, relations: Iterable[int]) -> None:
        """Register relations and the inputs of plain views in the session."""
        wanted = self._read_by(relations)
        for relation in self._relations.values():  # readers come after their input
            if relation.id in wanted and relation.id not in self._known:
                self._make_known(relation)
                self._known.add(relation.id)

    def _make_known(self, relation: Relation) -> None:
        match relation.kind:
            case RelationKind.FUNCTION:
                _register_function(self.session, function_of(relation))
                return
            case RelationKind.PLAIN_VIEW:
                view = plain_view_of(relation)
                rows_of = self._parsed_rows if mentions_hidden(view.sql) else None
                register_view(self.session, view, self._at_moment(view.sql), rows_of)
                return
            case RelationKind.SOURCE if not stores_rows(relation):
                frame = self._source_rows(relation)
            case _:
                assert output_of(relation) is not None
                frame = with_lengths(self.stored_rows_of(relation), relation)
        self._frames[relation.id] = frame if self._descending is None else _in_order(frame, self._descending)
        self._frames[relation.id].createOrReplaceTempView(quote_name(relation.name))

    def _parsed_rows(self, sql: str) -> JavaObject:
        """The Dataset (JVM) of a SELECT whose sources expose their hidden columns."""
        java = self.session._jsparkSession
        with activated_session(self.session):
            parsed = parse_query(self.session, sql)
            exposed = with_hidden_columns(self.session, parsed, sql, self._wide_rows)
            return getattr(self.session._jvm, "org.apache.spark.sql.classic.Dataset").ofRows(java, exposed)

    def _wide_rows(self, name: str) -> tuple[JavaObject, WideColumns] | None:
        """See WideRows. Spark reads the files again for each mention of the source."""
        relation = next((r for r in self._relations.values() if r.name == name.lower()), None)
        if relation is None or not (hidden := hidden_of(relation)):
            return None
        rows = self._source_rows(relation, hidden)
        ordered = rows if self._descending is None else _in_order(rows, self._descending)
        return ordered._jdf, WideColumns(tuple(c.name for c in relation.columns), hidden)

    def _source_rows(self, relation: Relation, hidden: Sequence[HiddenColumn] = ()) -> DataFrame:
        """The rows that a source has taken by the epoch, with its declared and these hidden columns."""
        source = source_of(relation)
        assert source is not None
        reader = reader_of(source)
        if (document := reader.taken_document(self._taken_table(relation))) is None:
            columns = [*((c.name, c.type) for c in relation.columns), *((h.column, h.type) for h in hidden)]
            return self.session.createDataFrame([], ", ".join(f"{quote_name(name)} {kind}" for name, kind in columns))
        located = reader.locate_input(source, document, Keeper(self._meta.objects, self._version.epoch))
        return reader.by_spark(self.session, source, located, hidden)

    def _taken_table(self, source: Relation) -> StorageTable:
        return open_table(self._meta.objects, self._version, source.state_tables[0], self._epoch)

    def _at_moment(self, sql: str) -> str:
        """A SELECT with now() and similar functions replaced by the epoch's moment."""
        if not _CLOCKS.search(sql):
            return sql
        source, sandbox = SourceText(sql), self._sandbox()
        with sandbox.active():
            analyzed = sandbox.analyze(source, sandbox.parse_query(source)).queryExecution().analyzed()
            edited = at_moment(sandbox, source, analyzed, self._moment or 0)
        if edited is not source and not self._moment:
            raise NoMomentError(self._epoch)
        return edited.text


def _in_order(frame: DataFrame, descending: bool) -> DataFrame:
    """The rows sorted by their hash, as a relation whose order the optimizer cannot remove."""
    columns = Columns.of_schema(frame.schema, ())
    numbered = columns.number_columns(frame)
    by = F.expr(exact_hash(columns.texts))
    ordered = numbered.orderBy(by.desc() if descending else by.asc()).toDF(*columns.names)
    java, session = ordered._jdf, frame.sparkSession
    return DataFrame(
        session._jsparkSession.internalCreateDataFrame(java.queryExecution().toRdd(), frame._jdf.schema(), False),
        session,
    )


def _register_function(session: SparkSession, function: CreateFunction) -> None:
    """Register a Python function. A SQL function wraps it, so that Spark casts the arguments to the declared types."""
    own = quote_name(f"{function.name} of Python")

    def call_columns(*columns: pa.Array) -> pa.Array:
        return call_function(function, columns)

    carried = carried_name(function.returns)
    session.udf.register(own.strip("`"), arrow_function(call_columns, carried, "Python functions in verified views"))
    given: Sequence[str] | None = columns_of_carried([("v", function.returns)])
    parameters = ", ".join(f"{quote_name(f.name)} {f.type}" for f in function.fields)
    inner = f"{own}({', '.join(quote_name(f.name) for f in function.fields)})"
    result = inner if given is None else f"CAST(CAST({inner} AS interval month) AS {function.returns})"
    session.sql(
        f"CREATE OR REPLACE TEMPORARY FUNCTION {quote_name(function.name)}({parameters}) RETURNS {function.returns} "
        f"RETURN {result}"
    )
