"""A cluster of Spark in the simulation: slots, barrier stages and their failures, as Spark's scheduler has them.

Spark itself is not simulated. Its part is small: it starts the tasks of a barrier stage if there is a slot for each, in
processes of its executors, hands their results to the driver, and fails the stage if one of them fails.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from tests.support.simulation import connections, system
from tests.support.simulation.scheduler import Process, Signal, World
from tussock.jobs.driver import one_stage
from tussock.jobs.driver.runner import LevelsToRun, LocalRunner

_CHECKS, _CHECK_S = 40, 15.0  # spark.scheduler.barrier.maxConcurrentTasksCheck.*
_HEARTBEAT_S = 120.0  # spark.network.timeout: an executor without a sign of life is lost
_KILL_S = 2.0  # until tasks of a failed attempt are killed


class SparkJobError(Exception):
    """As Spark's errors arrive in Python."""


@dataclass(eq=False)
class Executor:
    """An executor on a host."""

    host: str
    slots: int
    alive: bool = True
    tasks: list[Process] = field(default_factory=list)


@dataclass
class _Task:
    rank: int
    attempt: int
    executor: Executor
    process: Process | None = None
    result: Any = None
    error: str | None = None


class Cluster:
    """Executors, and the part of SparkContext that the driver uses."""

    def __init__(self, world: World, machine: system.Machine, driver_host: str) -> None:
        chance = world.random
        self.world, self.machine, self.driver_host = world, machine, driver_host
        count = 1 + int(chance.random() * 3)
        self.executors = [Executor(f"e{i}", 1 + int(chance.random() * 2)) for i in range(count)]
        self.changed = Signal()
        self.attempts = 0
        self.by_process: dict[Process, _Task] = {}
        self.lost_after_count = False
        self.group: str | None = None  # of the jobs of this thread
        self.cancelled = set[str]()  # groups
        world.on_end.append(self._ended)
        one_stage.BarrierTaskContext = _Context  # type: ignore[attr-defined, misc]
        _Context.cluster = self

    def runner(self) -> "ClusterRunner":
        """A runner of a new application."""
        return ClusterRunner(SparkContextStandIn(self))

    def slots(self) -> int:
        """The tasks that the executors can run at once."""
        return sum(one.slots for one in self.executors if one.alive)

    def _ended(self, process: Process) -> None:
        task = self.by_process.pop(process, None)
        if task is not None and task.result is None and task.error is None:
            task.error = "ExecutorLostFailure" if not task.executor.alive else "Python worker exited unexpectedly"
        self.world.notify(self.changed)

    def happen(self, kind: str, amount: float) -> None:
        """A fault."""
        world = self.world
        alive = [one for one in self.executors if one.alive]
        tasks = [task.process for task in self.by_process.values() if task.process is not None and task.process.alive]
        one = alive[int(amount * len(alive))] if alive else None
        match kind:
            case "lose executor" if one is not None:
                self.lose(one)
            case "lose slots":
                self.lost_after_count = True
            case "stop executor" if one is not None:
                tasks = [task.process for task in self.by_process.values() if task.executor is one]
                seconds = (1.0, 20.0, 300.0)[int(amount * 1009) % 3]
                for process in filter(None, tasks):
                    world.stop(process)
                    world.after(seconds, partial(world.go_on, process))
                if seconds > _HEARTBEAT_S:
                    world.after(_HEARTBEAT_S, partial(self.lose, one))
            case "cut" if one is not None:
                hosts = [self.driver_host, *(e.host for e in alive if e is not one)]
                other = hosts[int(amount * 1009) % len(hosts)]
                self.machine.network.cut_way(one.host, other)
                if other == self.driver_host:
                    world.after(_HEARTBEAT_S, partial(self.lose, one))
                world.after(200.0, self.machine.network.cut.clear)
            case "reset":
                streams = [s for s in self.machine.network.streams if not s.closed]
                if streams:
                    streams[int(amount * len(streams))].break_off()
            case "stranger":
                world.new_process("stranger", "elsewhere", partial(self._be_stranger, amount < 0.5))
            case "kill task" if tasks:
                world.end_process(tasks[int(amount * len(tasks))], -9)
            case _:
                pass

    def _be_stranger(self, drips: bool) -> None:
        """Connect to each open port without a token, and say nothing, or a byte every 4 seconds."""
        network, open_ends = self.machine.network, list[int]()
        known = set[tuple[str, int]]()
        for _ in range(40):
            for host, port in sorted(network.listeners.keys() - known):
                known.add((host, port))
                with suppress(OSError):
                    open_ends.append(connections.connect_to(host, port, 5.0))
            for end in open_ends if drips else ():
                with suppress(OSError):
                    connections.transmit(end, b"x", None, False)
            system.sleep(0.05 if len(open_ends) < 3 else 4.0)

    def lose(self, executor: Executor) -> None:
        """An executor vanishes. The cluster gives another one later."""
        self.world.trace(f"lose executor {executor.host}")
        executor.alive = False
        for task in list(self.by_process.values()):
            if task.executor is executor and task.process is not None:
                self.world.end_process(task.process, -9)
        if not any(one.alive for one in self.executors):
            self.world.after(5.0, lambda: self.executors.append(Executor(f"e{len(self.executors)}", 2)))
        self.world.notify(self.changed)

    # --- a barrier stage ---

    def run_barrier(self, count: int, function: Callable[[Iterable[Any]], Iterable[Any]]) -> list[Any]:
        """Run a function in `count` tasks at once; their results in the order of ranks. Raises SparkJobError."""
        world = self.world
        if self.lost_after_count and count > 1:
            self.lost_after_count = False
            self.executors.append(Executor(f"e{len(self.executors)}", count - 1))
            for executor in self.executors[:-1]:
                self.lose(executor)
        for check in range(_CHECKS + 1):
            if self.slots() >= count:
                break
            if check == _CHECKS:
                raise SparkJobError(
                    "org.apache.spark.scheduler.BarrierJobSlotsNumberCheckFailed: [SPARK-24819]: Barrier execution "
                    "mode does not allow run a barrier stage that requires more slots than the total number of slots "
                    f"in the cluster currently. Requires {count}, available {self.slots()}."
                )
            system.sleep(_CHECK_S)
            if self.group in self.cancelled:
                raise SparkJobError(f"[SPARK_JOB_CANCELLED] Job 1 cancelled part of cancelled job group {self.group}")
        free = [one for one in self.executors if one.alive for _ in range(one.slots)]
        tasks = []
        for rank in range(count):
            self.attempts += 1
            tasks.append(_Task(rank, self.attempts, free[rank]))
        for task in tasks:
            self._start(task, function)

        def over() -> bool | None:
            if any(task.error is not None for task in tasks):
                return True
            return True if all(task.result is not None for task in tasks) else None

        world.wait_for(over, (self.changed,), None, "Spark's job")
        if failed := next((task for task in tasks if task.error is not None), None):
            world.after(_KILL_S * world.random.random(), partial(self._kill, tasks))
            raise SparkJobError(
                f"Job aborted due to stage failure: {one_stage._NOT_REPEATED}. Most recent failure: {failed.error}"
            )
        return [item for task in tasks for item in task.result]

    def _kill(self, tasks: list[_Task]) -> None:
        for task in tasks:
            if task.process is not None and task.process.alive:
                self.world.end_process(task.process, -9)

    def _start(self, task: _Task, function: Callable[[Iterable[Any]], Iterable[Any]]) -> None:
        def work() -> None:
            system.sleep(0.01 + 0.1 * self.world.random.random())
            try:
                task.result = list(function(iter(())))
            except Exception as err:
                task.error = str(err) or repr(err)
            self.world.notify(self.changed)

        task.process = self.world.new_process(f"task{task.attempt}", task.executor.host, work)
        self.by_process[task.process] = task


