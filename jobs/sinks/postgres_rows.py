"""Rows for Postgres: the type of each column, and batches as text for COPY, a whole column at a time.

    Spark                                   Postgres
    boolean                                 boolean
    tinyint, smallint; int; bigint          smallint; integer; bigint
    float; double                           real; double precision
    decimal(p,s)                            numeric(p,s)
    string, char(n), varchar(n)             text
    binary                                  bytea
    date; timestamp; timestamp_ntz          date; timestamp with time zone; timestamp
    interval day to second, and its parts   interval
    time(n)                                 time
    array, map, struct                      jsonb

Intervals of months and variants have no form: publish a view that casts them.
"""

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.logical.relation_names import split_name
from tussock.jobs.postgres.copied_rows import read_copied
from tussock.jobs.reading.written_rows import write_csv
from tussock.jobs.sinks.base import Outline, UnpublishableColumnError, UnpublishableNameError
from tussock.statestore.months import holds_months
from tussock.statestore.nested import is_nested
from tussock.statestore.types import arrow_type, holds_variant

MAX_NAME_BYTES = 63  # Postgres shortens longer names silently
_SYSTEM_COLUMNS = ("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid")
_SIMPLE = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
}


def postgres_type(kind: pa.DataType) -> str | None:
    """Return the type of a column in Postgres; None if it has none."""
    if holds_variant(kind) or holds_months(kind):
        return None
    if is_nested(kind):
        return "jsonb"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with time zone"
    if pa.types.is_duration(kind):
        return "interval"
    if pa.types.is_time(kind):
        return "time"
    return _SIMPLE.get(kind)


def checked_columns(outline: Outline) -> tuple[tuple[str, str], ...]:
    """Return name and type in Postgres of each column. Raises UnpublishableColumnError, UnpublishableNameError."""
    if (size := max(map(len, split_name(outline.name)))) > MAX_NAME_BYTES:
        raise UnpublishableNameError(outline.name, f"its name has {size} bytes, and Postgres allows {MAX_NAME_BYTES}")
    columns = []
    for column in outline.columns:
        kind = postgres_type(arrow_type(column.type))
        if kind is None:
            reason = f"has the type {column.type}, which Postgres cannot represent"
        elif not column.name or len(column.name.encode()) > MAX_NAME_BYTES:
            reason = f"has a name of {len(column.name.encode())} bytes, and Postgres allows 1 to {MAX_NAME_BYTES}"
        elif column.name in _SYSTEM_COLUMNS:
            reason = "has the name of a system column of Postgres"
        elif "\0" in column.name:
            reason = "has a NUL character in its name"
        else:
            columns.append((column.name, kind))
            continue
        raise UnpublishableColumnError(outline.name, column.name, reason)
    return tuple(columns)


def key_columns(outline: Outline) -> tuple[str, ...]:
    """Return the key by which rows are found; empty if Postgres compares it in another way than a store."""
    nested = {column.name for column in outline.columns if is_nested(arrow_type(column.type))}
    return () if nested & set(outline.key) else outline.key


class _CopyFile:
    """A file for Arrow's CSV writer that passes its bytes on."""

    closed = False

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.write = lambda data: write(bytes(data))

    def flush(self) -> None: ...

    def close(self) -> None: ...


def copy_rows(rows: pa.RecordBatchReader, write: Callable[[bytes], None]) -> None:
    """Pass rows as CSV with a header to `write`, in pieces. NULL is an empty field, an empty string is quoted."""
    fields = [f.with_type(pa.string()) if _needs_text(f.type) else f for f in rows.schema]
    schema = pa.schema(fields)
    texts = (batch if schema == rows.schema else _with_texts(batch, schema) for batch in rows)
    write_csv(pa.RecordBatchReader.from_batches(schema, texts), _CopyFile(write))  # type: ignore[arg-type]


def _needs_text(kind: pa.DataType) -> bool:
    """Return whether the CSV of a type differs from the text that Postgres reads."""
    return bool(pa.types.is_binary(kind) or pa.types.is_duration(kind))


def _with_texts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_text_of(column) if _needs_text(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _text_of(column: pa.Array) -> pa.Array:
    """(n,) `\\x00ff` for binary values, `12 microseconds` for intervals."""
    if pa.types.is_duration(column.type):
        micros = column.cast(pa.duration("us")).cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(micros, pa.scalar("microseconds"), " ")
    from tussock.jobs.kernels.kernel import thread_kernel

    text = thread_kernel().compute_columns("'\\x' || hex(c) AS c", pa.table([column], ["c"]))["c"]
    return text.combine_chunks().cast(pa.string())


_MICROSECONDS = (  # exact on servers before 14 too, whose seconds since 1970 are floats
    "(extract(epoch FROM date_trunc('second', {0}))::bigint * 1000000"
    " + extract(microseconds FROM {0})::bigint % 1000000) AS {0}"
)
READ_FORMS = {
    "date": "({0} - date '1970-01-01') AS {0}",  # numbers, since Arrow reads no years after 9999
    "timestamp": _MICROSECONDS,
    "timestamp with time zone": _MICROSECONDS,
    "bytea": "encode({0}, 'hex') AS {0}",
    "interval": "(extract(epoch FROM {0}) * 1000000)::bigint AS {0}",  # no setting of the database changes this text
}
"""How `read_copy` expects the columns of a type, as SQL; as they are if the type is not here."""


def read_copy(pieces: Iterable[bytes | bytearray | memoryview], schema: pa.Schema) -> pa.RecordBatchReader:
    """Return the rows of `COPY … TO STDOUT (FORMAT csv)`, whose columns have the forms of READ_FORMS.

    Structs, arrays and maps stay texts in JSON.
    """
    types = {field.name: _read_type(field.type) for field in schema}
    rows = pa.Table.from_batches(read_copied(pieces, types), pa.schema(list(types.items())))
    for place, field in enumerate(schema):
        if rows.column(place).type != field.type and not is_nested(field.type):
            rows = rows.set_column(place, field.name, _value_of(rows.column(place), field.type))
    return rows.to_reader()


def _read_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind) or pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.string() if is_nested(kind) or pa.types.is_binary(kind) else kind


def _value_of(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """(n,) the values of a column that has the form of READ_FORMS."""
    if pa.types.is_duration(kind):
        return texts.cast(pa.duration("us")).cast(kind)
    if pa.types.is_temporal(kind):
        return texts.cast(kind)
    from tussock.jobs.kernels.kernel import thread_kernel

    return thread_kernel().compute_columns("unhex(c) AS c", pa.table([texts], ["c"]))["c"].cast(kind)
