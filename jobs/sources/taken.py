"""The taken files of a source: one row per file in a state table of the source, written in the epoch that reads it.

    path string (key) | size bigint | etag string | epoch bigint | number bigint | kept string |
    unread boolean | accepted string | modified bigint | ingested bigint | cost bigint | portions string |
    by_spark string | ids string

pins.py defines `etag`. `number` is the high part of the file's `_row_id`s: from 0 in the order of reading, a new one if
a file is read again. It also decides how a file is read (CreateSource.as_of), so a new file gets no number below
`CreateSource.first_number`, even if the files that had these numbers are deleted from the table. `kept`, `unread`,
`accepted`, `modified`, `ingested` and `ids` are defined by PinnedFile (`unread`: its rows do not count).
The table is a singleton: only the driver reads and writes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.sources.file_facts import modified_ms
from tussock.jobs.sources.file_portions import is_further, is_unfinished, portions_of, with_moment
from tussock.jobs.sources.listing import ListedFile
from tussock.jobs.sources.pins import PinnedFile, Portions, is_accepted, is_as_recorded, recorded_etag
from tussock.jobs.sources.taken_rows import make_taken_schema
from tussock.statestore.decoding import decoder_of
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sst_format import DELETE, PUT
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array

_FIRST = (("path", "string"), ("size", "bigint"), ("etag", "string"), ("epoch", "bigint"), ("number", "bigint"))
_COLUMNS = (
    *_FIRST,
    ("kept", "string"),
    ("unread", "boolean"),
    ("accepted", "string"),
    ("modified", "bigint"),
    ("ingested", "bigint"),
    ("cost", "bigint"),
    ("portions", "string"),
    ("by_spark", "string"),
    ("ids", "string"),
)
_SIZE, _NUMBER, _BY_SPARK = 1, len(_FIRST) - 1, len(_COLUMNS) - 2

_THREADS = 8  # that hash local files
_FILES_PER_TASK = 64


def taken_schema(source: str) -> TableSchema:
    """Return the schema of the state table of `source`. Its id is 0 until the catalog assigns one."""
    return make_taken_schema(source, _COLUMNS)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A taken file whose content has changed. `now` has the number of `was`, and an ETag without a hash."""

    was: PinnedFile
    now: PinnedFile


@dataclass(frozen=True, slots=True)
class ComparedFiles:
    """The listed files compared with the taken ones.

    Args:
        new: not taken yet, in path order, numbered after the taken files; ETags without a hash.
        changed: taken and changed since, in path order.
        next_number: the first free number if some files are new, changed or unfinished.
        unfinished: as recorded, with more portions to take.
    """

    new: tuple[PinnedFile, ...]
    changed: tuple[ChangedFile, ...]
    next_number: int
    unfinished: tuple[PinnedFile, ...] = ()


def compare_listing(listed: Sequence[ListedFile], taken: StorageTable | None, first_number: int) -> ComparedFiles:
    """Find the new files, and files that changed since they were taken.

    A new file of 0 bytes contains no rows, and is not new here: many writers create a file and fill it later. It is
    read once it has content.

    Args:
        listed: the existing files, without duplicates.
        taken: the source's table at the version that the barrier builds on; None if the source has taken nothing yet.
        first_number: `CreateSource.first_number`.

    Cost: one batched read of the listed paths in `taken`. If some are new or changed, also a scan of one narrow column
        to number them. For files with a different ETag, that of `is_as_recorded`.
    """
    there = pa.table(
        {
            "path": pa.array([f.path for f in listed], pa.string()),
            "size_now": pa.array([f.size for f in listed], pa.int64()),
            "etag_now": pa.array([f.etag for f in listed], pa.string()),
            "modified_now": pa.array([f.modified_ms for f in listed], pa.int64()),
        }
    )
    unfinished: tuple[PinnedFile, ...] = ()
    if taken is None or not listed:
        known, other = pa.array(np.zeros(len(listed), np.bool_)), there.slice(0, 0)
    else:
        recorded_rows = taken.get_rows(there.select(["path"]))
        known, recorded = recorded_rows.found, recorded_rows.rows.filter(recorded_rows.found)
        other, unfinished = _unlike_files(there.filter(known), recorded), _unfinished_files(recorded)
    new = there.filter(pc.and_(pc.invert(known), pc.greater(there["size_now"], 0))).sort_by("path").to_pylist()
    changed = tuple(_changed_files(other))
    first = next_number(taken, first_number) if new or changed or unfinished else first_number
    numbered = tuple(_listed_now(r, number) for number, r in enumerate(new, start=first))
    return ComparedFiles(numbered, changed, first + len(numbered), unfinished)


