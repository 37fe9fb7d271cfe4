"""Write rows as CSV, JSON lines or Parquet, batch by batch, so that a view may be larger than memory."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tussock.statestore.errors import InputError
from tussock.statestore.months import holds_months


class NoFormError(InputError):
    """The requested format has no representation of a column's type."""

    def __init__(self, column: str, type_name: str, format: str) -> None:
        super().__init__(column, type_name, format)
        self.column, self.type_name, self.format = column, type_name, format
        self.others = "--json" if format == "Parquet" or "month_day" in type_name else "--json or --parquet"

    def __str__(self) -> str:
        return (
            f"column {self.column!r} is {self.type_name}, which {self.format} cannot represent. Use {self.others}, or "
            "select the other columns with --columns."
        )


def write_csv(rows: pa.RecordBatchReader, out: BinaryIO) -> None:
    """Write rows as CSV with a header. NULL is an empty field, an empty string is "".

    Raises NoFormError for arrays, maps, structs and intervals of months.
    """
    from pyarrow import csv

    for field in rows.schema:
        if pa.types.is_nested(field.type) or holds_months(field.type):
            raise NoFormError(field.name, str(field.type), "CSV")
    with csv.CSVWriter(out, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)


def write_json(rows: pa.RecordBatchReader, out: BinaryIO) -> None:
    """Write rows as JSON, one object per line.

    Binary values become strings with \\xNN for bytes that are not ASCII, times ISO 8601 strings, decimals numbers.
    """
    from tussock.jobs.kernels.kernel import thread_kernel

    for batch in rows:
        fields = ", ".join(f"{_quoted(name)} := {_quoted(name)}" for name in batch.schema.names)
        lines = thread_kernel().compute(
            f"to_json(struct_pack({fields}))::VARCHAR AS line", pa.Table.from_batches([batch])
        )["line"]
        out.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())


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
    with _whole(path) as hidden, parquet.ParquetWriter(hidden, schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield a hidden file of this process, which becomes `path` after the block, and is deleted if the block fails."""
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield hidden
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
