"""The levels of an epoch in one stage of Spark: all tasks run at once and pass cells to each other over sockets.

    sc.parallelize([], tasks).barrier().mapPartitions(levels)                 no Spark in front or between
    exchanged(frame, tasks).mapInArrow(some levels, …, barrier=True)          a stage of several

A barrier stage starts only if all its tasks get a slot. If one of them fails, all run again.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Never

import pyarrow as pa
from pyspark import BarrierTaskContext, SparkContext

from tussock.jobs.chunks.failure import carried_by_spark
from tussock.jobs.driver.runner import LevelsToRun
from tussock.jobs.driver.slots import Slots, SlotsLostError
from tussock.jobs.exchange.meeting import Meeting, Rendezvous, UnitsByHost
from tussock.jobs.exchange.peers import Peers
from tussock.jobs.settings.tables import is_local_master
from tussock.jobs.spark.encryption import encrypts_files, is_on, why_encrypted
from tussock.jobs.spark.session import driver_address
from tussock.jobs.task.level import CellFunction
from tussock.jobs.task.spark_task import in_spark_task
from tussock.jobs.task.stage import last_units, run_stage
from tussock.jobs.wire.cell import CELL_SCHEMA
from tussock.jobs.wire.epoch_task import EpochTask, cells_in, cells_of
from tussock.jobs.wire.measured import Report
from tussock.jobs.wire.typed_rows import steps_behind
from tussock.statestore.errors import InputError
from tussock.statestore.local_disk import local_folder

log = logging.getLogger(__name__)

SETTING = "spark.tussock.exchange"
ATTEMPTS = 4  # as Spark's default for tasks and stages
_NOT_REPEATED = "Could not recover from a failed barrier ResultStage"  # in Spark's message


class BadExchangeError(InputError):
    """The setting of the exchange has an unknown value."""

    value: str

    def __str__(self) -> str:
        return f'"{SETTING}" is {self.value!r}; expected "sockets" (the default) or "files"'


def reason_for_files(context: SparkContext) -> str | None:
    """Return why epochs exchange cells through Spark's shuffle files; None if they use sockets.

    Raises BadExchangeError.
    """
    conf = context.getConf()
    if (wanted := conf.get(SETTING, "sockets")) not in ("sockets", "files"):
        raise BadExchangeError(str(wanted))
    if wanted == "files":
        return f"{SETTING} is {wanted}"
    if is_on(conf, "spark.dynamicAllocation.enabled"):
        return "Spark runs no barrier stages with dynamic allocation"
    return None


def group_levels(task: EpochTask) -> list[range]:
    """Group the levels into stages. A stage ends where Spark computes expressions before the next level."""
    stages, first, end = [], 0, len(task.schedule.levels)
    for level in range(end):
        if level + 1 == end or steps_behind(task.schedule, level):
            stages.append(range(first, level + 1))
            first = level + 1
    return stages


@contextmanager
def meeting_of(
    context: SparkContext,
    task: EpochTask,
    count: int,
    *,
    settled: bool,
    hosts: UnitsByHost | None = None,
) -> Iterator[Rendezvous]:
    """Let the `count` tasks of one stage meet during the block. Their connections use TLS if Spark encrypts.

    Args:
        hosts: units by the host that ran them in the epoch before.
        settled: whether unit `u` belongs to task `u % count`, because an exchange of Spark sends its cells there.
    """
    (bind, host), conf = driver_address(context), context.getConf()
    with Rendezvous(
        bind,
        host,
        count,
        task.unit_count,
        settled=settled,
        hosts=hosts or {},
        encrypts=why_encrypted(conf) is not None,
        encrypts_files=encrypts_files(conf),
    ) as rendezvous:
        yield rendezvous


def progress_of(meetings: Sequence[Rendezvous], task: EpochTask) -> Callable[[], tuple[int, int]]:
    """Return a function that returns the done and the total levels of an epoch, counted once per unit."""
    total = task.unit_count * len(task.schedule.levels)
    return lambda: (sum(one.done_levels for one in meetings), total)


def is_local(context: SparkContext) -> bool:
    """Whether the tasks run on the driver's host."""
    return is_local_master(str(context.master))


def run_in_one_stage(
    context: SparkContext, slots: Slots, levels: LevelsToRun, hosts: UnitsByHost, report: Report
) -> pa.Table:
    """Run all levels, and the flush if it needs an exchange. Returns the cells for the driver.

    Args:
        hosts: of the epoch before. `levels.measured` gets those of this epoch.
    """
    task = levels.task
    count = slots.task_count(task.unit_count)
    with (
        meeting_of(context, task, count, settled=False, hosts=hosts) as rendezvous,
        slots.watched_job(count, [rendezvous]),
    ):
        meeting = rendezvous.meeting
        levels.far.ask = progress_of([rendezvous], task)
        function = stage_function(lambda: task, range(len(task.schedule.levels)), meeting, is_local(context), report)

        def run_task(nothing: Iterable[Never]) -> Iterable[bytes]:
            yield cells_of(in_spark_task(function, CELL_SCHEMA)(iter(nothing)))

        cells = cells_in(context.parallelize([], meeting.count).barrier().mapPartitions(run_task).collect())
        levels.measured.hosts = rendezvous.units_by_host
        return cells


def repeat_job(job: Callable[[], pa.Table]) -> pa.Table:
    """Run a job that ends with a barrier stage, and again if a task of that stage fails or executors are lost.

    Spark itself repeats only barrier stages whose output goes to an exchange. Each attempt counts the slots again.
    Raises the error of the last attempt.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return job()
        except Exception as err:
            if _NOT_REPEATED not in str(err) and not isinstance(err, SlotsLostError):
                raise
            log.warning("attempt %d of %d failed, the levels run again: %s", attempt, ATTEMPTS, str(err)[:2000])
    return job()


def stage_function(
    task: "Callable[[], EpochTask]", levels: range, meeting: Meeting, local: bool, report: Report
) -> CellFunction:
    """The function of a task of a barrier stage: some levels on some units."""

    def run_rank(arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known, context = task(), BarrierTaskContext.get()
        rank = context.partitionId()
        host = "127.0.0.1" if local else context.getTaskInfos()[rank].address.rsplit(":", 1)[0].strip("[]")
        with carried_by_spark("exchange"):
            peers = Peers.join_meeting(
                meeting,
                context.taskAttemptId(),
                rank,
                host=host,
                bind="127.0.0.1" if local else "",
                units=last_units(known.store_uri),
                folder=local_folder(),
            )
        with peers:
            yield from run_stage(known, levels, peers, arriving, report)

    return run_rank
