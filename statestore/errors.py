"""The base classes of all errors: each branch below `TussockError` stands for one decision of the caller.

    RetryableError   retry: the same call may succeed later (a server is unreachable)
    MustStopError    stop: a newer process took over, and no change of this run became visible
    InputError       correct the input: the SQL, a file, a row, a setting
    DamagedError     stored bytes differ from the bytes that were written

The arguments of an error are its facts. Errors can therefore be pickled and shown on a page. A class declares its facts
as a dataclass declares its fields:

    class LostRaceError(MustStopError):
        lost: str
        winner: str = ""
"""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any, ClassVar, dataclass_transform


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about a mistyped name, ` Did you mean 'orders'?`, or "" if no known name is similar."""
    near = get_close_matches(name.lower(), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


@dataclass_transform(eq_default=False)
class TussockError(Exception):
    """Root of all errors that Tussock raises deliberately.

    No dataclass: generating the code of one takes 0.2 ms, and a command imports a hundred errors. A class with an
    `__init__` of its own has no declared facts.
    """

    hides_row_values: ClassVar[bool] = False
    """Whether the text contains no value of a row, or omits it from readers who may not see rows. Set in the head of
    a class: `class LostRaceError(MustStopError, hides_row_values=True)`."""

    _facts: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, hides_row_values: bool | None = None) -> None:
        super().__init_subclass__()
        if hides_row_values is not None:
            cls.hides_row_values = hides_row_values
        own = (name for name in cls.__annotations__ if name not in cls._facts)
        cls._facts = () if "__init__" in vars(cls) else (*cls._facts, *own)

    def __init__(self, *args: Any, **named: Any) -> None:
        if not self._facts:
            super().__init__(*args, **named)
            return
        facts_by_name = {**dict(zip(self._facts, args, strict=False)), **named}
        missing = [fact for fact in self._facts if fact not in facts_by_name and not hasattr(type(self), fact)]
        if missing or len(facts_by_name) < len(args) + len(named) or not facts_by_name.keys() <= set(self._facts):
            raise TypeError(f"{type(self).__name__} has the facts {', '.join(self._facts)}; given: {args} {named}")
        facts = {
            fact: facts_by_name[fact] if fact in facts_by_name else getattr(type(self), fact) for fact in self._facts
        }
        vars(self).update(facts)
        super().__init__(*facts.values())


class RetryableError(TussockError):
    """The same call may succeed later."""


class MustStopError(TussockError):
    """A newer process has taken over. Stop; no change of this run is visible."""


class InputError(TussockError):
    """The user's input is invalid. The message gives the finding, the expectation, the place and the remedy."""


class DamagedError(TussockError):
    """Stored bytes differ from the bytes that were written."""
