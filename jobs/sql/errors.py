"""What can be wrong with a user's SQL. Spark's own errors are translated here, with their message, their place and without their stack."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from jobs.sql.logical import Place
from jobs.sql.source_text import SourceText
from statestore.errors import InputError

# Spark's places count lines from 1 and columns from 0, in one of these shapes
_PLACE = re.compile(r"(?:\(line (?P<line>\d+), pos (?P<pos>\d+)\))|(?:;? line (?P<line2>\d+) pos (?P<pos2>\d+))|(?:\(line (?P<line3>\d+), position (?P<pos3>\d+)\))")
_NOISE = re.compile(r" SQLSTATE: \w+")


class SqlError(InputError):
    """A statement that cannot be read or bound: what is wrong, where (None: nowhere in particular), and the line with a caret."""

    def __init__(self, reason: str, place: Place | None = None, excerpt: str | None = None) -> None:
        super().__init__(reason, place, excerpt)
        self.reason, self.place, self.excerpt = reason, place, excerpt

    def __str__(self) -> str:
        return self.reason + _where(self.place, self.excerpt)


class UnsupportedQueryError(SqlError):
    """A query that Spark understands but that cannot be maintained incrementally (yet): the construct and why."""

    def __init__(self, construct: str, reason: str, place: Place | None = None, excerpt: str | None = None) -> None:
        InputError.__init__(self, construct, reason, place, excerpt)
        self.construct, self.reason, self.place, self.excerpt = construct, reason, place, excerpt

    def __str__(self) -> str:
        return f"{self.construct} is not supported in a materialized view: {self.reason}" + _where(self.place, self.excerpt)


def _where(place: Place | None, excerpt: str | None) -> str:
    text = "" if place is None else f" (line {place.line}, column {place.column})"
    return text if excerpt is None else text + "\n" + "\n".join("    " + line for line in excerpt.split("\n"))


def sql_error(source: SourceText, offset: int, reason: str) -> SqlError:
    """A SqlError that points at the character at `offset`."""
    return SqlError(reason, source.place(offset), source.caret(offset))


def from_spark(error: PySparkException, source: SourceText) -> SqlError:
    """Spark's parse, analysis or evaluation error as a SqlError: the first paragraph of its message and its place in `source`."""
    text = str(error).strip()
    head = re.split(r"\n\s*== SQL|\n\s*JVM stacktrace|;\n", text, maxsplit=1)[0].strip()
    match = _PLACE.search(text)
    reason = " ".join(_NOISE.sub("", _PLACE.sub("", head)).split()).rstrip(" ;")
    if match is None:
        return SqlError(reason)
    if match["line3"] is not None:  # an expression that raised: this shape alone counts positions from 1
        line, column = int(match["line3"]), int(match["pos3"])
    else:
        line, column = int(match["line"] or match["line2"]), int(match["pos"] or match["pos2"]) + 1
    return sql_error(source, source.offset(line, column), reason)


@contextmanager
def translated(source: SourceText) -> Iterator[None]:
    """Turns what Spark raises inside into SqlError. Spark's Python side also prints such errors with their JVM stack: silenced here."""
    logger = logging.getLogger("SQLQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    except PySparkException as err:
        raise from_spark(err, source) from err
    finally:
        logger.disabled = was_disabled
