"""Types of Iceberg columns as types of Tussock and back, and the columns of a data file by their field ids.

A data file has the names that its columns had when it was written; the field ids in its footer connect them with the
present columns. Files that other writers made, and that a table has adopted, have no ids: the table's name mapping
assigns them.
"""

import base64
import datetime as dt
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tussock.jobs.delta.delta_columns import Mapped
from tussock.jobs.delta.delta_log import partition_column
from tussock.statestore.nested import rebuild_leaves, relabel_column
from tussock.statestore.types import array_name, arrow_type, map_name, struct_name

if TYPE_CHECKING:
    from pyiceberg.table.name_mapping import MappedField
    from pyiceberg.types import IcebergType, NestedField

_FIELD_ID = b"PARQUET:field_id"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: The types without arguments whose names differ. Spark's Iceberg reads timestamps and UUIDs in the same way.
_NAMES = {
    "long": "bigint",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "time": "time(6)",
    "uuid": "string",
}
_HEX = np.array([list(b"%02x" % byte) for byte in range(256)], np.uint8)
_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]  # of a UUID's text; the others are dashes


def type_text(kind: "IcebergType", names: Mapping[int, str] = MappingProxyType({})) -> str:
    """Return the type of Tussock for an Iceberg type; the Iceberg name if no column can store it.

    Args:
        names: the names of struct fields by id, which replace their present ones.
    """
    from pyiceberg import types as of

    match kind:
        case of.StructType():
            return struct_name([(_bound_name(f, names), type_text(f.field_type, names)) for f in kind.fields])
        case of.ListType():
            return array_name(type_text(kind.element_type, names))
        case of.MapType():
            return map_name(type_text(kind.key_type, names), type_text(kind.value_type, names))
        case of.DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case of.FixedType():
            return "binary"
    return _NAMES.get(str(kind), str(kind))


def struct_fields_of(kind: "IcebergType") -> dict[int, str]:
    """Return the names of all struct fields inside a type by id."""
    from pyiceberg import types as of

    match kind:
        case of.StructType():
            below = [struct_fields_of(f.field_type) for f in kind.fields]
            return {f.field_id: f.name for f in kind.fields} | {i: name for some in below for i, name in some.items()}
        case of.ListType():
            return struct_fields_of(kind.element_type)
        case of.MapType():
            return struct_fields_of(kind.key_type) | struct_fields_of(kind.value_type)
    return {}


def _bound_name(field: "NestedField", names: Mapping[int, str]) -> str:
    """Return the name under which a struct field is declared. A later field with such a name is another one."""
    if not names or field.field_id in names:
        return names.get(field.field_id, field.name)
    return _missing(field.field_id) if field.name in names.values() else str(field.name)


def column_in_file(
    column: "NestedField",
    names: Mapping[int, str],
    fields: Iterable[pa.Field],
    mapped: Sequence["MappedField"],
    constant: str | None,
) -> Mapped:
    """Return a table's column with its name and type in a data file.

    Args:
        names: as in `type_text`.
        fields: the columns of the file.
        mapped: the table's name mapping, for files without ids.
        constant: the text of the column's value in a file that lacks it; None: NULL.
    """
    by_id = _fields_by_id(fields, mapped)
    table_type = type_text(column.field_type, names)
    if (there := by_id.get(column.field_id)) is None:
        return Mapped(column.name, _missing(column.field_id), constant is not None, table_type, table_type)
    return Mapped(column.name, there[0].name, False, table_type, _stored_text(column.field_type, *there))


def name_in_file(field_id: int, fields: Iterable[pa.Field], mapped: Sequence["MappedField"]) -> str | None:
    """Return the name of a top-level column in a data file; None if the file lacks it."""
    there = _fields_by_id(fields, mapped).get(field_id)
    return None if there is None else str(there[0].name)


def read_columns(file: pq.ParquetFile, columns: Sequence[tuple[int, str, pa.DataType]]) -> pa.Table:
    """Read columns of a data file by their field ids; a column that the file lacks is NULL.

    Names in a file may differ from those of the table: Java writes "a_x20b" for "a b", also inside of structs.

    Args:
        columns: the field id of each, and the name and the type to return. Struct fields match by position.
    """
    stored = {field_id: field.name for field_id, (field, _) in _fields_by_id(file.schema_arrow, ()).items()}
    rows = file.read(columns=[stored[field_id] for field_id, *_ in columns if field_id in stored])
    if not columns:
        return rows  # with the number of rows, which a table of no columns otherwise loses
    return pa.table(
        {
            name: relabel_column(rows[stored[field_id]], kind)
            if field_id in stored
            else pa.nulls(file.metadata.num_rows, kind)
            for field_id, name, kind in columns
        }
    )


