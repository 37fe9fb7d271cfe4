"""How much of a table's first snapshot an epoch reads, for tables in a lake.

The first epochs of a source take the files of one snapshot in the order of their paths, within the bytes of an epoch
(file_portions.py). A file that costs more is divided by rows. A SnapshotCut is the end of the taken rows. The snapshot
stays the same until its end is taken, then later epochs take the changes since.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from tussock.jobs.sources.base import PinRequest
from tussock.jobs.sources.errors import FileTooLargeError
from tussock.jobs.sources.file_portions import LEAST_PORTION_BYTES, FileRecords, fitting_files
from tussock.jobs.sources.kept import map_in_threads
from tussock.jobs.sources.pins import PinnedFile
from tussock.statestore.errors import TussockError


class SnapshotCut(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A place in a snapshot: after `files` whole files, and `rows` rows of the next one.

    Args:
        records, nbytes: of that next file, so that no later epoch measures it again.
    """

    files: int = 0
    rows: int = 0
    records: int = 0
    nbytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.files or self.rows)


_Piece = TypeVar("_Piece", bound=msgspec.Struct)  # a file of a snapshot, with the rows to read as `rows`


class PartTaken(msgspec.Struct, frozen=True, kw_only=True):
    """What an epoch took of a table, with the SnapshotCut at its end if later epochs take more of the snapshot."""

    files: int = 0
    rows: int = 0
    records: int = 0
    nbytes: int = 0

    @property
    def end(self) -> SnapshotCut | None:
        """The end of the rows taken so far; None for a whole snapshot."""
        return SnapshotCut(self.files, self.rows, self.records, self.nbytes) or None


def cut_fields(end: SnapshotCut | None) -> dict[str, int]:
    """Return the fields of a PartTaken."""
    return msgspec.structs.asdict(end or SnapshotCut())


class SnapshotPortion(msgspec.Struct, frozen=True):
    """The files and rows that an epoch takes of a snapshot. `end`: None for all that are left. `cost`: in bytes."""

    end: SnapshotCut | None
    cost: int


def next_portion(
    files: Sequence[PinnedFile],
    start: SnapshotCut | None,
    request: PinRequest,
    measure: Callable[[PinnedFile], FileRecords],
) -> SnapshotPortion:
    """Return the next portion of a snapshot.

    Args:
        files: all files of the snapshot, in the order of their paths.
        start: the end of the portion before; None for the first one.
        measure: counts the records of a file and their decoded bytes.

    Raises: FileTooLargeError if a row costs more than an epoch may read.

    Cost: `measure` is called for the files whose stored bytes an epoch may read.
    """
    start = start or SnapshotCut()
    waiting = files[start.files :]
    if request.epoch_bytes is None:
        return SnapshotPortion(None, sum(file.size for file in waiting))
    chosen = fitting_files(waiting, request.bytes_left)
    begun = [FileRecords(start.records, start.nbytes)] if start.rows else []
    measures = [*begun, *map_in_threads(lambda file: _measure_file(file, measure), chosen[len(begun) :])]
    left, most, spent = request.bytes_left or 0, max(request.epoch_bytes, LEAST_PORTION_BYTES), 0
    for place, (file, records) in enumerate(zip(chosen, measures, strict=True), start.files):
        first = start.rows if place == start.files else 0
        cost = records.cost * (records.records - first) // records.records
        if spent + cost > (left if spent else max(left, most)):
            if spent:
                return SnapshotPortion(SnapshotCut(place), spent)
            rows = _fitting_rows(file, records, most)
            end_of_rows = SnapshotCut(place, first + rows, records.records, records.nbytes)
            return SnapshotPortion(end_of_rows, records.cost * rows // records.records)
        spent += max(cost, 1)
    end = start.files + len(chosen)
    return SnapshotPortion(None if end == len(files) else SnapshotCut(end), spent)


def _rows_between(place: int, start: SnapshotCut | None, end: SnapshotCut | None) -> tuple[int, int | None] | None:
    """Return the first row to read of a file, and the row after the last one (None: all); None for the whole file."""
    first = start.rows if start is not None and place == start.files else 0
    after = end.rows if end is not None and place == end.files else None
    return (first, after) if first or after is not None else None


def files_between(count: int, start: SnapshotCut | None, end: SnapshotCut | None) -> range:
    """Return the places of the files that have rows between two cuts. `count`: of all files."""
    return range(0 if start is None else start.files, count if end is None else end.files + bool(end.rows))


def pieces_between_cuts(pieces: Sequence[_Piece], start: SnapshotCut | None, end: SnapshotCut | None) -> list[_Piece]:
    """Return the pieces of a snapshot between two cuts, each with the rows to read as `rows`."""
    return [
        msgspec.structs.replace(pieces[place], rows=_rows_between(place, start, end))
        for place in files_between(len(pieces), start, end)
    ]


def _measure_file(file: PinnedFile, measure: Callable[[PinnedFile], FileRecords]) -> FileRecords:
    """Return the measure of a file. The reader of a damaged one reports the damage."""
    try:
        return measure(file)
    except (OSError, TussockError, ValueError):  # pyarrow's errors are ValueErrors or OSErrors
        return FileRecords(1, file.size)


def _fitting_rows(file: PinnedFile, records: FileRecords, most: int) -> int:
    """Return how many rows of a file an epoch may read. Raises FileTooLargeError."""
    rows = records.records * most // records.cost
    if rows < 1 or records.largest > most:
        least = max(records.largest, -(-records.cost // records.records))
        raise FileTooLargeError(file.path, file.size, records.records, records.nbytes, most, least, of_table=True)
    return rows
