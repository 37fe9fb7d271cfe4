"""Variants in files, and one form for equal variants.

A group that contains variants has the columns `metadata` (names of fields) and `value` (encoded). A shredded one also
has `typed_value`, with the parts that have a column of their own: Spark reads such a file (parquet_footer.py).
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.sources.plain_values import NotPlain
from tussock.statestore.types import VARIANT

_METADATA, _VALUE, _TYPED = "metadata", "value", "typed_value"
_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)  # the low two bits of a value's first byte
_ONE_BYTE = 255

Value = bytes


def is_variant(kind: pa.DataType) -> bool:
    """Return whether a group of a file can contain variants, whole or shredded."""
    if not pa.types.is_struct(kind):
        return False
    type_by_field = {field.name: field.type for field in kind}
    has_value = type_by_field.get(_VALUE, pa.binary()) == pa.binary() and bool({_VALUE, _TYPED} & set(type_by_field))
    return (
        len(type_by_field) == kind.num_fields
        and type_by_field.get(_METADATA) == pa.binary()
        and has_value
        and not set(type_by_field) - _PARTS
    )


_PARTS = {_METADATA, _VALUE, _TYPED}


def whole_variants(array: pa.StructArray) -> pa.StructArray:
    """Convert a file's column of variants to VARIANT. Requires: `is_variant` of its type.

    Raises: pa.ArrowInvalid if a variant lacks its value; NotPlain for shredded variants. Cost: none.
    """
    mask = array.is_null() if array.null_count else None
    if array.type.get_field_index(_TYPED) >= 0:
        raise NotPlain("its variants are shredded")
    parts = [array.field(part.name) for part in VARIANT]
    if any(pc.any(pc.and_(part.is_null(), array.is_valid())).as_py() for part in parts if part.null_count):
        raise pa.ArrowInvalid("a variant has no value")
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=mask)


def canonical_variants(array: pa.StructArray) -> pa.StructArray:
    """Convert VARIANT so that equal values have equal bytes: names sorted, unique, and only the used ones.

    Raises: pa.ArrowInvalid for a damaged variant. Cost: one Python call for each value inside each.
    """
    values, names, there = array.field(0).to_pylist(), array.field(1).to_pylist(), array.is_valid().to_pylist()
    try:
        variants = [_canonical(values[row], names[row]) if there[row] else (b"", b"") for row in range(len(array))]
    except (IndexError, struct.error, UnicodeDecodeError) as err:
        raise pa.ArrowInvalid("a variant is damaged") from err
    parts = [pa.array([part[i] for part in variants], pa.binary()) for i in range(2)]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=array.is_null() if array.null_count else None)


def _canonical(value: Value, metadata: bytes) -> tuple[Value, bytes]:
    own, used = _names_in(metadata), _Names()
    _copy_value(value, 0, own, used)
    names = _Names(sorted(used.ids, key=_order))
    return _copy_value(value, 0, own, names), names.metadata()


class _Names:
    """The field names of one variant, numbered in order of occurrence."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.ids = {name: i for i, name in enumerate(names)}

    def id_of(self, name: str) -> int:
        return self.ids.setdefault(name, len(self.ids))

    def metadata(self) -> bytes:
        texts = [name.encode() for name in self.ids]
        width = _width(max(sum(map(len, texts)), len(texts)))
        head = bytes([1 | (width - 1) << 6]) + len(texts).to_bytes(width, "little")
        return head + _offsets([len(text) for text in texts], width) + b"".join(texts)


def _array_of(elements: Sequence[Value]) -> Value:
    count, data = len(elements), b"".join(elements)
    large, width = count > _ONE_BYTE, _width(len(data))
    head = bytes([large << 4 | width - 1 << 2 | _ARRAY]) + count.to_bytes(4 if large else 1, "little")
    return head + _offsets([len(e) for e in elements], width) + data


