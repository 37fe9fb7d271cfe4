"""Write rows as CSV, JSON lines or Parquet, batch by batch, so that a view may be larger than memory."""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.logical.quoting import quote_identifier
from tussock.statestore.errors import InputError
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.months import holds_months, interval_texts
from tussock.statestore.nested import is_nested
from tussock.statestore.types import GIVEN_MONTHS, holds_variant
from tussock.statestore.vnode import one_array

_FIRST_DAY, _LAST_DAY = -12_687_428, 11_248_737  # of the years -32767 and 32767: Arrow counts years in 16 bits
_DAY_US = 86_400_000_000
_STRING_OR_NOT_FINITE = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity')


class NoFormError(InputError):
    """The requested format has no representation of a column's type."""

    def __init__(self, column: str, type_name: str, format: str) -> None:
        super().__init__(column, type_name, format)
        self.column, self.type_name, self.format = column, type_name, format
        self.others = "--csv or --json" if format == "Parquet" else "--json or --parquet, or write its to_json in SQL"

    def __str__(self) -> str:
        return (
            f"column {self.column!r} is {self.type_name}, which {self.format} cannot represent. Use {self.others}, or "
            "select the other columns with --columns."
        )


def write_csv(rows: pa.RecordBatchReader, out: BinaryIO) -> None:
    """Write rows as CSV with a header. NULL is an empty field, an empty string is "".

    Structs, arrays and maps are JSON, and binary values are text with \\xNN, both as in `write_json`. Intervals of
    months have the form of Spark's SQL, and DuckDB's intervals with days or a time have DuckDB's form. Raises
    NoFormError for a variant, whose bytes only Spark decodes.
    """
    from pyarrow import csv

    for field in rows.schema:
        if holds_variant(field.type):
            raise NoFormError(field.name, "a variant", "CSV")
    schema = pa.schema([f.with_type(pa.string()) if _needs_text(f.type) else f for f in rows.schema])
    csv.write_csv(schema.empty_table(), out)  # the header
    for batch in rows:
        texts = batch if schema == rows.schema else _with_texts(batch, schema)
        csv.write_csv(_with_far_times(texts), out, csv.WriteOptions(include_header=False))


def _needs_text(kind: pa.DataType) -> bool:
    """Return whether Arrow writes no CSV of a type."""
    return is_nested(kind) or pa.types.is_binary(kind) or kind == GIVEN_MONTHS


def _with_far_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in which columns with days outside of Arrow's years are text. Arrow writes other years."""
    from tussock.jobs.kernels.kernel import thread_kernel

    columns = list(batch.columns)
    for place, column in enumerate(columns):
        if (far := _find_far_times(column)) is not None and pc.any(far).as_py():
            zone = "Z" if pa.types.is_timestamp(column.type) and column.type.tz is not None else ""
            times = column.cast(pa.timestamp("us")) if zone else column
            texts = thread_kernel().compute_columns(f"c::VARCHAR || '{zone}' AS c", pa.table([times], ["c"]))["c"]
            columns[place] = pc.if_else(far, one_array(texts).cast(pa.string()), column.cast(pa.string()))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _find_far_times(column: pa.Array) -> pa.Array | None:
    """(n,) whether a day is outside of Arrow's years; None if the column has no days."""
    if pa.types.is_date32(column.type):
        numbers, unit = column.cast(pa.int32()), 1
    elif pa.types.is_timestamp(column.type):
        numbers, unit = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), _DAY_US
    else:
        return None
    return pc.or_(pc.less(numbers, _FIRST_DAY * unit), pc.greater_equal(numbers, (_LAST_DAY + 1) * unit))


def _with_texts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in which the columns that `_needs_text` names are text."""
    from tussock.jobs.kernels.kernel import thread_kernel

    columns, others = list(batch.columns), list[int]()
    for i, column in enumerate(batch.columns):
        if column.type == GIVEN_MONTHS and (texts := interval_texts(column)) is not None:
            columns[i] = texts
        elif _needs_text(column.type):
            others.append(i)
    if others:
        other_columns = pa.table([columns[i] for i in others], [f"c{i}" for i in others])
        selected = (f"{'to_json' if is_nested(columns[i].type) else ''}(c{i})::VARCHAR AS c{i}" for i in others)
        converted_columns = thread_kernel().compute_columns(", ".join(selected), other_columns)
        for i in others:
            texts = converted_columns[f"c{i}"].combine_chunks()
            columns[i] = _quote_non_finite(texts) if is_nested(columns[i].type) else texts
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_json(rows: pa.RecordBatchReader, out: BinaryIO) -> None:
    """Write rows as JSON, one object per line.

    Binary values become strings with \\xNN for bytes that are not ASCII, times ISO 8601 strings, decimals numbers. JSON
    has no number for NaN, Infinity and -Infinity: they become strings, as in Spark's to_json.
    """
    for batch in rows:
        out.write("".join(f"{line}\n" for line in json_texts(pa.Table.from_batches([batch]))).encode())


def json_texts(rows: pa.Table) -> list[str]:
    """(rows,) each row as a JSON object, in the form of `write_json`."""
    from tussock.jobs.kernels.kernel import thread_kernel

    fields = ", ".join(f"{quote_identifier(name)} := {quote_identifier(name)}" for name in rows.schema.names)
    texts = thread_kernel().compute_columns(f"to_json(struct_pack({fields}))::VARCHAR AS line", rows)["line"]
    return list(_quote_non_finite(pa.concat_arrays(texts.chunks or [pa.array([], pa.string())])).to_pylist())


def _quote_non_finite(texts: pa.Array) -> pa.Array:
    """(n,) JSON texts of DuckDB, which writes NaN, Infinity and -Infinity without quotes, with these in quotes."""
    if not pc.any(pc.match_substring_regex(texts, "NaN|Infinity")).as_py():
        return texts

    def quote_match(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else f'"{match[0]}"'

    return pa.array(
        [None if text is None else _STRING_OR_NOT_FINITE.sub(quote_match, text) for text in texts.to_pylist()],
        texts.type,
    )


def write_parquet(rows: pa.RecordBatchReader, path: Path, metadata: Mapping[bytes, bytes] | None = None) -> int:
    """Write rows as one Parquet file with `metadata` in its footer. The file appears completely or not at all.

    Returns the number of rows. Raises OSError; NoFormError for intervals of months.
    """
    from pyarrow import parquet

    for field in rows.schema:
        if holds_months(field.type):
            raise NoFormError(field.name, str(field.type), "Parquet")
    count = 0
    schema = rows.schema.with_metadata({**(rows.schema.metadata or {}), **metadata}) if metadata else rows.schema
    with _whole_file(path) as hidden, parquet.ParquetWriter(hidden, schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """Yield a hidden file of this process, which becomes `path` after the block, and is deleted if the block fails.

    A pipe or a device such as /dev/null receives a copy, because a file must not replace it. A link stays a link.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        with TemporaryFolder("rows") as folder, path.open("wb") as out:
            yield (rows_file := Path(folder, "rows"))  # no writer of Parquet accepts a file without positions
            with rows_file.open("rb") as written:
                shutil.copyfileobj(written, out)
        return
    path = Path(os.path.realpath(path))
    if path.is_symlink():  # to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield hidden
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)
