"""Errors of a user's SQL."""

from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.source_text import SourceText
from tussock.statestore.errors import InputError, did_you_mean


class SqlError(InputError):
    """A statement that cannot be read or bound: what is wrong, where (None: nowhere in particular), and the line with a caret."""

    def __init__(self, reason: str, place: Place | None = None, excerpt: str | None = None) -> None:
        super().__init__(reason, place, excerpt)
        self.reason, self.place, self.excerpt = reason, place, excerpt

    def __str__(self) -> str:
        return self.reason + _where(self.place, self.excerpt)


class NoRelationError(SqlError):
    """A name that means no relation here."""

    def __init__(
        self, name: str, existing: tuple[str, ...], place: Place | None = None, excerpt: str | None = None
    ) -> None:
        InputError.__init__(self, name, existing, place, excerpt)
        self.name, self.place, self.excerpt = name, place, excerpt
        near = did_you_mean(name.strip("`"), existing)
        self.reason = (
            f"there is no relation {name}; those that exist: {', '.join(existing) or 'none yet'}{near and '.'}{near}"
        )


class UnsupportedQueryError(SqlError):
    """SQL that Spark understands but that cannot be kept incrementally (yet): the construct, where it stood, and why not."""

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


def _where(place: Place | None, excerpt: str | None) -> str:
    text = "" if place is None else f" (line {place.line}, column {place.column})"
    return text if excerpt is None else text + "\n" + "\n".join("    " + line for line in excerpt.split("\n"))


def sql_error(source: SourceText, offset: int, reason: str) -> SqlError:
    """A SqlError that points at the character at `offset`."""
    return SqlError(reason, source.place(offset), source.caret(offset))
