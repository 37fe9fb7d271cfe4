"""The difference of two bags of rows: equal rows that are deleted and inserted cancel each other out.

A source that delivers old and new input (a corrected file, a rewritten table) adds the old rows with weight -1 and the
new ones with weight +1. A RowMatcher pairs equal rows as multisets: of n deleted and m inserted copies of a row, min(n,
m) are pairs. Only the other rows are a change of the relation.

    add_rows     keeps chunks in memory. Above a bound, it writes them to PARTITIONS files on the local disk, by digest
    take_parts   matches one partition after the other; equal rows are in the same one

So the memory is bounded by the rows of one partition and by the difference. Rows are equal if their digests are
(digests.py): NULLs equal each other, and floats are compared by their bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT
from tussock.jobs.chunks.digests import digests_of
from tussock.statestore.local_disk import LocalDiskError, TemporaryFolder
from tussock.statestore.memory import memory_limit

MEMORY_BYTES = 64 << 20  # of rows that a matcher keeps in memory
_MEMORY_PART = 16  # of a limited memory
PARTITIONS = 64

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """A part of the rows, with its pairs of equal rows.

    Args:
        rows: a chunk, in the order in which the rows were added.
        gone, come: (pairs,) the position of each pair's deleted and inserted row.
    """

    rows: pa.Table
    gone: Positions
    come: Positions

    def take_difference(self) -> pa.Table:
        """Return the rows without the pairs, as a chunk in the same order."""
        if not len(self.gone):
            return self.rows
        differs = np.ones(self.rows.num_rows, np.bool_)
        differs[self.gone] = False
        differs[self.come] = False
        return self.rows.filter(pa.array(differs))


class RowMatcher:
    """Matches the deleted rows of two bags with equal inserted rows. Use it as a context manager.

    The result depends on the rows and on their order alone, if they are added in an order that is equal in every
    attempt.
    """

    def __init__(self, compared: int, memory: int | None = None) -> None:
        """
        Args:
            compared: the number of columns that decide whether rows are equal; other columns follow them.
            memory: bytes of rows that stay in memory.
        """
        self._compared = compared
        self._memory = memory_limit.limit_share(MEMORY_BYTES, _MEMORY_PART) if memory is None else memory
        self._waiting: list[pa.Table] = []
        self._nbytes = 0
        self._folder: TemporaryFolder | None = None
        self._files: dict[int, pa.ipc.RecordBatchFileWriter] = {}

    def __enter__(self) -> "RowMatcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        if self._folder is not None:
            self._close_files()
            self._folder.cleanup()

    def add_rows(self, chunk: pa.Table) -> None:
        """Add a chunk. Requires: each weight is -1 or +1."""
        self._waiting.append(chunk)
        self._nbytes += chunk.nbytes
        if self._nbytes > self._memory:
            self._spill_rows()

    def take_parts(self) -> Iterator[MatchedRows]:
        """Match the rows, and release them. Call it once. Yields nothing if no rows were added."""
        if self._folder is None:
            waiting, self._waiting = self._waiting, []
            if waiting:
                yield self._match_rows(pa.concat_tables(waiting))
            return
        self._spill_rows()
        numbers = sorted(self._files)
        self._close_files()
        for number in numbers:
            with pa.memory_map(str(self._path_of(number))) as file:
                rows = pa.ipc.open_file(file).read_all()
            yield self._match_rows(rows)
            del rows

    def _match_rows(self, rows: pa.Table) -> MatchedRows:
        weights = rows[WEIGHT].to_numpy()
        gone, come = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
        if not len(gone) or not len(come):
            return MatchedRows(rows, gone[:0], come[:0])
        return MatchedRows(rows, *pair_equals(self._row_numbers(rows), gone, come))

    def _row_numbers(self, rows: pa.Table) -> Positions:
        """(rows,) a number per row, from 0; rows that are equal in the compared columns have the same."""
        halves = digests_of(rows.columns[: self._compared], rows.num_rows)
        digests = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), rows.num_rows, [None, pa.py_buffer(np.stack(halves, axis=1).tobytes())]
        )
        return digests.dictionary_encode().indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]

    def _spill_rows(self) -> None:
        if self._folder is None:
            self._folder = TemporaryFolder("matched-rows")
        waiting, self._waiting, self._nbytes = self._waiting, [], 0
        while waiting:
            chunk = waiting.pop(0)
            try:
                self._write_rows(chunk)
            except OSError as err:
                raise LocalDiskError(self._folder.name, chunk.nbytes, err.strerror or str(err)) from err

    def _write_rows(self, chunk: pa.Table) -> None:
        if not chunk.num_rows:
            return
        first, _ = digests_of(chunk.columns[: self._compared], chunk.num_rows)
        partition = (first % PARTITIONS).astype(np.int64)
        chunk = chunk.take(pa.array(np.argsort(partition, kind="stable")))
        counts = np.bincount(partition, minlength=PARTITIONS)
        starts = np.cumsum(counts) - counts
        for number in np.flatnonzero(counts).tolist():
            if (file := self._files.get(number)) is None:
                path = str(self._path_of(number))
                file = self._files[number] = pa.ipc.new_file(path, chunk.schema)
            file.write_table(chunk.slice(int(starts[number]), int(counts[number])))

    def _path_of(self, number: int) -> Path:
        assert self._folder is not None
        return Path(self._folder.name, f"{number}.arrow")

    def _close_files(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


def pair_equals(numbers: Positions, gone: Positions, come: Positions) -> tuple[Positions, Positions]:
    """Pair rows with the same number: the n-th one of `gone` with the n-th one of `come`.

    Args:
        numbers: (rows,) small and dense.
        gone, come: positions in `numbers`, ascending.

    Returns: (pairs,) the position of each pair's two rows, ordered by number.
    """
    gone, come = (some[np.argsort(numbers[some], kind="stable")] for some in (gone, come))
    of_gone, of_come = (np.bincount(numbers[some], minlength=len(numbers)) for some in (gone, come))
    pairs = np.minimum(of_gone, of_come)

    def first_copies(some: Positions, counts: Positions) -> Positions:
        rank = np.arange(len(some)) - (np.cumsum(counts) - counts)[numbers[some]]
        return some[rank < pairs[numbers[some]]]

    return first_copies(gone, of_gone), first_copies(come, of_come)
