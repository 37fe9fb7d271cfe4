"""Rows of groups, read from a state in its order, group after group: a function of a whole group is a function of segments."""

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
    """The rows of n groups: those of group i are at [starts[i], starts[i + 1]) of every column."""

    starts: I64  # (n + 1,)
    columns: Sequence[pa.Array]

    @property
    def filled(self) -> I64:
        """The groups that have rows."""
        return np.flatnonzero(np.diff(self.starts))

    def placed(self, places: I64, column: int = 0) -> pa.Array:
        """(n,) for each filled group the value at its place in `places` (among all rows); NULL for the others."""
        chosen = np.full(len(self.starts) - 1, -1, np.int64)
        chosen[self.filled] = places
        return self.columns[column].take(pa.array(chosen, mask=chosen < 0))


def segments_of(read: PrefixRows, groups: int, columns: Sequence[int]) -> Segments:
    """What a scan of so many groups' prefixes read, some columns of it."""
    starts = np.searchsorted(read.index.to_numpy(), np.arange(groups + 1))
    return Segments(starts, [one_array(read.rows.column(c)) for c in columns])
