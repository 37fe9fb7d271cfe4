"""Group by one integer column: direct addressing or sorting, several times cheaper than a general hash table.

Most views group by identifiers. If these are dense, like serial numbers, a group's index is its key minus the least
key. Otherwise sorting is still cheaper than hashing.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

I64 = npt.NDArray[np.int64]

_SPARSEST = 4  # largest ratio of indexes to rows for direct addressing


def sums_by_integer(key: pa.Array, columns: Sequence[pa.Array]) -> tuple[pa.Array, list[pa.Array]] | None:
    """Sum int64 columns by an integer key.

    Args:
        key: (n,).
        columns: (n,) each.

    Returns: (distinct keys, ascending, of the key's type; per column its int64 sums, which wrap around beyond 64 bits).
        None for other types, for NULLs, and without rows.
    Cost: about 4 ns per row and column if keys are dense, otherwise a sort of the keys in addition.
    """
    if len(key) == 0 or not all(_is_plain(column, pa.int64()) for column in columns):
        return None
    if not pa.types.is_signed_integer(key.type) or key.null_count:
        return None
    keys = key.to_numpy().astype(np.int64, copy=False)
    values: list[I64] = [column.to_numpy() for column in columns]
    least, greatest = int(keys.min()), int(keys.max())
    distinct_keys, sums = (
        _by_address(keys, least, greatest - least + 1, values)
        if greatest - least < _SPARSEST * len(keys)
        else _by_sorting(keys, values)
    )
    return pa.array(distinct_keys.astype(key.type.to_pandas_dtype(), copy=False), key.type), [
        pa.array(column) for column in sums
    ]


def _by_address(keys: I64, least: int, places: int, values: Sequence[I64]) -> tuple[I64, list[I64]]:
    place = keys - least
    there = np.zeros(places, np.bool_)
    there[place] = True
    taken = np.flatnonzero(there)
    sums = []
    for column in values:
        total = np.zeros(places, np.int64)
        np.add.at(total, place, column)
        sums.append(total[taken])
    return taken + least, sums


def _by_sorting(keys: I64, values: Sequence[I64]) -> tuple[I64, list[I64]]:
    order = np.argsort(keys)
    ordered = keys[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return ordered[first], [np.add.reduceat(column[order], first) for column in values]


def _is_plain(column: pa.Array, kind: pa.DataType) -> bool:
    return bool(column.type.equals(kind)) and column.null_count == 0
