"""Scripts: several statements in one text, separated by semicolons."""

import hashlib
from dataclasses import dataclass

from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import statement_spans, tokens_of

SELECT_BEGINS = {"SELECT", "WITH", "FROM", "VALUES"}
"""The first words of a SELECT, in Spark's SQL and DuckDB's."""


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """One statement of a script, without its semicolon and surrounding comments.

    `place` is that of its first character. `schema`: of the names without one, by the last USE before it.
    """

    text: str
    place: Place = Place(1, 1)  # noqa: RUF009  frozen
    schema: str = DEFAULT_SCHEMA

    @property
    def source(self) -> SourceText:
        """Its text, with its place and schema."""
        return SourceText(self.text, self.place, schema=self.schema)


def split_script(script: str, schema: str = DEFAULT_SCHEMA) -> list[ScriptStatement]:
    """The statements of a script in order, without empty ones.

    Semicolons in strings, quoted names and comments do not separate statements.

    Args:
        schema: of names without one, before the first USE of the script.

    Raises: SqlError if a string, a quoted name or a comment is not closed.
    """
    source, statements = SourceText(script), list[ScriptStatement]()
    for begin, end in statement_spans(source):
        statements.append(ScriptStatement(script[begin:end], source.place_at(begin), schema))
        schema = schema_of_use(script[begin:end]) or schema
    return statements


def schema_of_use(statement: str) -> str | None:
    """The schema that a USE names; None for other statements."""
    if statement[:3].upper() != "USE":
        return None
    first, *names = tokens_of(SourceText(statement))
    return names[-1].value().lower() if names and first.text.upper() == "USE" else None


def digest_under(schema: str, sql: str) -> str:
    """Identifies the words of a SELECT and the schema of its names, without blanks and comments.

    Empty for the default schema: there a view's stored text has the words as written.
    """
    if schema == DEFAULT_SCHEMA:
        return ""
    words = [schema, *(token.text for token in tokens_of(SourceText(sql)))]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def is_select(text: str) -> bool:
    """Return whether a text begins like a SELECT. Raises: SqlError, as `split_script`."""
    words = (token.text.upper() for token in tokens_of(SourceText(text)) if token.text not in "(;")
    return next(words, "") in SELECT_BEGINS
