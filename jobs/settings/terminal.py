"""The width of texts in a terminal, for aligned columns."""

from unicodedata import category, east_asian_width


def pad_cell(text: str, width: int, right: bool) -> str:
    """A text with spaces up to a width in a terminal. `right`: the spaces come first."""
    spaces = " " * (width - terminal_width(text))
    return spaces + text if right else text + spaces


def terminal_width(text: str) -> int:
    """The number of columns that a text takes in a terminal: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(0 if category(c) in ("Mn", "Me", "Cf") else 2 if east_asian_width(c) in ("W", "F") else 1 for c in text)
