"""Rows in parts by hash, in memory while they are few, else on the local disk: equal rows come together in one part.

So rows of any number are paired or cancelled with the memory of one part.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.vnode import one_array, vnodes_of

PARTS = 64
HELD_BYTES = 128 << 20  # of rows in memory, before they go to the disk
_ROWS_AT_ONCE = 1 << 20  # that are encoded


class PartedRows:
    """Rows that are added in any order, and read part by part. Use it in a `with` block."""

    def __init__(self, schema: pa.Schema, columns: Sequence[int]) -> None:
        """`columns`: rows with equal values in these are in one part, with Spark's equality."""
        self._schema, self._columns = schema, tuple(columns)
        self._held: list[list[pa.Table]] = [[] for _ in range(PARTS)]
        self._bytes = 0
        self._folder: TemporaryFolder | None = None
        self._files: dict[int, pa.ipc.RecordBatchFileWriter] = {}

    def add_rows(self, rows: pa.Table) -> None:
        """Add rows of the schema."""
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            self._add_few(rows.slice(start, _ROWS_AT_ONCE))
        if self._bytes > HELD_BYTES:
            self._write_held()

    def _add_few(self, rows: pa.Table) -> None:
        parts = vnodes_of([identify_rows(rows, self._columns)], PARTS)
        order = np.argsort(parts, kind="stable")
        ends = np.searchsorted(parts[order], np.arange(PARTS + 1))
        ordered = rows.take(pa.array(order))
        for part in range(PARTS):
            if ends[part] < ends[part + 1]:
                self._held[part].append(ordered.slice(ends[part], ends[part + 1] - ends[part]))
        self._bytes += ordered.nbytes

    def read_parts(self) -> Iterator[pa.Table]:
        """All rows, one table per part that has any. Memory: the largest part."""
        for writer in self._files.values():
            writer.close()
        for part in range(PARTS):
            tables = self._held[part]
            if part in self._files:
                with pa.memory_map(self._path_of(part)) as stored:
                    yield pa.concat_tables([pa.ipc.open_file(stored).read_all(), *tables])
            elif tables:
                yield pa.concat_tables(tables)
            self._held[part] = []

    def _write_held(self) -> None:
        """Move the rows in memory to one file per part."""
        if self._folder is None:
            self._folder = TemporaryFolder("compare")
        for part, tables in enumerate(self._held):
            if not tables:
                continue
            if part not in self._files:
                self._files[part] = pa.ipc.new_file(self._path_of(part), self._schema)
            self._files[part].write_table(pa.concat_tables(tables).combine_chunks())
            self._held[part] = []
        self._bytes = 0

    def _path_of(self, part: int) -> str:
        assert self._folder is not None
        return str(Path(self._folder.name) / f"{part}.arrow")

    def __enter__(self) -> "PartedRows":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._files.values():
            writer.close()
        if self._folder is not None:
            self._folder.cleanup()


def identify_rows(rows: pa.Table, columns: Sequence[int]) -> pa.BinaryArray:
    """(n,) bytes that are equal for rows with Spark-equal values in these columns."""
    arrays = [one_array(rows.column(column)) for column in columns]
    return encode_keys(0, np.zeros(rows.num_rows, np.uint16), arrays, [KeyColumn(i) for i in range(len(arrays))])
