"""A Spark session in which the relations of a store are views as of one epoch. The SELECT of a view is run over them to verify
it.

Rows of tables and of other views are their stored rows. Rows of sources are read from the taken bytes by Spark's own reader
(`SourceReader.by_spark`), which shares no code with the reader that epochs use, as far as Spark has one.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from tussock.jobs.kernels.python_function import called
from tussock.jobs.logical.months import carried_name, columns_of_carried
from tussock.jobs.logical.quoting import quoted
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateFunction
from tussock.jobs.plan.definition import output_of, source_of
from tussock.jobs.plan.source_zone import holds_files_in_utc
from tussock.jobs.reading.query import with_lengths
from tussock.jobs.reading.reader import open_table, relation_frame
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.spark.session import SQL, sql_session
from tussock.jobs.sql.now import at_moment
from tussock.jobs.sql.plain_view import plain_view_of, register
from tussock.jobs.sql.python_function import function_of
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
    "spark.sql.csv.parser.columnPruning.enabled": "false",  # whether a record parses must not depend on the columns of a view
    # else a part shared by two expressions is computed ahead of the CASE that guards it in either
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.debug.maxToStringFields": "1000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2048",  # as a Python function is promised
}
_CLOCKS = re.compile(r"\b(now|current_timestamp|current_date|curdate|localtimestamp|unix_timestamp)\b", re.IGNORECASE)


class NoMomentError(InputError):
    """A view compares with now(), and the moment of its epoch is not known."""

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.epoch = epoch

    def __str__(self) -> str:
        return f"the store no longer records what now() meant in epoch {self.epoch}; verify the published epoch instead"


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
            version: on which `epoch` can be read, pinned.
            moment: what now() meant in that epoch, Unix microseconds; None: unknown.
            sandbox: for statements over the relations of the epoch; called only for views that read the clock.
            shared: relations whose stored rows are read several times: Spark keeps them, in memory and on disk, until `close`.
            descending: rows are put in an order, this way or that; None: they come as they are stored.
        """
        self.session = sql_session(spark, meta.settings.time_zone, _SETTINGS)
        self._meta, self._version, self._epoch, self._moment = meta, version, epoch, moment
        self._sandbox, self._descending, self._shared = sandbox, descending, shared
        self._relations = {r.id: r for r in version.catalog.at(epoch)}
        self._known: set[int] = set()
        self._frames: dict[int, DataFrame] = {}
        self._largest: dict[int, float] = {}
        self._kept: dict[int, DataFrame] = {}

    def answer(self, view: Relation, sql: str) -> DataFrame:
        """The rows of a view's SELECT. Raises Spark's errors, those of sources whose bytes are gone, NoMomentError."""
        self._require(view.depends_on)
        for relation in self._named_in(sql):
            with suppress(InputError):  # named, and maybe not read: if it is, Spark's error names it
                self._require([relation])
        return self.session.sql(self._at_moment(sql))

    def stored(self, relation: Relation) -> DataFrame:
        """The stored rows of a table or view."""
        if (kept := self._kept.get(relation.id)) is not None:
            return kept
        rows = relation_frame(self.session, self._meta.objects.uri, self._version, relation, self._epoch)
        if relation.id in self._shared:
            rows = self._kept[relation.id] = rows.persist()
        return rows

    def close(self) -> None:
        """Let Spark forget the rows that it keeps."""
        for rows in self._kept.values():
            rows.unpersist()

    def largest(self, view: Relation) -> float:
        """The largest float, by its absolute value, in the input of a view; 1.0 if that has no floats. Cost: a scan of each relation."""
        found = [n for i in self._read_by(view.depends_on) if (n := self._largest_of(i)) is not None]
        return max(found, default=1.0)

    def read_in_utc(self, view: Relation) -> tuple[str, ...]:
        """The sources that a view reads with files whose times an earlier release read in UTC. Cost: a scan of the list of taken files."""
        found, zone = [], self._meta.settings.time_zone
        for relation in (self._relations[i] for i in sorted(self._read_by(view.depends_on))):
            source = source_of(relation) if relation.kind is RelationKind.SOURCE else None
            if source is not None and holds_files_in_utc(source, zone, self._taken(relation)):
                found.append(relation.name)
        return tuple(found)

    def _named_in(self, sql: str) -> list[int]:
        """The relations whose name occurs in a text: the plan of a view lacks those that it was found not to need."""
        words = set(re.findall(r"\w+", sql.lower()))
        return [r.id for r in self._relations.values() if r.name in words or not r.name.isidentifier()]

    def _largest_of(self, relation: int) -> float | None:
        if relation not in self._largest:
            frame = self._frames.get(relation)
            columns = None if frame is None else Columns.of(frame.schema, ())
            floats = None if columns is None else floats_of(columns.texts)
            if frame is None or columns is None or floats is None:
                return None
            found = (
                columns.numbered(frame).select(F.max(F.expr(f"array_max(transform({floats}, x -> abs(x)))"))).first()
            )
            self._largest[relation] = 0.0 if found is None or found[0] is None else float(found[0])
        return self._largest[relation]

    def _read_by(self, relations: Iterable[int]) -> set[int]:
        """Those of the relations that have rows, and those that plain views among them read."""
        by_name = {r.name: r.id for r in self._relations.values()}
        found, pending = set[int](), list(relations)
        while pending:
            if (at := pending.pop()) in found or at not in self._relations:
                continue
            found.add(at)
            if (relation := self._relations[at]).kind is RelationKind.PLAIN_VIEW:
                pending += [by_name[name] for name in plain_view_of(relation).uses if name in by_name]
        return found

    def _require(self, relations: Iterable[int]) -> None:
        """Make relations known to the session, and what plain views among them use."""
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
                register(self.session, view, self._at_moment(view.sql))
                return
            case RelationKind.SOURCE:
                frame = self._source(relation)
            case _:
                assert output_of(relation) is not None
                frame = with_lengths(self.stored(relation), relation)
        self._frames[relation.id] = frame if self._descending is None else _in_order(frame, self._descending)
        self._frames[relation.id].createOrReplaceTempView(quoted(relation.name))

    def _source(self, relation: Relation) -> DataFrame:
        """The rows that a source has taken by the epoch."""
        source = source_of(relation)
        assert source is not None
        reader = reader_of(source)
        if (document := reader.taken_document(self._taken(relation))) is None:
            return self.session.createDataFrame([], ", ".join(f"{quoted(c.name)} {c.type}" for c in relation.columns))
        located = reader.located(source, document, Keeper(self._meta.objects, self._version.epoch))
        return reader.by_spark(self.session, source, located)

    def _taken(self, source: Relation) -> StorageTable:
        return open_table(self._meta.objects, self._version, source.state_tables[0], self._epoch)

    def _at_moment(self, sql: str) -> str:
        """A SELECT with the epoch's moment in the place of now() and its like."""
        if not _CLOCKS.search(sql):
            return sql
        source, sandbox = SourceText(sql), self._sandbox()
        with sandbox.active():
            analyzed = sandbox.analyze(source, sandbox.parse_query(source)).queryExecution().analyzed()
            kept = at_moment(sandbox, source, analyzed, self._moment or 0)
        if kept is not source and not self._moment:
            raise NoMomentError(self._epoch)
        return kept.text


