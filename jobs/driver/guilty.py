"""Which source, and which of its items, an error of Spark's is about. Most errors name a file; for the others the suspects are read again.

A suspect is read alone, without the rest of the epoch. If that fails too, its items are halved until one is left: at most twice the bytes
of the source are read again, and only after a failure.
"""

from collections.abc import Callable, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession

from tussock.jobs.driver.leaves import SparkRead
from tussock.jobs.flow.failure import SourceAwayError, SourceFileError
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.sources.boundary import SourceTroubleError
from tussock.jobs.sources.spark_files import spark_errors
from tussock.jobs.spark.jvm_errors import is_of_machine
from tussock.statestore.errors import TussockError

Fails = Callable[[Sequence[str]], TussockError | None]  # reads items, by name; the error if that fails


def source_frame(spark: SparkSession, read: SparkRead, document: msgspec.Raw | None = None) -> DataFrame:
    """The rows of a source. Raises SourceTroubleError, of one item if one alone is at fault; errors of the source's files."""
    assert read.scheduled.source is not None
    try:
        return read.reader.frame(
            spark, read.source, read.document if document is None else document, read.scheduled.source.columns
        )
    except SourceTroubleError as err:
        if document is not None or err.path:
            raise
        raise _narrowed(spark, read, err, building=True) from err


def error_of_source(spark: SparkSession, reads: Sequence[SparkRead], error: Exception) -> TussockError | None:
    """The error of one of these sources that an error of Spark's stands for; None if none of them is at fault.

    Cost: nothing if the error names a file; else reads the suspects again.
    """
    for read in reads:
        if (named := _translated(read, error, read.document)) is not None:
            return named
    if not isinstance(error, spark_errors()) or is_of_machine(error):
        return None
    for read in reads:
        if (alone := _failure(spark, read, read.document)) is not None:
            return _narrowed(spark, read, alone)
    return None


def _narrowed(spark: SparkSession, read: SparkRead, error: TussockError, *, building: bool = False) -> TussockError:
    """The error of the one item that is at fault, of an error of a source; the error itself if no item fails alone.

    Args:
        building: no row was read yet. If the first item and the last one fail alone too, an option is at fault, and no item.
    """
    if getattr(error, "path", "") or not isinstance(error, SourceTroubleError):
        return error
    names = list(dict.fromkeys(item.name for item in read.reader.items(read.document) if not item.goes))

    def fails(some: Sequence[str]) -> TussockError | None:
        part = read.reader.part_of(read.document, some)
        return None if part is None else _failure(spark, read, part)

    if building and fails(names[:1]) is not None and fails(names[-1:]) is not None:
        return error
    name, found = first_failing(names, fails, error)
    if not name:
        return error
    if getattr(found, "path", "") or not isinstance(found, SourceTroubleError):
        return found
    return SourceTroubleError(found.source, name, found.format, found.reason)


def first_failing(names: Sequence[str], fails: Fails, error: TussockError) -> tuple[str, TussockError]:
    """One item that fails alone, of items that fail together by `error`; an empty name if none does. Reads each item about twice."""
    while len(names) > 1:
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            if (found := fails(half)) is not None:
                names, error = half, found
                break
        else:
            return "", error
    return (names[0] if names else ""), error


def _translated(read: SparkRead, error: Exception, document: msgspec.Raw) -> TussockError | None:
    """The error of the source that an error of Spark's names."""
    found = read.reader.translate(error, read.source, document)
    if isinstance(found, SourceFileError):
        found.source = read.source.name
    return found


def _failure(spark: SparkSession, read: SparkRead, document: msgspec.Raw) -> TussockError | None:
    """Why these items cannot be read; None if they can, or if the machine is at fault."""
    try:
        source_frame(spark, read, document).agg({"part": "count"}).collect()
    except (SourceFileError, SourceAwayError) as err:
        return err
    except spark_errors() as err:
        if is_of_machine(err):
            return None
        return _translated(read, err, document) or SourceTroubleError(
            read.source.name, "", read.source.format, cause_of(err)
        )
    return None
