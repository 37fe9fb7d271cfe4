"""The base classes of all errors: each branch below `TussockError` stands for one decision of the caller.

    RetryableError   retry: the same call may succeed later (a server is unreachable)
    MustStopError    stop: a newer process took over, and no change of this run became visible
    InputError       correct the input: the SQL, a file, a row, a setting
    DamagedError     stored bytes differ from the bytes that were written

The arguments of an error are its facts. Errors can therefore be pickled and shown on a page.
"""

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about a mistyped name, ` Did you mean 'orders'?`, or "" if no known name is similar."""
    near = get_close_matches(name.lower(), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class TussockError(Exception):
    """Root of all errors that Tussock raises deliberately."""


class RetryableError(TussockError):
    """The same call may succeed later."""


class MustStopError(TussockError):
    """A newer process has taken over. Stop; no change of this run is visible."""


class InputError(TussockError):
    """The user's input is invalid. The message gives the finding, the expectation, the place and the remedy."""


class DamagedError(TussockError):
    """Stored bytes differ from the bytes that were written."""
