"""The sides of the comparison. Each processes the same files, one epoch after another, and keeps a readable result.

    Tussock                  a source per stream, and the view; an epoch takes the new files
    Structured Streaming     one file of each stream per micro-batch; state in RocksDB, changes as Parquet
    recomputing              the query over all files so far after each epoch, by Spark or DuckDB; rows as Parquet

A new runner of Tussock is one line in RUNNERS.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.cpu import cpu_seconds_between, tree_usage
from benchmarks.nexmark.workload import DUCKDB_MACROS, SIDE_INPUT, Events, Query, declarations, side_rows
from benchmarks.streaming import STREAMING
from tussock import Session
from tussock.jobs.driver.runner import LevelRunner, LocalRunner, NeedsSparkError, count_cores
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.spark.session import SQL, sql_session

#: Tussock's runners with their titles, by the names of their sides.
RUNNERS: Mapping[str, tuple[str, Callable[[SparkSession], LevelRunner]]] = {
    "local": ("Tussock, local runner", lambda _: LocalRunner(workers=count_cores())),
    "process": ("Tussock, one process", lambda _: LocalRunner()),
    "spark": ("Tussock on Spark", SparkRunner),
}

#: One shuffle partition per core, and times in Parquet as other programs read them.
_BATCH = {**SQL, "spark.sql.shuffle.partitions": "2", "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_CLOCK_STEP = 0.01  # of CPU seconds
_MODES = ("append", "update", "complete")  # from the cheapest to the dearest
_DISTINCT = re.compile(r"\(SELECT DISTINCT (.+? FROM \w+)\)")


class CannotExpressError(Exception):
    """A side has no means for a query."""


class Stopwatch:
    """Wall and CPU seconds of each epoch. The CPU seconds include this process and all its descendants."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.start()

    def start(self) -> None:
        """Begin an epoch."""
        self._used, self._wall = tree_usage(), time.perf_counter()

    def lap(self) -> None:
        """End an epoch, and begin the next."""
        wall, used = time.perf_counter() - self._wall, tree_usage()
        self.wall.append(wall)
        self.cpu.append(max(cpu_seconds_between(self._used, used), _CLOCK_STEP))
        self._used, self._wall = used, time.perf_counter()


class Peer(Protocol):
    """A side of the comparison."""

    @property
    def title(self) -> str:
        """Its name in tables."""

    def run(self, query: Query, events: Events, folder: Path, watch: Stopwatch) -> pa.Table:
        """Process all epochs, and return the rows of the result at the end.

        Args:
            folder: an empty folder for stores, checkpoints and results.
            watch: measures each epoch. The first one includes the definition of the view or query.

        Raises: CannotExpressError.
        """


@dataclass(frozen=True, slots=True)
class Tussock:
    """A view, maintained by a runner."""

    title: str
    spark: SparkSession
    runner: LevelRunner

    def run(self, query: Query, events: Events, folder: Path, watch: Stopwatch) -> pa.Table:
        """See Peer. Links the files of each epoch into the folders of the sources just before it."""
        shown = folder / "shown"
        with Session(str(folder / "store"), self.spark, runner=self.runner) as session:
            for epoch in range(events.epochs):
                events.show(query, epoch, shown)
                watch.start()
                if epoch == 0:
                    define(session, query, shown)
                try:
                    session.flush()
                except NeedsSparkError as err:
                    raise CannotExpressError(str(err)) from err
                watch.lap()
            return session.read(query.name)


def _tussock(title: str, runner: Callable[[SparkSession], LevelRunner], spark: SparkSession) -> Tussock:
    return Tussock(title, spark, runner(spark))


def define(session: Session, query: Query, files: Path) -> None:
    """Create the query's sources over the streams' folders below `files`, and its view."""
    declared = declarations(files)
    for stream in query.streams:
        session.execute(declared[stream])
    if query.side_input:
        session.execute(declared[SIDE_INPUT])
        session.insert(SIDE_INPUT, side_rows())
    session.execute(f"CREATE MATERIALIZED VIEW {query.name} AS {query.select}")


@dataclass(frozen=True, slots=True)
class StructuredStreaming:
    """A streaming query over the streams, without watermarks, since a view keeps all windows open."""

    spark: SparkSession
    title: str = "Structured Streaming, RocksDB"

    def run(self, query: Query, events: Events, folder: Path, watch: Stopwatch) -> pa.Table:
        """See Peer. The commit of a micro-batch is measured with the next one."""
        spark = sql_session(self.spark, "UTC", {**_BATCH, **STREAMING})
        spark.createDataFrame(side_rows()).createOrReplaceTempView(SIDE_INPUT)
        for stream in query.streams:
            schema = spark.read.parquet(events.files(stream, 1)[0]).schema
            files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(events.folder(stream)))
            files.createOrReplaceTempView(stream)
        refusals: dict[str, list[str]] = {}
        watch.start()
        for mode in _MODES:
            try:
                started = self._start(_streamed(spark, query), mode, folder, watch)
            except AnalysisException as err:
                refusals.setdefault(_reason(err, mode), []).append(mode)
                continue
            started.awaitTermination()
            return _result(folder / "changes", mode, query, events.epochs)
        raise CannotExpressError(" ".join(f"Mode {', '.join(modes)}: {why}" for why, modes in refusals.items()))

    def _start(self, rows: DataFrame, mode: str, folder: Path, watch: Stopwatch) -> StreamingQuery:
        def write(batch: DataFrame, number: int) -> None:
            batch.write.parquet(str(folder / "changes" / f"{number:06}"))
            watch.lap()

        writer = rows.writeStream.outputMode(mode).option("checkpointLocation", str(folder / f"checkpoint-{mode}"))
        return writer.foreachBatch(write).trigger(availableNow=True).start()


