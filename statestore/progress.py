"""Progress of long work: one line a step, for the person who waits for it."""

from collections.abc import Callable

Progress = Callable[[str], None]


def no_progress(_: str) -> None:
    """Nobody waits."""
