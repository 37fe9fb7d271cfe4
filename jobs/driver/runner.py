"""Runners: where the levels of an epoch run.

    Spark    each level is a stage, each unit a task (tussock.jobs.driver.spark_runner). What pipelines run on.
    local    this process runs all units, one after the other: no JVM, no exchange. What small epochs of an embedded session run on.

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
    """An epoch takes in files that only Spark reads, or changes views with expressions that only Spark computes, and the session is one
    without Spark."""

    def __init__(self, sources: Sequence[str], views: Sequence[str] = ()) -> None:
        super().__init__(list(sources), list(views))
        self.sources, self.views = sources, views

    def __str__(self) -> str:
        files = [f"reads the files of {', '.join(self.sources)}"] if self.sources else []
        views = [f"computes some expressions of {', '.join(self.views)} (EXPLAIN names them)"] if self.views else []
        return (
            f"only Spark {', and '.join(files + views)}, and this session runs epochs without it. Nothing of this epoch was "
            'committed; run it from a Session(…, runner="auto") or by `tussock epoch`.'
        )


@dataclass(frozen=True, slots=True)
class LevelsToRun:
    """An epoch as a runner gets it.

    Args:
        objects: the store.
        task: what every unit knows, the driver's own cells included.
        reads: files that Spark's own reader reads, for the level that takes them.
        held: epochs in flight that `task` counts, oldest first.
        time_zone: the store's.
        by_spark: views of which Spark computes something in this epoch.
        measured: gets what units and workers measured; of a flush by Spark when it is done.
        far: gets what says how much of it is done.
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
    """Where the levels of an epoch run."""

    policy: FlushPolicy

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """Run the levels alone: the cells that answer the driver, and what was sealed.

        Raises: errors that a retry may mend, where it did not; others are among the answers (Mail.FAILURE).
        """

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        """`work` for another thread of this process, which is to run jobs of this runner."""


class LocalRunner:
    """Runs levels in this process, a unit after the other: for epochs that take in little. Starts no JVM and imports no Spark."""

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
        """A unit's task: its cells through its function. Raises the error that Spark would carry to the driver."""
        try:
            return pa.Table.from_batches(list(function(iter(cells.to_batches()))), CELL_SCHEMA)
        except TaskError as err:
            raise carried_failure(err) or err from err

    def hold(self, levels: LevelsToRun, sealed: pa.Table) -> SealedTables:
        """Keep what the levels sealed."""
        return HeldByDriver(levels.objects, levels.task, sealed)

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        """See LevelRunner: as it is."""
        return work


class SparkWantedError(TussockError):
    """An epoch that is to run on Spark, in a process that starts none. Nothing of it was committed; its barrier may be in force."""

    def __str__(self) -> str:
        return "the epoch is not small, or Spark reads or computes something of it: it runs on Spark"


class AutoRunner:
    """Runs on Spark where it is at work already, or is needed; else here.

    Needed: by an epoch that takes in much, or files that only Spark reads, or changes views of which Spark computes something.
    """

    def __init__(
        self,
        spark: Callable[[], LevelRunner],
        at_work: Callable[[], bool] = lambda: False,
        policy: FlushPolicy | None = None,
    ) -> None:
        """
        Args:
            spark: the runner on Spark; called when it is wanted, and may start it.
            at_work: whether Spark has been started; left out where it never is.
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
    """The runner on Spark of a process that starts none: raises SparkWantedError."""
    raise SparkWantedError


def tables_of_all_levels(task: EpochTask) -> frozenset[int]:
    """Ids of the state tables that any actor of the epoch may read."""
    return frozenset[int]().union(*(tables_read(task.schedule, level) for level in range(len(task.schedule.levels))))
