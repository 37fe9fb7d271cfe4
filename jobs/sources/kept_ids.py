"""Row ids that equal rows of a corrected file keep.

A file that replaces another one gets a new number, so all its rows would get new ids. But a row that equals one of the
old rows is the same row: the epoch of the restatement gives it the old row's id, and no view gets it. Such ids are not
a function of the file's number, so the actor that reads both files stores them as an object beside the kept bytes
(`PinnedFile.ids`), and each later read of the file uses them.

    plan_matches   at the start of an epoch: which files meet, and the names of the objects
    KeptIds        the ids of one file: runs of rows whose positions and ids both ascend by one

The object is an Arrow stream (zstd) with the columns below, in the order of `first`. A row in no run has the id of its
own file and position. The name depends on the barrier, on the files and on the columns that decide which rows are
equal, so each attempt writes the same bytes.

    first bigint   position of the run's first row in the file
    rows bigint    number of its rows
    id bigint      `_row_id` of its first row
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.row_ids import position_of

Ids = npt.NDArray[np.int64]

_COLUMNS = ("first", "rows", "id")
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class ReadableStore(Protocol):
    """The method of an ObjectStore that reading ids uses."""

    def get(self, name: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class KeptIds:
    """The row ids of a file that its rows have kept: (runs,) each, ascending by `first`."""

    first: Ids
    rows: Ids
    id: Ids

    @staticmethod
    def of_rows(positions: Ids, ids: Ids) -> "KeptIds":
        """Return the ids of rows at these positions, in any order."""
        order = np.argsort(positions)
        positions, ids = positions[order], ids[order]
        starts = np.ones(len(positions), np.bool_)
        starts[1:] = (np.diff(positions) != 1) | (np.diff(ids) != 1)
        at = np.flatnonzero(starts)
        return KeptIds(positions[at], np.diff(np.append(at, len(positions))), ids[at])

    def ids_of(self, row_ids: Ids) -> Ids:
        """Return the ids of rows. `row_ids` is made from the number of the file and the positions."""
        if not len(self.first):
            return row_ids
        positions = position_of(row_ids)
        run = np.maximum(np.searchsorted(self.first, positions, side="right") - 1, 0)
        offset = positions - self.first[run]
        return np.where((offset >= 0) & (offset < self.rows[run]), self.id[run] + offset, row_ids)

    def find_position(self, row_id: int) -> int | None:
        """Return the position of the row with this id; None if no row has kept it."""
        run = np.flatnonzero((self.id <= row_id) & (row_id < self.id + self.rows))
        return int(self.first[run[0]] + row_id - self.id[run[0]]) if len(run) else None

    def to_bytes(self) -> bytes:
        """Return the object's bytes."""
        sink = pa.BufferOutputStream()
        table = pa.table(list(map(pa.array, (self.first, self.rows, self.id))), names=_COLUMNS)
        with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @staticmethod
    def from_bytes(data: bytes) -> "KeptIds":
        """Read `to_bytes`."""
        table = pa.ipc.open_stream(data).read_all()
        return KeptIds(*(table[name].to_numpy() for name in _COLUMNS))


def read_kept_ids(objects: ReadableStore, file: PinnedFile) -> KeptIds | None:
    """Return the ids that the rows of a file have kept; None if its own number and the positions give all ids."""
    return KeptIds.from_bytes(objects.get(file.ids)) if file.ids else None


def plan_matches(files: Sequence[PinnedFile], name_ids: Callable[[str], str]) -> list[PinnedFile]:
    """Return pinned files with `meets` and `ids` set for those whose equal rows are matched.

    The file at a path replaces the rows that were taken from this path. All other new files together replace all other
    files that are taken back, as when a job writes a folder again under other names.

    Args:
        files: of one barrier, with their weights.
        name_ids: returns the name of an object, from a text that identifies a file.
    """
    # A portion of a file that is read again shares its record with the other portions, so it cannot have ids.
    comes = [f for f in files if f.weight > 0 and f.portions is None]
    goes = [f for f in files if f.weight < 0]
    paths = {f.path for f in comes} & {f.path for f in goes}

    def group_of(file: PinnedFile) -> str:
        return file.path if file.path in paths else ""

    meets: dict[str, int] = {}
    for file in goes:
        meets[group_of(file)] = min(file.number, meets.get(group_of(file), file.number))
    joined = {group_of(f) for f in comes} & meets.keys()

    def with_match(file: PinnedFile) -> PinnedFile:
        if (group := group_of(file)) not in joined or (file.weight > 0 and file.portions is not None):
            return file
        if file.weight < 0:
            return msgspec.structs.replace(file, meets=meets[group])
        name = name_ids(f"{file.path}\0{file.size}\0{file.etag}\0{file.number}")
        return msgspec.structs.replace(file, meets=meets[group], ids=name)

    return [with_match(f) for f in files]


def replaces_in_place(files: Iterable[PinnedFile]) -> bool:
    """Return whether the files of a group are one file and its replacement, so that rows at one position correspond."""
    came, went = ({f.path for f in files if f.weight == weight} for weight in (1, -1))
    return len(came) == len(went) == 1