def _stored_text(kind: "IcebergType", field: pa.Field, mapped: Sequence["MappedField"]) -> str:
    """Return a type with the names of struct fields in a file."""
    from pyiceberg import types as of

    stored, kinds = field.type, pa.types
    match kind:
        case of.StructType() if kinds.is_struct(stored):
            by_id = _fields_by_id(stored, mapped)
            return struct_name(
                [
                    (there[0].name, _stored_text(f.field_type, *there))
                    if (there := by_id.get(f.field_id)) is not None
                    else (_missing_field(f), type_text(f.field_type))
                    for f in kind.fields
                ]
            )
        case of.ListType() if kinds.is_list(stored) or kinds.is_large_list(stored):
            return array_name(_stored_text(kind.element_type, stored.value_field, _mapped_below(mapped, "element")))
        case of.MapType() if kinds.is_map(stored):
            key = _stored_text(kind.key_type, stored.key_field, _mapped_below(mapped, "key"))
            return map_name(key, _stored_text(kind.value_type, stored.item_field, _mapped_below(mapped, "value")))
    return type_in_files(kind)


def type_in_files(kind: "IcebergType") -> str:
    """Return the type of a column that is not nested in data files and delete files: a UUID is its 16 bytes."""
    return "binary" if str(kind) == "uuid" else type_text(kind)


def texts_of_uuids(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert the UUIDs in a column, at any depth, from bytes to texts. Other values stay unchanged.

    Args:
        column: as `type_in_files`, or as pyiceberg reads it.
        kind: the declared type.
    """

    def convert(values: pa.Array, wanted: pa.DataType) -> pa.Array:
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        is_uuid = values.type in (pa.binary(), pa.binary(16)) and pa.types.is_string(wanted)
        return _uuid_texts(values) if is_uuid else relabel_column(values, wanted)

    return pa.chunked_array([rebuild_leaves(chunk, kind, convert) for chunk in column.chunks], kind)


def _uuid_texts(values: pa.Array) -> pa.StringArray:
    fixed = values.cast(pa.binary(16))
    numbers = np.frombuffer(fixed.buffers()[1], np.uint8)[16 * fixed.offset :][: 16 * len(fixed)]
    texts = np.full((len(fixed), 36), ord("-"), np.uint8)
    texts[:, _DIGITS] = _HEX[numbers].reshape(len(fixed), 32)
    made = pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), len(fixed), [None, pa.py_buffer(texts)])
    return pc.if_else(fixed.is_null(), None, made.cast(pa.binary()).cast(pa.string()))


def _fields_by_id(
    fields: Iterable[pa.Field], mapped: Sequence["MappedField"]
) -> dict[int, tuple[pa.Field, Sequence["MappedField"]]]:
    """Group fields by id, each with the mapping of the fields inside of it."""
    by_name = {name: m for m in mapped for name in m.names}
    by_id = dict[int, tuple[pa.Field, Sequence["MappedField"]]]()
    for field in fields:
        own = by_name.get(field.name)
        number = (field.metadata or {}).get(_FIELD_ID)
        field_id = int(number) if number is not None else None if own is None else own.field_id
        if field_id is not None:
            by_id[field_id] = field, () if own is None else own.fields
    return by_id


def _mapped_below(mapped: Sequence["MappedField"], name: str) -> Sequence["MappedField"]:
    return next((m.fields for m in mapped if name in m.names), ())


def _missing_field(field: "NestedField") -> str:
    """Return a name for a struct field that a file lacks. Raises LookupError if the field has a default value."""
    if field.initial_default is not None:
        raise LookupError(f"the field {field.name} of a struct has a default value, which is not supported")
    return _missing(field.field_id)


def _missing(field_id: int) -> str:
    """Return a name that no column of a file has."""
    return f"_no_field_{field_id}"


def constant_of_column(values: Iterable[tuple[int, str | None]], column: "NestedField") -> str | None:
    """Return the constant text of a column that a file may lack: its partition value, else its initial default."""
    by_id = dict(values)
    return by_id[column.field_id] if column.field_id in by_id else text_of_constant(column.initial_default)


def text_of_constant(value: Any) -> str | None:
    """Return a value of a partition, or a default value, as text for `constant_column`.

    Moments are numbers, as in partitions: Python has no years before 1 and after 9999.
    """
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
            return str((moment - _EPOCH) // dt.timedelta(microseconds=1))
        case dt.date():
            return str((value - _EPOCH.date()).days)
        case dt.time():
            return str((dt.datetime.combine(_EPOCH, value, dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1))
    return None if value is None else str(value)


def constant_column(text: str | None, table_type: str, kind: pa.DataType, rows: int) -> pa.ChunkedArray:
    """Return a constant as a column.

    Args:
        text: from `constant_of_column`.
        table_type: of the table's column, as in `type_text` or in `type_in_files`.
        kind: the declared type.
    """
    if text is None:
        value = pa.scalar(None, kind)
    elif table_type == "string":
        value = pa.scalar(text, pa.string()).cast(kind)
    elif table_type == "binary":  # a UUID has dashes, which base64 has not
        value = pa.scalar(uuid.UUID(text).bytes if "-" in text else base64.b64decode(text), pa.binary()).cast(kind)
    elif table_type == "date":
        value = pa.scalar(int(text), pa.int32()).cast(pa.date32()).cast(kind)
    elif table_type.startswith("timestamp"):
        value = pa.scalar(int(text), pa.int64()).cast(kind)
    elif pa.types.is_time(kind):
        value = pa.scalar(int(text), pa.int64()).cast(pa.time64("us")).cast(kind)
    else:
        return partition_column(text, arrow_type(table_type), kind, rows)
    return pa.chunked_array([pa.repeat(value, rows)], kind)
