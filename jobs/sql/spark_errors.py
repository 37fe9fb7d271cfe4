"""Translate Spark's errors while a query runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException, PythonException

from tussock.jobs.chunks.failure import carried_failure
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.spark.sql_errors import translating_errors


@contextmanager
def spark_errors_as_ours(source: SourceText) -> Iterator[None]:
    """Translate an error of a running query: a damaged object that a worker read, or an expression that raised."""
    try:
        with translating_errors(source):
            yield
    except SqlError as err:
        cause = err.__cause__
        if isinstance(cause, PySparkException) and (carried := carried_failure(cause)) is not None:
            raise carried from err
        if isinstance(cause, PythonException):  # a worker failed for another reason, which other SQL would not avoid
            raise cause from None
        raise
