"""Values of Postgres: the types of columns that a source may declare, and texts of the server as those types.

    Postgres                              declared
    smallint; integer; bigint             that type, or a wider one
    real; double precision                float; double
    numeric                               decimal(p,s) in which each value fits exactly
    boolean; date; bytea; oid             boolean; date; binary; bigint
    timestamp; timestamp with time zone   timestamp_ntz; timestamp
    a domain                              as the type below it
    an array of one dimension             array of the type of its elements
    any type                              string: the server's text

Sessions have fixed formats (SESSION in postgres/connection.py), so the texts do not depend on settings of the server. A
text that does not fit its type raises UnfitTextError, never NULL.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array

_INTEGERS = {"int2": ("smallint", "int", "bigint"), "int4": ("int", "bigint"), "int8": ("bigint",)}
_TYPES = {
    **_INTEGERS,
    "float4": ("float", "double"),
    "float8": ("double",),
    "bool": ("boolean",),
    "date": ("date",),
    "bytea": ("binary",),
    "timestamp": ("timestamp_ntz",),
    "timestamptz": ("timestamp",),
    "oid": ("bigint",),
}
#: The identities of built-in types in pg_type, which never change.
NAMES_BY_OID = {
    16: "bool",
    17: "bytea",
    20: "int8",
    21: "int2",
    23: "int4",
    700: "float4",
    701: "float8",
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
    1700: "numeric",
}


_ARRAY, _OF_ARRAYS = "array<", "[]"
_ELEMENT = r'"(?:[^"\\]|\\.)*"|[^,{}"]+'
_FLAT_ARRAY = rf"(?s)^(?:\[-?\d+:-?\d+\]=)?\{{(?:(?:{_ELEMENT})(?:,(?:{_ELEMENT}))*)?\}}$"  # perhaps after its bounds
_TOKENS = f"regexp_extract_all(regexp_replace(c, '^[^{{]*', ''), '(?s){_ELEMENT}')"
_UNQUOTED = (
    """lambda t: CASE WHEN t = 'NULL' THEN NULL WHEN t[1] = '"' THEN"""
    r""" regexp_replace(t[2:-2], '\\(.)', '\1', 'gs') ELSE t END"""
)


class UnfitTextError(ValueError):
    """A text does not fit the declared type."""


def declared_type(name: str, modifier: int) -> str:
    """Return the type to declare for a column of Postgres.

    Args:
        name: of its type in pg_type; of an array, that of its elements and [].
        modifier: its precision and scale as pg_attribute has them; -1: none.
    """
    if _is_array(name):
        return f"{_ARRAY}{declared_type(name.removesuffix(_OF_ARRAYS), modifier)}>"
    if name == "numeric":
        if modifier < 4:
            return "decimal(38,9)"
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4) & 0x7FF ^ 0x400) - 0x400  # 11 bits, signed
        return f"decimal({precision},{scale})" if 0 <= scale <= precision <= 38 else "string"
    return _TYPES.get(name, ("string",))[0]


def type_objection(name: str, declared: str) -> str | None:
    """Return why a column of this type cannot be read as the declared type; None if it can."""
    allowed = _allowed_types(name)
    if declared == "string" or declared in allowed or ("decimal(p,s)" in allowed and declared.startswith("decimal(")):
        return None
    if _is_array(name):
        if declared.startswith(_ARRAY) and type_objection(name.removesuffix(_OF_ARRAYS), _element_of(declared)) is None:
            return None
        allowed = tuple(f"array<{element}>" for element in (*_allowed_types(name.removesuffix(_OF_ARRAYS)), "string"))
    expected = " or ".join((*allowed, "string"))
    return f"its type in Postgres is {name}, and the source declares {declared} (expected {expected})"


def _allowed_types(name: str) -> tuple[str, ...]:
    return ("decimal(p,s)",) if name == "numeric" else _TYPES.get(name, ())


def _is_array(name: str) -> bool:
    """Return whether a type is an array whose elements commas separate."""
    return name.endswith(_OF_ARRAYS) and name != "box[]"


def _element_of(declared: str) -> str:
    return declared.removeprefix(_ARRAY).removesuffix(">")


def decode_texts(texts: pa.Array, declared: str) -> pa.Array:
    """Return texts of the server as values of a declared type. Raises UnfitTextError."""
    kind = arrow_type(declared)
    if kind == pa.string():
        return texts
    if pa.types.is_list(kind):
        return _decode_arrays(texts, declared)
    if kind == pa.binary():
        return _decode_hex(texts)
    if kind == pa.bool_():
        return pc.equal(texts, "t")
    try:
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return texts.cast(pa.timestamp("us", "UTC")).cast(kind)
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
        raise UnfitTextError(str(err).splitlines()[0]) from err


def _decode_arrays(texts: pa.Array, declared: str) -> pa.Array:
    """(n,) lists, from `{1,NULL,3}`. Raises UnfitTextError for an array of several dimensions."""
    from tussock.jobs.kernels.kernel import thread_kernel

    columns = (f"regexp_matches(c, '{_FLAT_ARRAY}') AS flat", f"list_transform({_TOKENS}, {_UNQUOTED}) AS elements")
    read = thread_kernel().compute_columns(", ".join(columns), pa.table([texts], ["c"]))
    if not pc.all(read["flat"], min_count=0).as_py():
        raise UnfitTextError(f"an array of another form, such as several dimensions, is no {declared}")
    lists = one_array(read["elements"])
    elements = decode_texts(lists.flatten(), _element_of(declared))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, elements, mask=lists.is_null()).cast(arrow_type(declared))


def _decode_hex(texts: pa.Array) -> pa.Array:
    """(n,) binary, from `\\x00ff`."""
    from tussock.jobs.kernels.kernel import thread_kernel

    decoded = thread_kernel().compute_columns("unhex(substr(c, 3)) AS c", pa.table([texts], ["c"]))["c"]
    return one_array(decoded).cast(pa.binary())
