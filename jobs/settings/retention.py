"""Retention: how long epochs stay readable. Imports no Arrow and does no I/O, for the parser of pipeline.toml."""

import re
from dataclasses import dataclass

from tussock.statestore.errors import InputError

UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
LONGEST_DAYS = 999_999
"""The longest time span, in days. With a longer one, Python's times would exceed the year 9999."""


class BadDurationError(InputError):
    """A time span is invalid."""

    text: str

    def __str__(self) -> str:
        return (
            f"{self.text!r} is not a time span; expected a number and a unit, as in 90s, 15m, 36h or 7d, and at most "
            f"{LONGEST_DAYS}d"
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """The readable past: the last `keep_epochs` published epochs, and all epochs of the last `keep_ms`."""

    keep_epochs: int = 1
    keep_ms: int = 86_400_000


def duration_ms(text: str) -> int:
    """Parse a time span such as 7d to milliseconds. Raises BadDurationError."""
    match = re.fullmatch(r"(\d{1,12})\s*([smhd])", text.strip())
    if match is None or (duration := int(match[1]) * UNITS_MS[match[2]]) > LONGEST_DAYS * UNITS_MS["d"]:
        raise BadDurationError(text)
    return duration
