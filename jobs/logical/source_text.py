"""A statement's text and the places in it.

Spark names places by the offset of a character; people want line and column, and the line itself. A statement cut out of a script keeps
the place where it began, so that errors point into the user's file.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tussock.jobs.logical.nodes import Place


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of one statement; `start` is the place of its first character in the script it came from.

    Where Spark is to read only a part of it (the SELECT of a CREATE MATERIALIZED VIEW), `begin` and `end` bound that part; offsets
    are those of the whole text all the same.
    """

    text: str
    start: Place = field(default=Place(1, 1))
    begin: int = 0
    end: int | None = None  # exclusive; None: to the end of the text

    def part(self, begin: int, end: int | None = None) -> "SourceText":
        """The same text, of which Spark is to read only what lies between two offsets."""
        return replace(self, begin=begin, end=end)

    @property
    def for_spark(self) -> str:
        """The part, after as many blanks and line breaks as there is text before it: offsets and lines stay what they are."""
        return "".join(c if c == "\n" else " " for c in self.text[: self.begin]) + self.text[self.begin : self.end]

    def place(self, offset: int) -> Place:
        """The place of the character at `offset` (0-based; clipped to the text). Cost: one look at the text for all its places."""
        begins, offset = _lines_of(self.text), min(max(0, offset), len(self.text))
        line = bisect_right(begins, offset) - 1
        column = offset - begins[line] + 1
        return Place(self.start.line + line, column if line else self.start.column + column - 1)

    def offset(self, line: int, column: int) -> int:
        """The offset of a place inside this text, both counted from 1 at the text's first character (Spark's own counting)."""
        begin = 0
        for _ in range(line - 1):
            begin = self.text.find("\n", begin) + 1
        return begin + column - 1

    def caret(self, offset: int) -> str:
        """The line that holds `offset` and, below it, a caret under the character."""
        offset = min(max(0, offset), len(self.text))
        begin = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        line = self.text[begin : len(self.text) if end < 0 else end]
        # tabs stay tabs below, so that the caret lands under its character however wide a tab is
        return line + "\n" + "".join("\t" if c == "\t" else " " for c in line[: offset - begin]) + "^"

    def fragment(self, first: int, last: int) -> str:
        """The characters from `first` to `last` (inclusive), shortened to one line of at most 60."""
        found = " ".join(self.text[first : last + 1].split())
        return found if len(found) <= 60 else found[:57] + "..."


@lru_cache(maxsize=8)
def _lines_of(text: str) -> tuple[int, ...]:
    """The offset at which each line begins."""
    return (0, *(found.end() for found in re.finditer("\n", text)))


@dataclass(frozen=True, slots=True)
class EditedText(SourceText):
    """A text in which some parts were replaced; places, lines and fragments are those of the original."""

    original: SourceText = SourceText("")
    edits: tuple[
        tuple[int, int, int], ...
    ] = ()  # ascending: where a part began and ended in the original, and the new part's length

    def place(self, offset: int) -> Place:
        return self.original.place(self._before(offset))

    def caret(self, offset: int) -> str:
        return self.original.caret(self._before(offset))

    def fragment(self, first: int, last: int) -> str:
        return self.original.fragment(self._before(first), self._before(last, end=True))

    def _before(self, offset: int, end: bool = False) -> int:
        """Where the character came from; within a new part the first, or the last, one of what stood there."""
        shift = 0
        for first, after, length in self.edits:
            if offset < first + shift:
                break
            if offset < first + shift + length:
                return after - 1 if end else first
            shift += length - (after - first)
        return offset - shift


def edited(source: SourceText, parts: Mapping[tuple[int, int], str]) -> EditedText:
    """The text with other words in the place of some parts: (first offset, offset behind the last) -> what is to stand there.

    Requires: parts do not overlap, and lie between the text's `begin` and `end`.
    """
    text, at, edits = "", 0, []
    for (first, after), words in sorted(parts.items()):
        text += source.text[at:first] + words
        edits.append((first, after, len(words)))
        at = after
    text += source.text[at:]
    end = None if source.end is None else source.end + len(text) - len(source.text)
    return EditedText(text, source.start, source.begin, end, source, tuple(edits))
