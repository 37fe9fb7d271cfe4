"""Pack the records that Spark's reader returns into chunks, file after file, in the Python side of Spark's tasks.

One task reads each file from its first byte to its last, so a record's position in its file is known and the same in
every attempt. A row of the result (OUTPUT_DDL):

    part int         number of the file (PinnedFile.number)
    chunk binary     Arrow IPC stream: the wanted columns as declared, `_row_id`, weights (jobs/chunks/chunk.py),
                     or NULL if `failure` is set
    failure binary   an error that stops the epoch (jobs/chunks/failure.py); the task succeeds: no retry helps
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import encode_table
from tussock.jobs.chunks.failure import encode_failure
from tussock.jobs.logical.hidden_columns import parted_columns
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.boundary import errors_of_source
from tussock.jobs.sources.errors import BadRowError
from tussock.jobs.sources.file_facts import hidden_values
from tussock.jobs.sources.pins import PinnedFile, verify_pin
from tussock.jobs.sources.record_texts import value_texts
from tussock.jobs.sources.rejects import (
    chunk_of,
    first_reasons,
    mark_rejects,
    not_text,
    quarantines_rejects,
    reason_where,
)
from tussock.jobs.sources.row_ids import ROW_ID_NAME, pack_row_ids
from tussock.jobs.sources.spark_paths import place_of
from tussock.jobs.sources.text import bad_texts, require_text, with_shown_bytes
from tussock.statestore.errors import TussockError
from tussock.statestore.nested import relabel_column
from tussock.statestore.types import arrow_type

CHUNK_ROWS = 1 << 16
_CHUNK_BYTES = 64 << 20
OUTPUT_DDL = "part int, chunk binary, failure binary"
OUTPUT = pa.schema([("part", pa.int32()), ("chunk", pa.binary()), ("failure", pa.binary())])
_SHOWN_CHARACTERS = 200

_Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# rejects a file whose values Spark's reader would change silently: (file, declared fields, the source's options)
CheckTypes = Callable[[PinnedFile, Sequence[Field], Mapping[str, str]], None]


def make_packer(
    files: Mapping[str, Sequence[PinnedFile]],
    source: CreateSource,
    width: int,
    columns: tuple[int, ...],
    check_types: CheckTypes,
    raw_column: int | None,
) -> _Stage:
    """Return the Python side: it packs record batches of one task's files, file after file, into rows of OUTPUT_DDL.

    Args:
        files: by the place that `place_of` returns: a file, or some of its portions.
        width: number of declared columns that the files have; the others are NULL.
        columns: to pack, declared ones and then hidden ones.
        raw_column: the column that contains the file's whole record; None: the corrupt-record column does.
    """

    def pack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        current: list[_FileChunks] = []
        last = ""
        for batch in batches:
            for path, rows in _by_file(batch):
                if (place := place_of(path)) != last:
                    for chunks in current:
                        yield from chunks.guard_rows(chunks.finish_file())
                    last = place
                    current = [_FileChunks(file, source, width, columns, raw_column) for file in files[place]]
                    for chunks in current:
                        yield from chunks.guard_rows(chunks.check_types_first(check_types))
                for chunks in current:
                    yield from chunks.guard_rows(chunks.add_rows(rows))
        for chunks in current:
            yield from chunks.guard_rows(chunks.finish_file())

    return pack_batches


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut a batch at each change of its last column, the file's path."""
    runs = pc.run_end_encode(batch.column(batch.num_columns - 1))
    start = 0
    for path, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield path, batch.slice(start, end - start)
        start = end


