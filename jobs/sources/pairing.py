"""Compare the types of files with the declared types, and bring nested values into the declared shape.

A type reads as the declared one if no value can be lost or change its meaning: a narrower integer, float as double, a
decimal with room for all digits, a timestamp as microseconds. Struct fields match by name, ignoring case, as in Spark.
A file may have more fields, in another order. A field that the file lacks is NULL in each non-NULL struct.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from tussock.jobs.sources.variants import is_variant, whole_variants
from tussock.statestore.nested import is_nested, with_elements
from tussock.statestore.types import MONTHS, VARIANT, UnsupportedTypeError, type_name

_INT_DIGITS = {
    8: 10,
    16: 10,
    32: 10,
    64: 20,
}  # decimal digits that Spark requires before the point: Parquet has no integer below 32 bits


class Misfit(NamedTuple):
    """A part of a column whose type in a file does not read as the declared one."""

    path: str  # the column and the fields below it, as in "s.items.element.price"
    finding: str
    expected: str


def find_misfit(file_type: pa.DataType, declared: pa.DataType, path: str, *, may_lack: bool) -> Misfit | None:
    """Return the first part whose type in a file does not read as the declared one.

    Args:
        path: the name of the column.
        may_lack: allow structs of the file to lack declared fields.

    Returns: None if every value of the file's type is a value of the declared type with the same meaning.
    """
    kinds = pa.types
    if isinstance(file_type, pa.BaseExtensionType):  # a file may name one in Arrow's note on its types
        return find_misfit(file_type.storage_type, declared, path, may_lack=may_lack)
    if kinds.is_null(file_type):  # only NULLs
        return None
    if declared == VARIANT or not (is_nested(file_type) and is_nested(declared)):
        return None if _reads_as(file_type, declared) else _make_misfit(path, file_type, declared)
    if kinds.is_struct(file_type) and kinds.is_struct(declared):
        return next(_misfits_of_fields(file_type, declared, path, may_lack), None)
    if kinds.is_map(file_type) and kinds.is_map(declared):
        sides = [("key", file_type.key_type, declared.key_type), ("value", file_type.item_type, declared.item_type)]
    elif is_list(file_type) and is_list(declared):
        sides = [("element", file_type.value_type, declared.value_type)]
    else:
        return _make_misfit(path, file_type, declared)
    inner = (find_misfit(f, d, f"{path}.{side}", may_lack=may_lack) for side, f, d in sides)
    return next((place for place in inner if place is not None), None)


def reads_as(file_type: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether every value of a file's type is a value of the declared type with the same meaning.

    Structs must contain all declared fields.
    """
    return find_misfit(file_type, declared, "", may_lack=False) is None


def pick_column(
    array: pa.Array, declared: pa.DataType, variants: Callable[[pa.StructArray], pa.StructArray] = whole_variants
) -> pa.Array:
    """Bring a column into the shape of its declared type. Leaves other than variants stay unchanged.

    Structs get the declared fields in the declared order. Fields that the file lacks have Arrow's null type.

    Args:
        variants: converts the groups that contain variants to VARIANT.

    Requires: `find_misfit` returns None. Raises: pa.ArrowInvalid for a damaged variant, NotPlain for a shredded one.
    Cost: lists are not copied.
    """
    kinds = pa.types
    if kinds.is_null(array.type):
        return array
    if declared == VARIANT:
        return variants(array)
    if kinds.is_struct(declared):
        places = {field.name.lower(): i for i, field in enumerate(array.type)}
        positions = (places.get(field.name.lower()) for field in declared)
        fields = [
            pa.nulls(len(array)) if i is None else pick_column(array.field(i), f.type, variants)
            for i, f in zip(positions, declared, strict=True)
        ]
        return pa.StructArray.from_arrays(
            fields, names=[f.name for f in declared], mask=array.is_null() if array.null_count else None
        )
    if kinds.is_map(declared):
        entries = array.values  # `keys` and `items` may be longer than this array
        keys = pick_column(entries.field(0), declared.key_type, variants)
        values = pick_column(entries.field(1), declared.item_type, variants)
        kind = pa.map_(keys.type, values.type)
        return with_elements(
            array, kind, pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
        )
    if kinds.is_list(declared):
        if not kinds.is_list(array.type):  # large offsets, or a fixed size
            array = array.cast(pa.list_(array.type.value_type))
        elements = pick_column(array.values, declared.value_type, variants)
        return with_elements(array, pa.list_(elements.type), elements)
    return array