def _unfinished_files(recorded: pa.Table) -> tuple[PinnedFile, ...]:
    """Return the files that later epochs take more portions of, by path."""
    if "portions" not in recorded.column_names:
        return ()
    divided = _files_of_rows(recorded.filter(pc.not_equal(recorded["portions"], "")).sort_by("path"))
    return tuple(f for f in divided if is_unfinished(f))


def _unlike_files(there: pa.Table, recorded: pa.Table) -> pa.Table:
    """Return the files whose size or ETag is neither the recorded nor an accepted one, with their records, by path."""
    both = pa.table([*there.columns, *recorded.columns[1:]], names=[*there.column_names, *recorded.column_names[1:]])
    etag = pc.replace_substring_regex(both["etag"], pattern="#.*", replacement="")
    same = pc.and_(pc.equal(both["size"], both["size_now"]), pc.equal(etag, both["etag_now"]))
    return both.filter(pc.invert(same)).sort_by("path")


def _changed_files(other: pa.Table) -> Iterator[ChangedFile]:
    """Yield the ones of the `_unlike_files` files whose bytes differ from the recorded ones."""
    for was, row in zip(_files_of_rows(other), other.to_pylist(), strict=True):
        size, etag = row["size_now"], row["etag_now"]
        if not is_accepted(was, size, etag) and not is_as_recorded(was.path, size, etag, was.size, was.etag):
            yield ChangedFile(was, _listed_now(row, was.number))


def _listed_now(row: Mapping[str, Any], number: int) -> PinnedFile:
    return pinned_now(ListedFile(row["path"], row["size_now"], row["etag_now"], row["modified_now"]), number)


def pinned_now(listed: ListedFile, number: int) -> PinnedFile:
    """Return the pin of a listed file. The ETag of a local file contains its time, so it is not recorded twice."""
    modified = 0 if listed.path.startswith("/") else listed.modified_ms
    return PinnedFile(listed.path, listed.size, listed.etag, number, modified=modified)


