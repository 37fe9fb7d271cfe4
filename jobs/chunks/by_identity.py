"""A cache of functions of immutable objects, found again by identity.

Hashing a node with thousands of calls or expressions would cost as much as the result. A node stays the same object
from epoch to epoch, because decoded definitions are kept.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MOST = 256  # results per function


def by_identity(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Keep the newest results of a function by the identity of its arguments.

    Requires: positional arguments that do not change. They are kept with the result, so that no other object can get
    their identity.
    """
    known: OrderedDict[tuple[int, ...], tuple[tuple[Any, ...], _R]] = OrderedDict()

    @wraps(function)
    def call_remembered(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        name = tuple(map(id, args))
        if (entry := known.get(name)) is not None:
            return entry[1]
        result = function(*args, **kwargs)
        known[name] = args, result
        while len(known) > _MOST:
            known.popitem(last=False)
        return result

    return call_remembered
