"""LocatorEdit: the changes of one commit to a table, and the next state of its locator."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.locator.document import LocatorDocument, write_locator
from tussock.jobs.locator.locator import (
    FILE,
    FILES,
    NOWHERE,
    PLACE,
    ROWS,
    RUN,
    RUNS,
    LocatedFile,
    Locator,
    file_keys,
    file_numbers,
    merged_rows,
    to_runs_key,
)
from tussock.jobs.locator.runs import Places, find_runs, rows_in_runs, rows_outside
from tussock.statestore.errors import DamagedError
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sorted_keys import sort_order
from tussock.statestore.hummock.sst_format import PUT
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.vnode import one_array

if TYPE_CHECKING:
    from pyroaring import BitMap64

MERGED_AT_ONCE = 8  # SSTs of about one size
MERGED_BYTES = 1 << 20  # in a publish; `compact` merges the rest
_ROWS_AT_ONCE = 2_000_000  # of a first load, before they become an SST
_ALIKE = 4  # an SST of at most this times the bytes of the newer ones is merged with them


class LostRowError(DamagedError, hides_row_values=True):
    """A published table has rows that its locator cannot find: it describes another state of the table."""

    place: str
    rows: int

    def __str__(self) -> str:
        return (
            f"the locator of {self.place} has no place for {self.rows} rows that the table must contain. Nothing was "
            "changed. The next publish writes the table again."
        )


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """Rows that a commit deletes from one file.

    Args:
        file: the file before the commit.
        positions: (n,) the rows, ascending.
        deleted: all deleted positions after the commit.
    """

    file: LocatedFile
    positions: Places
    deleted: "BitMap64"

    @property
    def is_whole(self) -> bool:
        """Return whether no row of the file remains."""
        return len(self.deleted) == self.file.rows


@dataclass(slots=True)
class LocatorEdit:
    """The next state of a locator. Not thread-safe.

    Call `remove_rows` at most once, then `add_file` for each new file, then `write`. Equal calls write equal objects.
    """

    locator: Locator
    _rows: list[tuple[pa.BinaryArray, Places, Places]] = field(default_factory=list)  # later ones win
    _pending: int = 0
    _runs: list[tuple[pa.BinaryArray, pa.Table]] = field(default_factory=list)
    _files: dict[int, LocatedFile | None] = field(default_factory=dict)
    _before: dict[int, LocatedFile] = field(default_factory=dict)  # those of `_files` that the table had
    _ssts: list[SstInfo] = field(default_factory=list)  # newest first
    _next_file: int = NOWHERE
    written: LocatorDocument | None = None  # by `write`

    def __post_init__(self) -> None:
        self._next_file = self.locator.document.next_file

    def remove_rows(self, keys: pa.Table) -> tuple[FileDeletes, ...]:
        """Delete rows by their keys.

        Args:
            keys: the key's columns in key order; distinct.

        Returns: the deletes, by file.

        Raises: LostRowError if the table does not have one of the rows.
        Cost: one batched look-up of the keys, and one of the files.
        """
        from pyroaring import BitMap64

        encoded = self.locator.encode_keys(keys)
        places = self.locator.locate_keys(encoded)
        if not places.exist.all():
            raise LostRowError(self.locator.folder, int((~places.exist).sum()))
        nowhere = np.full(len(encoded), NOWHERE, np.int64)
        self._rows.append((encoded, nowhere, nowhere))
        order = np.lexsort((places.positions, places.files))
        files, positions = places.files[order], places.positions[order]
        numbers, starts = np.unique(files, return_index=True)
        parts = np.split(positions, starts[1:])
        deletes = []
        for file, part in zip(self.locator.read_files(numbers.tolist()), parts, strict=True):
            of_file = FileDeletes(file, part, file.deleted | BitMap64(part.tolist()))
            if len(of_file.deleted) != len(file.deleted) + len(part):
                raise LostRowError(self.locator.folder, len(file.deleted) + len(part) - len(of_file.deleted))
            self._before[file.number] = file
            self._files[file.number] = None if of_file.is_whole else _with_deleted(file, of_file.deleted)
            deletes.append(of_file)
        return tuple(deletes)

    def add_file(
        self, path: str, keys: pa.Table | pa.BinaryArray, note: str = "", deleted: "BitMap64 | None" = None
    ) -> int:
        """Add a file with the rows of these keys, in the order of the file. Returns its number.

        Args:
            path: as in the table's metadata.
            keys: the key's columns in key order, or encoded keys.
            note: the sink's own text.
            deleted: positions of rows that do not count; their keys are ignored.

        Requires: no other file of the table has a live row of these keys.
        """
        from pyroaring import BitMap64

        encoded = self.locator.encode_keys(keys) if isinstance(keys, pa.Table) else keys
        number, count = self._next_file, len(encoded)
        self._next_file += 1
        dead = deleted or BitMap64()
        self._files[number] = LocatedFile(number, path, count, dead, note)
        positions = np.setdiff1d(np.arange(count), np.fromiter(dead, np.int64), assume_unique=True)
        self._add_places(encoded if not len(dead) else encoded.take(pa.array(positions)), number, positions)
        return number

    def drop_files(self, files: Iterable[LocatedFile]) -> None:
        """Remove files whose rows `add_file` has added, or adds, under other paths. Cost: a scan of the runs."""
        gone = {file.number: file for file in files}
        self._before |= gone
        self._files |= dict.fromkeys(gone)
        for entries in self.locator.scan_table(RUNS):
            hit = np.isin(entries["file"].to_numpy(), list(gone))
            if hit.any():
                keys = one_array(entries.filter(pa.array(hit)).column(0))
                none = pa.array(np.full(len(keys), NOWHERE, np.int64))
                self._runs.append((keys, pa.table([none, none, pa.array(np.zeros(len(keys), np.int64))], schema=RUN)))

    def set_note(self, file: LocatedFile, note: str) -> None:
        """Replace the sink's text about a file that remains."""
        current = self._files.get(file.number, file)
        if current is not None:
            self._before.setdefault(file.number, file)
            self._files[file.number] = LocatedFile(file.number, current.path, current.rows, current.deleted, note)

    def write(self, note: str = "", *, compact: bool = False) -> int:
        """Write the next state. Returns its number, which the table's commit must contain. Nothing is visible before.

        Args:
            note: the sink's own text about the state.
            compact: merge all SSTs of the state before.

        Cost: two PUTs. Each eighth time or so, small SSTs of earlier states are merged: a few reads and a PUT.
        """
        self._flush_rows(last=True)
        document = self.locator.document
        older = list(document.ssts)
        older = self._merge_ssts(older, is_all=True) if compact else self._merge_small(older)
        now, before = [file for file in self._files.values() if file is not None], self._before.values()
        state = msgspec.structs.replace(
            document,
            step=self._step,
            next_file=self._next_file,
            ssts=(*self._ssts, *older),
            files=document.files + len(now) - len(before),
            rows=document.rows + sum(file.rows for file in now) - sum(file.rows for file in before),
            deleted=document.deleted + sum(len(f.deleted) for f in now) - sum(len(f.deleted) for f in before),
            note=note,
        )
        self.written = state
        return write_locator(self.locator.objects, self.locator.folder, state)

    def write_and_open(self, note: str = "") -> Locator:
        """Write the next state, and return its locator. `note` and cost: as of `write`."""
        self.write(note)
        assert self.written is not None
        return Locator(self.locator.objects, self.locator.folder, self.written)

    @property
    def _step(self) -> int:
        return self.locator.document.step + 1

    def _add_places(self, keys: pa.BinaryArray, number: int, positions: Places) -> None:
        """Store rows as runs if they are in no existing run's range, the others one by one."""
        rest = np.arange(len(keys))
        if not self.locator.document.ssts:  # A first load. Later rows could be in the ranges of existing runs.
            runs = find_runs(keys, positions)
            starts = pa.array(runs.starts)
            entries = [np.full(len(starts), number), positions[runs.starts], runs.counts]
            if len(starts):
                self._runs.append((to_runs_key(keys.take(starts)), pa.table(entries, schema=RUN)))
                rest = rows_outside(runs, len(keys))
                keys = keys.take(pa.array(rest))
        self._rows.append((keys, np.full(len(rest), number, np.int64), positions[rest]))
        self._pending += len(rest)
        if self._pending >= _ROWS_AT_ONCE:
            self._flush_rows(last=False)

    def _flush_rows(self, *, last: bool) -> None:
        """Write the collected entries as SSTs."""
        batches = [_batch_of(ROWS, *_join_rows(self._rows))]
        if last:
            batches += [_batch_of(RUNS, *_join_runs(self._runs)), _batch_of(FILES, *_file_rows(self._files))]
        ssts = batch_ingest(
            self.locator.objects, [b for b in batches if b.rows.num_rows], self._step, f"{self.locator.folder}/data"
        )
        self._ssts = [*reversed(ssts), *self._ssts]
        self._rows, self._pending = [], 0

    def _merge_small(self, ssts: list[SstInfo]) -> list[SstInfo]:
        """Merge the newest SSTs if there are several of about one size."""
        count, total = 0, 0
        for sst in ssts:
            if count and (sst.size > _ALIKE * total or total + sst.size > MERGED_BYTES):
                break
            count, total = count + 1, total + sst.size
        if count < MERGED_AT_ONCE:
            return ssts
        return [*self._merge_ssts(ssts[:count], is_all=count == len(ssts)), *ssts[count:]]

    def _merge_ssts(self, ssts: Sequence[SstInfo], *, is_all: bool) -> list[SstInfo]:
        step, objects = self.locator.document.step, self.locator.objects
        entries = {table: merged_rows(objects, ssts, step, table) for table in (ROWS, RUNS, FILES)}
        if is_all:
            entries = _without_dead(entries)
        batches = [
            _batch_of(table, one_array(rows.column(0)), rows.remove_column(0))
            for table, rows in entries.items()
            if rows is not None
        ]
        return batch_ingest(objects, [b for b in batches if b.rows.num_rows], step, f"{self.locator.folder}/data")


