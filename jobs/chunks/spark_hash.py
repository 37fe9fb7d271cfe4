"""Spark's hash of int32 columns, for code that must place rows as Spark's HashPartitioning does."""

import numpy as np
import numpy.typing as npt


def spark_hash(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Murmur3 (x86, 32 bits, seed 42) of each value. A row goes to partition `hash mod n`, which is never negative."""

    def rotate_bits(x: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
        return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))

    k = rotate_bits(values.view(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    h = (rotate_bits(np.uint32(42) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)) ^ np.uint32(4)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    mixed: npt.NDArray[np.int32] = (h ^ (h >> np.uint32(16))).view(np.int32)
    return mixed
