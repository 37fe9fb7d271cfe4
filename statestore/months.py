"""Intervals of years and months, in their three Arrow representations.

    kept      duration[s]; the count is months   in memory and in storage: compares, sorts, hashes and groups as int64
    carried   int32                              between Spark and this process: pyarrow lacks Spark's type
    given     month_day_nano_interval            in rows that users pass or receive

Other code would read the kept representation as seconds, so tables are converted whenever they leave or enter.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.nested import conform_rows, is_nested, rebuild_leaves
from tussock.statestore.types import GIVEN_MONTHS, MONTHS

_PARTS = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])


def holds_months(kind: pa.DataType) -> bool:
    """Whether a type, kept or given, is an interval of months or contains one."""
    return kind in (MONTHS, GIVEN_MONTHS) or any(holds_months(kind.field(i).type) for i in range(kind.num_fields))


def carried_type(kind: pa.DataType) -> pa.DataType:
    """The type that represents a kept type in transfers between Spark and this process."""
    return _with_months(kind, pa.int32())


def carried_rows(rows: pa.Table) -> pa.Table:
    """Convert rows for Spark. Free if no column contains months."""
    if not any(map(holds_months, rows.schema.types)):
        return rows
    return conform_rows(rows, pa.schema([field.with_type(carried_type(field.type)) for field in rows.schema]))


def given_type(kind: pa.DataType) -> pa.DataType:
    """The type that users see for a kept type."""
    return _with_months(kind, GIVEN_MONTHS)


def given_array(array: pa.Array) -> pa.Array:
    """(n,) the values as users see them. Free if the type contains no months."""
    if not holds_months(array.type):
        return array
    return rebuild_leaves(
        array, given_type(array.type), lambda leaf, kind: _to_given_months(leaf) if leaf.type == MONTHS else leaf
    )


def given_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`given_array` for each column."""
    if not any(map(holds_months, batch.schema.types)):
        return batch
    return pa.RecordBatch.from_arrays(
        [given_array(column) for column in batch.columns], schema=given_schema(batch.schema)
    )


def given_rows(rows: pa.Table) -> pa.Table:
    """`given_array` for each column."""
    if not any(map(holds_months, rows.schema.types)):
        return rows
    return pa.Table.from_batches([given_batch(batch) for batch in rows.to_batches()], given_schema(rows.schema))


def given_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of `given_rows` for a table with `schema`."""
    return pa.schema([field.with_type(given_type(field.type)) for field in schema], schema.metadata)


def kept_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """(n,) users' values as the kept type `kind`. Raises pa.ArrowInvalid if an interval has days or a time."""
    if not holds_months(kind):
        return array
    return rebuild_leaves(
        array, kind, lambda leaf, wanted: _to_kept_months(leaf) if leaf.type == GIVEN_MONTHS else leaf
    )


def format_given_value(value: object) -> object:
    """Format a given value (`as_py`) for people: an interval of months in Spark's notation, other values unchanged."""
    if not isinstance(value, pa.MonthDayNano):
        return value
    years, months = divmod(abs(value.months), 12)
    return f"INTERVAL '{'-' if value.months < 0 else ''}{years}-{months}' YEAR TO MONTH"


def interval_texts(array: pa.Array) -> pa.Array | None:
    """(n,) given intervals of months in the notation of `format_given_value`. None if one has days or a time."""
    try:
        months = kept_array(array, MONTHS).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    size = pc.abs(months)
    years = pc.divide(size, 12)
    numbers = (years, pc.subtract(size, pc.multiply(years, 12)))
    sign = pc.if_else(pc.less(months, 0), "-", "")
    year, month = (number.cast(pa.string()) for number in numbers)
    return pc.binary_join_element_wise("INTERVAL '", sign, year, "-", month, "' YEAR TO MONTH", "")


def shown_at(column: pa.Array | pa.ChunkedArray, row: int) -> object:
    """Format one kept value for people."""
    value = column[row]
    if holds_months(column.type):
        value = given_rows(pa.table([column.slice(row, 1)], ["c"]))["c"][0]
    try:
        return format_given_value(value.as_py())
    except (OverflowError, ValueError):
        return _not_in_python(value)


def shown_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The given values of a column for people. Texts stand for values that Python lacks, as in `shown_at`."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [shown_at(column, row) for row in range(len(column))]


def _not_in_python(value: pa.Scalar) -> str:
    """Format a date or time outside of the years 1 to 9999, or a text that is not UTF-8."""
    if pa.types.is_string(value.type):
        text: str = value.as_buffer().to_pybytes().decode(errors="backslashreplace")
        return text
    if pa.types.is_date32(value.type):
        return str(np.datetime64(value.value, "D"))
    if pa.types.is_timestamp(value.type):
        zone = "" if value.type.tz is None else "+00:00"
        return str(np.datetime64(value.value, value.type.unit)).replace("T", " ") + zone
    return f"a value of type {value.type} with a date before year 1 or after year 9999, or a text that is not UTF-8"


def _to_given_months(array: pa.Array) -> pa.Array:
    parts = np.zeros(len(array), _PARTS)
    parts["months"] = pc.fill_null(array.cast(pa.int64()), 0).to_numpy()
    valid = None if array.null_count == 0 else pa.array(array.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
    return pa.Array.from_buffers(GIVEN_MONTHS, len(array), [valid, pa.py_buffer(parts)], array.null_count)


def _to_kept_months(array: pa.Array) -> pa.Array:
    data = array.buffers()[1]
    parts = (
        np.zeros(0, _PARTS) if data is None else np.frombuffer(data, _PARTS)[array.offset : array.offset + len(array)]
    )
    null = array.is_null().to_numpy(zero_copy_only=False)
    if ((parts["days"] != 0) | (parts["nanoseconds"] != 0))[~null].any():
        raise pa.ArrowInvalid("an interval with days or a time; the type holds only years and months")
    return pa.array(parts["months"].astype(np.int64), MONTHS, mask=null)


def _with_months(kind: pa.DataType, by: pa.DataType) -> pa.DataType:
    if not is_nested(kind):
        return by if kind == MONTHS else kind
    if not holds_months(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_months(field.type, by)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_months(kind.key_type, by), _with_months(kind.item_type, by))
    return pa.list_(_with_months(kind.value_type, by))
