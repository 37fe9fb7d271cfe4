"""The rows of each file that a sink writes as a whole.

A publish marks deleted rows in each file that loses rows, so its cost grows with the number of files that it touches.
Larger files are fewer. Their size is bounded by memory: the rows of a file are in memory while it is written.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from tussock.jobs.reading.keyed_rows import RowsWithKeys

FILE_ROWS, FILE_BYTES = 4_000_000, 256 << 20  # bytes in memory


def rows_of_files(parts: Iterable[RowsWithKeys]) -> Iterator[RowsWithKeys]:
    """Combine rows into parts of at most FILE_ROWS rows, and of about FILE_BYTES, the last one smaller."""
    waiting: list[RowsWithKeys] = []
    rows = size = 0
    for part in parts:
        for start in range(0, part.rows.num_rows, FILE_ROWS):
            count = min(FILE_ROWS, part.rows.num_rows - start)  # keys may have no columns, and then no end either
            piece = RowsWithKeys(part.rows.slice(start, count), part.keys.slice(start, count))
            if waiting and (rows + piece.rows.num_rows > FILE_ROWS or size + piece.rows.nbytes > FILE_BYTES):
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + piece.rows.num_rows, size + piece.rows.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(parts: Sequence[RowsWithKeys]) -> RowsWithKeys:
    if len(parts) == 1:
        return parts[0]
    rows, keys = (pa.concat_tables([getattr(part, name) for part in parts]) for name in ("rows", "keys"))
    return RowsWithKeys(rows, keys)
