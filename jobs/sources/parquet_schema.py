"""The columns of a source whose files say them: Parquet's types as Spark reads them, and what is wrong with any format's."""

from collections.abc import Sequence
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.sql.logical import Field
from statestore.errors import DamagedError, InputError
from statestore.types import INTERVALS, MONTH_INTERVALS, UnsupportedTypeError, array_name, map_name, struct_name, type_name

_SPARKS_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
# what Spark's reader makes of types it has no equal for: unsigned integers grow, other widths of text and bytes are one type
_WIDENED: dict[pa.DataType, str] = {
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
}


class UnreadableSchemaError(DamagedError):
    """A file that cannot say its columns."""

    def __init__(self, file: str, format: str, reason: str) -> None:
        super().__init__(file, format, reason)
        self.file, self.format, self.reason = file, format, reason

    def __str__(self) -> str:
        return (
            f"the columns of {self.file} cannot be read: {self.reason}. "
            f"Expected a file of format {self.format}; check the file, or declare the source's columns."
        )


class UnsupportedFileTypeError(InputError):
    """Input without a column of a type that a table can hold."""

    def __init__(self, source: str, fields: Sequence[Field]) -> None:
        super().__init__(source, tuple(fields))
        self.source, self.fields = source, fields

    def __str__(self) -> str:
        found = ", ".join(f"{f.name} {f.type}" for f in self.fields) or "no column"
        return f"source {self.source!r} has no column that can be kept: found {found}, expected one of a type that docs/sql.md names"


def parquet_fields(file: BinaryIO, name: str) -> tuple[Field, ...]:
    """The columns of a Parquet file, by Spark's type names.

    Args:
        file: the file, opened; only its footer is read.
        name: what messages call it.

    A type that no table can hold (times of day, nanoseconds that Spark refuses) is called as Arrow calls it. Raises: UnreadableSchemaError.
    """
    try:
        opened = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as err:
        raise UnreadableSchemaError(name, "parquet", str(err).rstrip(".")) from err
    leaves = [opened.schema.column(i) for i in range(len(opened.schema))]
    old = tuple(f"{leaf.path}." for leaf in leaves if leaf.physical_type == "INT96")  # Arrow calls them local times, Spark instants
    noted = _noted_by_spark(opened.schema_arrow)
    return tuple(
        Field(f.name, noted.get(f.name) or _type_of(f, any(path.startswith(f"{f.name}.") for path in old))) for f in opened.schema_arrow
    )


def _noted_by_spark(schema: pa.Schema) -> dict[str, str]:
    """The columns that are intervals or variants in a file that Spark wrote: numbers and structs but for Spark's own note on them."""
    note = (schema.metadata or {}).get(_SPARKS_NOTE)
    columns = msgspec.json.decode(note)["fields"] if note is not None else []
    spans = {**dict.fromkeys(INTERVALS, pa.types.is_int64), **dict.fromkeys(MONTH_INTERVALS, pa.types.is_int32)}
    stored = {**spans, "variant": pa.types.is_struct}
    kinds = [(c["name"], c["type"]) for c in columns if isinstance(c["type"], str)]
    return {name: kind for name, kind in kinds if kind in stored and stored[kind](schema.field(name).type)}


def _type_of(column: pa.Field, old_times: bool) -> str:
    try:
        return _spark_type(column.type, old_times)
    except UnsupportedTypeError:
        return str(column.type)


def _spark_type(kind: pa.DataType, old_times: bool) -> str:
    """What Spark reads a type as. `old_times`: local times are instants. Raises UnsupportedTypeError."""
    if pa.types.is_dictionary(kind):  # written from a categorical; the file itself holds plain values
        kind = kind.value_type
    if pa.types.is_struct(kind) and kind.num_fields:
        return struct_name([(field.name, _spark_type(field.type, old_times)) for field in kind])
    if pa.types.is_map(kind):
        return map_name(_spark_type(kind.key_type, old_times), _spark_type(kind.item_type, old_times))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return array_name(_spark_type(kind.value_type, old_times))
    if pa.types.is_timestamp(kind) and (kind.unit != "ns" or old_times):
        return "timestamp_ntz" if kind.tz is None and not old_times else "timestamp"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_duration(kind):  # Arrow's own note on a plain number, which Spark does not know
        return "bigint"
    if pa.types.is_time(kind):  # which Spark reads under a setting alone
        raise UnsupportedTypeError(str(kind))
    return _WIDENED.get(kind) or type_name(kind)
