"""Stop waiting when a Spark application on a cluster has no executors left.

A cluster can forget an application: its master restarts, or its machines disappear. Spark's driver then waits for
executors forever and without a message. A thread of the driver therefore counts the executors, and cancels the jobs
when tasks have waited too long without one. The jobs' error becomes NoExecutorsError (tussock.jobs.spark.jvm_errors).
"""

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tussock.jobs.settings.retention import duration_ms
from tussock.statestore.errors import RetryableError

if TYPE_CHECKING:
    from pyspark import SparkContext

SETTING = "spark.tussock.executors.wait"
DEFAULT = "10m"
_LOOKS = 20  # during the wait
_SHORTEST_S, _LONGEST_S = 0.5, 10.0  # between two looks


class NoExecutorsError(RetryableError):
    """Spark tasks waited for an executor until the time limit."""

    master: str
    wanted: str
    lost: tuple[str, ...]
    wait: str

    def __str__(self) -> str:
        lost = f"It lost {', '.join(self.lost)}" if self.lost else "It never had one"
        return (
            f"Spark had no executor for {self.wait}, and its tasks waited. {lost}; {self.wanted}; the master is "
            f"{self.master}. "
            "Nothing of the epoch was committed. Check on the master's page that its workers run, that they have "
            "free cores and memory, and that it lists this application. Then run the same command again: it "
            "continues from this point. "
            f'"{SETTING}" in [spark] of pipeline.toml sets how long to wait.'
        )


class ExecutorsSeen(NamedTuple):
    """One observation: the executors by host and port, without the driver, and whether tasks wait."""

    executors: frozenset[str]
    waiting: bool


class Watch:
    """Decides when to give up.

    `lost` holds every executor seen so far. When the watch gives up, all of them are gone.
    """

    def __init__(self, wait_s: float) -> None:
        self.lost: set[str] = set()
        self._wait_s = wait_s
        self._since: float | None = None  # seconds of a monotonic clock

    def gives_up(self, seen: ExecutorsSeen, now_s: float) -> bool:
        """Whether tasks have waited for the whole time limit without an executor."""
        self.lost |= seen.executors
        if seen.executors or not seen.waiting:
            self._since = None
            return False
        self._since = now_s if self._since is None else self._since
        if now_s - self._since < self._wait_s:
            return False
        self._since = None  # these jobs are cancelled; later jobs get the full wait
        return True


_given_up: dict[str, NoExecutorsError] = {}  # by application; removed when it has executors again


def given_up() -> NoExecutorsError | None:
    """The reason why the jobs of this process's application were cancelled, or None."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return None if context is None or not _given_up else _given_up.get(context.applicationId)


def watch_executors(context: "SparkContext") -> None:
    """Start a thread that watches the executors until the application ends. Does nothing for a local application.

    Raises: BadDurationError if the setting is not a duration.
    """
    if (context.master or "local").startswith("local"):
        return
    wait = context.getConf().get(SETTING, DEFAULT) or DEFAULT
    wait_s = duration_ms(wait) / 1000
    threading.Thread(target=_watch_executors, args=(context, wait, wait_s), name="executors", daemon=True).start()


def _watch_executors(context: "SparkContext", wait: str, wait_s: float) -> None:
    from py4j.protocol import Py4JError

    watch, application = Watch(wait_s), context.applicationId
    try:
        while not context._jsc.sc().isStopped():
            seen = _see_executors(context)
            if seen.executors:
                _given_up.pop(application, None)
            if watch.gives_up(seen, time.monotonic()):
                _given_up[application] = NoExecutorsError(
                    str(context.master), _describe_wanted(context), tuple(sorted(watch.lost)), wait
                )
                context.cancelAllJobs()
            time.sleep(min(max(wait_s / _LOOKS, _SHORTEST_S), _LONGEST_S))
    except (Py4JError, OSError, AttributeError):  # the application or its JVM is stopping
        return


def _see_executors(context: "SparkContext") -> ExecutorsSeen:
    jvm: Any = context._jvm
    tracker = context._jsc.sc().statusTracker()
    driver = str(
        jvm.org.apache.spark.SparkEnv.get().blockManager().blockManagerId().hostPort()
    )  # the tracker lists the driver too
    addresses = {f"{info.host()}:{info.port()}" for info in tracker.getExecutorInfos()}
    return ExecutorsSeen(frozenset(addresses - {driver}), bool(tracker.getActiveJobIds()))


def _describe_wanted(context: "SparkContext") -> str:
    conf = context.getConf()
    wanted = {name: conf.get(name) for name in ("spark.executor.instances", "spark.cores.max", "spark.executor.memory")}
    return "it requested " + (
        ", ".join(f"{name} {value}" for name, value in wanted.items() if value) or "all that the cluster offers"
    )