def _streamed(spark: SparkSession, query: Query) -> DataFrame:
    """The query over the streams. A subquery with DISTINCT becomes `dropDuplicates`, for which SQL has no words."""
    select = query.select
    for number, found in enumerate(_DISTINCT.finditer(select)):
        spark.sql(f"SELECT {found[1]}").dropDuplicates().createOrReplaceTempView(f"distinct_{number}")
        select = select.replace(found[0], f"distinct_{number}")
    return spark.sql(select)


def _reason(err: AnalysisException, mode: str) -> str:
    """The first sentence of an error that gives a reason, without the error's condition and the plan."""
    text = re.sub(r"^\[.*?\] ", "", str(err)).removeprefix(f"Invalid streaming output mode: {mode}. ")
    return re.split(r"\. |;|\n| SQLSTATE", text)[0].strip().rstrip(".") + "."


def _result(changes: Path, mode: str, query: Query, epochs: int) -> pa.Table:
    """The rows that a reader of the written changes has at the end."""
    batches = sorted(changes.iterdir())
    if len(batches) != epochs:
        raise RuntimeError(f"{query.name}: found {len(batches)} micro-batches, expected one for each of {epochs} files")
    if mode == "complete":
        return pq.read_table(batches[-1])
    if mode == "append":
        return pa.concat_tables([pq.read_table(batch) for batch in batches])
    numbered = [pq.read_table(batch) for batch in batches]
    numbered = [rows.append_column("batch", pa.array([n] * rows.num_rows)) for n, rows in enumerate(numbered)]
    with duckdb.connect() as database:
        database.register("changes", pa.concat_tables(numbered))
        key = ", ".join(query.key)
        last = f"SELECT * EXCLUDE batch FROM changes QUALIFY batch = max(batch) OVER (PARTITION BY {key})"
        return database.sql(last).to_arrow_table()


@dataclass(frozen=True, slots=True)
class RecomputingSpark:
    """Spark's SELECT over all files so far, after each epoch."""

    spark: SparkSession
    title: str = "Spark, recomputing"

    def run(self, query: Query, events: Events, folder: Path, watch: Stopwatch) -> pa.Table:
        """See Peer."""
        spark = sql_session(self.spark, "UTC", _BATCH)
        spark.createDataFrame(side_rows()).createOrReplaceTempView(SIDE_INPUT)
        watch.start()
        for epoch in range(events.epochs):
            look_at(spark, query, events, epoch + 1)
            spark.sql(query.select).write.mode("overwrite").parquet(str(folder / "result"))
            watch.lap()
        return pq.read_table(folder / "result")


def look_at(spark: SparkSession, query: Query, events: Events, epochs: int) -> None:
    """Make the query's streams views over the files of the first epochs."""
    for stream in query.streams:
        spark.read.parquet(*events.files(stream, epochs)).createOrReplaceTempView(stream)


def reference(spark: SparkSession, query: Query, events: Events) -> pa.Table:
    """The rows of Spark's own SELECT over all files."""
    spark = sql_session(spark, "UTC", _BATCH)
    spark.createDataFrame(side_rows()).createOrReplaceTempView(SIDE_INPUT)
    look_at(spark, query, events, events.epochs)
    return spark.sql(query.select).toArrow()


@dataclass(frozen=True, slots=True)
class RecomputingDuckDB:
    """DuckDB's SELECT over all files so far, after each epoch, with a thread per core."""

    title: str = "DuckDB, recomputing"

    def run(self, query: Query, events: Events, folder: Path, watch: Stopwatch) -> pa.Table:
        """See Peer."""
        out = folder / "result.parquet"
        with duckdb.connect() as database:
            database.execute(DUCKDB_MACROS)
            database.register(SIDE_INPUT, side_rows())
            watch.start()
            for epoch in range(events.epochs):
                for stream in query.streams:
                    times = ["date_time", "expires"] if stream == "auction" else ["date_time"]
                    utc = ", ".join(f"make_timestamp(epoch_us({time})) AS {time}" for time in times)
                    files = events.files(stream, epoch + 1)
                    rows = f"SELECT * REPLACE ({utc}) FROM read_parquet({files})"
                    database.execute(f"CREATE OR REPLACE VIEW {stream} AS {rows}")
                database.execute(f"COPY ({query.in_duckdb}) TO '{out}' (FORMAT parquet)")
                watch.lap()
        return pq.read_table(out)


#: All sides, by name, in the order of the tables.
PEERS: Mapping[str, Callable[[SparkSession], Peer]] = {
    **{name: partial(_tussock, title, runner) for name, (title, runner) in RUNNERS.items()},
    "streaming": StructuredStreaming,
    "recompute": RecomputingSpark,
    "duckdb": lambda _: RecomputingDuckDB(),
}
