"""What Spark's workers raise, as an error with one message. Needs no JVM."""

import py4j.protocol  # noqa: F401  errors of the JVM are looked for where its bridge is imported
import pytest
from pyspark.errors import PySparkException

from jobs.settings.jvm_errors import WorkerFailedError, jvm_errors_as_ours

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
    """As Spark raises it on the driver."""

    def getCondition(self) -> str:
        return "PYTHON_EXCEPTION"


def test_a_worker_that_fails_for_no_reason_of_ours_is_told_by_the_last_line_of_its_trace() -> None:
    with pytest.raises(WorkerFailedError) as raised, jvm_errors_as_ours():
        raise FromWorker(TRACE)
    assert "a Python worker failed at work: AttributeError: no cells." in str(raised.value)
    assert "scheduler" not in str(raised.value)
