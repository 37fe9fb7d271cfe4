"""Takes columns of arrays, maps and structs apart and rebuilds them, always as whole columns."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.named_rows import rename_columns
from tussock.statestore.types import MONTHS

Leaf = Callable[[pa.Array, pa.DataType], pa.Array]


def is_nested(kind: pa.DataType) -> bool:
    """Whether values of the type contain other values. Arrow cannot compare, sort or group such columns."""
    return bool(pa.types.is_nested(kind))


def holds_floats(kind: pa.DataType) -> bool:
    """Whether the type is a float type or contains one."""
    if is_nested(kind):
        return any(holds_floats(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def rebuild_leaves(array: pa.Array, kind: pa.DataType, leaf: Leaf, of_keys: Leaf | None = None) -> pa.Array:
    """Replace the leaves of a column and keep its shape.

    Args:
        array: any column, nested or not; a column of Arrow's null type becomes NULLs of `kind`.
        kind: the result type. Its nesting equals the column's, matched by position; field names may differ.
        leaf: maps an innermost array and its result type to the new array.
        of_keys: the same for arrays in the keys of maps, if these differ.

    Returns: (n,) of exactly `kind`.
    Cost: the leaf calls, and a pass over the NULLs of structs; lists are not copied.
    """
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(kind):
        children = [rebuild_leaves(array.field(i), kind.field(i).type, leaf, of_keys) for i in range(kind.num_fields)]
        return struct_array(children, kind, array)
    if pa.types.is_map(kind):
        parts = array.values  # `keys` and `items` of a sliced array may be longer than the slice.
        keys = rebuild_leaves(
            parts.field(0), kind.key_type, leaf if of_keys is None else of_keys
        )  # a key contains no map
        entries = [keys, rebuild_leaves(parts.field(1), kind.item_type, leaf, of_keys)]
        entry_structs = pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
        return with_elements(array, kind, entry_structs)
    if pa.types.is_list(kind):
        if not pa.types.is_list(array.type):  # a large list or a fixed-size list
            array = array.cast(pa.list_(array.type.value_type))
        return with_elements(array, kind, rebuild_leaves(array.values, kind.value_type, leaf, of_keys))
    return leaf(array, kind)


def relabel_column(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Convert a column to a type that differs only in field names or in the representation of single values.

    Struct fields are matched by position. Arrow's cast matches them by name, and returns NULL for a missing name. A
    struct without fields may be a Boolean, which is true unless the struct is NULL.
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([relabel_column(chunk, kind) for chunk in column.chunks], kind)
    return rebuild_leaves(column, kind, _cast_leaf)


def _cast_leaf(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(array.type):  # without fields, only NULL or not matters
        return array.is_valid() if not array.null_count else pc.if_else(array.is_valid(), True, None)
    if MONTHS in (array.type, kind):  # Arrow casts durations only from and to int64.
        array = array.cast(pa.int64())
    return array.cast(kind)


def conform_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert columns to the schema's names and exact types, matched by position.

    Differs from `pa.Table.cast` in two ways: struct fields match by position, and a struct may be NULL even if its
    fields are not nullable. Raises pa.ArrowInvalid if a value does not fit.
    """
    if (named := rename_columns(rows, schema)) is not None:
        return named
    columns = (
        c if c.type == kind else relabel_column(c, kind) for c, kind in zip(rows.columns, schema.types, strict=True)
    )
    return pa.Table.from_arrays(list(columns), schema=schema)


def copy_sliced(rows: pa.Table) -> pa.Table:
    """Copy nested columns whose arrays start at an offset, because some Arrow readers reject such arrays.

    One of these readers is pyspark's createDataFrame.

    Cost: a copy of those columns; the others are not copied.
    """
    for i, column in enumerate(rows.columns):
        if is_nested(column.type) and any(chunk.offset for chunk in column.chunks):
            copied = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in column.chunks]
            rows = rows.set_column(i, rows.schema.field(i), pa.chunked_array(copied, column.type))
    return rows


def copy_offset_structs(rows: pa.Table) -> pa.Table:
    """Copy columns in which a struct inside of another value starts at an offset: DuckDB rejects such arrays.

    Cost: a copy of those columns; the others are not copied.
    """
    for i, column in enumerate(rows.columns):
        if is_nested(column.type) and any(map(_has_offset_struct, column.chunks)):
            copied = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in column.chunks]
            rows = rows.set_column(i, rows.schema.field(i), pa.chunked_array(copied, column.type))
    return rows


def _has_offset_struct(array: pa.Array) -> bool:
    is_struct = pa.types.is_struct(array.type)
    inside = [array.field(i) for i in range(array.type.num_fields)] if is_struct else [array.values]
    return any(
        (one.offset > 0 and pa.types.is_struct(one.type)) or _has_offset_struct(one)
        for one in inside
        if is_nested(one.type)
    )


def zero_under_nulls(array: pa.Array) -> pa.Array:
    """Overwrite the bytes under NULLs with zeros, nested NULLs included. Equal columns then have equal bytes.

    Arrow, DuckDB and the JVM leave arbitrary memory contents under NULLs.
    Cost: a gather if the column contains NULLs or is nested.
    """
    if pa.types.is_struct(array.type):
        return struct_array(
            [zero_under_nulls(field) for field in array.flatten()], array.type, array
        )  # NULL in a NULL struct
    if not array.null_count and not is_nested(array.type):
        return array
    # `take` writes zeros for NULLs and drops elements of NULL lists.
    gathered = array.take(pa.array(np.arange(len(array))))
    if pa.types.is_map(kind := gathered.type):
        entries = [zero_under_nulls(gathered.keys), zero_under_nulls(gathered.items)]
        return with_elements(
            gathered, kind, pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
        )
    return with_elements(gathered, kind, zero_under_nulls(gathered.values)) if is_nested(kind) else gathered


def struct_array(fields: Sequence[pa.Array], kind: pa.DataType, like: pa.Array) -> pa.StructArray:
    """Structs with these fields, NULL where `like` is. Arrow builds none without fields, since it lacks a length."""
    if not fields:
        return pa.array([{}], kind).take(pc.if_else(like.is_valid(), 0, None))
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=like.is_null() if like.null_count else None)


def as_list(array: pa.Array) -> pa.Array:
    """Convert maps to lists of structs (key, value). Other columns are returned unchanged."""
    if not pa.types.is_map(array.type):
        return array
    entry_structs = pa.StructArray.from_arrays([array.values.field(0), array.values.field(1)], names=["key", "value"])
    return with_elements(array, pa.list_(entry_structs.type), entry_structs)


def bits_type(kind: pa.DataType) -> pa.DataType:
    """The type with each float type replaced by the integer type of the same width."""
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
    """Replace each float by the integer of its bits, so that -0.0 differs from 0.0 and each NaN equals itself."""
    if not holds_floats(array.type):
        return array
    return rebuild_leaves(
        array, bits_type(array.type), lambda leaf, kind: leaf if leaf.type == kind else leaf.view(kind)
    )


def with_elements(array: pa.Array, kind: pa.DataType, elements: pa.Array) -> pa.Array:
    """Lists (or maps) with the lengths of `array` and other elements; the number of elements is the same."""
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [elements])
