"""Every error of Tussock descends from `TussockError`, one branch per decision its reader has to take.

    RetryableError   the same call may succeed later (a server that is away)
    MustStopError    somebody newer has taken over: stop, nothing of this run became visible
    InputError       what the user gave is wrong: the SQL, a file, a row, a setting
    DamagedError     stored bytes are not what was written

Arguments of an error are its facts, so that errors survive pickling and can be shown on a page.
"""

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(name: str, known: Collection[str]) -> str:
    """How a message about a mistyped name ends: ` Did you mean 'orders'?`, or nothing where none is like it."""
    near = get_close_matches(name.lower(), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class TussockError(Exception):
    """Root of all errors raised on purpose."""


class RetryableError(TussockError):
    """The same call may succeed later."""


class MustStopError(TussockError):
    """Somebody newer owns this; stop. Nothing of this run is visible."""


class InputError(TussockError):
    """What the user gave cannot be taken; the message says what was found, expected, where, and what to do."""


class DamagedError(TussockError):
    """Stored bytes are not what was written."""
