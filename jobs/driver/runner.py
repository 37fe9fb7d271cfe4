"""Runners: the execution of an epoch's levels.

    Spark    barrier stages of tasks (jobs/driver/spark_runner.py)
    local    this process, or worker processes on its host (jobs/workers/), without a JVM
    auto     one of both, chosen for each epoch

All run the same level functions over the same cells, and write the same bytes.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.barriers.leaves import SparkRead
from tussock.jobs.chunks.failure import TaskError, carried_failure
from tussock.jobs.driver.sealed_tables import SealedTables, TablesInDriver
from tussock.jobs.exchange.peers import Peers
from tussock.jobs.task.level import CellFunction
from tussock.jobs.task.stage import attempt_once, run_stage
from tussock.jobs.wire.cell import CELL_SCHEMA, Mail
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import ExpectedSize, FlushPolicy
from tussock.jobs.wire.measured import MeasurementSum, Report
from tussock.jobs.workers.pool import WorkerPool, pool_runs, worker_pool
from tussock.statestore.errors import InputError, TussockError
from tussock.statestore.extras import MissingExtraError, missing_spark
from tussock.statestore.meta.work import HowFar
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.progress import Progress, no_progress

#: Epochs of this size run on the machines of Spark, if it has any.
WORTH_MACHINES_BYTES = 64 << 20

#: Epochs of this size start the worker processes, which takes a second. Smaller ones use workers that run already, if
#: they are not small enough for one unit.
WORTH_WORKERS_BYTES = 4 << 20

P = ParamSpec("P")
R = TypeVar("R")


class NeedsSparkError(InputError):
    """An epoch needs Spark to read files or to compute expressions, and the session has no Spark.

    Args:
        sources: each with a reason in parentheses, if Spark does not read all files of its format.
        install: the command that installs Spark, if it is not installed here.
    """

    def __init__(self, sources: Sequence[str], views: Sequence[str] = (), install: str = "") -> None:
        super().__init__(list(sources), list(views), install)
        self.sources, self.views, self.install = sources, views, install

    def __str__(self) -> str:
        files = [f"can read files of {', '.join(self.sources)}"] if self.sources else []
        views = [f"can compute some expressions of {', '.join(self.views)} (EXPLAIN lists them)"] if self.views else []
        if self.install:
            return (
                f"only Spark {', and '.join(files + views)}, and Spark is not installed here. Nothing of this epoch "
                f"was committed. Install it, then run the epoch again: {self.install}"
            )
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
        unflushed: the epochs in flight in `task`, oldest first.
        time_zone: the time zone of the store, by its recorded rules.
        by_spark: views with expressions that Spark computes in this epoch.
        nbytes: expected size of the input; an upper bound if the epoch reads existing relations in full.
        measured: receives the measurements of units and workers; those of a flush on Spark at its end.
        far: receives a function that returns the progress.
        previous_hosts: returns units by the host that ran them in the epoch before, from its manifest. Cost: one GET.
    """

    objects: ObjectStore
    task: EpochTask
    reads: Sequence[SparkRead]
    unflushed: Sequence[SealedTables]
    time_zone: str
    by_spark: tuple[str, ...] = ()
    nbytes: int = 0
    measured: MeasurementSum = field(default_factory=MeasurementSum)
    far: HowFar = field(default_factory=HowFar)
    previous_hosts: Callable[[], Mapping[str, Sequence[int]]] = dict


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
    """Runs levels on this host without Spark: in this process, or faster in worker processes (jobs/workers/)."""

    def __init__(self, policy: FlushPolicy | None = None, workers: int = 1) -> None:
        """
        Args:
            workers: processes that may run units at once, at least 1. With 1, units run in this process.
        """
        self.policy, self.workers = policy or FlushPolicy(), workers

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """See LevelRunner. Raises NeedsSparkError, WorkerLostError."""
        if levels.reads or levels.by_spark:
            raise NeedsSparkError(_read_by_spark(levels.reads), levels.by_spark)
        assert not any(True for one in levels.unflushed for _ in one.frames(0, one.tables)), (
            "Spark holds epochs before this one"
        )
        cells = self._run_levels(levels)
        is_sealed = pc.equal(cells["fragment"], int(Mail.SEALED))
        return cells.filter(pc.invert(is_sealed)), self.hold_sealed(levels, cells.filter(is_sealed))

    def _run_levels(self, levels: LevelsToRun) -> pa.Table:
        workers = min(self.workers, levels.task.unit_count)
        starts = workers > 1 and levels.nbytes >= WORTH_WORKERS_BYTES
        levels.measured.ran = "in the driver's process"
        if not starts and self.may_unite(levels.task):
            levels.measured.undivided = True
            return self._run_here(levels.task.to_undivided(), levels.measured.add_measurement, levels.far)
        if starts or (workers > 1 and pool_runs(workers)):
            with worker_pool(workers) as pool:
                if isinstance(pool, WorkerPool):
                    levels.measured.ran = f"on {workers} workers of the driver's host"
                    return pool.run(levels.task, workers, levels.far, levels.measured.add_measurement)
                levels.measured.ran += f", because {pool}"
        return self._run_here(levels.task, levels.measured.add_measurement, levels.far)

    def may_unite(self, task: EpochTask) -> bool:
        """Whether a task is small, so that its units cost more than their work. One unit then runs for all."""
        return task.expected is ExpectedSize.LITTLE and task.unit_count > 1

    def _run_here(self, task: EpochTask, report: Report, far: HowFar) -> pa.Table:
        """Run the units one after another in this process, the only one of the epoch."""
        levels, done = range(len(task.schedule.levels)), 0

        def note_progress(count: int) -> None:
            nonlocal done
            done = count

        far.ask = lambda: (done, task.unit_count * len(levels))
        try:
            with Peers.of_one(task.unit_count, note_progress) as peers:
                answers = run_stage(task, levels, peers, report=report, attempt=self.run_unit)
                return pa.Table.from_batches(answers, CELL_SCHEMA)
        except TaskError as err:
            raise carried_failure(err) or err from err

    def run_unit(
        self, unit: int, function: CellFunction, arriving: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Run a unit's function over its arriving cells. Tests override it, to repeat or fail attempts."""
        return attempt_once(unit, function, arriving)

    def hold_sealed(self, levels: LevelsToRun, sealed: pa.Table) -> SealedTables:
        """Keep the MemTables that the levels sealed."""
        return TablesInDriver(levels.objects, levels.task, sealed, undivided=levels.measured.undivided)

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        """See LevelRunner. Returns `work` unchanged."""
        return work


def _read_by_spark(reads: Sequence[SparkRead]) -> list[str]:
    """The sources of which Spark reads files, each with the reason if it has one."""
    reason_by_source: dict[str, str] = {}
    for read in reads:
        reason_by_source[read.source.name] = reason_by_source.get(read.source.name) or read.why
    return [f"{name} ({why})" if why else name for name, why in sorted(reason_by_source.items())]


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SparkWantedError(TussockError):
    """An epoch requires Spark, and this process cannot start it. Nothing was committed; its barrier may be in force.

    `why`: empty if it was not yet known, because only Spark can list a source.
    """

    why: str = ""

    def __str__(self) -> str:
        return f"this epoch requires Spark: {self.why or 'only Spark can list a source'}"


class RunnerOnDemand(LevelRunner):
    """Runs levels with a runner that is made for the first epoch, because making it may start Spark."""

    def __init__(self, make: Callable[[], LevelRunner], policy: FlushPolicy | None = None) -> None:
        """`make`: returns the runner. It is called once."""
        self.policy, self._make = policy or FlushPolicy(), make
        self._made: LevelRunner | None = None

    @property
    def is_made(self) -> bool:
        """Whether an epoch has run."""
        return self._made is not None

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        if self._made is None:
            self._made = self._make()
        return self._made.run(levels)

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        return work if self._made is None else self._made.for_a_thread(work)


class AutoRunner(LevelRunner):
    """Runs on Spark what needs Spark or its machines, and everything else on this host."""

    def __init__(
        self,
        spark: Callable[[], LevelRunner],
        has_machines: Callable[[], bool] = lambda: False,
        policy: FlushPolicy | None = None,
        workers: int = 1,
        progress: Progress = no_progress,
    ) -> None:
        """
        Args:
            spark: returns the runner on Spark, and may start Spark. It is called once, if an epoch needs Spark.
            has_machines: whether Spark runs on other machines than this one, so that large epochs gain from it.
            workers: as in LocalRunner.
            progress: is told why the first epoch on Spark needs it.
        """
        self.policy, self._progress = policy or FlushPolicy(), progress
        self._spark, self._has_machines = RunnerOnDemand(spark, policy), has_machines
        self._local = LocalRunner(policy, workers)

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        why = self._why_spark(levels)
        if why is None:
            return self._local.run(levels)
        if not self._spark.is_made:
            self._progress(f"starting Spark, because {why}")
        try:
            outcome = self._spark.run(levels)
        except SparkWantedError:
            raise SparkWantedError(why) from None
        except (MissingExtraError, ModuleNotFoundError) as err:
            missing = missing_spark()
            if missing is None or not (levels.reads or levels.by_spark):
                raise
            raise NeedsSparkError(_read_by_spark(levels.reads), levels.by_spark, missing.command) from err
        levels.measured.ran += f", because {why}"
        return outcome

    def _why_spark(self, levels: LevelsToRun) -> str | None:
        if levels.reads:
            return f"Spark reads files of {', '.join(_read_by_spark(levels.reads))}"
        if levels.by_spark:
            return f"Spark computes expressions of {', '.join(levels.by_spark)}"
        if any(True for one in levels.unflushed for _ in one.frames(0, one.tables)):
            return "Spark holds the rows of the epoch before"
        if levels.nbytes >= WORTH_MACHINES_BYTES and self._has_machines():
            return f"about {levels.nbytes / 1e6:,.0f} MB are expected, and Spark has other machines"
        return None

    def for_a_thread(self, work: Callable[P, R]) -> Callable[P, R]:
        return self._spark.for_a_thread(work)


def no_spark() -> LevelRunner:
    """The runner on Spark of a process that cannot start it. Raises SparkWantedError."""
    raise SparkWantedError
