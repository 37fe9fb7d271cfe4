"""What can be wrong with a user's SQL. Spark's own errors are translated here, with their message, their place and without their stack."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.source_text import SourceText
from tussock.statestore.errors import InputError, did_you_mean

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
_NOISE = re.compile(r" SQLSTATE: \w+| on search path \[[^\]]*\]| If necessary set \"spark\.sql\.ansi\.enabled\" to \"false\"[^.]*\.")
_SAID = re.compile(
    r"\[(?!INTERNAL_ERROR|_LEGACY)[A-Z0-9_.]+\] "
)  # a condition that Spark has a message for, which it meant its user to read
_SNIPPET = re.compile(r"== SQL.*==\n(.*)")


class SqlError(InputError):
    """A statement that cannot be read or bound: what is wrong, where (None: nowhere in particular), and the line with a caret."""

    def __init__(self, reason: str, place: Place | None = None, excerpt: str | None = None) -> None:
        super().__init__(reason, place, excerpt)
        self.reason, self.place, self.excerpt = reason, place, excerpt

    def __str__(self) -> str:
        return self.reason + _where(self.place, self.excerpt)


class NoRelationError(SqlError):
    """A name that means no relation here."""

    def __init__(self, name: str, existing: tuple[str, ...], place: Place | None = None, excerpt: str | None = None) -> None:
        InputError.__init__(self, name, existing, place, excerpt)
        self.name, self.place, self.excerpt = name, place, excerpt
        near = did_you_mean(name.strip("`"), existing)
        self.reason = f"there is no relation {name}; those that exist: {', '.join(existing) or 'none yet'}{near and '.'}{near}"


class UnsupportedQueryError(SqlError):
    """SQL that Spark understands but that cannot be kept incrementally (yet): the construct, where it stood, and why not."""

    def __init__(
        self, construct: str, reason: str, place: Place | None = None, excerpt: str | None = None, within: str = "a materialized view"
    ) -> None:
        InputError.__init__(self, construct, reason, place, excerpt, within)
        self.construct, self.reason, self.place, self.excerpt, self.within = construct, reason, place, excerpt, within

    def __str__(self) -> str:
        return f"{self.construct} is not supported in {self.within}: {self.reason}" + _where(self.place, self.excerpt)


class SparkFailedError(SqlError):
    """Spark itself failed at a statement, with an exception of Java's that is no message for whoever wrote the statement."""

    def __init__(self, kind: str, message: str, place: Place | None = None, excerpt: str | None = None) -> None:
        InputError.__init__(self, kind, message, place, excerpt)
        self.kind, self.message, self.place, self.excerpt = kind, message, place, excerpt
        self.reason = (
            f"Spark failed here with {kind}: {message.rstrip('.')}. Nothing was changed. This is an error within Spark: write the "
            "statement another way; TUSSOCK_DEBUG=1 shows Spark's own trace"
        )


def java_failure(error: "Py4JJavaError") -> tuple[str, str]:
    """The class of Java's exception and the first line of its message."""
    kind, _, message = str(error.java_exception.toString()).partition(":")
    first = next(iter(_NOISE.sub("", message).strip().splitlines()), "no message")
    return kind.strip().rpartition(".")[2], first


def _where(place: Place | None, excerpt: str | None) -> str:
    text = "" if place is None else f" (line {place.line}, column {place.column})"
    return text if excerpt is None else text + "\n" + "\n".join("    " + line for line in excerpt.split("\n"))


def sql_error(source: SourceText, offset: int, reason: str) -> SqlError:
    """A SqlError that points at the character at `offset`."""
    return SqlError(reason, source.place(offset), source.caret(offset))


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
    known = [name.rpartition(".")[2] for name in str(registry.functionSet().mkString(" ")).split()]  # system.builtin.upper
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
