"""A statement's text and the places in it.

Spark reports character offsets; users need line, column and the line itself. A statement from a script records its
start, so that errors point into the user's file.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of one statement. `start` is the place of its first character in the script.

    If Spark reads only a part of the text (the SELECT of a CREATE MATERIALIZED VIEW), `begin` and `end` bound that
    part. Offsets still refer to the whole text. `schema`: of the names without one.
    """

    text: str
    start: Place = field(default=Place(1, 1))
    begin: int = 0
    end: int | None = None  # exclusive; None: to the end of the text
    schema: str = field(default=DEFAULT_SCHEMA, repr=False)

    def take_part(self, begin: int, end: int | None = None) -> "SourceText":
        """The same text; Spark reads only the part between two offsets."""
        return replace(self, begin=begin, end=end)

    @property
    def for_spark(self) -> str:
        """The part, with blanks and line breaks in place of the text before it, so that offsets do not change."""
        return "".join(c if c == "\n" else " " for c in self.text[: self.begin]) + self.text[self.begin : self.end]

    def place_at(self, offset: int) -> Place:
        """The place of the character at `offset` (0-based, clipped to the text).

        Cost: one scan per text, which is cached.
        """
        begins, offset = _lines_of(self.text), min(max(0, offset), len(self.text))
        line = bisect_right(begins, offset) - 1
        column = offset - begins[line] + 1
        return Place(self.start.line + line, column if line else self.start.column + column - 1)

    def offset_of_place(self, line: int, column: int) -> int:
        """The offset of a place in this text. Line and column count from 1 at the first character, as in Spark."""
        begin = 0
        for _ in range(line - 1):
            begin = self.text.find("\n", begin) + 1
        return begin + column - 1

    def line_with_caret(self, offset: int) -> str:
        """The line that contains `offset`, and a line with a caret under the character."""
        offset = min(max(0, offset), len(self.text))
        begin = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        line = self.text[begin : len(self.text) if end < 0 else end]
        # Keep tabs, so that the caret stays under its character at any tab width.
        return line + "\n" + "".join("\t" if c == "\t" else " " for c in line[: offset - begin]) + "^"

    def short_fragment(self, first: int, last: int) -> str:
        """The characters from `first` to `last` (inclusive), as one line of at most 60 characters."""
        line = " ".join(self.text[first : last + 1].split())
        return line if len(line) <= 60 else line[:57] + "..."


@lru_cache(maxsize=8)
def _lines_of(text: str) -> tuple[int, ...]:
    """The offset at which each line begins."""
    return (0, *(match.end() for match in re.finditer("\n", text)))


@dataclass(frozen=True, slots=True)
class EditedText(SourceText):
    """A text with replaced parts. Places, lines and fragments refer to the original."""

    original: SourceText = SourceText("")
    edits: tuple[
        tuple[int, int, int], ...
    ] = ()  # ascending: (begin in the original, end in the original, length of the new part)

    def place_at(self, offset: int) -> Place:
        return self.original.place_at(self._original_offset(offset))

    def line_with_caret(self, offset: int) -> str:
        return self.original.line_with_caret(self._original_offset(offset))

    def short_fragment(self, first: int, last: int) -> str:
        return self.original.short_fragment(self._original_offset(first), self._original_offset(last, end=True))

    def _original_offset(self, offset: int, end: bool = False) -> int:
        """The original offset. Within a new part: the first (or with `end` the last) character of the replaced part."""
        shift = 0
        for first, after, length in self.edits:
            if offset < first + shift:
                break
            if offset < first + shift + length:
                return after - 1 if end else first
            shift += length - (after - first)
        return offset - shift


def edit_source(source: SourceText, parts: Mapping[tuple[int, int], str]) -> EditedText:
    """The text with parts replaced: (first offset, exclusive end) -> new words.

    Requires: parts do not overlap and lie between the text's `begin` and `end`.
    """
    text, at, edits = "", 0, []
    for (first, after), words in sorted(parts.items()):
        text += source.text[at:first] + words
        edits.append((first, after, len(words)))
        at = after
    text += source.text[at:]
    end = None if source.end is None else source.end + len(text) - len(source.text)
    return EditedText(text, source.start, source.begin, end, source.schema, source, tuple(edits))
