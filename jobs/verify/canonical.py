"""SQL texts that bring a row's columns into a form in which Spark can compare them.

Each value has two parts. The *exact* part is a text or an atomic value in which each float is replaced by its kind
(NULL, NaN, an infinity, a number). The *floats* are an array of doubles in a fixed order. Two values are equal if
their exact parts are equal and their floats are equal or close enough. Maps are sorted by key. A variant becomes its
JSON and its schema. -0.0 counts as 0.0.
"""

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from tussock.jobs.logical.quoting import quote_name


def has_floats(kind: DataType) -> bool:
    """Whether values of a type contain floats."""
    match kind:
        case FloatType() | DoubleType():
            return True
        case ArrayType():
            return has_floats(kind.elementType)
        case MapType():
            return has_floats(kind.keyType) or has_floats(kind.valueType)
        case StructType():
            return any(has_floats(field.dataType) for field in kind)
        case _:
            return False


def exact_hash(columns: Sequence[tuple[str, DataType]]) -> str:
    """The 64-bit hash of the exact parts of some columns.

    Spark's hash skips NULL, so each value is hashed with `IS NULL`.
    """
    parts = ["0L"]
    for text, kind in columns:
        value = _exact_text(text, kind)
        parts += [f"({text}) IS NULL", value]
    return f"xxhash64({', '.join(parts)})"


def floats_of(columns: Sequence[tuple[str, DataType]]) -> str | None:
    """All floats of some columns as one array of doubles. None if no column contains floats."""
    parts = [_float_array(text, kind, 0) for text, kind in columns if has_floats(kind)]
    return f"concat({', '.join(parts)})" if parts else None


def _exact_text(text: str, kind: DataType) -> str:
    """An atomic value unchanged, any other value as a text."""
    if isinstance(kind, ArrayType | MapType | StructType):
        return f"to_json({_nested_text(text, kind, 0)}, map('ignoreNullFields', 'false'))"
    if isinstance(kind, FloatType | DoubleType | VariantType | NullType):
        return _nested_text(text, kind, 0)
    return text


def _nested_text(text: str, kind: DataType, depth: int) -> str:
    """A value inside a column as texts in arrays and structs."""
    match kind:
        case ArrayType():
            x = f"x{depth}"
            return f"transform({text}, {x} -> {_nested_text(x, kind.elementType, depth + 1)})"
        case MapType():
            x = f"x{depth}"
            entry = (
                f"named_struct('k', {_nested_text(f'{x}.key', kind.keyType, depth + 1)}, 'v', "
                f"{_nested_text(f'{x}.value', kind.valueType, depth + 1)})"
            )
            return f"transform({_sorted_entries(text, kind, depth)}, {x} -> {entry})"
        case StructType():
            fields = (
                f"'f{i}', {_nested_text(f'({text}).{quote_name(field.name)}', field.dataType, depth)}"
                for i, field in enumerate(kind)
            )
            return (
                f"CASE WHEN ({text}) IS NOT NULL THEN named_struct({', '.join(fields)}) END"
                if len(kind)
                else "named_struct('f', '')"
            )
        case FloatType() | DoubleType():
            number = f"CAST({text} AS double)"
            special = f"isnan({number}) OR abs({number}) = double('Infinity')"
            return (
                f"CASE WHEN ({text}) IS NULL THEN NULL WHEN {special} THEN CAST({number} AS string) ELSE 'number' END"
            )
        case StringType():
            return text
        case BinaryType():
            return f"hex({text})"
        case TimestampType():
            return f"CAST(unix_micros({text}) AS string)"
        case VariantType():
            return f"concat(schema_of_variant({text}), ' ', to_json({text}))"
        case NullType():
            return "CAST(NULL AS string)"
        case _:
            return f"CAST({text} AS string)"


def _float_array(text: str, kind: DataType, depth: int) -> str:
    """An array of doubles, never NULL. -0.0 becomes 0.0.

    NaN and infinities become NULL, because the exact part has them.
    """
    if not has_floats(kind):
        return "CAST(array() AS array<double>)"
    x = f"y{depth}"
    match kind:
        case ArrayType():
            inner = f"flatten(transform({text}, {x} -> {_float_array(x, kind.elementType, depth + 1)}))"
        case MapType():
            keys = _float_array(f"{x}.key", kind.keyType, depth + 1)
            parts = f"{keys}, {_float_array(f'{x}.value', kind.valueType, depth + 1)}"
            inner = f"flatten(transform({_sorted_entries(text, kind, depth)}, {x} -> concat({parts})))"
        case StructType():
            inner = (
                f"concat({', '.join(_float_array(f'({text}).{quote_name(f.name)}', f.dataType, depth) for f in kind)})"
            )
        case _:
            number = f"CAST({text} AS double)"
            return (
                f"array(CASE WHEN isnan({number}) OR abs({number}) = double('Infinity') THEN NULL ELSE {number} + "
                "0.0D END)"
            )
    return f"coalesce({inner}, CAST(array() AS array<double>))"


def _sorted_entries(text: str, kind: MapType, depth: int) -> str:
    """A map's entries sorted by the texts of their keys, because Spark guarantees no order."""
    a, b = f"a{depth}", f"b{depth}"

    def sort_key(entry: str) -> str:
        nested = isinstance(kind.keyType, ArrayType | MapType | StructType)
        return f"to_json({entry}.key)" if nested else _key_text(f"{entry}.key", kind.keyType)

    less, more = f"{sort_key(a)} < {sort_key(b)}", f"{sort_key(a)} > {sort_key(b)}"
    return f"array_sort(map_entries({text}), ({a}, {b}) -> CASE WHEN {less} THEN -1 WHEN {more} THEN 1 ELSE 0 END)"


def _key_text(text: str, kind: DataType) -> str:
    return f"CAST({text} AS string)" if isinstance(kind, FloatType | DoubleType) else _nested_text(text, kind, 0)
