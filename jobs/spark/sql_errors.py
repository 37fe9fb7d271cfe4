"""Errors that Spark raises for a user's SQL, as SqlError: with their message and their place, and without their stack."""

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

# Spark's places come in one of these shapes; lines count from 1, columns from 0 but in the third, of expressions that raised
_PLACES = (
    re.compile(r"\(line (\d+), pos (\d+)\)"),
    re.compile(r";? line (\d+) pos (\d+)"),
    re.compile(r"\(line (\d+), position (\d+)\)"),
)
# ANSI mode is not for users to choose, nor is a search path
_NOISE = re.compile(
    r" SQLSTATE: \w+| on search path \[[^\]]*\]| If necessary set \"spark\.sql\.ansi\.enabled\" to \"false\"[^.]*\."
)
_SAID = re.compile(
    r"\[(?!INTERNAL_ERROR|_LEGACY)[A-Z0-9_.]+\] "
)  # a condition that Spark has a message for, which it meant its user to read
_SNIPPET = re.compile(r"== SQL.*==\n(.*)")


def java_failure(error: "Py4JJavaError") -> tuple[str, str]:
    """The class of Java's exception and the first line of its message."""
    kind, _, message = str(error.java_exception.toString()).partition(":")
    first = next(iter(_NOISE.sub("", message).strip().splitlines()), "no message")
    return kind.strip().rpartition(".")[2], first


def from_spark(error: "PySparkException", source: SourceText) -> SqlError:
    """Spark's parse, analysis or evaluation error as a SqlError: the first paragraph of its message and its place in `source`."""
    text = str(error).strip()
    head = re.split(r"\n\s*== SQL|\n\s*== DataFrame|\n\s*JVM stacktrace|;\n", text, maxsplit=1)[0].strip()
    reason = head
    for shape in _PLACES:
        reason = shape.sub("", reason)
    reason = " ".join(_NOISE.sub("", reason).split()).rstrip(" ;")
    if error.getCondition() == "UNRESOLVED_ROUTINE":
        reason += _functions_like((error.getMessageParameters() or {})["routineName"])
    snippet = _SNIPPET.search(text)
    if snippet is not None and snippet[1].strip(" .") not in source.text:  # raised by an expression of our own making
        return SqlError(reason)
    for shape in _PLACES:
        if (match := shape.search(text)) is not None:
            first = 0 if shape is _PLACES[2] else 1
            return sql_error(source, source.offset(int(match[1]), int(match[2]) + first), reason)
    return SqlError(reason)


def _functions_like(quoted: str) -> str:
    """The function of Spark's that a mistyped name may have meant, which Spark itself says of columns and relations alone."""
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
def translated(source: SourceText) -> Iterator[None]:
    """Turns what Spark raises inside into SqlError. Spark's Python side also prints such errors with their JVM stack: silenced here."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # Made by Spark's own hand: a plain logger of that name would have it fail wherever it logs an error afterwards.
    loggers = [PySparkLogger.getLogger(f"{of}QueryContextLogger") for of in ("SQL", "DataFrame")]
    were_disabled = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    except PySparkException as err:
        raise from_spark(err, source) from err
    except Py4JJavaError as err:
        begin = len(source.text) - len(source.text[source.begin :].lstrip())
        kind, message = java_failure(err)
        if _SAID.match(message):
            raise sql_error(source, begin, message) from err
        raise SparkFailedError(kind, message, source.place(begin), source.caret(begin)) from err
    finally:
        for logger, was_disabled in zip(loggers, were_disabled, strict=True):
            logger.disabled = was_disabled
