"""Locator: the file and the position of each row of a published table, by the row's key in the store.

A table in a lake can only mark a row as deleted by its file and position. Other engines read the table to find them. A
locator finds them by key, at the cost of the change. It is a small LSM tree of three tables, in SSTs of the state
store:

    1 rows   key -> file, position       rows stored one by one; file -1: the row was deleted
    2 runs   first key -> file, position, count      rows with consecutive keys at consecutive positions (runs.py)
    3 files  number -> path, rows, deleted positions, note of the sink; rows -1: not in the table any more

A row of table 1 hides a run that contains its key. Runs never overlap. A first load in key order of a table with
consecutive integer keys is one run per file, and every other row costs its key and about two bytes.

Keys are the ones of the relation's state table, so that each row has exactly one: a row without a key, or one of
several equal rows, has a hidden number in the store.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.locator.document import KeyPart, LocatorDocument, key_columns
from tussock.jobs.locator.runs import Mask, Places, expand_run, steps_between
from tussock.statestore.hummock.key import encode_keys, table_range, vnode_range
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.meta.version import SstInfo, VersionPart, VnodeMapping
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.table.schema import TableLayout
from tussock.statestore.vnode import one_array

if TYPE_CHECKING:
    from pyroaring import BitMap64

ROWS, RUNS, FILES = 1, 2, 3  # table ids
NOWHERE = -1

PLACE = pa.schema([("file", pa.int64()), ("position", pa.int64())])
RUN = pa.schema([("file", pa.int64()), ("position", pa.int64()), ("count", pa.int64())])
FILE = pa.schema([("path", pa.string()), ("rows", pa.int64()), ("deleted", pa.binary()), ("note", pa.string())])
_SCHEMAS = {ROWS: PLACE, RUNS: RUN, FILES: FILE}


@dataclass(frozen=True, slots=True)
class LocatedFile:
    """A file of the table.

    Args:
        rows: all rows in it, also deleted ones.
        deleted: the positions of the deleted ones.
        note: the sink's own text about the file.
    """

    number: int
    path: str
    rows: int
    deleted: "BitMap64"
    note: str

    @property
    def live_rows(self) -> int:
        return self.rows - len(self.deleted)


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """The file number and the position of each requested key; both NOWHERE if the table has no such row."""

    files: Places
    positions: Places

    @property
    def exist(self) -> Mask:
        """(n,) whether the table has the row."""
        exist: Mask = self.files != NOWHERE
        return exist


class Locator:
    """One state of a table's locator. Read-only; `LocatorEdit` makes the next one."""

    def __init__(self, objects: ObjectStore, folder: str, document: LocatorDocument) -> None:
        """`folder`: see document.folder_of."""
        self.objects, self.folder, self.document = objects, folder, document
        self._store = _store_of(objects, document.ssts, document.step)

    @staticmethod
    def empty(objects: ObjectStore, folder: str, key: tuple[KeyPart, ...]) -> "Locator":
        """Return the locator of a table without files."""
        return Locator(objects, folder, LocatorDocument(key, 0, 0, ()))

    def encode_keys(self, keys: pa.Table) -> pa.BinaryArray:
        """Encode keys: a table of the key's columns in key order. Raises WrongColumnsError."""
        return encoded_keys(self.document.key, keys)

    def locate_keys(self, keys: pa.BinaryArray) -> RowPlaces:
        """Find the rows of encoded keys. Cost: one batched look-up, and one for keys that may be in runs."""
        files, positions = np.full(len(keys), NOWHERE, np.int64), np.full(len(keys), NOWHERE, np.int64)
        if not len(keys):
            return RowPlaces(files, positions)
        exists, rows = self._store.multi_get(ROWS, keys, self.document.step, schema=PLACE)
        at = np.flatnonzero(np.asarray(exists))
        chosen = rows.take(pa.array(at))
        files[at], positions[at] = chosen["file"].to_numpy(), chosen["position"].to_numpy()
        rest = np.flatnonzero(~np.asarray(exists))
        if len(rest) and self._store.may_have_rows(RUNS, self.document.step):
            files[rest], positions[rest] = self._locate_in_runs(keys.take(pa.array(rest)))
        return RowPlaces(files, positions)

    def _locate_in_runs(self, keys: pa.BinaryArray) -> tuple[Places, Places]:
        """Find rows in the run with the greatest first key that is not above the row's key."""
        files, positions = np.full(len(keys), NOWHERE, np.int64), np.full(len(keys), NOWHERE, np.int64)
        keys = _of_table(keys, RUNS)
        low = pa.array([vnode_range(RUNS, 0)[0]] * len(keys), pa.binary())
        ends = successors(keys)
        index, firsts, runs = self._store.scan_between(RUNS, low, ends, self.document.step, 1, True, schema=RUN)
        at = np.asarray(index)
        steps = steps_between(firsts.cast(pa.binary()), keys.take(pa.array(at)))
        inside = (steps >= 0) & (steps < runs["count"].to_numpy())
        files[at[inside]] = runs["file"].to_numpy()[inside]
        positions[at[inside]] = runs["position"].to_numpy()[inside] + steps[inside]
        return files, positions

    def read_files(self, numbers: Sequence[int] | None = None) -> list[LocatedFile]:
        """Return files of the table by number, in order of number; None: all. Cost: one batched look-up, or a scan."""
        if numbers is None:
            parts = list(self._store.iter_rows(FILES, *table_range(FILES), self.document.step))
            if not parts:
                return []
            rows = pa.concat_tables(parts)
            return _to_files(file_numbers(rows.column(0)), rows.remove_column(0))
        keys = sorted(set(numbers))
        if not keys:
            return []
        exists, rows = self._store.multi_get(FILES, file_keys(keys), self.document.step, schema=FILE)
        missing = [key for key, there in zip(keys, exists.to_pylist(), strict=True) if not there]
        if missing:
            raise LookupError(f"the locator has no file {missing[0]}, but rows in it")
        return _to_files(keys, rows)

    def keys_of_files(self, files: Sequence[LocatedFile]) -> dict[int, pa.BinaryArray]:
        """Return the encoded keys of the live rows of files, in the order of their positions, by file number.

        Cost: a scan of the locator, whose entries are read part by part.
        """
        parts: dict[int, list[tuple[pa.BinaryArray, Places]]] = {file.number: [] for file in files}
        for entries in self.scan_table(ROWS):
            numbers = entries["file"].to_numpy()
            for number in np.intersect1d(numbers, list(parts)).tolist():
                chosen = entries.filter(pa.array(numbers == number))
                parts[number].append((one_array(chosen.column(0)), chosen["position"].to_numpy()))
        for entries in self.scan_table(RUNS):
            for key, number, start, count in zip(*(column.to_pylist() for column in entries.columns), strict=True):
                if number in parts:
                    keys = expand_run(table_range(ROWS)[0] + key[4:], count)
                    parts[number].append((keys, np.arange(start, start + count)))
        return {file.number: _live_keys(file, parts[file.number]) for file in files}

    def scan_table(self, table: int) -> Iterator[pa.Table]:
        """Read all entries of ROWS, RUNS or FILES: the encoded key, then the columns above."""
        yield from self._store.iter_rows(table, *table_range(table), self.document.step)


