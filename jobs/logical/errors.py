"""Errors of a user's SQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.relation_names import catalog_hint
from tussock.jobs.logical.source_text import SourceText
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.meta.catalog import written_names


@contextmanager
def errors_with_file(path: Path) -> Iterator[None]:
    """Add the file to errors raised inside the block."""
    try:
        yield
    except InputError as err:
        err.add_note(f"in {path}")
        raise


class SqlError(InputError):
    """A statement cannot be read or bound.

    The message has the reason, the place (None if unknown), and the line with a caret.
    """

    reason: str
    place: Place | None = None
    excerpt: str | None = None

    def __str__(self) -> str:
        return self.reason + _describe_place(self.place, self.excerpt)


class NoRelationError(SqlError):
    """A statement names a relation that does not exist."""

    def __init__(
        self, name: str, existing: tuple[str, ...], place: Place | None = None, excerpt: str | None = None
    ) -> None:
        InputError.__init__(self, name, existing, place, excerpt)
        self.name, self.place, self.excerpt = name, place, excerpt
        existing = written_names(existing)
        parts = name.strip("`").split("`.`")
        near = did_you_mean(".".join(parts), existing)
        if len(parts) == 3:
            near = f" {catalog_hint(parts)}"
        self.reason = (
            f"there is no relation {name}; those that exist: {', '.join(existing) or 'none yet'}{near and '.'}{near}"
        )


class UnsupportedQueryError(SqlError):
    """Spark understands the SQL, but Tussock cannot keep its result up to date.

    The message has construct, place and reason.
    """

    def __init__(
        self,
        construct: str,
        reason: str,
        place: Place | None = None,
        excerpt: str | None = None,
        within: str = "a materialized view",
    ) -> None:
        InputError.__init__(self, construct, reason, place, excerpt, within)
        self.construct, self.reason, self.place, self.excerpt, self.within = construct, reason, place, excerpt, within

    def __str__(self) -> str:
        return f"{self.construct} is not supported in {self.within}: {self.reason}" + _describe_place(
            self.place, self.excerpt
        )


class SparkFailedError(SqlError):
    """Spark failed on a statement with an internal Java exception."""

    def __init__(self, kind: str, message: str, place: Place | None = None, excerpt: str | None = None) -> None:
        InputError.__init__(self, kind, message, place, excerpt)
        self.kind, self.message, self.place, self.excerpt = kind, message, place, excerpt
        self.reason = (
            f"Spark failed here with {kind}: {message.rstrip('.')}. Nothing was changed. The error is inside Spark: "
            "rewrite the statement. TUSSOCK_DEBUG=1 shows Spark's stack trace"
        )


def _describe_place(place: Place | None, excerpt: str | None) -> str:
    text = "" if place is None else f" (line {place.line}, column {place.column})"
    return text if excerpt is None else text + "\n" + "\n".join("    " + line for line in excerpt.split("\n"))


def sql_error(source: SourceText, offset: int, reason: str) -> SqlError:
    """A SqlError that points to the character at `offset`."""
    return SqlError(reason, source.place_at(offset), source.line_with_caret(offset))