class _Context:
    """As BarrierTaskContext."""

    cluster: Cluster

    @classmethod
    def get(cls) -> "_Context":
        """The context of the task that this process runs."""
        return cls()

    def __init__(self) -> None:
        thread = self.cluster.world.current
        assert thread is not None
        self._task = self.cluster.by_process[thread.process]

    def partitionId(self) -> int:
        """The rank."""
        return self._task.rank

    def taskAttemptId(self) -> int:
        """Larger in later attempts."""
        return self._task.attempt

    def getTaskInfos(self) -> dict[int, Any]:
        """The addresses of the tasks of this attempt."""
        first = self._task.attempt - self._task.rank
        infos = {}
        for task in self.cluster.by_process.values():
            infos[task.attempt - first] = _Info(f"{task.executor.host}:7077")
        infos[self._task.rank] = _Info(f"{self._task.executor.host}:7077")
        return infos


@dataclass
class _Info:
    address: str


class Executors:
    """As a Scala list of ExecutorSummary."""

    def __init__(self, executors: "list[Executor]") -> None:
        self._executors = list(executors)

    def size(self) -> int:
        """How many."""
        return len(self._executors)

    def apply(self, at: int) -> "Summary":
        """One of them."""
        return Summary(self._executors[at])


class Summary:
    """As ExecutorSummary, and as the reason of its end."""

    def __init__(self, executor: "Executor") -> None:
        self._executor = executor

    def hostPort(self) -> str:
        """Its address."""
        return f"{self._executor.host}:7077"

    def isActive(self) -> bool:
        """Whether it is not lost."""
        return self._executor.alive

    def removeReason(self) -> "Summary":
        """Why it is lost."""
        return self

    def isDefined(self) -> bool:
        """Whether there is a reason."""
        return not self._executor.alive

    def get(self) -> str:
        """The reason."""
        return "Executor heartbeat timed out"