def _live_keys(file: LocatedFile, parts: Sequence[tuple[pa.BinaryArray, Places]]) -> pa.BinaryArray:
    """Return the keys of a file's rows that are not deleted, in the order of their positions."""
    if not parts:
        return pa.array([], pa.binary())
    keys, positions = pa.concat_arrays([key for key, _ in parts]), np.concatenate([at for _, at in parts])
    order = np.argsort(positions, kind="stable")
    dead = np.fromiter(file.deleted, np.int64)
    return keys.take(pa.array(order[~np.isin(positions[order], dead)]))


def encoded_keys(parts: tuple[KeyPart, ...], keys: pa.Table) -> pa.BinaryArray:
    """Encode keys: a table of the key's columns in key order. Raises WrongColumnsError."""
    columns = tuple(ColumnSpec(f"k{place}", part.type) for place, part in enumerate(parts))
    if not columns:  # the only row of a view without GROUP BY
        return encode_keys(ROWS, np.zeros(keys.num_rows, np.uint16), [], [])
    return TableLayout(TableSchema(ROWS, "locator", columns, key_columns(parts), ()), 1).keys_of(keys)


def file_keys(numbers: Sequence[int]) -> pa.BinaryArray:
    """Encode numbers of files as keys of FILES."""
    return encode_keys(FILES, np.zeros(len(numbers), np.uint16), [pa.array(numbers, pa.int64())], [KeyColumn(0)])


def file_numbers(keys: pa.ChunkedArray) -> list[int]:
    """Return the numbers of files from keys of FILES."""
    return [int.from_bytes(key[-8:], "big") - (1 << 63) for key in keys.to_pylist()]


def merged_rows(objects: ObjectStore, ssts: Sequence[SstInfo], step: int, table: int) -> pa.Table | None:
    """Return the newest entry of each key of a table in some SSTs, newest SST first; None if there is none."""
    parts = list(_store_of(objects, ssts, step).iter_rows(table, *table_range(table), step))
    return pa.concat_tables(parts) if parts else None


def to_runs_key(keys: pa.BinaryArray) -> pa.BinaryArray:
    """Return encoded keys of rows as keys of RUNS."""
    return _of_table(keys, RUNS)


def _of_table(keys: pa.BinaryArray, table: int) -> pa.BinaryArray:
    """Return encoded keys with another table id."""
    head = table_range(table)[0]
    return pc.binary_replace_slice(keys, 0, len(head), head)


def _store_of(objects: ObjectStore, ssts: Sequence[SstInfo], step: int) -> HummockStore:
    version = VersionPart(
        id=step,
        epoch=step,
        published=step,
        min_readable_epoch=step,
        log_end=0,
        levels=(tuple(ssts),),
        catalog=Catalog(),
        mapping=VnodeMapping(0, (0,)),
        tables=tuple(_SCHEMAS),
    )
    return HummockStore(objects, version)


def _to_files(numbers: Iterable[int], rows: pa.Table) -> list[LocatedFile]:
    from pyroaring import BitMap64

    return [
        LocatedFile(number, path, count, BitMap64.deserialize(deleted) if deleted else BitMap64(), note)
        for number, path, count, deleted, note in zip(
            numbers, *(one_array(rows[name]).to_pylist() for name in FILE.names), strict=True
        )
        if count != NOWHERE
    ]
