"""Arrays, structs and maps: construction, access, size and order.

Spark compares arrays and structs part by part, with NULL below every value. DuckDB puts NULL above. They are therefore
compared as the byte strings that define their order in state tables (tussock.statestore.hummock.key).
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.duck import array_of, constant_value, fail_when, quote_string, strict_cast, struct_of
from tussock.jobs.kernels.functions import declare_function
from tussock.jobs.kernels.registry import ANY, FLOATS, NESTED, constant_args, family_of, renders, renders_any
from tussock.jobs.logical.nodes import ROW_KEY, Call, Literal
from tussock.statestore.hummock.key import encode_values
from tussock.statestore.nested import as_list, struct_array, with_elements
from tussock.statestore.types import arrow_type, type_name
from tussock.statestore.vnode import one_array

ORDERED = ("array", "struct")
_NARROW = ("tinyint", "smallint", "int")


def as_bytes(text: str, type_name: str) -> str:
    """An expression that compares as values of the type do: for arrays and structs their bytes, otherwise the value."""
    if family_of(type_name) not in ORDERED:
        return text
    return f"{declare_function(_of_type('bytes_of', type_name), (type_name,), 'binary', _bytes_of)}({text})"


def _of_type(name: str, type_name: str) -> str:
    """The name of a function for one type."""
    return f"{name}_{hashlib.md5(type_name.encode(), usedforsecurity=False).hexdigest()[:16]}"


def _bytes_of(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pc.if_else(column.is_valid(), encode_values(column), pa.scalar(None, pa.binary()))


# Construction -------------------------------------------------------------------------------------


@renders("CreateArray", [((), "array")], strict=False, params=("useStringTypeWhenEmpty",))
def create_array(call: Call, args: Sequence[str]) -> str:
    return array_of(args, call.type)


@renders("CreateNamedStruct", [((), "struct")], strict=False)
def create_named_struct(call: Call, args: Sequence[str]) -> str:
    """Arguments: name, value, name, value, …. The type contains the names too."""
    return struct_of(args[1::2])


@renders("MapSort", [((kind,), kind) for kind in ("array", "map", "struct")])
def map_sort(call: Call, args: Sequence[str]) -> str:
    """Sort the entries of each map in a value by key, at every depth. Spark groups by maps in this form."""
    return f"{declare_function(_of_type('map_sort', call.type), (call.type,), call.type, _map_sort)}({args[0]})"


def _map_sort(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return _with_sorted_maps(one_array(column))


def _with_sorted_maps(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_map(kind):
        return _sorted_map(array)
    if pa.types.is_struct(kind):
        return struct_array([_with_sorted_maps(array.field(i)) for i in range(kind.num_fields)], kind, array)
    return with_elements(array, kind, _with_sorted_maps(array.values)) if pa.types.is_list(kind) else array


def _sorted_map(array: pa.MapArray) -> pa.MapArray:
    maps = as_list(array)
    entries = pc.list_flatten(maps)
    lengths = pc.fill_null(pc.list_value_length(maps), 0).to_numpy()
    by = {"map": np.repeat(np.arange(len(maps)), lengths), "key": encode_values(entries.field(0))}
    order = pc.sort_indices(pa.table(by), [("map", "ascending"), ("key", "ascending")])
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32(), mask=np.append(maps.is_null(), False))
    keys, items = (entries.field(i).take(order) for i in range(2))
    return pa.MapArray.from_arrays(offsets, keys, _with_sorted_maps(items))


@renders_any(ROW_KEY)
def row_key(call: Call, args: Sequence[str]) -> str:
    """The bytes that identify a row in state tables, as hexadecimal text.

    The planner adds the arguments: the columns of the stream key. Without any, there is only one row.
    """
    if not call.args:
        return quote_string("")
    kind = f"struct<{','.join(f'k{i}:{arg.type}' for i, arg in enumerate(call.args))}>"
    return f"hex({as_bytes(struct_of(args), kind)})"


# Access -------------------------------------------------------------------------------------------


@renders("GetStructField", [(("struct",), "any")], params=("ordinal",))
def get_struct_field(call: Call, args: Sequence[str]) -> str:
    return f"struct_extract({args[0]}, 'f{dict(call.params)['ordinal']}')"


def _refuse_wide_index(call: Call) -> str | None:
    return None if call.args[1].type in _NARROW else "is supported only with an index of type int or narrower"


@renders("GetArrayItem", [(("array",), "any")], refuse=_refuse_wide_index, raises=True)
def get_array_item(call: Call, args: Sequence[str]) -> str:
    """`a[i]`; the first index is 0."""
    array, index = args
    beyond = f"{array} IS NOT NULL AND ({index} < 0 OR {index} >= len({array}))"
    return fail_when(beyond, "the array has no such index", _item_at(array, index), call)


@renders("GetArrayItem", [(("array",), "any")], mode="LEGACY", refuse=_refuse_wide_index)
def get_array_item_or_null(call: Call, args: Sequence[str]) -> str:
    """`get(a, i)`."""
    array, index = args
    return f"CASE WHEN {index} >= 0 THEN {_item_at(array, index)} END"


def _item_at(array: str, index: str) -> str:
    return f"{array}[CAST({index} AS BIGINT) + 1]"


@renders("ElementAt", [(("array",), "any")], refuse=_refuse_wide_index, raises=True)
def element_at(call: Call, args: Sequence[str]) -> str:
    """The first index is 1. A negative index counts from the end."""
    array, index = args
    missing = fail_when(
        f"abs(CAST({index} AS BIGINT)) > len({array})", "the array has no such index", f"{array}[{index}]", call
    )
    return _not_from_zero(array, index, missing, call)


@renders(
    "ElementAt",
    [(("array",), "any")],
    mode="LEGACY",  # try_element_at; also split_part, whose default replaces the error
    refuse=_refuse_wide_index,
    raises=True,
    params=("defaultValueOutOfBound",),
)
def element_at_or_default(call: Call, args: Sequence[str]) -> str:
    """Like element_at, but for a missing element the result is NULL, or the default of split_part."""
    array, index = args
    element = f"{array}[{index}]"
    if dict(call.params).get("defaultValueOutOfBound") == "":
        element = f"CASE WHEN abs(CAST({index} AS BIGINT)) > len({array}) THEN '' ELSE {element} END"
    return _not_from_zero(array, index, element, call)


def _not_from_zero(array: str, index: str, value: str, call: Call) -> str:
    return fail_when(f"{array} IS NOT NULL AND {index} = 0", "the index is 0: elements are counted from 1", value, call)


# Order and text -----------------------------------------------------------------------------------


def _refuse_order(call: Call) -> str | None:
    """DuckDB orders nested values otherwise, and keeps no order of 0.0 and -0.0, which are equal to Spark's sort."""
    if any(not isinstance(argument, Literal) or argument.value is None for argument in call.args[1:]):
        return "is supported only with a constant order"
    element = type_name(arrow_type(call.args[0].type).value_type)
    return f"is not tested with elements of type {element}" if family_of(element) in (*FLOATS, *NESTED) else None