def _in_order(frame: DataFrame, descending: bool) -> DataFrame:
    """The rows by a hash of them, up or down, as a relation whose order no optimizer can take away."""
    columns = Columns.of(frame.schema, ())
    numbered = columns.numbered(frame)
    by = F.expr(exact_hash(columns.texts))
    ordered = numbered.orderBy(by.desc() if descending else by.asc()).toDF(*columns.names)
    java, session = ordered._jdf, frame.sparkSession
    return DataFrame(
        session._jsparkSession.internalCreateDataFrame(java.queryExecution().toRdd(), frame._jdf.schema(), False),
        session,
    )


def _register_function(session: SparkSession, function: CreateFunction) -> None:
    """Make a Python function known: Spark casts arguments to the declared types as it does for a SQL function, around one of Python's."""
    own = quoted(f"{function.name} of Python")

    def call(*columns: pa.Array) -> pa.Array:
        return called(function, columns)

    carried = carried_name(function.returns)
    made: Any = arrow_udf  # its declared overloads know no function of several arrays
    session.udf.register(own.strip("`"), made(call, carried))
    given: Sequence[str] | None = columns_of_carried([("v", function.returns)])
    parameters = ", ".join(f"{quoted(f.name)} {f.type}" for f in function.fields)
    inner = f"{own}({', '.join(quoted(f.name) for f in function.fields)})"
    result = inner if given is None else f"CAST(CAST({inner} AS interval month) AS {function.returns})"
    session.sql(
        f"CREATE OR REPLACE TEMPORARY FUNCTION {quoted(function.name)}({parameters}) RETURNS {function.returns} RETURN {result}"
    )
