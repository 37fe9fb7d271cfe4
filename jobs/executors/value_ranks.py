"""Ranks of values: integers in the order of the values, for any type."""

import numpy as np
import pyarrow as pa

from tussock.jobs.executors.base import Positions
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import differs_from_previous, sort_order
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.nested import bits_of, holds_floats, is_nested
from tussock.statestore.vnode import null_mask


def value_ranks(values: pa.Array, ascending: bool = True, exact: bool = False) -> tuple[Positions, Positions]:
    """(n,) the rank of each value (-1 for NULL, equal for equal values), and the first value of each rank.

    `exact`: equal values of different bits have different ranks: -0.0 is below 0.0.
    Cost: a sort.
    """
    there = np.flatnonzero(~null_mask(values))
    columns = [values.take(pa.array(there))]
    if exact and _may_differ(columns[0]):
        columns.append(bits_of(columns[0]))
    by = [KeyColumn(i, descending=not ascending) for i in range(len(columns))]
    keys = encode_keys(0, np.zeros(len(there), np.uint16), columns, by)
    order = sort_order(keys) if len(there) else there
    new = differs_from_previous(keys.take(pa.array(order)))
    ranks = np.full(len(values), -1, np.int64)
    ranks[there[order]] = np.cumsum(new) - 1
    return ranks, there[order[new]]


def _may_differ(values: pa.Array) -> bool:
    """Whether equal values may have different bits: zeros, NaN."""
    if is_nested(values.type) or not holds_floats(values.type):
        return holds_floats(values.type)
    numbers = values.to_numpy(zero_copy_only=False)
    return bool((np.isnan(numbers) | ((numbers == 0) & np.signbit(numbers))).any())
