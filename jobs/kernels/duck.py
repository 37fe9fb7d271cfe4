"""Small pieces of DuckDB text that the rules share: types, constants, errors."""

import re
from collections.abc import Sequence

import pyarrow as pa

from tussock.jobs.kernels.registry import INTEGER_BITS
from tussock.jobs.logical.nodes import Call, Literal
from tussock.statestore.types import INTERVALS, MONTH_INTERVALS, TIMES, UnsupportedTypeError, arrow_type, is_span
from tussock.statestore.types import type_name as type_name_of

_DUCK = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
    # DuckDB's own intervals contain months and days, and compare differently.
    **dict.fromkeys((*INTERVALS, *MONTH_INTERVALS, *TIMES), "BIGINT"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def duck_type(type_name: str) -> str:
    """DuckDB's name for a type. Raises UnsupportedTypeError."""
    if (simple := _DUCK.get(type_name)) is not None:
        return simple
    if (match := _DECIMAL.fullmatch(type_name)) is not None:
        return f"DECIMAL({match[1]},{match[2]})"
    return _positional_type(arrow_type(type_name))


def _positional_type(kind: pa.DataType) -> str:
    """Like `duck_type`, with positional names for struct fields: DuckDB ignores case when it compares field names."""
    if type_in_duckdb(kind) == pa.bool_():
        return "BOOLEAN"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'f{i} {_positional_type(field.type)}' for i, field in enumerate(kind))})"
    if pa.types.is_map(kind):
        return f"MAP({_positional_type(kind.key_type)}, {_positional_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{_positional_type(kind.value_type)}[]"
    return duck_type(type_name_of(kind))


def type_in_duckdb(kind: pa.DataType) -> pa.DataType:
    """The type as DuckDB uses it: struct fields are named by position, intervals and times are integers.

    DuckDB has no name for a struct without fields, so that its values are true, or NULL.
    """
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return pa.bool_()
        return pa.struct([pa.field(f"f{i}", type_in_duckdb(field.type)) for i, field in enumerate(kind)])
    if pa.types.is_map(kind):
        return pa.map_(type_in_duckdb(kind.key_type), type_in_duckdb(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(type_in_duckdb(kind.value_type))
    return pa.int64() if is_span(kind) else kind


def decimal_of(type_name: str) -> tuple[int, int]:
    """The precision and scale of a decimal type. Raises UnsupportedTypeError for other types."""
    if (match := _DECIMAL.fullmatch(type_name)) is None:
        raise UnsupportedTypeError(type_name)
    return int(match[1]), int(match[2])


def strict_cast(sql: str, type_name: str) -> str:
    """DuckDB's CAST; raises if a value does not fit."""
    return f"CAST({sql} AS {duck_type(type_name)})"


def try_cast(sql: str, type_name: str) -> str:
    """DuckDB's TRY_CAST; NULL if a value does not fit. Errors inside `sql` still raise."""
    return f"TRY_CAST({sql} AS {duck_type(type_name)})"


def array_of(elements: Sequence[str], type_name: str) -> str:
    """A list of values that already have the element type."""
    return f"[{', '.join(elements)}]" if elements else strict_cast("[]", type_name)


def struct_of(fields: Sequence[str]) -> str:
    """A struct of values that already have the field types, with DuckDB's positional field names."""
    if not fields:
        return "TRUE"
    return f"struct_pack({', '.join(f'f{i} := {text}' for i, text in enumerate(fields))})"


def quote_string(text: str) -> str:
    """Quote a string constant."""
    if "\0" in text:  # DuckDB's parser ends a statement at NUL
        return "(" + " || chr(0) || ".join(quote_string(part) for part in text.split("\0")) + ")"
    return "'" + text.replace("'", "''") + "'"


def fail_when(condition: str, reason: str, value: str, call: Call) -> str:
    """`value`, but if `condition` is true, an error in ANSI mode and NULL in TRY mode."""
    if call.mode == "TRY":
        return f"CASE WHEN {condition} THEN NULL ELSE {value} END"
    return f"CASE WHEN {condition} THEN error({quote_string(reason)}) ELSE {value} END"


def int_range(type_name: str) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = INTEGER_BITS[type_name]
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def constant_value(expr: object) -> str | int | bool | None:
    """The value of a constant argument. Requires: the rule refuses calls in which the argument is not constant."""
    assert isinstance(expr, Literal), expr
    return expr.value
