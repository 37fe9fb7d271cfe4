"""Finds the values of two columns that differ, with the equality of Spark's EXCEPT ALL.

NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0. Decimals are compared exactly, nested values by their parts.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.key import encode_values
from tussock.statestore.nested import as_list, is_nested
from tussock.statestore.vnode import null_mask, one_array

Mask = npt.NDArray[np.bool_]


def find_apart(one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray, tolerance: float) -> Mask:
    """(n,) whether the values differ.

    Args:
        one, other: (n,) of one type.
        tolerance: two numbers x and y, also within nested values, are equal if
            |x - y| <= tolerance * max(|x|, |y|).
    """
    left, right = one_array(one), one_array(other)
    if is_nested(left.type):
        apart = _to_mask(pc.not_equal(encode_values(left), encode_values(right)))
    else:
        apart = _find_plain_apart(left, right)
    if tolerance > 0 and (places := np.flatnonzero(apart)).size:
        at = pa.array(places)
        apart[places] = _find_beyond(left.take(at), right.take(at), tolerance)
    return apart


def _find_plain_apart(left: pa.Array, right: pa.Array) -> Mask:
    equal = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    apart = ~_to_mask(pc.fill_null(equal, False))
    if left.null_count and right.null_count:
        apart &= ~(null_mask(left) & null_mask(right))
    return apart


def _find_beyond(left: pa.Array, right: pa.Array, tolerance: float) -> Mask:
    """Whether values differ by more than the tolerance in a number, or in anything else."""
    if len(left) == 0:
        return np.zeros(0, np.bool_)
    absent, others = null_mask(left), null_mask(right)
    if pa.types.is_struct(left.type):
        fields = zip(left.flatten(), right.flatten(), strict=True)
        inside = [_find_beyond(mine, its, tolerance) for mine, its in fields]
        beyond = np.logical_or.reduce([np.zeros(len(left), np.bool_), *inside])
    elif is_nested(left.type):
        beyond = _find_lists_beyond(as_list(left), as_list(right), tolerance)
    elif _is_number(left.type):
        with np.errstate(invalid="ignore", over="ignore"):
            x, y = (_to_doubles(side) for side in (left, right))
            near = np.abs(x - y) <= tolerance * np.maximum(np.abs(x), np.abs(y))
        beyond = _find_plain_apart(left, right) & ~(near & np.isfinite(x) & np.isfinite(y))
    else:
        beyond = _find_plain_apart(left, right)
    result: Mask = np.where(absent | others, absent != others, beyond)
    return result


def _find_lists_beyond(left: pa.Array, right: pa.Array, tolerance: float) -> Mask:
    counts, others = (pc.fill_null(pc.list_value_length(side), -1).to_numpy() for side in (left, right))
    beyond = counts != others
    even = np.flatnonzero(~beyond & (counts > 0))
    if even.size:
        mine, its = (side.take(pa.array(even)).flatten() for side in (left, right))
        apart = _find_beyond(mine, its, tolerance)
        starts = np.cumsum(counts[even]) - counts[even]
        beyond[even] = np.logical_or.reduceat(apart, starts)
    return np.asarray(beyond, np.bool_)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _to_doubles(array: pa.Array) -> npt.NDArray[np.float64]:
    doubles = array.cast(pa.float64(), safe=False)  # a safe cast raises for integers above 2^53
    return np.asarray(pc.fill_null(doubles, 0.0).to_numpy(zero_copy_only=False), np.float64)


def _to_mask(values: pa.BooleanArray) -> Mask:
    return np.array(values.to_numpy(zero_copy_only=False), np.bool_)
