"""Ranks of values: integers in the order of the values, for any type."""

import numpy as np
import pyarrow as pa

from tussock.jobs.executors.base import Positions
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import differs_from_previous, sort_order
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.vnode import null_mask


def value_ranks(values: pa.Array, ascending: bool = True) -> tuple[Positions, Positions]:
    """(n,) the rank of each value (-1 for NULL, equal for equal values), and the first value of each rank.

    Cost: a sort.
    """
    there = np.flatnonzero(~null_mask(values))
    keys = encode_keys(
        0, np.zeros(len(there), np.uint16), [values.take(pa.array(there))], [KeyColumn(0, descending=not ascending)]
    )
    order = sort_order(keys) if len(there) else there
    new = differs_from_previous(keys.take(pa.array(order)))
    ranks = np.full(len(values), -1, np.int64)
    ranks[there[order]] = np.cumsum(new) - 1
    return ranks, there[order[new]]
