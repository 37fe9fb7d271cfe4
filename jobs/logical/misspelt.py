"""Misspelt keywords: the correction with which a parser reads a statement further.

A parser takes a misspelt keyword for a name, and reports a later word. In `SELECT a FORM t`, FORM is an alias of `a`,
and the error is at `t`. So the words around the error are replaced by similar keywords, one at a time, and the parser
itself decides: a correction counts only if the parser then reads the whole statement, or reports a later error.
Statements without an error never come here.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tussock.jobs.logical.errors import SqlError, sql_error
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, tokens_of

_WORDS = 8  # looked at before the error, and after it: a parser notices a misspelt keyword within a few words
_SHORT = 4  # words up to this length may differ by one letter, and longer ones by two
_PHRASES = ("GROUP BY", "ORDER BY", "PARTITION BY")  # written as one word

#: The offset at which a parser fails on a text; None: it reads the whole text.
Fails = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class Misspelling:
    """A word of a statement, and the keyword for which it was probably meant."""

    token: Token
    keyword: str

    def to_error(self, source: SourceText) -> SqlError:
        """The error that points to the word."""
        return sql_error(source, self.token.start, self.reason)

    @property
    def reason(self) -> str:
        """The finding and the correction, without the place."""
        return f"expected a keyword here, found {self.token.text}. Did you mean {self.keyword}?"


def find_misspelling(
    source: SourceText, failed: int, fails: Fails, keywords: Collection[str], names: Collection[str]
) -> Misspelling | None:
    """Find the misspelt keyword that explains a syntax error. None if no correction helps the parser.

    Args:
        failed: the offset at which the parser fails on the text.
        fails: the parser.
        keywords: of the parser, in upper case. These are never taken for misspelt.
        names: of relations and columns, in lower case. These are never taken for misspelt either.

    Cost: one parse for each similar keyword of 2 * _WORDS words, usually fewer than ten.
    """
    best: tuple[int, Misspelling] | None = None
    for token in _suspect_words(source, failed, keywords, names):
        for keyword in similar_keywords(token.text.upper(), (*keywords, *_PHRASES)):
            text = source.text[: token.start] + keyword + source.text[token.end :]
            at = fails(text)
            if at is None:
                return Misspelling(token, keyword)
            read = at - (len(keyword) - len(token.text)) - failed  # further than before
            if len(token.text) >= _SHORT and read > 0 and at > token.start and (best is None or read > best[0]):
                best = read, Misspelling(token, keyword)
    return None if best is None else best[1]


def _suspect_words(
    source: SourceText, failed: int, keywords: Collection[str], names: Collection[str]
) -> Iterator[Token]:
    """Yield the words that may be misspelt: those before the error, the nearest first, and then those after it.

    A parser that looks ahead may report the beginning of an expression: in `CASE WHEN a THNE 1 END`, the word `a`.
    """
    try:
        tokens = [t for t in tokens_of(source) if source.begin <= t.start]
    except SqlError:  # a string or comment is not closed
        return
    aliases = {after.text.lower() for word, after in pairwise(tokens) if word.text.upper() == "AS"}
    end = bisect_right(tokens, failed, key=lambda t: t.start)
    for i in (*range(end - 1, max(-1, end - 1 - _WORDS), -1), *range(end, min(len(tokens), end + _WORDS))):
        token, around = tokens[i], [t.text for t in (*tokens[max(0, i - 1) : i], *tokens[i + 1 : i + 2])]
        if (
            token.kind == "word"
            and len(token.text) > 1
            and token.text.upper() not in keywords
            and token.text.lower() not in names
            and token.text.lower() not in aliases
            and "." not in around  # of a qualified name
        ):
            yield token


def similar_keywords(word: str, keywords: Collection[str]) -> list[str]:
    """The keywords that differ from a word by few letters, the most similar first."""
    most = 1 if len(word) <= _SHORT else 2
    near = ((edit_distance(word, k), k) for k in keywords if abs(len(k) - len(word)) <= most)
    return [keyword for distance, keyword in sorted(near) if 0 < distance <= most]


def edit_distance(one: str, other: str) -> int:
    """The letters to insert, delete or replace, and neighbours to swap, that turn one word into another.

    Cost: O(len(a) * len(b)).
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, x in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, y in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
            if i > 1 and j > 1 and (x, one[i - 2]) == (other[j - 2], y):
                row[-1] = min(row[-1], earlier[j - 2] + 1)
    return row[-1]
