"""The rows of a source's leaf on one unit.

pieces     the rows of each part that this unit reads, in an order that is equal in every attempt
changes    the rows of new input. Files that are taken back and their replacements meet on one unit: only rows that
           differ go on, and the others keep their ids (tussock.jobs.sources.kept_ids)
snapshot   the rows of older input, for a new view or a build
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk, make_chunk, rows_of, some_rows
from tussock.jobs.chunks.matched_rows import MatchedRows, RowMatcher
from tussock.jobs.executors.base import net_chunk
from tussock.jobs.schedule.schedule import SnapshotPart
from tussock.jobs.sources.kept_ids import Ids, KeptIds, read_kept_ids, replaces_in_place
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.row_ids import file_of, position_of
from tussock.statestore.meta.catalog import ALL_READ
from tussock.statestore.objectstore.base import ObjectStore


@dataclass(slots=True)
class SourceRows:
    """Collects the rows of a leaf.

    Args:
        types: of the columns: declared ones, hidden ones, and `_row_id` if rows have positions.
        compared: the number of declared columns.
        files: by number, those whose rows keep ids of other files, or give their ids to other rows.
        groups: the part of `files` that meets on this unit.
        objects: the store, which contains the ids.
        parts: the snapshots that readers want.
    """

    types: Sequence[str]
    compared: int
    files: Mapping[int, PinnedFile]
    groups: Mapping[int, Sequence[PinnedFile]]
    objects: ObjectStore
    parts: Sequence[SnapshotPart]
    read_rows: int = 0
    new_rows: int = 0
    read_bytes: int = 0
    _ids: dict[int, KeptIds | None] = field(default_factory=dict)

    def collect_rows(
        self, new: Iterable[pa.Table], old: Iterable[pa.Table]
    ) -> tuple[pa.Table, dict[SnapshotPart, pa.Table]]:
        """Return the changes and the wanted snapshots. `new`, `old`: pieces, each of one file."""
        divided = any(part.end < ALL_READ for part in self.parts)  # a build has not read all files yet
        pieces, apart = list[pa.Table](), list[pa.Table]()
        with ExitStack() as stack:
            matchers = {meets: stack.enter_context(RowMatcher(self.compared)) for meets in self.groups}
            for piece in self._count_rows(new):
                self.new_rows += piece.num_rows
                file = self._file_of_piece(piece)
                if file is None or file.meets < 0:
                    apart.append(piece)
                else:
                    matchers[file.meets].add_rows(piece)
                if divided:
                    pieces.append(piece)
            matched = [self._match_group(self.groups[meets], matchers[meets]) for meets in sorted(matchers)]
        none = empty_chunk(self.types)
        rest = map(self._with_kept_ids, apart) if self._has_row_ids else _difference_of(apart, self.compared)
        changes = pa.concat_tables([none, *rest, *matched])
        taken = list(self._count_rows(old)) if self.parts else []
        return changes, {
            part: pa.concat_tables(
                [
                    none,
                    *(self._with_kept_ids(some) for some in _in_range(taken, part.first, part.end)),
                    *([changes] if part.end == ALL_READ else map(self._with_kept_ids, _in_range(pieces, 0, part.end))),
                ]
            )
            for part in self.parts
        }

    @property
    def _has_row_ids(self) -> bool:
        return len(self.types) > self.compared

    def _count_rows(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for piece in pieces:
            self.read_rows, self.read_bytes = self.read_rows + piece.num_rows, self.read_bytes + piece.nbytes
            yield piece

    def _file_of_piece(self, piece: pa.Table) -> PinnedFile | None:
        if not self.files or not piece.num_rows:
            return None
        return self.files.get(file_of(piece.column(-2)[0].as_py()))

    def _match_group(self, files: Sequence[PinnedFile], matcher: RowMatcher) -> pa.Table:
        """Return the changes of files that meet, and store the ids that rows of the new ones keep."""
        hidden = len(self.types) - self.compared > 1
        rest, gone, come, pairs = list[pa.Table](), [_no_ids()], [_no_ids()], list[pa.Table]()
        for part in matcher.take_parts():
            ids = _row_ids(part.rows)
            gone.append(ids[part.gone])
            come.append(ids[part.come])
            rest.append(part.take_difference())
            if hidden:  # views that do not read the hidden columns net these rows after they have dropped the columns
                pairs.append(_pairs_of(part))
        rest_rows = pa.concat_tables([empty_chunk(self.types), *rest])
        if replaces_in_place(files):
            was, now = _pair_positions(rest_rows)
            gone.append(was)
            come.append(now)
        inserted = _row_ids(rest_rows)[rest_rows[WEIGHT].to_numpy() > 0]
        self._store_kept_ids(files, np.concatenate(gone), np.concatenate(come), inserted)
        changes = [rest_rows.slice(0, 0), *map(self._with_kept_ids, _by_file([rest_rows, *pairs]))]
        return net_chunk(pa.concat_tables(changes)) if hidden else pa.concat_tables(changes)

    def _store_kept_ids(self, files: Sequence[PinnedFile], was: Ids, now: Ids, inserted: Ids) -> None:
        """Store the ids of the group's new files: the row `now[i]` of a new file is the row `was[i]` of an old one.

        `inserted`: the rows of new files that equal no old row.
        """
        row_ids = was.copy()
        for file in files:
            if file.weight < 0:
                of_file = file_of(was) == file.number
                row_ids[of_file] = self._apply_kept_ids(file, was[of_file])
        come = [file.number for file in files if file.weight > 0]
        if np.isin(file_of(row_ids), come).any():  # a delivery that counts again has numbers of before
            now, row_ids = _exchange_ids(now, row_ids, np.setdiff1d(inserted, now))
        for file in files:
            if file.weight > 0:
                of_file = file_of(now) == file.number
                ids = self._ids[file.number] = KeptIds.of_rows(position_of(now[of_file]), row_ids[of_file])
                self.objects.put(file.ids, ids.to_bytes())

    def _with_kept_ids(self, piece: pa.Table) -> pa.Table:
        """Return rows of one file with the ids that they have kept."""
        if (file := self._file_of_piece(piece)) is None:
            return piece
        ids = self._apply_kept_ids(file, _row_ids(piece))
        return make_chunk([*rows_of(piece).columns[:-1], pa.array(ids)], piece[WEIGHT])

    def _apply_kept_ids(self, file: PinnedFile, ids: Ids) -> Ids:
        if file.number not in self._ids:
            self._ids[file.number] = read_kept_ids(self.objects, file)
        return ids if (kept_ids := self._ids[file.number]) is None else kept_ids.ids_of(ids)


def _no_ids() -> Ids:
    return np.empty(0, np.int64)


def _row_ids(chunk: pa.Table) -> Ids:
    return np.asarray(chunk.column(-2))


def _pairs_of(part: MatchedRows) -> pa.Table:
    return part.rows.take(pa.array(np.concatenate([part.gone, part.come])))


def _difference_of(pieces: list[pa.Table], compared: int) -> Iterator[pa.Table]:
    """Yield the rows of pieces without the pairs of equal rows, if rows are both deleted and inserted.

    A writer of Delta tables rewrites whole files, and most rows of a file are as before. Empties the list.
    """
    signs = {int(sign) for piece in pieces for sign in np.unique(piece[WEIGHT].to_numpy())}
    if signs != {-1, 1}:
        yield from pieces
        return
    with RowMatcher(compared) as matcher:
        while pieces:
            matcher.add_rows(pieces.pop(0))
        yield from (part.take_difference() for part in matcher.take_parts())


def _pair_positions(rows: pa.Table) -> tuple[Ids, Ids]:
    """Pair the deleted and inserted rows at one position: their ids. Requires: one file, and its replacement."""
    ids, weights = _row_ids(rows), rows[WEIGHT].to_numpy()
    was, now = ids[weights < 0], ids[weights > 0]
    _, left, right = np.intersect1d(position_of(was), position_of(now), assume_unique=True, return_indices=True)
    return was[left], now[right]


def _exchange_ids(rows: Ids, kept: Ids, others: Ids) -> tuple[Ids, Ids]:
    """Give other ids to rows whose own ids are kept by other rows of the same files.

    There are enough: each row that keeps an id leaves its own one, or that one is kept too.

    Args:
        rows, kept: rows, and the ids that they keep.
        others: further rows.

    Returns: the rows with other ids than their own, and these ids.
    """
    without_id = others[np.isin(others, kept)]
    free = np.setdiff1d(rows, kept)[: len(without_id)]
    return np.concatenate([rows, without_id]), np.concatenate([kept, free])


def _by_file(chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Divide chunks into rows of one file each, in the order of the files' numbers."""
    for chunk in chunks:
        numbers = file_of(_row_ids(chunk))
        for number in np.unique(numbers).tolist():
            yield some_rows(chunk, numbers == number)


def _in_range(pieces: Iterable[pa.Table], first: int, end: int) -> Iterator[pa.Table]:
    """Yield the rows of a source's items in a range of numbers."""
    for piece in pieces:
        if (first == 0 and end == ALL_READ) or not piece.num_rows:
            yield piece
        else:
            numbers = file_of(_row_ids(piece))
            yield some_rows(piece, (numbers >= first) & (numbers < end))
