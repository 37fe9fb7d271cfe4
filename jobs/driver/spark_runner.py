"""The levels of an epoch on Spark: each level is a stage after an exchange of cells, and each parallel unit is a task.

    exchanged(frame, units).mapInArrow(level)

The first level has no exchange unless Spark reads files for it: the driver sends its cells with the task.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import AccumulatorParam, inheritable_thread_target
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from tussock.jobs.driver.by_spark import computed, with_reasons
from tussock.jobs.driver.guilty import error_of_source, source_frame
from tussock.jobs.driver.held import HeldByDriver, SealedTables
from tussock.jobs.driver.leaves import SparkRead
from tussock.jobs.driver.runner import LevelsToRun, P, R
from tussock.jobs.flow.failure import SourceFileError, carried_failure
from tussock.jobs.spark.release import exchanged
from tussock.jobs.spark.session import active, epoch_session, tasks_done
from tussock.jobs.task.flush import flush_function
from tussock.jobs.task.level import level_function
from tussock.jobs.task.spark_task import in_spark_task, partition_of_this_task, without_cells
from tussock.jobs.wire.cell import CELL_SCHEMA, Address, Mail, tables_read
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.jobs.wire.measured import NOTHING, Measurement, MeasurementSum, Report, together
from tussock.jobs.wire.typed_rows import frame_schema, steps_behind
from tussock.statestore.decoding import decoded
from tussock.statestore.meta.version import SstInfo

#: The Spark type of a cell. A DDL string would be parsed in the JVM for each level of each epoch.
CELL_TYPE = from_arrow_schema(CELL_SCHEMA)

_IS_SEALED = f"fragment = {int(Mail.SEALED)}"


class SparkRunner:
    """Runs levels on Spark."""

    def __init__(self, spark: SparkSession, policy: FlushPolicy | None = None) -> None:
        """
        Args:
            spark: a classic session; the runner creates another session of the same application.
        """
        self.spark, self.policy = spark, policy or FlushPolicy()
        self._measuring = _Measuring(spark)

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """See LevelRunner."""
        spark = epoch_session(self.spark, levels.time_zone)
        with active(spark):
            return self._run(spark, levels)

    def _run(self, spark: SparkSession, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        task = levels.task
        known: Broadcast[EpochTask] = spark.sparkContext.broadcast(task)
        levels.far.ask = partial(tasks_done, spark, task.unit_count)
        try:
            cells = _cells(spark, known, levels, self._measuring.report)
            with spark_errors_as_ours(spark, levels.reads), self._measuring.into(levels.measured):
                if task.policy.may_exchange(task.expected, task.unit_count):
                    answers, held = _kept_by_spark(known, cells, self._measuring, levels.measured)
                    return with_reasons(spark, answers), held
                found = with_reasons(spark, cells.toArrow())
        except BaseException:
            known.destroy()
            raise
        known.destroy()  # the driver has all results
        is_sealed = pc.equal(found["fragment"], int(Mail.SEALED))
        return found.filter(pc.invert(is_sealed)), HeldByDriver(levels.objects, task, found.filter(is_sealed))

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        """See LevelRunner. Copies this thread's Spark properties to the other thread."""
        wrapped: Callable[P, R] = inheritable_thread_target(self.spark)(work)
        return wrapped


class _Sum(AccumulatorParam[Measurement]):
    """Adds measurements in Spark."""

    def zero(self, value: Measurement) -> Measurement:
        return NOTHING

    def addInPlace(self, value1: Measurement, value2: Measurement) -> Measurement:
        return together(value1, value2)


