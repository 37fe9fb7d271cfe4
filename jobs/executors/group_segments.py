"""Rows of groups, read from a state group after group, in order.

A function of a whole group is a function of segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.table.schema import PrefixRows
from tussock.statestore.vnode import one_array

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """The rows of n groups. The rows of group i are [starts[i], starts[i + 1]) of every column."""

    starts: I64  # (n + 1,)
    columns: Sequence[pa.Array]

    @property
    def filled_groups(self) -> I64:
        """The groups that have rows."""
        return np.flatnonzero(np.diff(self.starts))

    def values_at(self, places: I64) -> pa.Array:
        """(n,) per group, the first column's value at its index in `places` (among all rows); NULL without rows."""
        chosen = np.full(len(self.starts) - 1, -1, np.int64)
        chosen[self.filled_groups] = places
        return self.columns[0].take(pa.array(chosen, mask=chosen < 0))


def segments_of(read: PrefixRows, groups: int, columns: Sequence[int]) -> Segments:
    """Some columns of a prefix scan's result, as segments of `groups` groups."""
    starts = np.searchsorted(read.index.to_numpy(), np.arange(groups + 1))
    return Segments(starts, [one_array(read.rows.column(c)) for c in columns])
