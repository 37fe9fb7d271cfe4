"""Digests: 128 bits that identify all values of a row, for any column types.

    digest = (h(1, nulls, columns), h(2, nulls, columns))      h: xxhash64, floats by their bits

`nulls` are bits that mark the NULL columns, since h skips NULL. Two different rows have equal digests with a
probability of about 2^-128; among a billion rows, with 2^-69.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.key import encode_identities
from tussock.statestore.nested import bits_of, is_nested
from tussock.statestore.vnode import null_mask, one_array, xxhash64

_BITS = 63  # columns per bigint of NULL bits


def digests_of(
    columns: Sequence[pa.Array | pa.ChunkedArray], rows: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return both halves of the digest of each row, (rows,) each.

    State is stored by digests, so they must be equal in every release. Cost: two hashes per value.
    """
    arrays = [one_array(c) for c in columns]
    hashed = [*_null_bits(arrays, rows), *(encode_identities(c) if is_nested(c.type) else bits_of(c) for c in arrays)]
    first, second = (xxhash64([_constant_column(seed, rows), *hashed]) for seed in (1, 2))
    return first, second


def _null_bits(columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
    words = []
    for start in range(0, len(columns), _BITS):
        word = np.zeros(rows, np.int64)
        for bit, column in enumerate(columns[start : start + _BITS]):
            if column.null_count:
                word |= null_mask(column).astype(np.int64) << bit
        words.append(pa.array(word))
    return words


def _constant_column(value: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value, np.int64))
