"""Spark's errors about a user's SQL as SqlError: with message and place, without a stack trace."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tussock.jobs.logical.errors import SparkFailedError, SqlError, sql_error
from tussock.jobs.logical.source_text import SourceText
from tussock.statestore.errors import did_you_mean

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

# The shapes of a place in Spark's messages. Lines count from 1, columns from 0; in the third shape, columns count
# from 1.
_PLACES = (
    re.compile(r"\(line (\d+), pos (\d+)\)"),
    re.compile(r";? line (\d+) pos (\d+)"),
    re.compile(r"\(line (\d+), position (\d+)\)"),
)
# Users choose neither ANSI mode nor a search path.
_NOISE = re.compile(
    r" SQLSTATE: \w+| on search path \[[^\]]*\]| If necessary set \"spark\.sql\.ansi\.enabled\" to \"false\"[^.]*\."
)
_SAID = re.compile(
    r"\[(?!INTERNAL_ERROR|_LEGACY)[A-Z0-9_.]+\] "
)  # an error condition with a message that Spark wrote for its users
_SNIPPET = re.compile(r"== SQL.*==\n(.*)")


def java_failure(error: "Py4JJavaError") -> tuple[str, str]:
    """The class of a Java exception and the first line of its message."""
    kind, _, message = str(error.java_exception.toString()).partition(":")
    first = next(iter(_NOISE.sub("", message).strip().splitlines()), "no message")
    return kind.strip().rpartition(".")[2], first


def from_spark(error: "PySparkException", source: SourceText) -> SqlError:
    """Spark's parse, analysis or evaluation error as SqlError, with its first paragraph and its place in `source`."""
    text = str(error).strip()
    head = re.split(r"\n\s*== SQL|\n\s*== DataFrame|\n\s*JVM stacktrace|;\n", text, maxsplit=1)[0].strip()
    reason = head
    for shape in _PLACES:
        reason = shape.sub("", reason)
    reason = " ".join(_NOISE.sub("", reason).split()).rstrip(" ;")
    if error.getCondition() == "UNRESOLVED_ROUTINE":
        reason += _functions_like((error.getMessageParameters() or {})["routineName"])
    snippet = _SNIPPET.search(text)
    if snippet is not None and snippet[1].strip(" .") not in source.text:  # the expression is ours, not the user's
        return SqlError(reason)
    offset = _offset_in(text, source)
    return SqlError(reason) if offset is None else sql_error(source, offset, reason)


def syntax_error_at(error: "PySparkException", source: SourceText) -> int | None:
    """The offset in `source` at which Spark's parser fails; None for errors that are not about the syntax."""
    return _offset_in(str(error), source) if error.getCondition() == "PARSE_SYNTAX_ERROR" else None


def _offset_in(text: str, source: SourceText) -> int | None:
    """The offset in `source` of the place in Spark's message."""
    for shape in _PLACES:
        if (match := shape.search(text)) is not None:
            return source.offset_of_place(int(match[1]), int(match[2]) + (0 if shape is _PLACES[2] else 1))
    return None


def _functions_like(quoted: str) -> str:
    """A suggestion for a mistyped function name. Spark itself suggests only columns and relations."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        return ""
    registry = getattr(context._jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry")
    known = [
        name.rpartition(".")[2] for name in str(registry.functionSet().mkString(" ")).split()
    ]  # system.builtin.upper
    return did_you_mean(quoted.strip("`"), known)


@contextmanager
def silent_query_loggers() -> Iterator[None]:
    """Silence pyspark's loggers of analysis errors inside the block: each prints a JVM stack trace."""
    from pyspark.logger import PySparkLogger

    # Create these loggers as Spark does: if plain loggers had these names, Spark would fail when it logs an error.
    loggers = [PySparkLogger.getLogger(f"{of}QueryContextLogger") for of in ("SQL", "DataFrame")]
    were_disabled = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, were_disabled, strict=True):
            logger.disabled = was_disabled


@contextmanager
def translating_errors(source: SourceText) -> Iterator[None]:
    """Translate Spark's errors inside the block into SqlError, without pyspark's own messages about them."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with silent_query_loggers():
            yield
    except PySparkException as err:
        raise from_spark(err, source) from err
    except Py4JJavaError as err:
        begin = len(source.text) - len(source.text[source.begin :].lstrip())
        kind, message = java_failure(err)
        if _SAID.match(message):
            raise sql_error(source, begin, message) from err
        raise SparkFailedError(kind, message, source.place_at(begin), source.line_with_caret(begin)) from err
