"""What Spark raises while a query runs, as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException, PythonException

from tussock.jobs.flow.failure import carried_failure
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.spark.sql_errors import translated


@contextmanager
def spark_errors_as_ours(source: SourceText) -> Iterator[None]:
    """Turns what Spark raises while a query runs into what it means: a damaged object that a worker met, or an expression that raised."""
    try:
        with translated(source):
            yield
    except SqlError as err:
        cause = err.__cause__
        if isinstance(cause, PySparkException) and (carried := carried_failure(cause)) is not None:
            raise carried from err
        if isinstance(
            cause, PythonException
        ):  # a worker failed in a way of its own: nothing that another SQL would help
            raise cause from None
        raise