class SparkContextStandIn:
    """The part of a SparkContext that jobs/driver/one_stage.py uses."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self.master = cluster, "spark://master:7077"
        self._jsc = self
        self.applicationId = "app-1"

    def sc(self) -> "SparkContextStandIn":
        """The context in the JVM."""
        return self

    def resourceProfileManager(self) -> "SparkContextStandIn":
        """Profiles of executors."""
        return self

    def defaultResourceProfile(self) -> None:
        """The only profile."""

    def maxNumConcurrentTasks(self, profile: None) -> int:
        """The slots now."""
        return self._cluster.slots()

    def getConf(self) -> dict[str, str]:
        """The settings."""
        return {"spark.driver.host": self._cluster.driver_host}

    def getLocalProperty(self, name: str) -> str | None:
        """Only the group of jobs is kept."""
        return self._cluster.group

    def setLocalProperty(self, name: str, value: str | None) -> None:
        """Only the group of jobs is kept."""
        if name == "spark.jobGroup.id":
            self._cluster.group = value

    def cancelJobGroupAndFutureJobs(self, group: str) -> None:
        """End the jobs of a group."""
        self._cluster.cancelled.add(group)

    def statusStore(self) -> "SparkContextStandIn":
        """The state that Spark shows."""
        return self

    def executorList(self, active: bool) -> Executors:
        """The executors, also lost ones."""
        return Executors(self._cluster.executors)

    def parallelize(self, data: list[Any], count: int) -> "_Stage":
        """An RDD without rows."""
        return _Stage(self._cluster, count)


@dataclass
class _Stage:
    cluster: Cluster
    count: int
    function: Callable[[Iterable[Any]], Iterable[Any]] | None = None

    def barrier(self) -> "_Stage":
        """A barrier stage."""
        return self

    def mapPartitions(self, function: Callable[[Iterable[Any]], Iterable[Any]]) -> "_Stage":
        """With this function in each task."""
        return _Stage(self.cluster, self.count, function)

    def collect(self) -> list[Any]:
        """Run it."""
        assert self.function is not None
        return self.cluster.run_barrier(self.count, self.function)


class ClusterRunner(LocalRunner):
    """Runs all levels in one stage, as SparkRunner does."""

    def __init__(self, context: SparkContextStandIn) -> None:
        super().__init__()
        self._context: Any = context
        self._slots = one_stage.Slots(self._context)

    def _run_levels(self, levels: LevelsToRun) -> pa.Table:
        levels.measured.ran = "on the cluster"
        try:
            return one_stage.repeat_job(
                partial(
                    one_stage.run_in_one_stage,
                    self._context,
                    self._slots,
                    levels,
                    {},
                    levels.measured.add_measurement,
                )
            )
        except SparkJobError as err:
            if (carried := one_stage_failure(err)) is not None:
                raise carried from err
            raise


def one_stage_failure(err: Exception) -> Exception | None:
    """The error of the engine inside an error of Spark."""
    from tussock.jobs.chunks.failure import carried_failure

    return carried_failure(err)