def _object_of(fields: Sequence[tuple[str, int, Value]]) -> Value:
    """Encode an object.

    `fields`: (name, its number, value) in the order of the values' bytes; offsets are in name order.
    """
    *starts, end = accumulate((len(value) for _, _, value in fields), initial=0)
    order = sorted(range(len(fields)), key=lambda i: _order(fields[i][0]))
    large, width, id_width = len(fields) > _ONE_BYTE, _width(end), _width(max((id for _, id, _ in fields), default=0))
    head = bytes([large << 6 | id_width - 1 << 4 | width - 1 << 2 | _OBJECT]) + len(fields).to_bytes(
        4 if large else 1, "little"
    )
    ids = b"".join(fields[i][1].to_bytes(id_width, "little") for i in order)
    offsets = b"".join(n.to_bytes(width, "little") for n in (*(starts[i] for i in order), end))
    return head + ids + offsets + b"".join(value for _, _, value in fields)


def _offsets(lengths: Sequence[int], width: int) -> bytes:
    return b"".join(n.to_bytes(width, "little") for n in accumulate(lengths, initial=0))


def _order(name: str) -> bytes:
    """Return the sort key of a name: Java compares strings by UTF-16 units."""
    return name.encode("utf-16-be")


def _width(number: int) -> int:
    """Return the fewest bytes, from 1 to 4, that store a number."""
    return max(1, (number.bit_length() + 7) // 8)


def _names_in(metadata: bytes) -> list[str]:
    """Decode the names of a variant's metadata. Raises IndexError, UnicodeDecodeError."""
    if metadata[0] & 15 != 1:
        raise pa.ArrowInvalid(f"a variant has metadata of version {metadata[0] & 15}; expected 1")
    width = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, width)
    first, start = 1 + width, 1 + (count + 2) * width
    ends = [_number(metadata, first + i * width, width) for i in range(count + 1)]
    if ends and start + ends[-1] > len(metadata):
        raise IndexError
    return [metadata[start + a : start + b].decode() for a, b in pairwise(ends)]


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + width], "little")


def _fields_of(value: bytes, at: int) -> list[tuple[int, int]]:
    """Return the fields of an object: (number of the name, offset of the value)."""
    head = value[at] >> 2
    width, id_width, count_width = (head & 3) + 1, (head >> 2 & 3) + 1, 4 if head >> 4 & 1 else 1
    count = _number(value, at + 1, count_width)
    ids = at + 1 + count_width
    offsets = ids + count * id_width
    data = offsets + (count + 1) * width
    return [
        (_number(value, ids + i * id_width, id_width), data + _number(value, offsets + i * width, width))
        for i in range(count)
    ]


def _elements_of(value: bytes, at: int) -> list[int]:
    """Return the offsets of the elements of an array."""
    head = value[at] >> 2
    width, count_width = (head & 3) + 1, 4 if head >> 2 & 1 else 1
    count = _number(value, at + 1, count_width)
    offsets = at + 1 + count_width
    data = offsets + (count + 1) * width
    return [data + _number(value, offsets + i * width, width) for i in range(count)]


#: Bytes of the primitive types after the first byte; -1: the length precedes the data.
_SIZES = (0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, -1, -1, 8, 8, 8, 16)


def _copy_value(value: bytes, at: int, own: Sequence[str], names: _Names) -> Value:
    """Copy one value out of another variant's bytes, with its names renumbered. Raises IndexError."""
    basic = value[at] & 3
    if basic == _OBJECT:
        return _object_of(
            [
                (own[id], names.id_of(own[id]), _copy_value(value, start, own, names))
                for id, start in _fields_of(value, at)
            ]
        )
    if basic == _ARRAY:
        return _array_of([_copy_value(value, start, own, names) for start in _elements_of(value, at)])
    if basic == _SHORT_TEXT:
        size = value[at] >> 2
    else:
        size = _SIZES[value[at] >> 2]
        if size < 0:
            size = 4 + _number(value, at + 1, 4)
    if at + 1 + size > len(value):
        raise IndexError
    return value[at : at + 1 + size]
