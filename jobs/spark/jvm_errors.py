"""Translate errors of Spark's JVM at the edge of a process, so that users see a message and no stack trace."""

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tussock.jobs.settings.cause import cause_of
from tussock.statestore.errors import InputError, RetryableError, TussockError

_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|Not enough space")
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \(([^\n]*)\)?")
_DYING_S = 2.0  # a JVM ends within this time after its socket closes


class SparkStartError(InputError):
    """Spark's JVM ended while it started."""

    def __str__(self) -> str:
        return (
            "Spark could not be started: its JVM ended at once. Java's own message is above. Nothing was changed. "
            "Check that `java -version` shows Java 17 or later (JAVA_HOME selects it), and that the machine has the "
            "memory that spark.driver.memory requests."
        )


class SparkGoneError(RetryableError):
    """Spark's JVM ended during work."""

    code: int

    def __str__(self) -> str:
        how = f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return (
            f"Spark's JVM ended during its work ({how}). Work reported as done is durable, and no partial work is "
            "visible. Run the same command again: it continues from this point. If the JVM ends again, the usual "
            "cause is memory: compare spark.driver.memory with the memory of the machine."
        )


class WorkerFailedError(RetryableError):
    """A Python worker of Spark failed with an error that is not Tussock's."""

    reason: str

    def __str__(self) -> str:
        return (
            f"A Python worker failed: {self.reason.rstrip('.')}. Nothing of its epoch is visible. The engine or the "
            "machine is at fault, not a statement or a row. Run again; if it fails again, TUSSOCK_DEBUG=1 shows the "
            "worker's stack trace."
        )


class WorkerDiskFullError(RetryableError):
    """A disk that Spark's workers write to is full."""

    reason: str

    def __str__(self) -> str:
        return (
            f"A disk of a Spark worker is full ({self.reason}). Nothing of the epoch was committed. Free space in "
            "the folders of spark.local.dir (or SPARK_LOCAL_DIRS) on the workers, or set it to a larger disk. Then "
            "run the same command again: it continues from this point. A lower `max_bytes` in [epoch] makes each "
            "epoch write less."
        )


class SparkJobError(RetryableError):
    """A Spark job failed, and no row, file or statement is known to be the cause."""

    reason: str

    def __str__(self) -> str:
        return (
            f"A Spark job failed: {self.reason.rstrip('.')}. Nothing of the epoch was committed, and no input is "
            "known to be the cause. Check Spark's log and its machines, then run again. If it fails again, "
            "TUSSOCK_DEBUG=1 shows Spark's stack trace."
        )


class ExecutorLostError(RetryableError):
    """Spark lost the executors of a job."""

    reason: str

    def __str__(self) -> str:
        return (
            f"Spark lost an executor, and other executors failed on the same tasks: {self.reason}. Nothing of the "
            "epoch was committed. The usual cause is memory: raise spark.executor.memory, or make epochs smaller "
            "(`max_bytes` in [epoch]), then run again."
        )


def is_of_machine(error: Exception) -> bool:
    """Whether the machines caused an error of Spark. Then no input is at fault."""
    from tussock.jobs.spark.executor_watch import given_up

    return given_up() is not None or _of_machine(str(error)) is not None


def _of_machine(text: str) -> RetryableError | None:
    if (full := _DISK_FULL.search(text)) is not None:
        return WorkerDiskFullError(full[0])
    if (lost := _EXECUTOR_LOST.search(text)) is not None:
        return ExecutorLostError(lost[1].strip().rstrip("."))
    return None


@contextmanager
def jvm_errors_as_ours() -> Iterator[None]:
    """Translate errors of the JVM inside the block into errors with a message.

    A process that has not imported Spark does not import it here.

    Raises:
        SparkStartError: the JVM ended while it started.
        SparkGoneError: the JVM ended during work.
        NoExecutorsError: tasks waited too long for an executor.
        ExecutorLostError: Spark lost the executors of a job.
        WorkerDiskFullError: a disk of the workers is full.
        WorkerFailedError: a Python worker raised an error that is not Tussock's.
        SparkFailedError: Spark rejected a statement.
        SparkJobError: any other failure of a job.
        TussockError: the error that a task carried out of Spark (jobs/chunks/failure.py).
    """
    root = logging.getLogger()

    def of_others(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts  # py4j logs the trace of each error that it also raises

    root.addFilter(of_others)
    try:
        yield
    except TussockError:
        raise
    except Exception as err:
        if "py4j" in sys.modules and (ours := _of_jvm(err)) is not None:
            raise ours from err
        raise
    finally:
        root.removeFilter(of_others)


def _of_jvm(error: Exception) -> TussockError | None:
    """Tussock's error for an error of Spark, or None if the JVM did not cause it."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException, PySparkRuntimeError

    from tussock.jobs.chunks.failure import carried_failure
    from tussock.jobs.logical.errors import SparkFailedError
    from tussock.jobs.spark.executor_watch import given_up

    if isinstance(error, Py4JJavaError | PySparkException) and (alone := given_up()) is not None:
        return alone
    if isinstance(error, Py4JJavaError | PySparkException):
        if (carried := carried_failure(error)) is not None:
            return carried
        if (ours := _of_machine(str(error))) is not None:
            return ours
    match error:
        case Py4JJavaError():
            return SparkJobError(cause_of(error))
        case PySparkRuntimeError() if error.getCondition() == "JAVA_GATEWAY_EXITED":
            return SparkStartError()
        case Py4JError() | PySparkRuntimeError() | OSError() | EOFError():
            code = _exit_code_of_jvm()
            return None if code is None else SparkGoneError(code)
        case PySparkException() if error.getCondition() == "PYTHON_EXCEPTION":
            return WorkerFailedError(cause_of(error))
        case PySparkException() if not isinstance(error, AnalysisException | ParseException):
            return SparkJobError(cause_of(error))
        case PySparkException():
            first = next(iter(str(error).strip().splitlines()), "no message")
            return SparkFailedError(error.getCondition() or type(error).__name__, first)
        case _:
            return None


def _exit_code_of_jvm() -> int | None:
    """The exit code of the JVM that this process started. None if it still runs, or if this process started none."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(_DYING_S)
    except subprocess.TimeoutExpired:
        return None
