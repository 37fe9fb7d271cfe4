"""Check and cast rows for a table without SQL, as INSERT stores them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.jobs.catalog.definition import TableDefinition, definition_of
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.key_columns import require_values
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.logical.text_lengths import fitted_texts
from tussock.statestore.decimals import as_decimals
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.months import kept_array
from tussock.statestore.nested import is_nested, rebuild_leaves
from tussock.statestore.types import GIVEN_MONTHS, MONTHS, arrow_type
from tussock.statestore.vnode import one_array


class UnfitRowsError(InputError):
    """Rows that a table cannot store in their current form."""

    table: str
    column: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return (
            f"rows for table {self.table!r}, column {self.column!r}: found {self.finding}, expected {self.expected}. "
            "Nothing was inserted."
        )


_DAY_IN_MICROS = 24 * 60 * 60 * 1_000_000


def rows_for_table(table: Relation, rows: pa.Table) -> pa.Table:
    """Rows in the form in which a table stores them.

    Names match without regard to case. A column that `rows` lacks gets its default. Values are cast if every value
    stays the same: numbers to numbers, text to text, timestamps with a zone to TIMESTAMP. Nothing is cast to or from
    text.

    Returns: (rows, the table's columns in order) of exactly their types.

    Raises: UnfitRowsError, NullKeyError.
    Cost: a pass over each column of another type than the table's, and over text, to check its encoding.
    """
    definition = definition_of(table)
    assert isinstance(definition, TableDefinition), f"{table.name} is not a table"
    place_by_name = {name.lower(): i for i, name in enumerate(rows.column_names)}
    names = tuple(c.name for c in table.columns)
    known = {name.lower() for name in names}
    for name in rows.column_names:
        if name.lower() not in known:
            raise UnfitRowsError(
                table.name, name, "a column that the table does not have", f"one of {', '.join(names)}"
            )
    if len(place_by_name) < rows.num_columns:
        twice = next(name for i, name in enumerate(rows.column_names) if place_by_name[name.lower()] != i)
        raise UnfitRowsError(table.name, twice, "the column twice", "each column once")
    schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in table.columns])
    columns: list[pa.ChunkedArray] = []
    for field in schema:
        if (place := place_by_name.get(field.name.lower())) is None:
            columns.append(_default_column(definition.statement, len(columns), field, rows.num_rows))
        else:
            columns.append(_to_stored_column(table.name, field, rows.column(place)))
    stored = pa.Table.from_arrays(columns, schema=schema)
    require_values(definition.statement, stored)
    return fitted_texts(definition.statement, stored)


def _default_column(table: CreateTable, column: int, field: pa.Field, rows: int) -> pa.ChunkedArray:
    """The default values of a column. Raises UnfitRowsError if Spark would have to compute the default."""
    default = next((d for d in table.defaults if d.column == column), None)
    if default is None:
        return pa.chunked_array([pa.nulls(rows, field.type)])
    if default.value is None:
        raise UnfitRowsError(
            table.name, field.name, f"no values, and a default that is computed ({default.sql})", "values for it"
        )
    one_row = pa.table({"c0": pa.array([0], pa.int64())})
    computed = thread_kernel().project_columns(one_row, [default.value], [table.fields[column].type])
    return computed.column(0).take(pa.array(np.zeros(rows, np.int64)))


def _to_stored_column(table: str, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in the table's type. Arrays, maps and structs are converted part by part.

    Raises: UnfitRowsError if a value would change.
    """
    if is_nested(field.type) and _have_same_shape(column.type, field.type):

        def convert_part(values: pa.Array, kind: pa.DataType) -> pa.Array:
            return one_array(_to_stored_column(table, field.with_type(kind), pa.chunked_array([values])))

        return pa.chunked_array(
            [rebuild_leaves(chunk, field.type, convert_part) for chunk in column.chunks], field.type
        )
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pt.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), field.type)])
    if field.type == MONTHS:
        return _to_months(table, field, column)
    if column.type != field.type and not _is_assignable(column.type, field.type):
        raise UnfitRowsError(
            table, field.name, str(column.type), f"{field.type}, or a type that converts to it without loss"
        )
    try:
        decimals = pt.is_decimal(column.type) and pt.is_decimal(field.type)
        cast = as_decimals(column, field.type) if decimals else column.cast(field.type)
        if column.type != field.type and _cast_group(field.type) == "number":
            _require_same(column, cast)
        if pt.is_time(field.type):
            _require_microseconds_of_a_day(cast)
        cast.validate(full=True)  # otherwise text that is not UTF-8 is found only when a kernel fails on it
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
        raise UnfitRowsError(
            table, field.name, f"{column.type} with a value that does not fit ({err})", str(field.type)
        ) from err
    return cast


