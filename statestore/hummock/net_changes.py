"""Net changes: what the rows of some keys before and after make as weighted rows."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.hummock.sst_format import KEY

WEIGHT = "weight"

Mask = npt.NDArray[np.bool_]


def net_changes(keys: pa.BinaryArray, had: Mask, before: pa.Table, has: Mask, after: pa.Table) -> pa.Table:
    """Old rows at weight -1, then new ones at +1; nothing for keys whose row is the same.

    Args:
        keys: (n,) each once.
        had, has: (n,) whether the key has a row before and after; where it has none, what `before` and `after` hold does not count.
        before, after: (n,) of one schema.

    Returns: `key`, `weight` (int64), then the columns of `after`.
    """
    same = had & has
    if same.any():
        same[same] = same_rows(before.filter(pa.array(same)), after.filter(pa.array(same)))
    gone, come = had & ~same, has & ~same
    parts = []
    for rows, chosen, weight in ((before, gone, -1), (after, come, 1)):
        kept = rows.filter(pa.array(chosen))
        weights = pa.array(np.full(kept.num_rows, weight, np.int64))
        parts.append(pa.table([keys.filter(pa.array(chosen)), weights, *kept.columns], [KEY, WEIGHT, *after.column_names]))
    return pa.concat_tables(parts).combine_chunks()


def same_rows(one: pa.Table, other: pa.Table) -> Mask:
    """(n,) whether row i of both is the same: NULL is NULL, and floats are compared by their bits, so -0.0 is not 0.0 and NaN is itself."""
    same = np.ones(one.num_rows, np.bool_)
    for a, b in zip(one.columns, other.columns, strict=True):
        left, right = _comparable(a), _comparable(b)
        equal = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
        nulls = pc.and_(pc.is_null(left), pc.is_null(right)).to_numpy(zero_copy_only=False)
        same &= equal | nulls
    return same


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks)
    if pa.types.is_float64(array.type):
        return array.view(pa.int64())
    return array.view(pa.int32()) if pa.types.is_float32(array.type) else array
