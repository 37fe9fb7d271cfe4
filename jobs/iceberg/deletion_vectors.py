"""Deletion vectors of Iceberg's format 3: the deleted positions of one data file, as a blob of a Puffin file.

length u32, of magic and bitmap | magic D1 D3 39 64 | 64-bit Roaring bitmap, portable | crc32 u32 of both

The two numbers are big-endian. A Puffin file has one blob per data file:

PFA1 | blobs | PFA1 | JSON with the place of each blob | length of the JSON, i32 little-endian | flags, 4 bytes | PFA1
"""

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from tussock.jobs.delta.delta_commits import frame_vector
from tussock.statestore.extras import extras_named

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC = b"\xd1\xd3\x39\x64"
_PUFFIN = b"PFA1"
_ROW_POSITION = 2147483645  # the field id of a row's position


def positions_of_vector(blob: bytes) -> npt.NDArray[np.int64]:
    """Return the deleted positions, ascending. Raises LookupError for a damaged blob."""
    return np.array(vector_of(blob).to_array(), np.int64)


def vector_of(blob: bytes) -> "BitMap64":
    """Return the deleted positions. Raises LookupError for a damaged blob."""
    with extras_named():
        from pyroaring import BitMap64

    body, crc = blob[4:-4], int.from_bytes(blob[-4:], "big")
    if int.from_bytes(blob[:4], "big") != len(body) or body[:4] != _MAGIC or zlib.crc32(body) != crc:
        raise LookupError("a deletion vector is damaged: its length, magic number or checksum is wrong")
    return BitMap64.deserialize(body[4:])


def encode_puffin(vectors: Mapping[str, "BitMap64"]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Return the bytes of a Puffin file with vectors by data file, and (offset, length) of each vector."""
    out, places, blobs = bytearray(_PUFFIN), dict[str, tuple[int, int]](), []
    for path, vector in vectors.items():
        blob = frame_vector(vector)
        places[path] = len(out), len(blob)
        properties = {"referenced-data-file": path, "cardinality": str(len(vector))}
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_ROW_POSITION],
                "snapshot-id": -1,  # as the specification demands: the file precedes its snapshot
                "sequence-number": -1,
                "offset": len(out),
                "length": len(blob),
                "properties": properties,
            }
        )
        out += blob
    footer = msgspec.json.encode({"blobs": blobs, "properties": {"created-by": "Tussock"}})
    out += _PUFFIN + footer + len(footer).to_bytes(4, "little") + bytes(4) + _PUFFIN
    return bytes(out), places
