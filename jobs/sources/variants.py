"""Variants in files: whole variants, and shredded ones, whose common parts have separate columns.

A group that contains variants has the columns `metadata` (names of fields), `value` (encoded) and, if shredded,
`typed_value`: a column of one type, a list of such groups without metadata, or a struct of them. A value is in
`typed_value` if its type is the column's, otherwise in `value`. Fields of an object without a column stay in
`value`. Spark's reader assembles the parts by the rules of Parquet's specification of variants. `whole_variants`
produces the same bytes: names are numbered in order of occurrence, and numbers take the fewest bytes.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.types import VARIANT

_METADATA, _VALUE, _TYPED = "metadata", "value", "typed_value"
_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)  # the low two bits of a value's first byte
_TRUE, _FALSE, _DOUBLE, _DECIMAL, _DATE, _INSTANT, _LOCAL, _FLOAT, _BINARY, _TEXT, _UUID = (
    1,
    2,
    7,
    8,
    11,
    12,
    13,
    14,
    15,
    16,
    20,
)
_INTEGERS = ((1, 3), (2, 4), (4, 5), (8, 6))  # (bytes, primitive type)
_DECIMALS = ((9, 4), (18, 8), (38, 16))  # (digits, bytes): types 8, 9 and 10
_SHORT_BYTES = 63
_ONE_BYTE = 255

Value = bytes


def is_variant(kind: pa.DataType) -> bool:
    """Return whether a group of a file can contain variants, whole or shredded."""
    if not pa.types.is_struct(kind):
        return False
    found = {field.name: field.type for field in kind}
    has_value = found.get(_VALUE, pa.binary()) == pa.binary() and bool({_VALUE, _TYPED} & set(found))
    return (
        len(found) == kind.num_fields and found.get(_METADATA) == pa.binary() and has_value and not set(found) - _PARTS
    )


_PARTS = {_METADATA, _VALUE, _TYPED}


def whole_variants(array: pa.StructArray) -> pa.StructArray:
    """Convert a file's column of variants to VARIANT. Requires: `is_variant` of its type.

    Raises: pa.ArrowInvalid if a variant lacks its value or its parts contradict each other. Cost: nothing for whole
    variants; for shredded ones, one Python call for each value inside each.
    """
    mask = array.is_null() if array.null_count else None
    if array.type.get_field_index(_TYPED) < 0:
        parts = [array.field(part.name) for part in VARIANT]
        if any(pc.any(pc.and_(part.is_null(), array.is_valid())).as_py() for part in parts if part.null_count):
            raise pa.ArrowInvalid("a variant has no value")
        return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=mask)
    group = _Group(array)
    names, there = array.field(_METADATA).to_pylist(), array.is_valid().to_pylist()
    try:
        made = [_whole(group, row, names[row]) if there[row] else (b"", b"") for row in range(len(array))]
    except (IndexError, struct.error, UnicodeDecodeError) as err:
        raise pa.ArrowInvalid("a variant is damaged") from err
    parts = [pa.array([part[i] for part in made], pa.binary()) for i in range(2)]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=mask)


def canonical_variants(array: pa.StructArray) -> pa.StructArray:
    """Convert VARIANT so that equal values have equal bytes: names sorted, unique, and only the used ones.

    Raises: as `whole_variants`. Cost: one Python call for each value inside each.
    """
    values, names, there = array.field(0).to_pylist(), array.field(1).to_pylist(), array.is_valid().to_pylist()
    try:
        made = [_canonical(values[row], names[row]) if there[row] else (b"", b"") for row in range(len(array))]
    except (IndexError, struct.error, UnicodeDecodeError) as err:
        raise pa.ArrowInvalid("a variant is damaged") from err
    parts = [pa.array([part[i] for part in made], pa.binary()) for i in range(2)]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=array.is_null() if array.null_count else None)


def _whole(group: "_Group", row: int, metadata: bytes | None) -> tuple[Value, bytes]:
    if metadata is None:
        raise pa.ArrowInvalid("a variant has no metadata")
    names = _Names()
    value = group.value(row, _names_in(metadata), names)
    return value, names.metadata()


def _canonical(value: Value, metadata: bytes) -> tuple[Value, bytes]:
    own, used = _names_in(metadata), _Names()
    _copied(value, 0, own, used)
    names = _Names(sorted(used.ids, key=_order))
    return _copied(value, 0, own, names), names.metadata()


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


class _Group:
    """The columns of one group, decoded once for all rows.

    Raises pa.ArrowInvalid if Spark does not read its `typed_value`.
    """

    def __init__(self, array: pa.StructArray) -> None:
        kind = array.type
        self._values = array.field(_VALUE).to_pylist() if kind.get_field_index(_VALUE) >= 0 else [None] * len(array)
        self._typed: Callable[[int, Sequence[str], _Names], Value | None] = lambda row, own, names: None
        self._has_typed: Callable[[int], bool] = lambda row: False
        if kind.get_field_index(_TYPED) < 0:
            return
        typed = array.field(_TYPED)
        if pa.types.is_struct(typed.type):
            self._typed = self._object(typed)
        elif pa.types.is_list(typed.type):
            self._typed = self._array(typed)
        else:
            encoded = _scalars(typed)
            self._typed = lambda row, own, names: encoded[row]
            self._has_typed = lambda row: encoded[row] is not None

    def is_there(self, row: int) -> bool:
        return self._values[row] is not None or self._has_typed(row)

    def value(self, row: int, own: Sequence[str], names: _Names) -> Value:
        """Return the encoded value of a row. `own`: the names in its metadata; `names`: collects new names."""
        if (value := self._typed(row, own, names)) is not None:
            return value
        if (rest := self._values[row]) is None:
            raise pa.ArrowInvalid("a variant has no value")
        return _copied(rest, 0, own, names)

    def _array(self, typed: pa.ListArray) -> Callable[[int, Sequence[str], _Names], Value | None]:
        elements, offsets, valid = _Group(typed.values), typed.offsets.to_pylist(), typed.is_valid().to_pylist()
        self._has_typed = valid.__getitem__

        def made(row: int, own: Sequence[str], names: _Names) -> Value | None:
            if not valid[row]:
                return None
            return _array_of([elements.value(i, own, names) for i in range(offsets[row], offsets[row + 1])])

        return made

    def _object(self, typed: pa.StructArray) -> Callable[[int, Sequence[str], _Names], Value | None]:
        fields = [(field.name, _Group(typed.field(i))) for i, field in enumerate(typed.type)]
        valid, columns = typed.is_valid().to_pylist(), {name for name, _ in fields}
        self._has_typed = valid.__getitem__

        def made(row: int, own: Sequence[str], names: _Names) -> Value | None:
            if not valid[row]:
                return None
            found = [
                (name, names.id_of(name), group.value(row, own, names)) for name, group in fields if group.is_there(row)
            ]
            if (rest := self._values[row]) is not None:
                if rest[0] & 3 != _OBJECT:
                    raise pa.ArrowInvalid("a shredded object has a `value` that is not an object")
                for id, at in _fields_of(rest, 0):
                    if own[id] in columns:
                        raise pa.ArrowInvalid(f"a shredded object has the field {own[id]!r} twice")
                    found.append((own[id], names.id_of(own[id]), _copied(rest, at, own, names)))
            return _object_of(found)

        return made


def _scalars(typed: pa.Array) -> list[Value | None]:
    """Return the encoded values of a column of one type.

    Raises pa.ArrowInvalid for a type that Spark's variants lack.
    """
    kinds, kind = pa.types, typed.type
    encode: Callable[[Any], Value]
    if kinds.is_boolean(kind):
        encode = lambda v: _primitive(_TRUE if v else _FALSE)  # noqa: E731
    elif kinds.is_signed_integer(kind):
        encode = _integer
    elif kinds.is_float32(kind) or kinds.is_float64(kind):
        form, number = ("<f", _FLOAT) if kinds.is_float32(kind) else ("<d", _DOUBLE)
        encode = lambda v: _primitive(number) + struct.pack(form, v)  # noqa: E731
    elif kinds.is_decimal(kind):
        scale = kind.scale
        encode = lambda v: _decimal(v, scale)  # noqa: E731
    elif kinds.is_date(kind):
        typed, encode = typed.cast(pa.int32()), lambda v: _primitive(_DATE) + v.to_bytes(4, "little", signed=True)
    elif kinds.is_timestamp(kind) and kind.unit in ("us", "ms"):
        number = _LOCAL if kind.tz is None else _INSTANT
        typed = typed.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        encode = lambda v: _primitive(number) + v.to_bytes(8, "little", signed=True)  # noqa: E731
    elif kinds.is_string(kind) or kinds.is_binary(kind):
        is_text = kinds.is_string(kind)
        typed, encode = typed.cast(pa.binary()), _text if is_text else _bytes
    elif kind == pa.binary(16):
        encode = lambda v: _primitive(_UUID) + v  # noqa: E731
    else:
        raise pa.ArrowInvalid(f"a variant has a shredded column of the type {kind}, which Spark does not read")
    return [None if v is None else encode(v) for v in typed.to_pylist()]


def _primitive(number: int) -> Value:
    return bytes([number << 2 | _PRIMITIVE])


def _integer(value: int) -> Value:
    width, number = next((w, n) for w, n in _INTEGERS if -(1 << 8 * w - 1) <= value < 1 << 8 * w - 1)
    return _primitive(number) + value.to_bytes(width, "little", signed=True)


def _decimal(value: Any, scale: int) -> Value:
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    place = next(i for i, (most, _) in enumerate(_DECIMALS) if scale <= most and len(str(abs(unscaled))) <= most)
    return _primitive(_DECIMAL + place) + bytes([scale]) + unscaled.to_bytes(_DECIMALS[place][1], "little", signed=True)


def _text(value: bytes) -> Value:
    if len(value) <= _SHORT_BYTES:
        return bytes([len(value) << 2 | _SHORT_TEXT]) + value
    return _primitive(_TEXT) + len(value).to_bytes(4, "little") + value


def _bytes(value: bytes) -> Value:
    return _primitive(_BINARY) + len(value).to_bytes(4, "little") + value


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


def _copied(value: bytes, at: int, own: Sequence[str], names: _Names) -> Value:
    """Copy one value out of another variant's bytes, with its names renumbered. Raises IndexError."""
    basic = value[at] & 3
    if basic == _OBJECT:
        return _object_of(
            [(own[id], names.id_of(own[id]), _copied(value, start, own, names)) for id, start in _fields_of(value, at)]
        )
    if basic == _ARRAY:
        return _array_of([_copied(value, start, own, names) for start in _elements_of(value, at)])
    if basic == _SHORT_TEXT:
        size = value[at] >> 2
    else:
        size = _SIZES[value[at] >> 2]
        if size < 0:
            size = 4 + _number(value, at + 1, 4)
    if at + 1 + size > len(value):
        raise IndexError
    return value[at : at + 1 + size]
