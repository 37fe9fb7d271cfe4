"""Deletion vectors of Iceberg's format 3: the deleted positions of one data file, as a blob of a Puffin file.

length u32, of magic and bitmap | magic D1 D3 39 64 | 64-bit Roaring bitmap, portable | crc32 u32 of both

The two numbers are big-endian.
"""

import zlib

import numpy as np
import numpy.typing as npt

from tussock.statestore.extras import extras_named

_MAGIC = b"\xd1\xd3\x39\x64"


def positions_of_vector(blob: bytes) -> npt.NDArray[np.int64]:
    """Return the deleted positions, ascending. Raises LookupError for a damaged blob."""
    with extras_named():
        from pyroaring import BitMap64

    body, crc = blob[4:-4], int.from_bytes(blob[-4:], "big")
    if int.from_bytes(blob[:4], "big") != len(body) or body[:4] != _MAGIC or zlib.crc32(body) != crc:
        raise LookupError("a deletion vector is damaged: its length, magic number or checksum is wrong")
    return np.array(BitMap64.deserialize(body[4:]).to_array(), np.int64)
