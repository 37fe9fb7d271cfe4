"""Finds the end of a dense sequence of objects without a LIST."""

from collections.abc import Callable


def end_of(exists: Callable[[int], bool], start: int) -> int:
    """The first number >= `start` that does not exist.

    Requires: whatever exists is dense (all below exist too) and stays. Steps double until one misses, then halve: about 2 log2(distance)
    calls of `exists`, one if `start` is the end.
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
