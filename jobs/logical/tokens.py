"""The tokens of a SQL text with their offsets, to split scripts and to parse statements that Spark's grammar lacks.

The lexical rules are Spark's: strings in ' or " with backslash escapes and doubled quotes, raw strings (r'…') without
them, names in backquotes, `--` to the end of the line (a backslash before the line break continues it), nested /* */.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tussock.jobs.logical.errors import SqlError, sql_error
from tussock.jobs.logical.source_text import SourceText

_LINE_COMMENT = r"--(?:\\\n|\\(?!\n)|[^\n\\])*(?=\n|\Z)"
_STRING = r"""[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
_NAME = r"`(?:[^`]|``)*`"
_WORD = r"[^\W\d]\w*"
_NUMBER = r"\d[\w.]*"
_TOKEN = re.compile(
    rf"""(?P<space>\s+)
      | (?P<line_comment>{_LINE_COMMENT})
      | (?P<comment>/\*)
      | (?P<string>{_STRING})
      | (?P<name>{_NAME})
      | (?P<word>{_WORD})
      | (?P<number>{_NUMBER})
      | (?P<open>['"`])
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_BLANKS = re.compile(rf"(?:\s|{_LINE_COMMENT})*+")
# As many as there are before a semicolon, a bracketed comment or an open quote, up to the end of the last one.
# No possessive repeat is in another, and no group captures: Python 3.11.2 reads these wrongly.
_TOKENS = re.compile(
    rf"""(?:(?:\s|{_LINE_COMMENT})*(?:
        {_STRING}
      | {_NAME}
      | {_WORD}
      | {_NUMBER}
      | (?!/\*|--)[^;'"`\s]))*+""",
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

    @property
    def nesting(self) -> int:
        """1 for an opening bracket `(`, -1 for a closing one, 0 for others."""
        return {"(": 1, ")": -1}.get(self.text, 0)

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
    tokens: list[Token] = []
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
            tokens.append(Token(kind, match[0], match.start(), match.end()))
    return tokens


def closing_bracket(tokens: Sequence[Token], opening: int) -> int | None:
    """The index of the bracket that closes the one at `opening`; None if none does."""
    depths = accumulate(token.nesting for token in tokens[opening:])
    return next((index for index, depth in enumerate(depths, opening) if depth == 0), None)


def enclose_condition(condition: str) -> str:
    """A condition in parentheses, to follow WHERE. It may end with a comment.

    A single word gets two pairs: Spark reads `FROM v WHERE (c)` as v by the name `WHERE`, with the column `c`, and so
    reads all rows of a relation with one column.
    """
    try:
        is_one_word = len(tokens_of(SourceText(condition))) == 1
    except SqlError:  # such as an open quote; Spark reports it with the statement
        is_one_word = False
    return f"(({condition}\n))" if is_one_word else f"({condition}\n)"


def statement_spans(source: SourceText) -> Iterator[tuple[int, int]]:
    """The offsets of each statement's first character and after its last, without comments and blanks around it.

    Cost: linear, and some 10 times less than `tokens_of`, since no tokens are made.

    Raises: SqlError as `tokens_of`.
    """
    text = source.text
    at, begin, end = 0, -1, -1
    while True:
        if begin < 0:
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text too
        last = _TOKENS.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text too
        if last > at:
            begin, end = at if begin < 0 else begin, last
        at = _BLANKS.match(text, last).end()  # type: ignore[union-attr]
        if at < len(text) and text[at] == "/":
            at = _comment_end(source, at)
        elif at < len(text) and text[at] != ";":
            tokens_of(source)  # raises
            raise AssertionError("a quote that ends no token is not closed")
        else:
            if begin >= 0:
                yield begin, end
            if at == len(text):
                return
            at, begin = at + 1, -1


def _comment_end(source: SourceText, start: int) -> int:
    """The offset after the bracketed comment that begins at `start`. Comments nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(source.text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise sql_error(source, start, "a comment begins here with /* and is not closed")
