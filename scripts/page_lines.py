"""Wrap the paragraphs and list items of the generated pages at 100 characters."""

import re
import textwrap

WIDTH = 100
_MARKER = re.compile(r" (?=(?:[-+*#=|]+|>.*?|\d+[.)]) )")  # starts a list, a heading or a quote at the start of a line


def wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """The lines of one paragraph: the first line begins with `first`, all others with `rest`.

    No line begins with a word that Markdown takes as a marker of a list, a heading or a quote.
    """
    held = _MARKER.sub("\0", text)
    lines = textwrap.wrap(
        held,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]
