"""The tokens of a SQL text with their offsets, to split scripts and to parse statements that Spark's grammar lacks.

The lexical rules are Spark's: strings in ' or " with backslash escapes and doubled quotes, raw strings (r'…') without
them, names in backquotes, `--` to the end of the line (a backslash before the line break continues it), nested /* */.
"""

import re
from dataclasses import dataclass

from tussock.jobs.logical.errors import sql_error
from tussock.jobs.logical.source_text import SourceText

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<line_comment>--(?:\\\n|[^\n])*)
      | (?P<comment>/\*)
      | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d[\w.]*)
      | (?P<open>['"`])
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


@dataclass(frozen=True, slots=True)
class Token:
    """One word, name, string, number or symbol. `end` is exclusive. Comments and blanks are not tokens."""

    kind: str  # word | name | string | number | symbol
    text: str
    start: int
    end: int

    def value(self) -> str:
        """The meaning of the token: a name without backquotes, a string without quotes and escapes, else its text."""
        if self.kind == "name":
            return self.text[1:-1].replace("``", "`")
        if self.kind != "string":
            return self.text
        if self.text[0] in "rR":
            return self.text[2:-1]
        quote = self.text[0]
        body = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), self.text[1:-1].replace(quote * 2, quote))
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), body, flags=re.DOTALL)


def tokens_of(source: SourceText) -> list[Token]:
    """All tokens of a text, in order. Cost: linear.

    Raises: SqlError if a string, name or comment is not closed.
    """
    found: list[Token] = []
    at = 0
    while (match := _TOKEN.match(source.text, at)) is not None:
        kind = match.lastgroup or ""
        at = match.end()
        if kind == "comment":
            at = _comment_end(source, match.start())
        elif kind == "open":
            raise sql_error(
                source,
                match.start(),
                f"a {'name' if match[0] == '`' else 'string'} begins here with {match[0]} and is not closed",
            )
        elif kind not in ("space", "line_comment"):
            found.append(Token(kind, match[0], match.start(), match.end()))
    return found


def _comment_end(source: SourceText, start: int) -> int:
    """The offset after the bracketed comment that begins at `start`. Comments nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(source.text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise sql_error(source, start, "a comment begins here with /* and is not closed")
