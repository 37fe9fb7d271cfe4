"""Errors of Spark's workers become an error with one message. Needs no JVM."""

import py4j.protocol  # noqa: F401  errors of the JVM are looked for where its bridge is imported
import pytest
from pyspark.errors import PySparkException

from tussock.jobs.spark.jvm_errors import (
    ExecutorLostError,
    SparkJobError,
    WorkerDiskFullError,
    WorkerFailedError,
    is_of_machine,
    jvm_errors_as_ours,
)
from tussock.statestore.errors import RetryableError

TRACE = """\
[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "unit.py", line 3, in run
    task.cells
AttributeError: no cells

JVM stacktrace:
org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.scheduler.DAGScheduler.abortStage
"""


class FromWorker(PySparkException):
    """In the form in which Spark raises it on the driver."""

    def getCondition(self) -> str:
        return "PYTHON_EXCEPTION"


def test_another_failure_of_a_worker_is_reported_by_the_last_line_of_its_trace() -> None:
    with pytest.raises(WorkerFailedError) as raised, jvm_errors_as_ours():
        raise FromWorker(TRACE)
    assert "A Python worker failed: AttributeError: no cells." in str(raised.value)
    assert "scheduler" not in str(raised.value)


class FromSpark(PySparkException):
    """A job's error, in the form in which Spark raises it on the driver."""

    def getCondition(self) -> str:
        return "JOB_FAILED"


FAILED = (
    "Job aborted due to stage failure: Task 3 in stage 7.0 failed 4 times, most recent failure: "
    "Lost task 3.3 in stage 7.0 (TID 21) "
)
OF_MACHINES = [
    (
        FAILED + "(10.0.0.7 executor 2): java.io.IOException: No space left on device\n\tat java.base/sun.nio",
        WorkerDiskFullError,
        "full",
    ),
    (
        FAILED + "(10.0.0.7 executor 2): java.io.IOException: Disk quota exceeded\n\tat java.base/sun.nio",
        WorkerDiskFullError,
        "quota",
    ),
    (
        FAILED + "(10.0.0.7 executor 2): ExecutorLostFailure (executor 2 exited caused by one of the running "
        "tasks) Reason: Container "
        "killed by YARN for exceeding physical memory limits.\nDriver stacktrace:\n\tat org.apache.spark",
        ExecutorLostError,
        "executor 2 exited caused by one of the running tasks",
    ),
    ("[JOB_FAILED] something else\n\tat org.apache.spark", SparkJobError, "something else"),
]


@pytest.mark.parametrize(("text", "kind", "said"), OF_MACHINES)
def test_a_failure_of_a_machine_is_named_by_its_cause_and_needs_another_run(
    text: str, kind: type[RetryableError], said: str
) -> None:
    with pytest.raises(kind, match=said) as raised, jvm_errors_as_ours():
        raise FromSpark(text)
    assert "java.base" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert is_of_machine(FromSpark(text)) is (kind is not SparkJobError)
    assert "statement" not in str(raised.value)
