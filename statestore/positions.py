"""Ranges of positions."""

from typing import Any

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]


def expand_ranges(first: Positions, counts: npt.NDArray[Any]) -> Positions:
    """Concatenate the ranges first[i] … first[i] + counts[i] - 1.

    For example, the ranges that begin at 5 and 9 and have 2 and 3 positions are 5, 6, 9, 10, 11.
    """
    positions: Positions = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return positions


def indices_in_ranges(counts: npt.NDArray[Any]) -> Positions:
    """The index of each position in its range, for example 0, 1, 0, 1, 2 for ranges of 2 and 3 positions."""
    return expand_ranges(np.zeros(len(counts), np.int64), counts)
