"""Compares the rows of two tables."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.key import encode_identities
from tussock.statestore.nested import is_nested
from tussock.statestore.stacked import FEW_ROWS, arrays_of, group_stacks, stack_columns
from tussock.statestore.vnode import one_array

Mask = npt.NDArray[np.bool_]


def same_rows(one: pa.Table, other: pa.Table) -> Mask:
    """(n,) whether row i is the same in both tables. NULL equals NULL; floats are compared by their bits.

    Requires: equal numbers of rows and equal column types.
    """
    same = np.ones(one.num_rows, np.bool_)
    if len(same):
        for count, left, right in _stack_columns(one, other):
            same &= _same_values(left, right).reshape(count, -1).all(axis=0)
    return same


def _stack_columns(one: pa.Table, other: pa.Table) -> Iterator[tuple[int, pa.Array, pa.Array]]:
    """Stacks of columns from both tables, and how many columns each has. Many rows are copied column by column."""
    if one.num_rows > FEW_ROWS:
        for a, b in zip(one.columns, other.columns, strict=True):
            yield 1, one_array(a), one_array(b)
        return
    left, right = arrays_of(one), arrays_of(other)
    for batch in group_stacks([column.type for column in left], one.num_rows, left, right):
        yield len(batch), stack_columns([left[i] for i in batch]), stack_columns([right[i] for i in batch])


def _same_values(one: pa.Array, other: pa.Array) -> Mask:
    left, right = _to_comparable(one), _to_comparable(other)
    equal = pc.fill_null(pc.equal(left, right), False)
    if left.null_count and right.null_count:
        equal = pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))
    return np.asarray(equal.to_numpy(zero_copy_only=False), np.bool_)


def _to_comparable(array: pa.Array) -> pa.Array:
    """Convert the column to one that Arrow compares bit by bit."""
    if is_nested(array.type):
        return encode_identities(array)
    if pa.types.is_floating(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array
