"""Runners: the execution of an epoch's levels.

    Spark    each level is a stage, each unit a task (jobs/driver/spark_runner.py). Used by pipelines.
    local    this process runs all units one after another, without JVM or exchange. Used for small epochs.

Both run the same level functions over the same cells, and write the same bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.driver.held import HeldByDriver, SealedTables
from tussock.jobs.driver.leaves import SparkRead
from tussock.jobs.flow.failure import TaskError, carried_failure
from tussock.jobs.task.level import CellFunction, level_function
from tussock.jobs.wire.cell import CELL_SCHEMA, Mail, tables_read
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import Expected, FlushPolicy
from tussock.jobs.wire.measured import MeasurementSum
from tussock.statestore.errors import InputError, TussockError
from tussock.statestore.meta.work import HowFar
from tussock.statestore.objectstore.base import ObjectStore

P = ParamSpec("P")
R = TypeVar("R")


class NeedsSparkError(InputError):
    """An epoch needs Spark to read files or to compute expressions, and the session has no Spark."""

    def __init__(self, sources: Sequence[str], views: Sequence[str] = ()) -> None:
        super().__init__(list(sources), list(views))
        self.sources, self.views = sources, views

    def __str__(self) -> str:
        files = [f"can read the files of {', '.join(self.sources)}"] if self.sources else []
        views = [f"can compute some expressions of {', '.join(self.views)} (EXPLAIN lists them)"] if self.views else []
        return (
            f"only Spark {', and '.join(files + views)}, and this session runs epochs without Spark. Nothing of this "
            'epoch was committed. Run it in a Session(…, runner="auto"), or with `tussock epoch`.'
        )


@dataclass(frozen=True, slots=True)
class LevelsToRun:
    """An epoch as the input of a runner.

    Args:
        objects: the store.
        task: the data that every unit gets, including the driver's own cells.
        reads: files that Spark reads, for the level that takes them.
        held: the epochs in flight in `task`, oldest first.
        time_zone: the time zone of the store.
        by_spark: views with expressions that Spark computes in this epoch.
        measured: receives the measurements of units and workers; those of a flush on Spark at its end.
        far: receives a function that returns the progress.
    """

    objects: ObjectStore
    task: EpochTask
    reads: Sequence[SparkRead]
    held: Sequence[SealedTables]
    time_zone: str
    by_spark: tuple[str, ...] = ()
    measured: MeasurementSum = field(default_factory=MeasurementSum)
    far: HowFar = field(default_factory=HowFar)


class LevelRunner(Protocol):
    """Runs the levels of an epoch."""

    policy: FlushPolicy

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """Run the levels; return the cells for the driver and the sealed MemTables.

        Raises: retryable errors that retries did not solve. Other errors are among the cells (Mail.FAILURE).
        """

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        """Return `work` so that another thread of this process can run jobs of this runner in it."""


class LocalRunner:
    """Runs the levels of small epochs in this process, one unit after another. Starts no JVM, imports no Spark."""

    def __init__(self, policy: FlushPolicy | None = None) -> None:
        self.policy = policy or FlushPolicy()

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """See LevelRunner. Raises NeedsSparkError."""
        task = levels.task
        if levels.reads or levels.by_spark:
            raise NeedsSparkError(sorted({read.source.name for read in levels.reads}), levels.by_spark)
        assert not any(True for one in levels.held for _ in one.frames(0, one.tables)), (
            "Spark holds epochs before this one"
        )
        found, report = CELL_SCHEMA.empty_table(), levels.measured.add
        done, units = 0, task.unit_count * len(task.schedule.levels)
        levels.far.ask = lambda: (done, units)
        for level in range(len(task.schedule.levels)):
            functions = [
                level_function(lambda: task, level, lambda unit=unit: unit, report)  # type: ignore[misc]
                for unit in range(task.unit_count)
            ]
            arriving = [found.filter(pc.equal(found["slot"], unit)) for unit in range(task.unit_count)]
            answers = []
            for unit, both in enumerate(zip(functions, arriving, strict=True)):
                answers.append(self.attempt(unit, *both))
                done += 1
            found = pa.concat_tables([CELL_SCHEMA.empty_table(), *answers])
        is_sealed = pc.equal(found["fragment"], int(Mail.SEALED))
        return found.filter(pc.invert(is_sealed)), self.hold(levels, found.filter(is_sealed))

    def attempt(self, unit: int, function: CellFunction, cells: pa.Table) -> pa.Table:
        """Run a unit's function over its cells. Raises the error that Spark would carry to the driver."""
        try:
            return pa.Table.from_batches(list(function(iter(cells.to_batches()))), CELL_SCHEMA)
        except TaskError as err:
            raise carried_failure(err) or err from err

    def hold(self, levels: LevelsToRun, sealed: pa.Table) -> SealedTables:
        """Keep the MemTables that the levels sealed."""
        return HeldByDriver(levels.objects, levels.task, sealed)

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        """See LevelRunner. Returns `work` unchanged."""
        return work


class SparkWantedError(TussockError):
    """An epoch requires Spark, and this process cannot start it. Nothing was committed; its barrier may be in force."""

    def __str__(self) -> str:
        return "this epoch requires Spark: it is large, or Spark must read or compute a part of it"


class AutoRunner:
    """Runs on Spark if Spark is already running or necessary, and otherwise in this process.

    Spark is necessary for large epochs, for files that only Spark reads, and for expressions that only Spark computes.
    """

    def __init__(
        self,
        spark: Callable[[], LevelRunner],
        at_work: Callable[[], bool] = lambda: False,
        policy: FlushPolicy | None = None,
    ) -> None:
        """
        Args:
            spark: returns the runner on Spark, and may start Spark.
            at_work: returns whether Spark is running; by default never.
        """
        self.policy = policy or FlushPolicy()
        self._spark, self._at_work, self._local = spark, at_work, LocalRunner(policy)

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """See LevelRunner."""
        fits = levels.task.expected is Expected.LITTLE and not levels.reads and not levels.by_spark
        return (self._local if fits and not self._at_work() else self._spark()).run(levels)

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        """See LevelRunner."""
        return self._spark().for_a_thread(work) if self._at_work() else work


def no_spark() -> LevelRunner:
    """The runner on Spark of a process that cannot start it. Raises SparkWantedError."""
    raise SparkWantedError


def tables_of_all_levels(task: EpochTask) -> frozenset[int]:
    """Return the ids of the state tables that any actor of the epoch may read."""
    return frozenset[int]().union(*(tables_read(task.schedule, level) for level in range(len(task.schedule.levels))))