def _without_dead(entries: Mapping[int, pa.Table | None]) -> dict[int, pa.Table | None]:
    """Return all entries of a locator, by table, without those that hide none.

    A run counts while its file is in the table. A deleted row hides only a run that contains its key.
    """
    rows, runs, files = (entries[table] for table in (ROWS, RUNS, FILES))
    if files is not None:
        files = files.filter(pa.array(files["rows"].to_numpy() != NOWHERE))
    if runs is not None:
        living = [] if files is None else file_numbers(files.column(0))
        runs = runs.filter(pa.array(np.isin(runs["file"].to_numpy(), living)))
    if rows is not None:
        needed = rows["file"].to_numpy() != NOWHERE
        if runs is not None and runs.num_rows:
            gone = np.flatnonzero(~needed)
            keys = to_runs_key(one_array(rows.column(0)).take(pa.array(gone)))
            needed[gone] = rows_in_runs(keys, one_array(runs.column(0)), runs["count"].to_numpy())
        rows = rows.filter(pa.array(needed))
    return {ROWS: rows, RUNS: runs, FILES: files}


def _with_deleted(file: LocatedFile, deleted: "BitMap64") -> LocatedFile:
    return LocatedFile(file.number, file.path, file.rows, deleted, file.note)


def _batch_of(table: int, keys: pa.BinaryArray, columns: pa.Table) -> SealedBatch:
    ops = pa.array(np.full(len(keys), PUT, np.uint8))
    return SealedBatch(
        table, pa.table([keys.cast(pa.binary()), ops, *columns.columns], names=["key", "op", *columns.column_names])
    )


