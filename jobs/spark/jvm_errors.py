"""What reaches the edge of a process from Spark's JVM, or for want of it, as errors of ours: none of their stack traces is a message."""

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
_DYING_S = 2.0  # a JVM whose socket has closed is gone within


class SparkStartError(InputError):
    """Spark's JVM ended before it could be asked anything."""

    def __str__(self) -> str:
        return (
            "Spark could not be started: its JVM ended at once. What Java itself says stands above. Nothing was changed. Check that "
            "`java -version` answers (Java 17 or later; JAVA_HOME decides which), and that the machine has the memory that "
            "spark.driver.memory asks for."
        )


class SparkGoneError(RetryableError):
    """Spark's JVM ended while it was at work."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        how = f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return (
            f"Spark's JVM ended while it was at work ({how}). What was answered before is durable, nothing half done is visible. "
            "Start this process again: the same command goes on from here. Where that happens again, the usual cause is memory "
            "(spark.driver.memory, and what the machine has)."
        )


class WorkerFailedError(RetryableError):
    """A Python worker of Spark's failed with what is no error of ours."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"a Python worker failed at work: {self.reason.rstrip('.')}. Nothing of its epoch is visible. That is a fault of the engine or "
            "of the machine, not of a statement or a row: run it again; where it happens again, TUSSOCK_DEBUG=1 shows the worker's trace."
        )


class WorkerDiskFullError(RetryableError):
    """A disk that Spark's workers write to is full."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"a disk of a Spark worker is full ({self.reason}). Nothing of the epoch was committed. Free space in the folders that "
            "spark.local.dir (or SPARK_LOCAL_DIRS) names on the workers, or let it name a larger disk, then run again: the same command "
            "goes on from here. `max_bytes` in [epoch] makes an epoch write less at once."
        )


class SparkJobError(RetryableError):
    """A job of Spark's failed, and neither a row nor a file nor a statement is known to be the cause."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"Spark failed at work: {self.reason.rstrip('.')}. Nothing of the epoch was committed, and no input is known to be the cause. "
            "Look at Spark's own log and at the machines that it runs on, then run again. If the same error comes again, TUSSOCK_DEBUG=1 "
            "shows Spark's trace."
        )


class ExecutorLostError(RetryableError):
    """Spark lost the executors of a job."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"Spark lost an executor, and what it had to do failed on others too: {self.reason}. Nothing of the epoch was committed. "
            "The usual cause is memory: raise spark.executor.memory, or let an epoch take in less (`max_bytes` in [epoch]), then run "
            "again."
        )


def is_of_machine(error: Exception) -> bool:
    """Whether an error of Spark's is about the machines that it runs on: no input is at fault."""
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
    """Turns what the JVM raises into errors with a message. Imports nothing of Spark in a process that has not.

    Raises: SparkStartError, SparkGoneError; what a task carried out of Spark (jobs/flow/failure.py); WorkerFailedError for what else a
    worker
        raised; WorkerDiskFullError, ExecutorLostError, NoExecutorsError; SparkFailedError for a statement that Spark refuses;
        SparkJobError for the rest.
    """
    root = logging.getLogger()

    def of_others(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts  # it logs a trace of each error besides raising it

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
    """The error that one of Spark's stands for; None: none of the JVM's."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException, PySparkRuntimeError

    from tussock.jobs.flow.failure import carried_failure
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
    """How the JVM that this process started has ended; None: it runs, or this process started none."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(_DYING_S)
    except subprocess.TimeoutExpired:
        return None
