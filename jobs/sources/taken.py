"""What a source has taken: one row per file, in a state table of the source, written in the epoch that takes it.

    path string (key) | size bigint | etag string | epoch bigint | number bigint

`etag` is what jobs.sources.pins records. `number` is dense from 0 in the order of taking; it is the high part of the file's `_row_id`s.
The table is a singleton: the driver alone reads and writes it.
"""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.sources.errors import ChangedFileError
from jobs.sources.listing import ListedFile
from jobs.sources.pins import PinnedFile, is_as_recorded, recorded_etag
from statestore.hummock.key import encode_keys
from statestore.hummock.sealed_batch import SealedBatch
from statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from statestore.table.storage_table import StorageTable
from statestore.types import arrow_type

_COLUMNS = (("path", "string"), ("size", "bigint"), ("etag", "string"), ("epoch", "bigint"), ("number", "bigint"))


def taken_schema(source: str) -> TableSchema:
    """The state table of what `source` has taken; its id is 0 until the catalog numbers it."""
    return TableSchema(0, f"{source}.taken", tuple(ColumnSpec(n, t) for n, t in _COLUMNS), (KeyColumn(0),), ())


def pin_files(
    listed: Sequence[ListedFile],
    taken: StorageTable | None,
    max_epoch_bytes: int | None = None,
    accept_changed: Collection[str] = (),
    *,
    content: bool = True,
) -> tuple[PinnedFile, ...]:
    """The files the next epoch takes: those not taken yet, in path order, at most `max_epoch_bytes` of them but at least one.

    A new file of 0 bytes holds no rows, and Spark passes over it. It is not pinned either: many a writer makes a file and fills it
    later, and once it is filled, it is taken.

    Args:
        listed: what is there, in path order without repeats.
        taken: the source's table at the version the barrier builds on; None when it has taken nothing yet.
        max_epoch_bytes: bytes on storage; None: no bound.
        accept_changed: paths that may differ from what was recorded: they are pinned again as they are now, under their old number, for
            the caller to record without reading.
        content: whether the new ones' content is to be part of what is recorded; without it the answer is good for looking alone.

    Raises: ChangedFileError when another file already taken has other bytes now.

    Cost: one batched read of the listed paths in `taken`; where some are new, a scan of one narrow column to number them; `recorded_etag`'s
    of the new ones.
    """
    there = pa.table(
        {
            "path": pa.array([f.path for f in listed], pa.string()),
            "size_now": pa.array([f.size for f in listed], pa.int64()),
            "etag_now": pa.array([f.etag for f in listed], pa.string()),
        }
    )
    known, before = _recorded(taken, there["path"])
    both = pa.table([*there.filter(known).columns, *before.columns[1:]], names=[*there.column_names, *before.column_names[1:]])
    changed = _changed(both)
    accepted = pc.is_in(changed["path"], pa.array(list(accept_changed), pa.string()))
    _refuse(changed.filter(pc.invert(accepted)))
    new = there.filter(pc.and_(pc.invert(known), pc.greater(there["size_now"], 0))).sort_by("path")
    first = sum(part.num_rows for part in taken.scan(columns=(_NUMBER,))) if taken is not None and new.num_rows else 0
    rows = new.slice(0, _fitting(new["size_now"], max_epoch_bytes)).to_pylist()
    for number, row in enumerate(rows, start=first):
        row["number"] = number
    return _pinned([*rows, *changed.filter(accepted).to_pylist()], content)


def _fitting(sizes: pa.ChunkedArray, max_bytes: int | None) -> int:
    """How many of the first files an epoch takes."""
    if max_bytes is None:
        return len(sizes)
    return max(1, int(np.searchsorted(np.cumsum(sizes.to_numpy()), max_bytes, side="right")))


def _pinned(rows: Sequence[dict[str, Any]], content: bool) -> tuple[PinnedFile, ...]:
    """Files as they are now; the content of several is read at once."""

    def pin(row: dict[str, Any]) -> PinnedFile:
        etag = recorded_etag(row["path"], row["size_now"], row["etag_now"]) if content else row["etag_now"]
        return PinnedFile(path=row["path"], size=row["size_now"], etag=etag, number=row["number"])

    with ThreadPoolExecutor(8) as pool:
        return tuple(pool.map(pin, rows))


def taken_files(taken: StorageTable) -> tuple[PinnedFile, ...]:
    """All files taken so far, as they were recorded, in the order of taking."""
    rows = [r for part in taken.scan() for r in part.to_pylist()]
    files = (PinnedFile(path=r["path"], size=r["size"], etag=r["etag"], number=r["number"]) for r in rows)
    return tuple(sorted(files, key=lambda f: f.number))


def taken_rows(schema: TableSchema, pinned: Sequence[PinnedFile], epoch: int) -> SealedBatch:
    """The rows that record `pinned` as taken in `epoch`, ready for ingest. `schema` carries the table's id."""
    files = sorted(pinned, key=lambda f: f.path.encode())
    values = {
        "path": [f.path for f in files],
        "size": [f.size for f in files],
        "etag": [f.etag for f in files],
        "epoch": [epoch] * len(files),
        "number": [f.number for f in files],
    }
    columns = {name: pa.array(values[name], arrow_type(kind)) for name, kind in _COLUMNS}
    keys = encode_keys(schema.table_id, np.zeros(len(files), np.uint16), [columns["path"]], schema.key)
    return SealedBatch(schema.table_id, pa.table({"key": keys, "op": pa.array(np.ones(len(files), np.uint8)), **columns}))


_ROWS = pa.schema([(name, arrow_type(kind)) for name, kind in _COLUMNS])
_NUMBER = len(_COLUMNS) - 1


def _recorded(taken: StorageTable | None, paths: pa.ChunkedArray) -> tuple[pa.Array, pa.Table]:
    """(which of the paths have been taken, what was recorded of those, in order)."""
    if taken is None or not len(paths):
        return pa.array(np.zeros(len(paths), np.bool_)), _ROWS.empty_table()
    found = taken.get_rows(pa.table({"path": paths}))
    return found.found, found.rows.filter(found.found)


def _changed(both: pa.Table) -> pa.Table:
    """The files that have other bytes than were recorded."""
    etag = pc.replace_substring_regex(both["etag"], pattern="#.*", replacement="")
    other = both.filter(pc.invert(pc.and_(pc.equal(both["size"], both["size_now"]), pc.equal(etag, both["etag_now"]))))
    same = [is_as_recorded(r["path"], r["size_now"], r["etag_now"], r["size"], r["etag"]) for r in other.to_pylist()]
    return other.filter(pc.invert(pa.array(same, pa.bool_()))).sort_by("path")


def _refuse(changed: pa.Table) -> None:
    if changed.num_rows:
        row = changed.slice(0, 1).to_pylist()[0]
        recorded, found = f"{row['size']} bytes, ETag {row['etag']}", f"{row['size_now']} bytes, ETag {row['etag_now']}"
        raise ChangedFileError(row["path"], recorded, found, taken=True)
