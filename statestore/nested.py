"""Columns of arrays, maps and structs: taken apart and rebuilt as whole columns, never value by value."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tussock.statestore.types import MONTHS

Leaf = Callable[[pa.Array, pa.DataType], pa.Array]


def is_nested(kind: pa.DataType) -> bool:
    """Whether values of the type hold other values. Arrow neither compares, nor sorts, nor groups by such columns."""
    return bool(pa.types.is_nested(kind))


def holds_floats(kind: pa.DataType) -> bool:
    """Whether values of the type are floats, or hold some."""
    if is_nested(kind):
        return any(holds_floats(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def rebuilt(array: pa.Array, kind: pa.DataType, leaf: Leaf) -> pa.Array:
    """A column of the same shape with other leaves.

    Args:
        array: any column, nested or not; one of Arrow's null type is NULL in every type.
        kind: the type wanted: nested as the array's own is, field by field in order; names may differ.
        leaf: from an innermost array and the type wanted of it to that array.

    Returns: (n,) of exactly `kind`. Cost: that of the leaves, and a pass over the NULLs of structs; lists are not copied.
    """
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(kind):
        children = [rebuilt(array.field(i), kind.field(i).type, leaf) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(
            children, fields=list(kind), mask=array.is_null() if array.null_count else None
        )
    if pa.types.is_map(kind):
        parts = array.values  # `keys` and `items` of a part of an array may be longer than it
        entries = [rebuilt(parts.field(0), kind.key_type, leaf), rebuilt(parts.field(1), kind.item_type, leaf)]
        held = pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
        return with_elements(array, kind, held)
    if pa.types.is_list(kind):
        if not pa.types.is_list(array.type):  # long offsets, or none
            array = array.cast(pa.list_(array.type.value_type))
        return with_elements(array, kind, rebuilt(array.values, kind.value_type, leaf))
    return leaf(array, kind)


def relabelled(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The column in a type that differs from its own in names and in forms of one value alone, by position: Arrow's own cast pairs the
    fields of structs by name, and makes NULL of those it does not find."""
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([relabelled(chunk, kind) for chunk in column.chunks], kind)
    return rebuilt(column, kind, _cast)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if MONTHS in (array.type, kind):  # which Arrow casts from and to 64 bits alone
        array = array.cast(pa.int64())
    return array.cast(kind)


def conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns, by position, under the schema's names and of exactly its types. Raises pa.ArrowInvalid for a value that does not fit.

    As a table's own cast, which pairs the fields of structs by name, and refuses a struct that is NULL where fields of it may not be.
    """
    columns = (c if c.type == kind else relabelled(c, kind) for c, kind in zip(rows.columns, schema.types, strict=True))
    return pa.Table.from_arrays(list(columns), schema=schema)


def unsliced(rows: pa.Table) -> pa.Table:
    """The rows in nested columns that begin where their buffers begin: some readers of Arrow, pyspark's createDataFrame among them, take
    no others. Cost: a copy of the columns that do not."""
    for i, column in enumerate(rows.columns):
        if is_nested(column.type) and any(chunk.offset for chunk in column.chunks):
            copied = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in column.chunks]
            rows = rows.set_column(i, rows.schema.field(i), pa.chunked_array(copied, column.type))
    return rows


def canonical(array: pa.Array) -> pa.Array:
    """The column with zeros or nothing under its NULLs, also those within values: equal columns are then equal bytes.

    What Arrow, DuckDB and the JVM leave there is whatever was in that memory before. Cost: a gather of a column that holds NULLs or is
    nested.
    """
    if pa.types.is_struct(array.type):
        fields = [canonical(field) for field in array.flatten()]  # NULL where the struct is
        return pa.StructArray.from_arrays(
            fields, fields=list(array.type), mask=array.is_null() if array.null_count else None
        )
    if not array.null_count and not is_nested(array.type):
        return array
    gathered = array.take(
        pa.array(np.arange(len(array)))
    )  # with zeros for NULLs, and without the elements that a NULL list may hold
    if pa.types.is_map(kind := gathered.type):
        entries = [canonical(gathered.keys), canonical(gathered.items)]
        return with_elements(
            gathered, kind, pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
        )
    return with_elements(gathered, kind, canonical(gathered.values)) if is_nested(kind) else gathered


def as_list(array: pa.Array) -> pa.Array:
    """A column of maps as lists of structs (key, value); lists as they are."""
    if not pa.types.is_map(array.type):
        return array
    held = pa.StructArray.from_arrays([array.values.field(0), array.values.field(1)], names=["key", "value"])
    return with_elements(array, pa.list_(held.type), held)


def bits_type(kind: pa.DataType) -> pa.DataType:
    """The type with every float in it as the integer of its bits."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, bits_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(bits_type(kind.key_type), bits_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(bits_type(kind.value_type))
    if pa.types.is_floating(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def bits_of(array: pa.Array) -> pa.Array:
    """The column with every float in it as the integer of its bits, so that -0.0 is not 0.0 and a NaN is itself."""
    if not holds_floats(array.type):
        return array
    return rebuilt(array, bits_type(array.type), lambda leaf, kind: leaf if leaf.type == kind else leaf.view(kind))


def with_elements(array: pa.Array, kind: pa.DataType, elements: pa.Array) -> pa.Array:
    """Lists (or maps) of the same lengths over other elements, as many."""
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [elements])
