"""Finds the source and the item that caused a Spark error.

Most errors name a file. Otherwise the suspects are read again. Each suspect is read alone, without the rest of the
epoch. If this fails, its items are halved until one is left. At most twice the bytes of the source are read again, and
only after a failure.
"""

from collections.abc import Callable, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession

from tussock.jobs.barriers.leaves import SparkRead
from tussock.jobs.chunks.failure import SourceAwayError, SourceFileError
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.sources.boundary import SourceTroubleError
from tussock.jobs.sources.spark_files import spark_errors
from tussock.jobs.spark.jvm_errors import is_of_machine
from tussock.statestore.errors import TussockError

Fails = Callable[[Sequence[str]], TussockError | None]  # reads items by name; returns the error if that fails


def source_frame(spark: SparkSession, read: SparkRead, document: msgspec.Raw | None = None) -> DataFrame:
    """Return the rows of a source.

    Raises SourceTroubleError, with the item if a single one fails; errors of its files.
    """
    assert read.scheduled.source is not None
    try:
        return read.reader.frame(
            spark, read.source, read.document if document is None else document, read.scheduled.source.read_columns
        )
    except SourceTroubleError as err:
        if document is not None or err.path:
            raise
        raise _narrow_to_item(spark, read, err, building=True) from err


def error_of_source(spark: SparkSession, reads: Sequence[SparkRead], error: Exception) -> TussockError | None:
    """Return the source error that caused a Spark error; None if none of these sources caused it.

    Cost: nothing if the error names a file; otherwise the suspects are read again.
    """
    for read in reads:
        if (named := _translate_error(read, error, read.document)) is not None:
            return named
    if not isinstance(error, spark_errors()) or is_of_machine(error):
        return None
    for read in reads:
        if (alone := _failure_of_read(spark, read, read.document)) is not None:
            return _narrow_to_item(spark, read, alone)
    return None


def _narrow_to_item(
    spark: SparkSession, read: SparkRead, error: TussockError, *, building: bool = False
) -> TussockError:
    """Return the error of the single item that caused a source's error; `error` itself if no item fails alone.

    Args:
        building: no row was read yet. If the first and the last item both fail alone, an option is wrong, and no item.
    """
    if getattr(error, "path", "") or not isinstance(error, SourceTroubleError):
        return error
    names = list(dict.fromkeys(item.name for item in read.reader.items(read.document) if not item.goes))

    def error_of_items(some: Sequence[str]) -> TussockError | None:
        part = read.reader.part_of(read.document, some)
        return None if part is None else _failure_of_read(spark, read, part)

    if building and error_of_items(names[:1]) is not None and error_of_items(names[-1:]) is not None:
        return error
    name, item_error = first_failing(names, error_of_items, error)
    if not name:
        return error
    if getattr(item_error, "path", "") or not isinstance(item_error, SourceTroubleError):
        return item_error
    return SourceTroubleError(item_error.source, name, item_error.format, item_error.reason)


def first_failing(names: Sequence[str], fails: Fails, error: TussockError) -> tuple[str, TussockError]:
    """Return an item that fails alone, with its error, from items that fail together; an empty name if none does.

    Cost: reads each item about twice.
    """
    while len(names) > 1:
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            if (half_error := fails(half)) is not None:
                names, error = half, half_error
                break
        else:
            return "", error
    return (names[0] if names else ""), error


def _translate_error(read: SparkRead, error: Exception, document: msgspec.Raw) -> TussockError | None:
    """Return the source error for the file that a Spark error names."""
    source_error = read.reader.translate(error, read.source, document)
    if isinstance(source_error, SourceFileError):
        source_error.source = read.source.name
    return source_error


def _failure_of_read(spark: SparkSession, read: SparkRead, document: msgspec.Raw) -> TussockError | None:
    """Return the error of reading these items; None if they can be read, or if the machine caused the error."""
    try:
        source_frame(spark, read, document).agg({"part": "count"}).collect()
    except (SourceFileError, SourceAwayError) as err:
        return err
    except spark_errors() as err:
        if is_of_machine(err):
            return None
        return _translate_error(read, err, document) or SourceTroubleError(
            read.source.name, "", read.source.format, cause_of(err)
        )
    return None
