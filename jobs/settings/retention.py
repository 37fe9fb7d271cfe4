"""Retention: how far back readers may reach. Light, as pipeline.toml's reader is: no Arrow, no I/O."""

import re
from dataclasses import dataclass

from tussock.statestore.errors import InputError

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class BadDurationError(InputError):
    """A time span that is not understood."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"{self.found!r} is no time span; give a number and a unit, as in 90s, 15m, 36h or 7d"


@dataclass(frozen=True, slots=True)
class Retention:
    """What time travel may reach: the last `keep_epochs` published epochs, and every moment of the last `keep_ms`."""

    keep_epochs: int = 1
    keep_ms: int = 86_400_000


def duration_ms(text: str) -> int:
    """A time span such as 7d in milliseconds. Raises BadDurationError."""
    found = re.fullmatch(r"(\d+)\s*([smhd])", text.strip())
    if found is None:
        raise BadDurationError(text)
    return int(found[1]) * _UNITS_MS[found[2]]
