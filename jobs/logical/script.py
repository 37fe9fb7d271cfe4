"""Scripts: several statements in one text, separated by semicolons."""

from dataclasses import dataclass

from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import statement_spans, tokens_of

SELECT_BEGINS = {"SELECT", "WITH", "FROM", "VALUES"}
"""The first words of a SELECT, in Spark's SQL and DuckDB's."""


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """One statement of a script, without its semicolon and surrounding comments.

    `place` is that of its first character.
    """

    text: str
    place: Place


def split_script(script: str) -> list[ScriptStatement]:
    """The statements of a script in order, without empty ones.

    Semicolons in strings, quoted names and comments do not separate statements.

    Raises: SqlError if a string, a quoted name or a comment is not closed.
    """
    source = SourceText(script)
    return [ScriptStatement(script[begin:end], source.place_at(begin)) for begin, end in statement_spans(source)]


def is_select(text: str) -> bool:
    """Return whether a text begins like a SELECT. Raises: SqlError, as `split_script`."""
    words = (token.text.upper() for token in tokens_of(SourceText(text)) if token.text not in "(;")
    return next(words, "") in SELECT_BEGINS
