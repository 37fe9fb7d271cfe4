"""The end of each source's input as a run first saw it. Otherwise a run would follow busy writers and never end."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")
_ENDS: ContextVar[dict[Hashable, Any] | None] = ContextVar("ends", default=None)


@contextmanager
def ends_fixed() -> Iterator[None]:
    """Within the block, which is a run, `end_of` looks at each place only once."""
    token = _ENDS.set({})
    try:
        yield
    finally:
        _ENDS.reset(token)


def end_of(place: Hashable, look: Callable[[], _T], *, again: bool = False) -> _T:
    """Return the end of a place's input as the run saw it first; outside of a run, as it is now.

    `again`: look now, even if the run has done so; the run's end stays.
    """
    ends = _ENDS.get()
    if not again and ends is not None and place in ends:
        known: _T = ends[place]
        return known
    end = look()
    if ends is not None:
        ends.setdefault(place, end)
    return end
