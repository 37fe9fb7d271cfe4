"""Progress of long operations: one line per step."""

from collections.abc import Callable

Progress = Callable[[str], None]


def no_progress(_: str) -> None:
    """Discard the line."""
