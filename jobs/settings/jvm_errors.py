"""What reaches the edge of a process from Spark's JVM, or for want of it, as errors of ours: none of their stack traces is a message."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statestore.errors import InputError, RetryableError, TussockError

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


@contextmanager
def jvm_errors_as_ours() -> Iterator[None]:
    """Turns what the JVM raises into errors with a message. Imports nothing of Spark in a process that has not.

    Raises: SparkStartError, SparkGoneError; what a task carried out of Spark (jobs.flow.failure); SparkFailedError for an exception of
        Spark's that nobody has understood.
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
    from pyspark.errors import PySparkException, PySparkRuntimeError

    from jobs.flow.failure import carried_failure
    from jobs.sql.errors import SparkFailedError, java_failure

    match error:
        case Py4JJavaError():
            return SparkFailedError(*java_failure(error))
        case PySparkRuntimeError() if error.getCondition() == "JAVA_GATEWAY_EXITED":
            return SparkStartError()
        case Py4JError() | PySparkRuntimeError() | OSError() | EOFError():
            code = _exit_code_of_jvm()
            return None if code is None else SparkGoneError(code)
        case PySparkException():
            first = next(iter(str(error).strip().splitlines()), "no message")
            return carried_failure(error) or SparkFailedError(error.getCondition() or type(error).__name__, first)
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