@renders("SortArray", [(("array", "boolean"), "array")], refuse=_refuse_order)
def sort_array(call: Call, args: Sequence[str]) -> str:
    """NULLs are below every value."""
    order = "'ASC', 'NULLS FIRST'" if constant_value(call.args[1]) else "'DESC', 'NULLS LAST'"
    return f"list_sort({args[0]}, {order})"


@renders("ArraySort", [(("array",), "array")], refuse=_refuse_order)
def array_sort(call: Call, args: Sequence[str]) -> str:
    """Without a lambda: ascending, and NULLs are last."""
    return f"list_sort({args[0]}, 'ASC', 'NULLS LAST')"


@renders(
    "ArrayJoin",
    [(("array", "string"), "string"), (("array", "string", "string"), "string")],
    refuse=constant_args(1, 2),
)
def array_join(call: Call, args: Sequence[str]) -> str:
    """The elements with a text between them. Without a replacement for NULLs, they are left out."""
    array = args[0]
    if any(constant_value(text) is None for text in call.args[1:]):
        return "CAST(NULL AS VARCHAR)"
    elements = f"list_transform({array}, lambda e: coalesce(e, {args[2]}))" if len(args) == 3 else array
    return f"CASE WHEN {array} IS NOT NULL THEN coalesce(array_to_string({elements}, {args[1]}), '') END"


# Size and membership ------------------------------------------------------------------------------


def _refuse_legacy_size(call: Call) -> str | None:
    return (
        None
        if dict(call.params).get("legacySizeOfNull", "false") == "false"
        else "is not tested with the setting for which the size of NULL is -1"
    )


@renders("Size", [(("array",), "int")], refuse=_refuse_legacy_size, params=("legacySizeOfNull",))
def render_size(call: Call, args: Sequence[str]) -> str:
    return strict_cast(f"len({args[0]})", "int")


@renders("ArrayContains", [(("array", t), "boolean") for t in ANY if t != "map"], strict=False)
def array_contains(call: Call, args: Sequence[str]) -> str:
    """NULL if the value is not found and the array contains a NULL."""
    array, value = args
    has = f"list_contains({array}, {value})"
    unknown = f"{array} IS NULL OR {value} IS NULL"
    return (
        f"CASE WHEN {unknown} THEN NULL WHEN {has} THEN TRUE "
        f"WHEN len({array}) > list_count({array}) THEN NULL ELSE FALSE END"
    )