class _Measuring:
    """An accumulator that carries the measurements of tasks to the epoch whose job runs.

    In a train, the levels of one epoch overlap with the flush of another. Requests of one may then be counted for the
    other, and none is lost. Seconds are measured in levels only.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._sum = spark.sparkContext.accumulator(NOTHING, _Sum())
        self._lock = threading.Lock()

    @property
    def report(self) -> Report:
        """The function that tasks call."""
        return self._sum.add

    @contextmanager
    def into(self, measured: MeasurementSum) -> Iterator[None]:
        """Add the measurements that arrive during the block to `measured`. Those of a job arrive before its result."""
        try:
            yield
        finally:
            with self._lock:
                found, self._sum.value = self._sum.value, NOTHING
            measured.add(found)


class HeldBySpark:
    """The sealed MemTables of an epoch, in the memory of Spark's executors and on their local disks."""

    def __init__(
        self,
        known: "Broadcast[EpochTask]",
        cells: DataFrame,
        tables: frozenset[int],
        nbytes: int,
        measuring: _Measuring,
        measured: MeasurementSum,
    ) -> None:
        """
        Args:
            cells: the output of the last level, checkpointed.
            nbytes: size of the sealed MemTables among them.
            measured: receives the measurements of the flush.
        """
        self.epoch, self.tables = known.value.epoch, tables
        self._known, self._cells, self._nbytes = known, cells, nbytes
        self._measuring, self._measured = measuring, measured

    def batches(self, number: int, tables: frozenset[int]) -> Iterator[pa.RecordBatch]:
        """See SealedTables. Empty: the driver holds none."""
        return iter(())

    def frames(self, number: int, tables: frozenset[int]) -> Iterator[DataFrame]:
        """See SealedTables."""
        if wanted := sorted(self.tables & tables):
            mine = self._cells.filter(F.expr(_IS_SEALED) & F.col("input").isin(wanted))
            yield mine.withColumn("fragment", F.lit(Address.in_flight(number, 0).fragment))

    def flush(self) -> list[SstInfo]:
        """See SealedTables. Uses an exchange to a few tasks."""
        if not self.tables:
            return []
        known, tasks = self._known, self._known.value.policy.exchange_tasks(self._nbytes)
        sealed = self._cells.filter(_IS_SEALED).repartition(tasks, "slot")
        flush = flush_function(lambda: known.value, self._measuring.report)
        with spark_errors_as_ours(self._cells.sparkSession, ()), self._measuring.into(self._measured):
            found = sealed.mapInArrow(flush, CELL_TYPE).toArrow()
        return [sst for chunk in found["chunk"].to_pylist() for sst in decoded(chunk, list[SstInfo])]

    def release(self) -> None:
        """See SealedTables."""
        self._cells._jdf.queryExecution().analyzed().rdd().unpersist(False)
        self._known.destroy()


def _cells(spark: SparkSession, known: "Broadcast[EpochTask]", levels: LevelsToRun, report: Report) -> DataFrame:
    """Return the output of the last level as a frame that has not run yet.

    All frames belong to one session, because a union takes the settings of its first frame.
    """
    task = levels.task
    units = task.unit_count
    frame: DataFrame | None = None
    for level in range(len(task.schedule.levels)):
        read = [_read(spark, one, units) for one in levels.reads if one.scheduled.level == level]
        wanted = tables_read(task.schedule, level)
        buffered = [held for number, one in enumerate(levels.held) for held in one.frames(number, wanted)]
        arriving = [*([] if frame is None else [frame]), *read, *buffered]
        steps = steps_behind(task.schedule, level)
        schema = frame_schema(steps)
        kind = from_arrow_schema(schema) if steps else CELL_TYPE
        actors = in_spark_task(level_function(lambda: known.value, level, partition_of_this_task, report), schema)
        if arriving:
            together = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), arriving)
            frame = exchanged(together, units).mapInArrow(actors, kind)
        else:
            frame = spark.range(0, units, 1, units).mapInArrow(without_cells(actors), kind)
        frame = computed(frame, steps)
    assert frame is not None, "a plan has levels"
    return frame


def _read(spark: SparkSession, read: SparkRead, units: int) -> DataFrame:
    """Return a source's rows as cells. A failure goes to the unit of its part, which announces it to the others."""
    with SourceFileError.met_in(read.source.name):
        rows = source_frame(spark, read)
    return rows.select(
        F.expr(f"part % {units}").alias("slot"),
        F.when(F.col("failure").isNotNull(), F.lit(int(Mail.FAILURE)))
        .otherwise(F.lit(read.scheduled.id))
        .alias("fragment"),
        F.lit(int(read.input)).alias("input"),
        F.coalesce("failure", "chunk").alias("chunk"),
    )


def _kept_by_spark(
    known: "Broadcast[EpochTask]", cells: DataFrame, measuring: _Measuring, measured: MeasurementSum
) -> tuple[pa.Table, SealedTables]:
    """Run the levels and leave their sealed MemTables in Spark. The driver gets the sizes."""
    kept = cells.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)
    answer = f"if({_IS_SEALED}, NULL, chunk) AS chunk"
    size = f"if({_IS_SEALED}, octet_length(chunk), NULL) AS size"
    found = kept.selectExpr("slot", "fragment", "input", answer, size).toArrow()
    is_sealed = pc.equal(found["fragment"], int(Mail.SEALED))
    tables = frozenset(found.filter(is_sealed)["input"].to_pylist())
    held = HeldBySpark(known, kept, tables, pc.sum(found["size"]).as_py() or 0, measuring, measured)
    return found.filter(pc.invert(is_sealed)).drop_columns(["size"]), held


@contextmanager
def spark_errors_as_ours(spark: SparkSession, reads: Sequence[SparkRead]) -> Iterator[None]:
    """Replace a Spark error by the error of a task or of a source's reader, if one of these is its cause."""
    try:
        yield
    except Exception as err:
        if (carried := carried_failure(err)) is not None:
            raise carried from err
        if (ours := error_of_source(spark, reads, err)) is not None:
            raise ours from err
        raise