class _FileChunks:
    """Numbers one file's records and packs them into chunks; of a portion, only the records of the portion.

    After an unparsable record, the file yields nothing more.
    """

    def __init__(
        self, file: PinnedFile, source: CreateSource, width: int, columns: tuple[int, ...], raw_column: int | None
    ) -> None:
        self.file, self._raw_column = file, raw_column
        self._source, self._read = source, source.fields[:width]
        self._columns, self._hidden = parted_columns(columns)
        self._fields: tuple[Field, ...] = tuple(source.fields[c] for c in self._columns)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._position = file.first_record
        self._read_records = 0
        self._failed = False
        self._quarantines = quarantines_rejects(source)
        self._declared = ", ".join(f"{f.name} {f.type}" for f in self._read)

    def guard_rows(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a step. Any exception in it is a failure of the file."""
        try:
            with errors_of_source(self._source, self.file.path):
                yield from rows
        except TussockError as error:
            yield self._emit_failure(error)

    def check_types_first(self, check_types: CheckTypes) -> Iterator[pa.RecordBatch]:
        """Check the file's types before its rows."""
        check_types(self.file, self._read, self._source.options)
        yield from ()

    def add_rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add the file's next records; yield full chunks."""
        if self._failed:
            return
        rows = self._of_portion(rows)
        if not rows.num_rows:
            return
        reasons = self._reject_reasons(rows) if self._quarantines else None
        if not self._quarantines and (error := self._first_error(rows)) is not None:
            yield self._emit_failure(error)
            return
        positions = np.arange(self._position, self._position + rows.num_rows, dtype=np.int64)
        typed = [
            self._typed_column(rows, c, arrow_type(f.type)) for c, f in zip(self._columns, self._fields, strict=True)
        ]
        row_ids = pack_row_ids(self.file.number, positions)
        columns = [*typed, *hidden_values(self.file, self._hidden, row_ids)]
        table = pa.table([*columns, row_ids], names=[*(f"c{i}" for i in range(len(columns))), ROW_ID_NAME])
        self._waiting.append(
            mark_rejects(table, self.file, self._position, reasons, None if reasons is None else self._raw_texts(rows))
        )
        self._position += rows.num_rows
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= CHUNK_ROWS or sum(part.nbytes for part in self._waiting) >= _CHUNK_BYTES:
            yield from self._emit_chunk()

    def _of_portion(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the file's next records that belong to the portion."""
        first, count, start = self.file.first_record, self.file.record_count, self._read_records
        self._read_records += rows.num_rows
        if self.file.portions is None:
            return rows
        low = max(first - start, 0)
        high = rows.num_rows if count is None else max(first + count - start, 0)
        return rows.slice(low, max(min(high, rows.num_rows) - low, 0)) if low < rows.num_rows else rows.slice(0, 0)

    def finish_file(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, and check that the file is still the pinned one."""
        if self._failed:
            return
        verify_pin(self.file, self._source.options)
        if self._waiting:
            yield from self._emit_chunk()

    def _emit_chunk(self) -> Iterator[pa.RecordBatch]:
        # Parts without rejects lack the column REJECT.
        table = pa.concat_tables(self._waiting, promote_options="default")
        self._waiting, self._waiting_rows = [], 0
        for chunk in encode_table(chunk_of(table, self.file.weight)):
            yield self._result_row(memoryview(chunk), None)

    def _emit_failure(self, error: TussockError) -> pa.RecordBatch:
        self._failed = True
        return self._result_row(None, encode_failure(error, self._source.name, 0))

    def _result_row(self, chunk: memoryview | None, failure: bytes | None) -> pa.RecordBatch:
        part = self.file.number if self.file.meets < 0 else self.file.meets
        return pa.record_batch([[part], [chunk], [failure]], schema=OUTPUT)

    def _typed_column(self, rows: pa.RecordBatch, column: int, kind: pa.DataType) -> pa.Array:
        return as_declared(rows.column(column), kind) if column < len(self._read) else pa.nulls(rows.num_rows, kind)

    def _corrupt_records(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return the unparsable records, NULL for the others; None if all parse, or the format has no such column."""
        if rows.num_columns == len(self._read) + 1:  # it would be between the declared columns and the path
            return None
        corrupt = rows.column(len(self._read))
        return None if corrupt.null_count == len(corrupt) else corrupt

    def _first_error(self, rows: pa.RecordBatch) -> TussockError | None:
        """Return the error of the first unreadable record."""
        if (corrupt := self._corrupt_records(rows)) is not None:
            return self._bad_row(corrupt, rows)
        try:
            for c, field in enumerate(self._read):
                if "string" in field.type:
                    require_text(self.file.path, field.name, pa.chunked_array([rows.column(c)]), self._position + 1)
        except TussockError as error:
            return error
        return None

    def _reject_reasons(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return (rows,) why a record is unreadable, NULL if it is readable; None if all are readable."""
        reasons: list[pa.Array | None] = []
        if (corrupt := self._corrupt_records(rows)) is not None:
            reasons.append(
                reason_where(corrupt.is_valid().to_numpy(zero_copy_only=False), f"does not parse as ({self._declared})")
            )
        for c, field in enumerate(self._read):
            if "string" in field.type and (bad := bad_texts(rows.column(c))).any():
                reasons.append(reason_where(bad, not_text(field.name)))
        return first_reasons(*reasons)

    def _raw_texts(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return (rows,) the text of unreadable records in the file; NULL if unknown."""
        raw = self._corrupt_records(rows) if self._raw_column is None else rows.column(self._raw_column)
        return None if raw is None else with_shown_bytes(raw)

    def _bad_row(self, corrupt: pa.Array, rows: pa.RecordBatch) -> BadRowError:
        first = pc.index(corrupt.is_valid(), True).as_py()
        text = corrupt[first].as_buffer().to_pybytes().decode(errors="backslashreplace")
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
        if (bad := self._bad_value(text, rows, first)) is None:
            reason = f"the declared columns are ({self._declared})"
        else:
            field, value = bad
            reason = f"column {field.name!r} contains {value[:_SHOWN_CHARACTERS]!r}, expected {field.type}"
        return BadRowError(self.file.path, self._position + first + 1, shown, reason)

    def _bad_value(self, text: str, rows: pa.RecordBatch, row: int) -> tuple[Field, str] | None:
        """Return the first NULL column for which the record has a text, and that text; None if unknown."""
        texts = value_texts(self._source, text, self._read)
        for c, field in enumerate(self._read):
            if (value := texts.get(c)) and not rows.column(c)[row].is_valid:
                return field, value
        return None


def as_declared(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return relabel_column(_relabel_utc(column), kind)


def _relabel_utc(column: pa.Array) -> pa.Array:
    """Relabel instants from the session's time zone to UTC; return other columns unchanged."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp(column.type.unit, "UTC"))
    return column
