"""The interface of every engine in the benchmark, and the encoding of keys and rows for peers."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.key import encode_keys, encode_prefixes
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.vnode import one_array, vnodes_of

TABLE, VNODES = 1, 256
CACHE_BYTES = 1 << 30  # of each engine's block cache
FILTER_BITS = 11  # per key, in each engine's filters
SST_BYTES = 64 << 20
THREADS = 2  # background threads of each engine
SCAN_ROWS = 65_536  # per batch of a full scan
_KEY = (KeyColumn(0), KeyColumn(1))
ROW = pa.schema([("n", pa.int64()), ("total", pa.float64())])
_VALUE = np.dtype([("n", "<i8"), ("total", "<f8")])


class Engine(Protocol):
    """One engine on one folder. Keys are columns g, i and values n, total; both are returned as Arrow."""

    name: str

    def open(self) -> None:
        """Open the folder's store, or create it."""
        ...

    def ingest(self, rows: pa.Table) -> None:
        """Write rows (g, i, n, total; in any order, each key once).

        They are on disk in sorted form when this returns.
        """
        ...

    def multi_get(self, keys: pa.Table) -> tuple[pa.BooleanArray, pa.Table]:
        """(found, rows), aligned with `keys` (g, i); rows (n, total) are null for absent keys."""
        ...

    def scan_prefixes(self, groups: pa.Array) -> tuple[pa.Int64Array, pa.Table]:
        """(index, rows): the rows (key, n, total) of each group in key order, and the group's index in `groups`."""
        ...

    def scan(self) -> Iterator[pa.Table]:
        """All rows (key, n, total) in key order."""
        ...

    def compact(self) -> None:
        """Merge everything into one sorted run without old versions, and wait for the end."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


def storage_keys(rows: pa.Table) -> pa.Array:
    """The storage keys of rows (g, i, …), the same for all engines."""
    g, i = one_array(rows.column(0)), one_array(rows.column(1))
    return encode_keys(TABLE, np.asarray(vnodes_of([g], VNODES)), [g, i], _KEY)


def storage_prefixes(groups: pa.Array) -> pa.Array:
    """The common prefix of the storage keys of each group."""
    return encode_prefixes(TABLE, np.asarray(vnodes_of([groups], VNODES)), [groups], _KEY)


def as_matrix(keys: pa.Array) -> npt.NDArray[np.void]:
    """Keys of one length as numpy bytes. Requires: no offset into the array's buffers."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1)
    return np.frombuffer(keys.buffers()[2], f"V{offsets[1] - offsets[0]}", len(keys))


def encoded_values(rows: pa.Table) -> list[bytes]:
    """Each row's n and total as 16 bytes, which peers store as the value."""
    values = np.empty(rows.num_rows, _VALUE)
    values["n"], values["total"] = one_array(rows["n"]).to_numpy(), one_array(rows["total"]).to_numpy()
    encoded: list[bytes] = values.view("V16").tolist()
    return encoded


def decoded_values(values: Iterable[bytes]) -> pa.Table:
    """Decode values to columns."""
    decoded = np.frombuffer(b"".join(values), _VALUE)
    return pa.table([np.ascontiguousarray(decoded["n"]), np.ascontiguousarray(decoded["total"])], schema=ROW)


def aligned_values(values: list[bytes | None]) -> tuple[pa.BooleanArray, pa.Table]:
    """A peer's answers (None for absent keys) as (found, rows)."""
    if None not in values:
        return pa.array(np.ones(len(values), np.bool_)), decoded_values(values)  # type: ignore[arg-type]
    found = np.array([value is not None for value in values])
    rows = decoded_values(value for value in values if value is not None)
    return pa.array(found), rows.take(pa.array(np.cumsum(found) - 1, mask=~found))


def keys_and_values(pairs: list[tuple[bytes, bytes]]) -> pa.Table:
    """A peer's pairs as rows (key, n, total). Requires: keys of one length, at least one pair."""
    keys, values = zip(*pairs, strict=True)
    width = len(keys[0])
    joined = pa.Array.from_buffers(pa.binary(width), len(keys), [None, pa.py_buffer(b"".join(keys))])
    return decoded_values(values).add_column(0, "key", joined)


def stored_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
