"""The levels of an epoch on Spark.

With sockets (jobs/driver/one_stage.py), consecutive levels are one barrier stage. Another stage begins only after rows
that Spark reads, and after expressions that Spark computes. With files, each level is a stage after an exchange:

    exchanged(frame, units).mapInArrow(level)

The first level has no exchange unless Spark reads files for it: the driver sends its cells with the task.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import AccumulatorParam, inheritable_thread_target
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from tussock.jobs.barriers.leaves import SparkRead
from tussock.jobs.chunks.failure import SourceFileError, carried_failure
from tussock.jobs.driver.by_spark import compute_columns, with_reasons
from tussock.jobs.driver.one_stage import (
    group_levels,
    is_local,
    meeting_of,
    progress_of,
    reason_for_files,
    repeat_job,
    run_in_one_stage,
    stage_function,
)
from tussock.jobs.driver.runner import LevelsToRun, P, R
from tussock.jobs.driver.sealed_tables import SealedTables, TablesInDriver
from tussock.jobs.driver.slots import Slots
from tussock.jobs.exchange.meeting import UnitsByHost
from tussock.jobs.outside import world
from tussock.jobs.spark.encryption import encrypts_files
from tussock.jobs.spark.release import exchange_rows
from tussock.jobs.spark.session import activated_session, epoch_session, tasks_done
from tussock.jobs.spark.zones import ruled_by_jvm
from tussock.jobs.task.level import CellFunction, level_function
from tussock.jobs.task.spark_task import in_spark_task, partition_of_this_task, without_cells
from tussock.jobs.task.stage import flush_function
from tussock.jobs.trouble.guilty import error_of_source, source_frame
from tussock.jobs.wire.cell import CELL_SCHEMA, Address, Mail, tables_read
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.jobs.wire.measured import NOTHING, Measurement, MeasurementSum, Report, add_measurements
from tussock.jobs.wire.typed_rows import frame_schema, steps_behind
from tussock.statestore.decoding import decode_json
from tussock.statestore.forks import OPEN_SESSION, USED_SPARK, OwnProcess
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

        Raises BadExchangeError.
        """
        self.spark, self.policy = spark, policy or FlushPolicy()
        self._measuring = _Measuring(spark)
        self._slots = Slots(spark.sparkContext)
        self._why_files = reason_for_files(spark.sparkContext)
        self._process = OwnProcess()
        self._hosts: UnitsByHost | None = {} if is_local(spark.sparkContext) else None  # None: not read yet

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """See LevelRunner. Raises InheritedError in a forked child; ZoneRulesDifferError."""
        self._process.require_here(USED_SPARK, OPEN_SESSION)
        for rules in levels.task.zones:
            ruled_by_jvm(self.spark, rules.ruled_zone)
        spark = epoch_session(self.spark, levels.time_zone)
        with activated_session(spark):
            return self._run_levels(spark, levels)

    def _run_levels(self, spark: SparkSession, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        task, report = levels.task, self._measuring.report
        if self._why_files is not None:
            levels.measured.ran = f"on Spark, with an exchange through shuffle files ({self._why_files})"
            return self._through_files(spark, levels)
        groups = group_levels(task)
        if self._hosts is None:
            self._hosts = levels.previous_hosts()
        levels.measured.ran = f"on Spark, in {'one stage' if len(groups) == 1 else f'{len(groups)} stages'}"
        with spark_errors_as_ours(spark, levels.reads), self._measuring.add_to(levels.measured):
            if len(groups) == 1 and not levels.reads:
                cells = repeat_job(
                    partial(run_in_one_stage, spark.sparkContext, self._slots, levels, self._hosts, report)
                )
            else:
                with _broadcast_task(spark, task) as known:
                    cells = repeat_job(partial(_run_stages, spark, self._slots, known, levels, groups, report))
        if is_local(spark.sparkContext):
            levels.measured.hosts = {}
        self._hosts = levels.measured.hosts
        return _answers_and_sealed(levels, with_reasons(spark, cells))

    def _through_files(self, spark: SparkSession, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        task = levels.task
        levels.far.ask = partial(tasks_done, spark, task.unit_count)
        known: Broadcast[EpochTask] = spark.sparkContext.broadcast(task)
        try:
            cells = _by_level(spark, known, levels, self._measuring.report)
            with spark_errors_as_ours(spark, levels.reads), self._measuring.add_to(levels.measured):
                if task.policy.may_exchange(task.expected, task.unit_count):
                    answers, unflushed = _kept_by_spark(known, cells, self._measuring, levels.measured)
                    return with_reasons(spark, answers), unflushed
                all_cells = with_reasons(spark, cells.toArrow())
        except BaseException:
            known.destroy()
            raise
        known.destroy()  # the driver has all results
        return _answers_and_sealed(levels, all_cells)

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        """See LevelRunner. Copies this thread's Spark properties to the other thread."""
        wrapped: Callable[P, R] = inheritable_thread_target(self.spark)(work)
        return wrapped


def _answers_and_sealed(levels: LevelsToRun, cells: pa.Table) -> tuple[pa.Table, SealedTables]:
    is_sealed = pc.equal(cells["fragment"], int(Mail.SEALED))
    return cells.filter(pc.invert(is_sealed)), TablesInDriver(levels.objects, levels.task, cells.filter(is_sealed))


class _Sum(AccumulatorParam[Measurement]):
    """Adds measurements in Spark."""

    def zero(self, value: Measurement) -> Measurement:
        return NOTHING

    def addInPlace(self, value1: Measurement, value2: Measurement) -> Measurement:
        return add_measurements(value1, value2)


class _Measuring:
    """An accumulator that carries the measurements of tasks to the epoch whose job runs.

    In a train, the levels of one epoch overlap with the flush of another. Requests of one may then be counted for the
    other, and none is lost. Seconds are measured in levels only.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._sum = spark.sparkContext.accumulator(NOTHING, _Sum())
        self._lock = world.Lock()

    @property
    def report(self) -> Report:
        """The function that tasks call."""
        return self._sum.add

    @contextmanager
    def add_to(self, measured: MeasurementSum) -> Iterator[None]:
        """Add the measurements that arrive during the block to `measured`. Those of a job arrive before its result."""
        try:
            yield
        finally:
            with self._lock:
                measurement, self._sum.value = self._sum.value, NOTHING
            measured.add_measurement(measurement)


@contextmanager
def _broadcast_task(spark: SparkSession, task: EpochTask) -> "Iterator[Broadcast[EpochTask]]":
    known: Broadcast[EpochTask] = spark.sparkContext.broadcast(task)
    try:
        yield known
    finally:
        known.destroy()


class TablesInSpark:
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
        with spark_errors_as_ours(self._cells.sparkSession, ()), self._measuring.add_to(self._measured):
            answer = sealed.mapInArrow(flush, CELL_TYPE).toArrow()
        return [sst for chunk in answer["chunk"].to_pylist() for sst in decode_json(chunk, list[SstInfo])]

    def release(self) -> None:
        """See SealedTables."""
        self._cells._jdf.queryExecution().analyzed().rdd().unpersist(False)
        self._known.destroy()


def _by_level(spark: SparkSession, known: "Broadcast[EpochTask]", levels: LevelsToRun, report: Report) -> DataFrame:
    """Return the output of the last level, with a stage per level, as a frame that has not run yet.

    All frames belong to one session, because a union takes the settings of its first frame.
    """
    task = levels.task
    frame: DataFrame | None = None
    encrypts = encrypts_files(spark.sparkContext.getConf())
    for level in range(len(task.schedule.levels)):
        wanted = tables_read(task.schedule, level)
        buffered = [frame for number, one in enumerate(levels.unflushed) for frame in one.frames(number, wanted)]
        arriving = [*_read_sources(spark, levels, range(level, level + 1)), *buffered]
        function = level_function(lambda: known.value, level, partition_of_this_task, report, encrypts=encrypts)
        frame = _make_stage(spark, task, level, task.unit_count, function, frame, arriving, barrier=False)
    assert frame is not None, "a plan has levels"
    return frame


def _run_stages(
    spark: SparkSession,
    slots: Slots,
    known: "Broadcast[EpochTask]",
    levels: LevelsToRun,
    groups: Sequence[range],
    report: Report,
) -> pa.Table:
    """Run a barrier stage per group of levels. Returns the cells for the driver."""
    task, context = levels.task, spark.sparkContext
    frame: DataFrame | None = None
    count = slots.task_count(task.unit_count)
    with ExitStack() as meetings:
        rendezvous = [meetings.enter_context(meeting_of(context, task, count, settled=True)) for _ in groups]
        meetings.enter_context(slots.watched_job(count, rendezvous))
        levels.far.ask = progress_of(rendezvous, task)
        for group, meeting in zip(groups, (one.meeting for one in rendezvous), strict=True):
            function = stage_function(lambda: known.value, group, meeting, is_local(context), report)
            reads = _read_sources(spark, levels, group)
            frame = _make_stage(spark, task, group[-1], meeting.count, function, frame, reads, barrier=True)
        assert frame is not None, "a plan has levels"
        cells = frame.toArrow()
        levels.measured.hosts = rendezvous[-1].units_by_host
        return cells


def _read_sources(spark: SparkSession, levels: LevelsToRun, group: range) -> list[DataFrame]:
    units = levels.task.unit_count
    return [_read_source(spark, one, units) for one in levels.reads if one.scheduled.level in group]


def _make_stage(
    spark: SparkSession,
    task: EpochTask,
    last: int,
    tasks: int,
    function: CellFunction,
    before: DataFrame | None,
    arriving: Sequence[DataFrame],
    *,
    barrier: bool,
) -> DataFrame:
    """One stage: an exchange of its input, some levels, and the expressions that Spark computes on their output.

    Args:
        last: the last of the levels.
        tasks: unit `u` runs in task `u % tasks`.
        before, arriving: the output of the stage before, and other input.
    """
    steps = steps_behind(task.schedule, last)
    schema = frame_schema(steps)
    kind = from_arrow_schema(schema) if steps else CELL_TYPE
    actors = in_spark_task(function, schema)
    if frames := [*([] if before is None else [before]), *arriving]:
        together = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
        frame = exchange_rows(together, tasks).mapInArrow(actors, kind, barrier)
    else:
        frame = spark.range(0, tasks, 1, tasks).mapInArrow(without_cells(actors), kind, barrier)
    return compute_columns(frame, steps)


def _read_source(spark: SparkSession, read: SparkRead, units: int) -> DataFrame:
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
    checkpointed = cells.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)
    answer = f"if({_IS_SEALED}, NULL, chunk) AS chunk"
    size = f"if({_IS_SEALED}, octet_length(chunk), NULL) AS size"
    answers = checkpointed.selectExpr("slot", "fragment", "input", answer, size).toArrow()
    is_sealed = pc.equal(answers["fragment"], int(Mail.SEALED))
    tables = frozenset(answers.filter(is_sealed)["input"].to_pylist())
    unflushed = TablesInSpark(known, checkpointed, tables, pc.sum(answers["size"]).as_py() or 0, measuring, measured)
    return answers.filter(pc.invert(is_sealed)).drop_columns(["size"]), unflushed


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