def _join_rows(rows: Sequence[tuple[pa.BinaryArray, Places, Places]]) -> tuple[pa.BinaryArray, pa.Table]:
    """Combine entries in key order; of several with one key, the last stays."""
    if not rows:
        return pa.array([], pa.binary()), PLACE.empty_table()
    keys = pa.concat_arrays([part[0].cast(pa.binary()) for part in rows])
    table = pa.table(
        [np.concatenate([part[1] for part in rows]), np.concatenate([part[2] for part in rows])], schema=PLACE
    )
    return _newest_each(keys, table)


def _join_runs(runs: Sequence[tuple[pa.BinaryArray, pa.Table]]) -> tuple[pa.BinaryArray, pa.Table]:
    if not runs:
        return pa.array([], pa.binary()), RUN.empty_table()
    keys = pa.concat_arrays([part[0].cast(pa.binary()) for part in runs])
    return _newest_each(keys, pa.concat_tables([part[1] for part in runs]).combine_chunks())


def _file_rows(files: dict[int, LocatedFile | None]) -> tuple[pa.BinaryArray, pa.Table]:
    numbers = sorted(files)
    values = []
    for number in numbers:
        if (file := files[number]) is None:
            values.append({"path": "", "rows": NOWHERE, "deleted": b"", "note": ""})
        else:
            deleted = file.deleted.serialize() if file.deleted else b""
            values.append({"path": file.path, "rows": file.rows, "deleted": deleted, "note": file.note})
    return file_keys(numbers), pa.Table.from_pylist(values, FILE)


def _newest_each(keys: pa.BinaryArray, rows: pa.Table) -> tuple[pa.BinaryArray, pa.Table]:
    """Sort entries by key; of several with one key, keep the last given."""
    order = np.asarray(sort_order(keys))
    ordered = keys.take(pa.array(order))
    if len(order) > 1:
        same = np.asarray(pc.equal(ordered[1:], ordered[:-1]))
        if same.any():
            group = np.cumsum(np.append(True, ~same)) - 1
            newest = np.zeros(int(group[-1]) + 1, np.int64)
            np.maximum.at(newest, group, order)
            order = newest
            ordered = keys.take(pa.array(order))
    return ordered, rows.take(pa.array(order))