def undeclared_fields(file_type: pa.DataType, declared: pa.DataType, path: str) -> Iterator[str]:
    """Yield the struct fields of a column that its declared type lacks: `s.x int32`.

    Requires: `find_misfit` returns None.
    """
    kinds = pa.types
    if declared == VARIANT or not (is_nested(file_type) and is_nested(declared)):
        return
    if kinds.is_struct(declared):
        wanted = {field.name.lower(): field.type for field in declared}
        for field in file_type:
            if (kind := wanted.get(field.name.lower())) is None:
                yield f"{path}.{field.name} {field.type}"
            else:
                yield from undeclared_fields(field.type, kind, f"{path}.{field.name}")
    elif kinds.is_map(declared):
        yield from undeclared_fields(file_type.key_type, declared.key_type, f"{path}.key")
        yield from undeclared_fields(file_type.item_type, declared.item_type, f"{path}.value")
    else:
        yield from undeclared_fields(file_type.value_type, declared.value_type, f"{path}.element")


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists, with offsets of any width or of a fixed length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _misfits_of_fields(file_type: pa.DataType, declared: pa.DataType, path: str, may_lack: bool) -> Iterator[Misfit]:
    there: dict[str, list[pa.Field]] = {}
    for field in file_type:
        there.setdefault(field.name.lower(), []).append(field)
    for wanted in declared:
        same, place = there.get(wanted.name.lower(), []), f"{path}.{wanted.name}"
        if len(same) > 1:
            yield Misfit(place, "several fields of this name", _type_text(wanted.type))
        elif same:
            if (inner := find_misfit(same[0].type, wanted.type, place, may_lack=may_lack)) is not None:
                yield inner
        elif not may_lack:
            yield Misfit(
                place, f"no such field (the struct has {', '.join(f.name for f in file_type)})", _type_text(wanted.type)
            )


def _make_misfit(path: str, file_type: pa.DataType, declared: pa.DataType) -> Misfit:
    return Misfit(path, str(file_type), _type_text(declared))


def _type_text(declared: pa.DataType) -> str:
    try:
        return type_name(declared)
    except UnsupportedTypeError:
        return str(declared)


def _reads_as(file_type: pa.DataType, declared: pa.DataType) -> bool:
    """See `reads_as`; if one type is not nested, or a declared variant."""
    kinds = pa.types
    if declared == VARIANT:
        return is_variant(file_type)
    if kinds.is_dictionary(file_type):
        return _reads_as(file_type.value_type, declared)
    if kinds.is_time(declared):
        return bool(file_type == pa.time64("us"))  # the type that Spark reads
    if file_type == declared:
        return True
    if is_nested(file_type) or is_nested(declared):
        return False
    if kinds.is_duration(declared) or kinds.is_duration(file_type):  # both are plain numbers in a file
        return {file_type, declared} in ({pa.int64(), pa.duration("us")}, {pa.int32(), MONTHS})
    if kinds.is_integer(file_type):
        return _integer_reads_as(file_type, declared)
    if kinds.is_floating(file_type):
        return bool(kinds.is_floating(declared) and file_type.bit_width <= declared.bit_width)
    if kinds.is_decimal(file_type):
        return bool(
            kinds.is_decimal(declared)
            and min(declared.scale - file_type.scale, _whole_digits(declared) - _whole_digits(file_type)) >= 0
        )
    if kinds.is_date(file_type):
        return kinds.is_timestamp(declared) and declared.tz is None
    if kinds.is_timestamp(file_type):  # Spark reads local times as UTC instants, never instants as local times
        if declared == pa.int64():
            return bool(file_type.unit == "ns")  # Spark reads the file's number
        return kinds.is_timestamp(declared) and (file_type.tz is None or declared.tz is not None)
    is_text = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    is_bytes = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary)
    return any(is_one(file_type) for is_one in (*is_text, *is_bytes)) and (
        kinds.is_string(declared) or kinds.is_binary(declared)
    )


def _integer_reads_as(file_type: pa.DataType, declared: pa.DataType) -> bool:
    kinds = pa.types
    if kinds.is_signed_integer(declared):
        return bool(
            file_type.bit_width <= declared.bit_width
            if kinds.is_signed_integer(file_type)
            else file_type.bit_width < declared.bit_width
        )
    if kinds.is_decimal(declared):
        if kinds.is_unsigned_integer(file_type):
            return bool(file_type.bit_width == 64 and declared == pa.decimal128(20, 0))
        return bool(_whole_digits(declared) >= _INT_DIGITS[file_type.bit_width])
    # Spark reads uint32 as a signed number when it makes a double.
    return bool(kinds.is_float64(declared) and (file_type.bit_width < 32 or file_type == pa.int32()))


def _whole_digits(decimal: pa.Decimal128Type) -> int:
    return int(decimal.precision - decimal.scale)
