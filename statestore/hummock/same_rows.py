"""Compares the rows of two tables, column by column."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.key import identities
from tussock.statestore.nested import is_nested
from tussock.statestore.vnode import one_array

Mask = npt.NDArray[np.bool_]


def same_rows(one: pa.Table, other: pa.Table) -> Mask:
    """(n,) whether row i is the same in both tables. NULL equals NULL; floats are compared by their bits.

    Requires: equal numbers of rows and equal column types.
    """
    same = np.ones(one.num_rows, np.bool_)
    for a, b in zip(one.columns, other.columns, strict=True):
        left, right = _comparable(one_array(a)), _comparable(one_array(b))
        equal = pc.fill_null(pc.equal(left, right), False)
        if left.null_count and right.null_count:
            equal = pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def _comparable(array: pa.Array) -> pa.Array:
    """Convert the column to one that Arrow compares bit by bit."""
    if is_nested(array.type):
        return identities(array)
    if pa.types.is_floating(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array
