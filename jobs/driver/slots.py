"""The slots of a Spark application: their number before a barrier stage, and a watch while the stage waits for them.

A barrier stage starts when all of its tasks have a slot. If executors are lost after the count, Spark waits for others:
without a message, and for ten minutes by default (SPARK-24819), or without end. The watch ends such a job, and the
caller counts again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

from tussock.jobs.exchange.meeting import Rendezvous
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline
from tussock.jobs.settings.tables import is_local_master
from tussock.statestore.errors import RetryableError

log = logging.getLogger(__name__)

QUIET_S, EXECUTORS_S = 2.0, 30.0  # of waiting for the executors of a new application
MISSING_S = 10.0  # in which Spark may replace executors that it has lost
_LOOK_S = 0.5
_TOO_FEW = "SPARK-24819"  # in Spark's message about a stage with more tasks than slots
_GROUP, _DESCRIPTION = "spark.jobGroup.id", "spark.job.description"


class SlotsLostError(RetryableError):
    """An application lost executors between the count of its slots and the start of a stage."""

    def __init__(self, wanted: int, slots: int, lost: Sequence[str]) -> None:
        super().__init__(wanted, slots, list(lost))
        self.wanted, self.slots, self.lost = wanted, slots, list(lost)

    def __str__(self) -> str:
        lost = f"It lost {'; '.join(self.lost)}" if self.lost else "Spark lists no lost executor"
        return (
            f"a stage of {self.wanted} tasks waited for slots, and the Spark application has {self.slots}. {lost}. "
            "Nothing of the epoch was committed, and running it again is safe. If this repeats, look at the logs of "
            "these executors, mostly for too little memory, and at the page of the cluster's master."
        )


class Slots:
    """The number of tasks that an application can run at once."""

    def __init__(self, context: SparkContext) -> None:
        self._context, self._settled = context, is_local_master(str(context.master))

    def task_count(self, units: int) -> int:
        """Return the number of tasks for an epoch on `units` units.

        The executors of a new application register one after another. The first call therefore waits until there is a
        slot per unit, or until some slots and no new ones came for QUIET_S, or for EXECUTORS_S. So does the first call
        after a loss. If there is no slot then, the job waits in Spark (jobs/spark/executor_watch.py).
        """
        slot_count, quiet, ends = self._count_now(), Deadline(QUIET_S), Deadline(EXECUTORS_S)
        while not self._settled and slot_count < units and not ends.has_passed:
            if slot_count and quiet.has_passed:
                break
            world.sleep_s(0.1)
            if (later := self._count_now()) != slot_count:
                slot_count = later
                quiet.renew()
        self._settled = True
        return max(1, min(units, slot_count))

    @contextmanager
    def watched_job(self, wanted: int, meetings: Sequence[Rendezvous]) -> Iterator[None]:
        """End the job of the block if slots are missing for MISSING_S while its tasks wait.

        Args:
            wanted: the number of tasks of each barrier stage.
            meetings: of these stages.

        Raises SlotsLostError.
        """
        before, watch = set(_lost_executors(self._context)), _Watch(self._count_now, wanted, meetings)
        with _own_group(self._context) as group:
            watch.start(lambda: self._context._jsc.sc().cancelJobGroupAndFutureJobs(group))
            try:
                yield
            except Exception as err:
                if not watch.has_ended_job and _TOO_FEW not in str(err):
                    raise
                self._settled = is_local_master(str(self._context.master))
                lost = [one for one in _lost_executors(self._context) if one not in before]
                raise SlotsLostError(wanted, self._count_now(), lost) from err
            finally:
                watch.stop()

    def _count_now(self) -> int:
        inner = self._context._jsc.sc()
        return int(inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()))


class _Watch:
    """A thread that ends a job whose tasks wait for slots that the application does not have."""

    def __init__(self, count_slots: Callable[[], int], wanted: int, meetings: Sequence[Rendezvous]) -> None:
        self._count_slots, self._wanted, self._meetings = count_slots, wanted, meetings
        self._changed, self._is_over = world.Condition(), False
        self.has_ended_job = False

    def start(self, end_job: Callable[[], None]) -> None:
        """Begin to watch. `end_job` is called at most once."""
        self._thread = world.Thread(target=self._watch_slots, args=(end_job,), name="tussock-slots", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def _watch_slots(self, end_job: Callable[[], None]) -> None:
        missing = Deadline(MISSING_S)
        while not self._ends_within(_LOOK_S):
            try:
                if not self._waits_in_vain():
                    missing.renew()
                elif missing.has_passed:
                    self.has_ended_job = True  # before the job's error
                    end_job()
                    return
            except Exception:  # the application or its JVM is stopping
                self.has_ended_job = False
                log.debug("the slots cannot be counted", exc_info=True)
                return

    def _ends_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over, seconds)

    def _waits_in_vain(self) -> bool:
        """Whether no stage has all its tasks, and the application has too few slots for one, but some."""
        if any(one.connected_count >= self._wanted for one in self._meetings):
            return False
        return 0 < self._count_slots() < self._wanted


@contextmanager
def _own_group(context: SparkContext) -> Iterator[str]:
    """Give the jobs of the block a group of their own, then restore the group of this thread."""
    before = [(name, context.getLocalProperty(name)) for name in (_GROUP, _DESCRIPTION)]
    group = f"tussock-{world.random_bytes(8).hex()}"
    context.setLocalProperty(_GROUP, group)
    try:
        yield group
    finally:
        for name, value in before:
            context.setLocalProperty(name, value)  # type: ignore[arg-type]


def _lost_executors(context: SparkContext) -> list[str]:
    """The executors that the application has lost, with Spark's reason."""
    try:
        listed: Any = context._jsc.sc().statusStore().executorList(False)
        executors = [listed.apply(at) for at in range(listed.size())]
        return [f"{one.hostPort()} ({_reason_text(one.removeReason())})" for one in executors if not one.isActive()]
    except Exception:  # the list belongs to Spark's page, and is only shown
        log.debug("Spark does not list its executors", exc_info=True)
        return []


def _reason_text(reason: Any) -> str:
    return " ".join(str(reason.get()).split()) if reason.isDefined() else "no reason is known"
