"""Scripts: several statements in one text, separated by semicolons."""

from dataclasses import dataclass

from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import statement_spans


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
    return [ScriptStatement(script[begin:end], source.place(begin)) for begin, end in statement_spans(source)]