def _require_microseconds_of_a_day(times: pa.ChunkedArray) -> None:
    """Raises pa.ArrowInvalid for a time with more digits, or outside of a day, which Arrow does not check."""
    micros = times.cast(pa.time64("us")).cast(pa.int64())
    inside = pc.and_(pc.greater_equal(micros, 0), pc.less(micros, _DAY_IN_MICROS))
    if pc.all(inside, min_count=0).as_py() is False:
        raise pa.ArrowInvalid("a time of day is before 00:00:00 or after 23:59:59.999999")


def _to_months(table: str, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Intervals of months in the table's form. Raises UnfitRowsError."""
    if column.type != GIVEN_MONTHS:
        raise UnfitRowsError(table, field.name, str(column.type), str(GIVEN_MONTHS))
    try:
        return pa.chunked_array([kept_array(chunk, field.type) for chunk in column.chunks], field.type)
    except pa.ArrowInvalid as err:
        raise UnfitRowsError(table, field.name, str(err), f"{GIVEN_MONTHS} of months") from err


def _have_same_shape(given_type: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types have the same structure of arrays, maps and structs.

    Struct fields must match by name and order.
    """
    if pt.is_list(wanted):
        lists = pt.is_list(given_type) or pt.is_large_list(given_type) or pt.is_fixed_size_list(given_type)
        return lists and _have_same_shape(given_type.value_type, wanted.value_type)
    if pt.is_map(wanted):
        return (
            pt.is_map(given_type)
            and _have_same_shape(given_type.key_type, wanted.key_type)
            and _have_same_shape(given_type.item_type, wanted.item_type)
        )
    if pt.is_struct(wanted):
        names = [f.name.lower() for f in wanted]
        return (
            pt.is_struct(given_type)
            and [f.name.lower() for f in given_type] == names
            and all(map(_have_same_shape, _field_types(given_type), _field_types(wanted)))
        )
    return not is_nested(given_type)


def _field_types(of: pa.DataType) -> list[pa.DataType]:
    return [field.type for field in of]


def _require_same(column: pa.ChunkedArray, cast: pa.ChunkedArray) -> None:
    """Raises pa.ArrowInvalid if the cast changes a value. Arrow's safe casts round doubles to floats."""
    if pt.is_floating(cast.type):
        back = cast.cast(column.type)
        same = pc.or_kleene(pc.equal(back, column), pc.is_nan(cast))
        if pc.all(same, min_count=0).as_py() is False:
            raise pa.ArrowInvalid("it has more digits than the type can store")


def _is_assignable(given_type: pa.DataType, wanted: pa.DataType) -> bool:
    if pt.is_timestamp(given_type) and pt.is_timestamp(wanted):
        return (given_type.tz is None) == (wanted.tz is None)
    kind = _cast_group(given_type)
    return kind is not None and kind == _cast_group(wanted)


def _cast_group(of: pa.DataType) -> str | None:
    """The group of types that are cast among each other. None: no casts."""
    if pt.is_integer(of) or pt.is_floating(of) or pt.is_decimal(of):
        return "number"
    if pt.is_string(of) or pt.is_large_string(of) or pt.is_string_view(of):
        return "text"
    if pt.is_binary(of) or pt.is_large_binary(of) or pt.is_fixed_size_binary(of) or pt.is_binary_view(of):
        return "bytes"
    if pt.is_time(of):
        return "time of day"
    if pt.is_duration(of):
        return "duration"
    return "date" if pt.is_date(of) else None