def with_content(files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
    """Return files with their recorded ETags. Local files are hashed in parallel. Cost: as `recorded_etag`."""
    if len(files) < 2:  # a thread would cost more than the hash of a small file
        return tuple(_recorded_files(files))
    # A task per file would cost more than a small file. Few files are one per task, because each may be large.
    each = max(1, min(_FILES_PER_TASK, len(files) // (8 * _THREADS)))
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = pool.map(_recorded_files, [files[start : start + each] for start in range(0, len(files), each)])
        return tuple(file for part in parts for file in part)


def _recorded_files(files: Sequence[PinnedFile]) -> list[PinnedFile]:
    return [
        f  # a further portion: its file is recorded
        if is_further(f)
        else msgspec.structs.replace(f, etag=recorded_etag(f.path, f.size, f.etag))
        for f in files
    ]


def next_number(taken: StorageTable | None, first_number: int) -> int:
    """Return the number of the next file: above all recorded ones, and at least `CreateSource.first_number`.

    Cost: a scan of one narrow column.
    """
    if taken is None:
        return first_number
    numbers = [number for part in taken.scan(columns=(_NUMBER,)) for number in part.column(0).chunks if len(number)]
    return max(first_number, pc.max(pa.chunked_array(numbers)).as_py() + 1) if numbers else first_number


def recorded_files(taken: StorageTable | None, paths: Sequence[str]) -> dict[str, PinnedFile]:
    """Return the taken ones among the paths, as recorded. Cost: one batched read."""
    if taken is None or not paths:
        return {}
    recorded_rows = taken.get_rows(pa.table({"path": pa.array(paths, pa.string())}))
    return {f.path: f for f in _files_of_rows(recorded_rows.rows.filter(recorded_rows.found))}


def taken_files(taken: StorageTable) -> tuple[PinnedFile, ...]:
    """Return all taken files, as recorded, in the order of reading; a divided file as its portions."""
    portions = (portion for part in taken.scan() for f in _files_of_rows(part) for portion in portions_of(f))
    return tuple(sorted(portions, key=lambda f: f.number))


def taken_total(taken: StorageTable) -> tuple[int, int]:
    """Return the number of taken files and their bytes. Cost: a scan of one narrow column."""
    parts = [part.column(0) for part in taken.scan(columns=(_SIZE,))]
    return sum(map(len, parts)), sum(pc.sum(part).as_py() or 0 for part in parts)


def taken_by_spark(taken: StorageTable) -> tuple[int, str]:
    """Return the number of taken files that Spark reads, and the last of them with the reason.

    Cost: a scan of two narrow columns.
    """
    parts = taken.scan(columns=(_NUMBER, _BY_SPARK))
    left = [part.filter(pc.not_equal(part["by_spark"], "")) for part in parts]
    count = sum(map(len, left))
    if not count:
        return 0, ""
    last = max((row["number"], row["by_spark"]) for part in left for row in part.to_pylist())
    return count, last[1]


def as_recorded(schema: TableSchema, files: Sequence[PinnedFile], epoch: int) -> list[PinnedFile]:
    """Return the files with the facts that the table records, or has recorded, about them.

    So the epoch that takes a file gives its rows the values that a later read derives from the table.

    Args:
        epoch: of the barrier that pins the files.
    """
    known = {c.name for c in schema.columns}
    now = time_of_epoch(epoch)
    return [
        msgspec.structs.replace(
            f,
            # The clock of the file's host may be ahead.
            ingested=f.ingested or (max(now, (modified_ms(f) or 0) * 1000) if "ingested" in known else now),
            modified=f.modified if f.ingested or "modified" in known else 0,
        )
        for f in files
    ]


def time_of_epoch(epoch: int) -> int:
    """Return the time in an epoch's number, Unix microseconds."""
    return (epoch >> 16) * 1000


def _epoch_at(time: int, epoch: int) -> int:
    """Return an epoch's number with this time, Unix microseconds: `epoch` itself if it has it."""
    return epoch if time_of_epoch(epoch) == time else time // 1000 << 16


def taken_rows(schema: TableSchema, pinned: Sequence[PinnedFile], epoch: int) -> SealedBatch:
    """Return the rows that record pins in `epoch`, ready for ingest. `schema` has the table's id.

    A file whose rows are taken back (weight -1) is recorded as unread if it still exists, and deleted from the table
    otherwise. If its path is read again in the same epoch, that read is recorded.
    """
    last = {f.path: f for f in sorted(pinned, key=lambda f: f.weight)}
    files = as_recorded(schema, [last[path] for path in sorted(last, key=str.encode)], epoch)
    known = {c.name for c in schema.columns}
    has_all = "accepted" in known
    values = {
        "path": [f.path for f in files],
        "size": [f.size if has_all or not f.accepted else int(f.accepted.partition(" ")[0]) for f in files],
        "etag": [f.etag if has_all or not f.accepted else f.accepted.partition(" ")[2] for f in files],
        "epoch": [epoch if "ingested" in known else _epoch_at(f.ingested, epoch) for f in files],
        "number": [f.number if f.portions is None else f.portions.taken[-1].number for f in files],
        "kept": ["" if f.withdrawn else f.kept for f in files],
        "unread": [not f.rows or f.weight < 0 for f in files],
        "accepted": [f.accepted for f in files],
        "modified": [f.modified for f in files],
        "ingested": [f.ingested for f in files],
        "cost": [f.cost for f in files],
        "portions": ["" if f.portions is None else _portions_text(f) for f in files],
        "by_spark": [f.by_spark for f in files],
        "ids": [f.ids for f in files],
    }
    columns = {c.name: pa.array(values[c.name], arrow_type(c.type)) for c in schema.columns}
    keys = encode_keys(schema.table_id, np.zeros(len(files), np.uint16), [columns["path"]], schema.key)
    ops = [DELETE if f.weight < 0 and not f.accepted else PUT for f in files]
    return SealedBatch(schema.table_id, pa.table({"key": keys, "op": pa.array(ops, pa.uint8()), **columns}))


def renamed_rows(
    schema: TableSchema, taken: StorageTable, moves: Sequence[tuple[str, str]], more: SealedBatch | None
) -> SealedBatch:
    """Return the rows that rename the taken files in folders that moved, ready for ingest.

    Args:
        moves: (earlier folder, new folder), the first move first.
        more: other rows of the epoch for the table, which have precedence.

    Cost: a scan of the table. Files elsewhere are not written.
    """
    empty = pa.schema([(c.name, arrow_type(c.type)) for c in schema.columns]).empty_table()
    there = pa.concat_tables([empty, *taken.scan()])
    path = there["path"]
    for was, base in moves:
        inside = pc.utf8_slice_codeunits(path, len(was) + 1)
        moved = pc.binary_join_element_wise(pa.scalar(f"{base}/"), inside, "")
        path = pc.if_else(pc.starts_with(path, f"{was}/"), moved, path)
    is_moved = pc.not_equal(path, there["path"])
    there, path = there.filter(is_moved), path.filter(is_moved)
    goes = there.select(["path"])
    for column in schema.columns[1:]:
        goes = goes.append_column(column.name, pa.nulls(len(there), arrow_type(column.type)))
    comes = there.set_column(there.column_names.index("path"), "path", path)
    goes, comes = (_sealed_rows(rows, op, schema) for rows, op in ((goes, DELETE), (comes, PUT)))
    parts = [] if more is None else [more.rows]
    for rows in (comes, goes):  # a path may occur in both, if one folder contains the other
        known = pa.chunked_array([key for part in parts for key in part["key"].chunks], pa.binary())
        parts.append(rows.filter(pc.invert(pc.is_in(rows["key"], known))))
    return SealedBatch(schema.table_id, pa.concat_tables(parts).sort_by("key").combine_chunks())


def _sealed_rows(rows: pa.Table, op: int, schema: TableSchema) -> pa.Table:
    vnodes, paths = np.zeros(len(rows), np.uint16), one_array(rows["path"])
    keys = encode_keys(schema.table_id, vnodes, [paths], schema.key)
    ops = pa.array(np.full(len(rows), op, np.uint8))
    return pa.table({"key": keys, "op": ops, **{c: rows[c] for c in rows.column_names}})


_portions = decoder_of(Portions)


def _portions_text(file: PinnedFile) -> str:
    return msgspec.json.encode(with_moment(file).portions).decode()


def _files_of_rows(rows: pa.Table) -> list[PinnedFile]:
    return [
        PinnedFile(
            r["path"],
            r["size"],
            r["etag"],
            r["number"],
            r.get("kept", ""),
            rows=not r.get("unread"),
            accepted=r.get("accepted", ""),
            cost=r.get("cost", 0),
            portions=_portions.decode(text) if (text := r.get("portions")) else None,
            modified=r.get("modified", 0),
            by_spark=r.get("by_spark", ""),
            ids=r.get("ids", ""),
            ingested=r.get("ingested") or time_of_epoch(r["epoch"]),
        )
        for r in rows.to_pylist()
    ]
