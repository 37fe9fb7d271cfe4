"""Net changes: the difference between the rows of some keys before and after, as weighted rows."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.hummock.sst_format import KEY

WEIGHT = "weight"

Mask = npt.NDArray[np.bool_]


def net_changes(keys: pa.BinaryArray, had: Mask, before: pa.Table, has: Mask, after: pa.Table) -> pa.Table:
    """Old rows with weight -1, then new rows with weight +1. Unchanged rows are omitted.

    Args:
        keys: (n,) distinct.
        had, has: (n,) whether the key has a row before and after. Rows of `before` and `after` without one are ignored.
        before, after: (n,) of the same schema.

    Returns: `key`, `weight` (int64), then the columns of `after`.
    """
    same = had & has
    if same.any():
        same[same] = same_rows(before.filter(pa.array(same)), after.filter(pa.array(same)))
    gone, come = had & ~same, has & ~same
    parts = []
    for rows, chosen, weight in ((before, gone, -1), (after, come, 1)):
        chosen_rows = rows.filter(pa.array(chosen))
        weights = pa.array(np.full(chosen_rows.num_rows, weight, np.int64))
        parts.append(
            pa.table([keys.filter(pa.array(chosen)), weights, *chosen_rows.columns], [KEY, WEIGHT, *after.column_names])
        )
    return pa.concat_tables(parts).combine_chunks()
