"""DataFrames of a declarative pipeline's Python files: `spark` for the files, and the SELECT of a DataFrame.

`spark` stands in for the session of Spark. Reads by name or by location return empty DataFrames with the columns of
the relations of the pipeline. Everything else is Spark's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from operator import add, and_
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, FloatType, MapType, StructField, StructType

from tussock.jobs.importing.sdp_binding import Bind, NoSelectError, ProjectBinding
from tussock.jobs.importing.sdp_reads import SourceRead, UnsupportedReadError, read_of_options
from tussock.jobs.importing.sdp_recorder import FrameQuery, describe_error
from tussock.jobs.importing.sdp_spec import remedy_of_setting
from tussock.jobs.importing.sdp_words import QUERY_WORDS, DatasetKind, SettingWords, UseWords, read_file_words
from tussock.jobs.logical.hidden_columns import INGESTED_AT, METADATA
from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.spark.sql_errors import from_spark, silent_query_loggers
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.sandbox import items
from tussock.jobs.sql.spark_text import literal_text
from tussock.statestore.errors import InputError

_LATE_CLOCK = (
    "it reads the clock, and its input has no moment for each row, as files have; add the column with the clock where "
    "the files are read, or leave it out with --leave-out-clock"
)
_MARK = "timestamp_micros(7777777777777777L)"  # stands for the clock until a SELECT is written, which can name it
_CHANGES = (
    "when it runs again, it makes another query, because it uses chance or the clock; two runs of the project differ. "
    "Read the rows from files instead"
)
_NO_ROWS = "it reads rows while the query is made, and the import has none. Write it as a part of the query"
_ROWS_NAME_COLUMNS = (
    "the rows decide its columns, and the import has no rows. Name the values: pivot(column, [value, …])"
)
_ROW_READS = (
    "collect", "count", "tail", "toPandas", "toArrow", "toLocalIterator", "isEmpty", "foreach", "foreachPartition",
    "checkpoint", "localCheckpoint",
)  # fmt: skip  # all others call one of them
_ONLY_QUERIES = "a function only returns rows. Run such a statement outside of the project"
_WRITES = "the import writes nothing. Let the function only return its rows, and name the place of a copy in [publish]"
_TEMPORARY_VIEW = "name the rows by a function with @dp.temporary_view instead, as Spark demands it in pipelines"
_REFUSED = {  # calls that change something outside of the query, with the remedy
    **dict.fromkeys(("write", "writeStream", "writeTo", "mergeInto"), _WRITES),
    **dict.fromkeys(
        (
            "createTempView", "createOrReplaceTempView", "createGlobalTempView", "createOrReplaceGlobalTempView",
            "registerTempTable",
        ),
        _TEMPORARY_VIEW,
    ),
}  # fmt: skip
_SCHEMA_SECOND = ("csv", "json", "xml")  # readers whose second argument is the schema
_PATH_READS = ("csv", "json", "parquet", "orc", "text", "xml")


class QueryFunctionError(InputError):
    """The function of a dataset raised an error, or returned no DataFrame."""

    reason: str

    def __str__(self) -> str:
        return f"its function cannot be evaluated: {self.reason}"


class ProjectFrames:
    """The DataFrames of one import.

    Args:
        relation_of_table: the relation of a name, resolved.
        relation_of_read: the source of a read by location.
        text_of_sql: a query's text over relations.
        use: the effect of a USE or SET in the file that runs.
        bind_source: binds a source that a file reads outside of the functions of its datasets.
        leaves_clocks_out: columns with a clock that no stream can have are left out later (clock_columns.py).
    """

    def __init__(
        self,
        binding: ProjectBinding,
        relation_of_table: Callable[[str], str],
        relation_of_read: Callable[[SourceRead], str],
        text_of_sql: Callable[[str], str],
        use: Callable[[UseWords | SettingWords], None],
        bind_source: Bind,
        *,
        leaves_clocks_out: bool,
    ) -> None:
        self._binding, self._text_of_sql, self._use = binding, text_of_sql, use
        self._bind_source = bind_source
        self._relation_of_table, self._relation_of_read = relation_of_table, relation_of_read
        self._bind: Bind | None = None  # while the function of a dataset runs
        self._in_stream = False
        self._running: list[FrameQuery] = []
        self.stream_queries = set[FrameQuery]()  # those whose functions read a stream
        self._leaves_clocks_out, self._has_plain_clock = leaves_clocks_out, False
        self._texts: list[tuple[DataFrame, str]] = []  # DataFrames of spark.sql, with their texts
        self._collect: Callable[[Any], Any] = ClassicDataFrame.collect

    def select_of(self, query: FrameQuery, bind: Bind, kind: DatasetKind) -> str:
        """The SELECT of the DataFrame that a function returns.

        The function runs twice. Otherwise random rows of one run would stay in the pipeline.

        Raises: QueryFunctionError, NoSelectError, errors of reads.
        """
        try:
            first, second = (self._select_of_run(query, bind, kind) for _ in range(2))
        except QueryFunctionError as err:
            if not self._leaves_clocks_out or self._has_plain_clock or err.reason != _LATE_CLOCK:
                raise
            self._has_plain_clock = True
            try:
                return self.select_of(query, bind, kind)
            finally:
                self._has_plain_clock = False
        if first != second:
            raise QueryFunctionError(_CHANGES)
        return first

    def _select_of_run(self, query: FrameQuery, bind: Bind, kind: DatasetKind) -> str:
        before, self._bind = self._bind, bind
        self._running.append(query)
        try:
            with self._clocks_of_files(kind), silent_query_loggers():
                frame = query.function()
        except InputError:
            raise
        except PySparkException as err:
            reason = from_spark(err, SourceText("")).reason
            raise QueryFunctionError(_LATE_CLOCK if quote_name(INGESTED_AT) in reason else reason) from err
        except (Exception, SystemExit) as err:  # the code of the user may raise anything
            if isinstance(err.__cause__, InputError):
                raise err.__cause__ from err
            raise QueryFunctionError(describe_error(err)) from err
        finally:
            self._running.pop()
            self._bind = before
        if not isinstance(frame, DataFrame):
            python_type = type(frame)
            module, name = python_type.__module__, python_type.__name__
            written = name if module == "builtins" else f"{module}.{name}"
            raise QueryFunctionError(f"it returned {written}, and not a DataFrame of Spark")
        text = next((text for known, text in self._texts if known is frame), None)
        return self._binding.select_of_frame(frame).replace(_MARK, "current_timestamp()") if text is None else text

    def read_table(self, name: str, *_: Any, **__: Any) -> DataFrame:
        """The DataFrame of a table of the project or of a catalog."""
        bind = self._require_bind()
        return self._frame_of(self._relation_of_table(name), bind)

    def read_stream(self, name: str, *_: Any, **__: Any) -> DataFrame:
        """The DataFrame of a table that a dataset reads as a stream."""
        self.note_stream()
        return self.read_table(name)

    def read_source(self, read: SourceRead) -> DataFrame:
        """The DataFrame of a read by location, which may stand outside of a dataset's function."""
        read = self._binding.without_unknown_options(read)
        return self._frame_of(self._relation_of_read(read), self._bind or self._bind_source)

    def query(self, text: str, args: Any = None, **parts: Any) -> DataFrame:
        """The DataFrame of a query, as SparkSession.sql. USE holds for the following definitions of the file."""
        if parts:
            raise UnsupportedReadError("spark.sql with parts of its text as arguments", "write them into the text")
        if args:
            text = self._fill_parameters(text, args)
        first = next((token.text.upper() for token in tokens_of(SourceText(text))), "")
        if self._bind is None and first in ("USE", "SET"):
            for words in read_file_words(text):
                if isinstance(words, UseWords | SettingWords):
                    self._use(words)
            return self._binding.sandbox.session.range(0)
        if first not in QUERY_WORDS:
            raise UnsupportedReadError(f"spark.sql with {first or 'no statement'}", _ONLY_QUERIES)
        bind = self._require_bind()
        rewritten = self._text_of_sql(text)
        frame = self._binding.frame_of_sql(rewritten, bind)
        self._texts.append((frame, rewritten))
        return frame

    def _fill_parameters(self, text: str, args: dict[str, Any] | list[Any]) -> str:
        """The text of a query with the values of its parameters, `:name` or `?`. Raises UnsupportedReadError."""
        by_name = isinstance(args, dict)
        marks = [f":{name}" for name in args] if by_name else ["?"] * len(args)
        row = self.session.sql(f"SELECT {', '.join(marks)}", args)._jdf.queryExecution().analyzed()
        nodes = [alias.child() for alias in items(row.projectList())]
        if not all(node.productPrefix() == "Literal" for node in nodes):
            raise UnsupportedReadError("spark.sql with an array or a map as an argument", "write it into the text")
        values, tokens, filled, end = list(map(literal_text, nodes)), tokens_of(SourceText(text)), "", 0
        of_name, in_order = dict(zip(args, values, strict=True)) if by_name else {}, iter(() if by_name else values)
        for token, following in zip(tokens, [*tokens[1:], None], strict=True):
            if token.text == "?" and not by_name:
                value, after = next(in_order, None), token.end
            elif token.text == ":" and following is not None and following.start == token.end:
                value, after = of_name.get(following.text), following.end
            else:
                continue
            if value is not None:
                filled, end = f"{filled}{text[end : token.start]}{value}", after
        return filled + text[end:]

    def constant_rows(self, made: DataFrame) -> DataFrame:
        """Rows of the file's own, as VALUES, so that they have a text."""
        fields = made.schema.fields
        if any(isinstance(f.dataType, ArrayType | MapType | StructType | BinaryType) for f in fields):
            raise UnsupportedReadError(
                "createDataFrame with nested or binary columns", "put the rows into a file, and read it"
            )
        names = ", ".join(quote_name(f.name) for f in fields)
        rows = self._collect(made.select(*(F.col(quote_name(f.name)).cast("string") for f in fields)))
        if not rows:
            return made
        texts = (", ".join(_value_text(value, f) for value, f in zip(row, fields, strict=True)) for row in rows)
        return self.session.sql(f"SELECT * FROM VALUES {', '.join(f'({text})' for text in texts)} AS t ({names})")

    def _frame_of(self, relation: str, bind: Bind) -> DataFrame:
        bind(relation)
        return self._binding.frame_of(relation)

    def _require_bind(self) -> Bind:
        if self._bind is None:
            raise UnsupportedReadError(
                "a read of a table outside of a dataset's function", "move it into the function of a dataset"
            )
        return self._bind

    def sql_of_column(self, column: Column) -> str:
        """The SQL of a Column."""
        node: JavaObject = getattr(column, "_jc").node()  # noqa: B009  a Column of Spark Connect has none
        return str(node.sql())

    def columns_text(self, schema: StructType) -> str:
        """The SQL of a read's columns."""
        parsed = self.session._jsparkSession.parseDataType(schema.json())
        return ", ".join(f"{quote_name(f.name())} {name_of_type(f.dataType())}" for f in parsed.fields())

    def file_variables(self, settings: Mapping[str, str]) -> dict[str, object]:
        """The globals of a file."""
        spark = _ProjectSpark(self, dict(settings))
        return {"spark": spark, "display": lambda *_, **__: None, "dbutils": _NoUtilities()}

    @contextmanager
    def _clocks_of_files(self, kind: DatasetKind) -> Iterator[None]:
        """Let the functions of Spark that files import read the hidden columns of sources inside the block.

        A stream reads the clock when it processes a row, which is when an epoch takes the row's file.
        """
        self._in_stream, before = kind is DatasetKind.STREAMING_TABLE, self._in_stream
        try:
            yield
        finally:
            self._in_stream = before

    def note_stream(self) -> None:
        """Note that the dataset whose function runs is a stream, also if it is a temporary view."""
        self._in_stream = self._bind is not None
        self.stream_queries.update(self._running[-1:])

    def _require_no_rows(self, frame: DataFrame, call: str, reason: str) -> None:
        """Raise UnsupportedReadError if a call needs the rows of a relation, which has none during the import."""
        leaves = items(frame._jdf.queryExecution().analyzed().collectLeaves())
        if any(leaf.productPrefix() == "LogicalRDD" and self._binding.sandbox.relation_of(leaf) for leaf in leaves):
            raise UnsupportedReadError(call, reason)

    def _refusing_calls(self) -> AbstractContextManager[None]:
        """Refuse, inside the block, the calls of DataFrames that read rows of a relation, or have an effect."""

        def refusing_rows(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
            def call(frame: DataFrame, *arguments: Any, **options: Any) -> Any:
                self._require_no_rows(frame, f"DataFrame.{name}", _NO_ROWS)
                return read(frame, *arguments, **options)

            return call

        def refusing_effect(name: str, remedy: str) -> property:
            def refuse(_: DataFrame) -> Any:
                raise UnsupportedReadError(f"DataFrame.{name}", remedy)

            return property(refuse)

        def pivot(grouped: GroupedData, pivot_col: str, values: list[Any] | None = None) -> GroupedData:
            if values is None:
                self._require_no_rows(grouped._df, "pivot without values", _ROWS_NAME_COLUMNS)
            return of_spark(grouped, pivot_col, values)

        of_spark = GroupedData.pivot
        return _replacing(
            {
                **{(ClassicDataFrame, n): refusing_rows(n, getattr(ClassicDataFrame, n)) for n in _ROW_READS},
                **{(ClassicDataFrame, name): refusing_effect(name, remedy) for name, remedy in _REFUSED.items()},
                (GroupedData, "pivot"): pivot,
            }
        )

    def _clock(self) -> Column:
        if self._in_stream and not self._has_plain_clock:
            return F.col(INGESTED_AT)
        return F.expr(_MARK)

    @contextmanager
    def standing_in(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Make the class SparkSession return the stand-in inside the block, for files that ask it for a session."""
        spark = _ProjectSpark(self, dict(settings))
        functions = {
            "current_timestamp": lambda: self._clock().alias("current_timestamp()"),
            "now": lambda: self._clock().alias("now()"),
            "current_date": lambda: self._clock().cast("date").alias("current_date()"),
            "input_file_name": lambda: F.col(f"{METADATA}.file_path"),
        }
        with (
            _replacing(
                {
                    **{(SparkSession, name): staticmethod(lambda: spark) for name in ("active", "getActiveSession")},
                    **{(F, name): function for name, function in functions.items()},
                    (ClassicDataFrame, "dropna"): _drop_nulls,
                    (SparkSession.Builder, "getOrCreate"): lambda _: spark,
                }
            ),
            self._refusing_calls(),
        ):
            yield

    @property
    def session(self) -> SparkSession:
        """Spark's own session, for everything except reads."""
        return self._binding.sandbox.session


class _ProjectSpark:
    """`spark` in a file of the project."""

    def __init__(self, frames: ProjectFrames, settings: dict[str, str]) -> None:
        self._frames, self._settings = frames, settings

    @property
    def read(self) -> "_ProjectReader":
        return _ProjectReader(self._frames)

    @property
    def readStream(self) -> "_ProjectReader":
        self._frames.note_stream()
        return _ProjectReader(self._frames)

    @property
    def conf(self) -> "_ProjectConf":
        return _ProjectConf(self._settings, self._frames.session)

    def table(self, name: str) -> DataFrame:
        return self._frames.read_table(name)

    def sql(self, text: str, *arguments: Any, **options: Any) -> DataFrame:
        return self._frames.query(text, *arguments, **options)

    def createDataFrame(self, *arguments: Any, **options: Any) -> DataFrame:
        return self._frames.constant_rows(self._frames.session.createDataFrame(*arguments, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frames.session, name)


class _NoUtilities:
    """`dbutils` of Databricks."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedReadError(
            f"dbutils.{name}", "only Databricks has it; read the value by spark.conf.get from `configuration`"
        )


class _ProjectConf:
    """`spark.conf`: the settings of the project, then those of Spark."""

    def __init__(self, settings: dict[str, str], session: SparkSession) -> None:
        self._settings, self._session = settings, session

    def get(self, key: str, *given: Any, **named: Any) -> Any:
        if key in self._settings:
            return self._settings[key]
        if given or named or key.startswith("spark."):
            return self._session.conf.get(key, *given, **named)
        raise KeyError(f"{key!r}: add it to `configuration` of spark-pipeline.yml")

    def set(self, key: str, value: Any) -> None:
        if remedy := remedy_of_setting(key, str(value)):
            raise UnsupportedReadError(f"spark.conf.set({key!r})", remedy)
        self._settings[key] = str(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session.conf, name)


class _ProjectReader:
    """DataFrameReader and DataStreamReader."""

    def __init__(self, frames: ProjectFrames) -> None:
        self._frames = frames
        self._format = ""
        self._columns: str | None = None
        self._options: dict[str, str] = {}

    def format(self, name: str) -> "_ProjectReader":
        self._format = name
        return self

    def option(self, key: str, value: Any) -> "_ProjectReader":
        self._options[key] = _option_text(value)
        return self

    def options(self, **options: Any) -> "_ProjectReader":
        for key, value in options.items():
            self.option(key, value)
        return self

    def schema(self, schema: StructType | str) -> "_ProjectReader":
        self._columns = schema if isinstance(schema, str) else self._frames.columns_text(schema)
        return self

    def table(self, name: str) -> DataFrame:
        if self._options:
            read_of_options("delta", name, self._options, None, infers=False)  # refuses options that change the rows
        return self._frames.read_table(name)

    def load(self, path: str = "", format: str | None = None, schema: Any = None, **options: Any) -> DataFrame:
        if format is not None:
            self.format(format)
        if schema is not None:
            self.schema(schema)
        self.options(**options)
        if not isinstance(path, str):
            raise UnsupportedReadError("a read of several paths", "read one folder or pattern")
        lower_options = {key.lower(): value.lower() for key, value in self._options.items()}
        infers = lower_options.get("inferschema") == "true" or self._format.lower() == "json"
        path = path or self._options.pop("path", "")
        return self._frames.read_source(
            read_of_options(self._format, path, self._options, self._columns, infers=infers)
        )

    def __getattr__(self, name: str) -> Any:
        if name not in _PATH_READS:
            raise AttributeError(f"a reader's {name!r} has no counterpart in `tussock import`")

        def read(path: str, *others: Any, schema: Any = None, **options: Any) -> DataFrame:
            if others and name not in _SCHEMA_SECOND:  # parquet takes several paths, and the others take options
                what = "a read of several paths" if name == "parquet" else f"{name} with options without names"
                raise UnsupportedReadError(what, "read one folder or pattern, and name each option")
            if len(others) > 1:
                raise UnsupportedReadError(f"{name} with options without names", "name each option")
            return self.load(path, name, others[0] if others else schema, **options)

        return read


@contextmanager
def _replacing(attributes: Mapping[tuple[Any, str], object]) -> Iterator[None]:
    """Replace attributes of classes and modules inside the block."""
    before = {(owner, name): vars(owner)[name] for owner, name in attributes}
    try:
        for (owner, name), value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name), value in before.items():
            setattr(owner, name, value)


def _drop_nulls(
    frame: DataFrame, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None
) -> DataFrame:
    """As DataFrame.dropna, by conditions that have a text. NaN counts as NULL."""
    names = frame.columns if subset is None else [subset] if isinstance(subset, str) else list(subset)
    least = (len(names) if how == "any" else 1) if thresh is None else thresh
    kinds = {f.name.lower(): f.dataType for f in frame.schema.fields}
    conditions = list[Column]()
    for name in names:
        column = F.col(quote_name(name))
        is_float = isinstance(kinds[name.lower()], DoubleType | FloatType)
        conditions.append(column.isNotNull() & ~F.isnan(column) if is_float else column.isNotNull())
    if least == len(conditions):
        return frame.where(reduce(and_, conditions))
    return frame.where(reduce(add, (F.when(c, 1).otherwise(0) for c in conditions)) >= least)


def _value_text(value: str | None, field: StructField) -> str:
    return f"CAST({'NULL' if value is None else string_text(value)} AS {field.dataType.simpleString()})"


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


__all__ = ["NoSelectError", "ProjectFrames", "QueryFunctionError"]
