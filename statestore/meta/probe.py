"""Finds the end of a dense sequence of objects without a LIST."""

from collections.abc import Callable


def end_of(exists: Callable[[int], bool], start: int) -> int:
    """The first number >= `start` that does not exist.

    Requires: existing numbers are dense and permanent.
    Cost: about 2 log2(distance) calls of `exists`, or one if `start` is the end. Steps double until a miss, then halve.
    """
    low, step = start, 1  # everything below `low` exists
    while exists(low + step - 1):
        low += step
        step *= 2
    high = low + step - 1  # does not exist
    while low < high:
        middle = (low + high) // 2
        if exists(middle):
            low = middle + 1
        else:
            high = middle
    return low
