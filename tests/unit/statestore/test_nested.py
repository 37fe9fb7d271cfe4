"""Nested columns taken apart and rebuilt."""

import pyarrow as pa
import pytest

from tussock.statestore.nested import bits_of, copy_sliced, rebuild_leaves, relabel_column, zero_under_nulls
from tussock.statestore.types import arrow_type, type_name

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3]),
        "m": pa.array([[("a", 1)], None, [("b", None)]], pa.map_(pa.string(), pa.int32())),
        "l": pa.array([None, [[("c", 2)], None], []], pa.list_(pa.map_(pa.string(), pa.int32()))),
        "s": pa.array([{"x": [1]}, None, {"x": None}], pa.struct([("x", pa.list_(pa.int64()))])),
    }
)


def test_nested_columns_begin_at_the_start_of_their_buffers() -> None:
    parts = pa.concat_tables([ROWS.slice(1, 2), ROWS.slice(0, 1), ROWS.slice(2, 1)])
    whole = copy_sliced(parts)
    assert whole.equals(parts)
    assert [chunk.offset for name in "mls" for chunk in whole.column(name).chunks] == [0] * 9
    assert whole.column("id").chunk(0).offset == 1, "only nested columns are copied"


def test_columns_that_are_not_sliced_are_not_copied() -> None:
    assert copy_sliced(ROWS) is ROWS


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("struct<>", [{}, None, {}]),
        ("struct<a:struct<>,b:int>", [{"a": {}, "b": 1}, {"a": None, "b": 2}, None]),
        ("array<struct<>>", [[{}, None], None, []]),
        ("map<int,struct<>>", [[(1, {}), (2, None)], None, []]),
    ],
)
def test_structs_without_fields_keep_their_number_and_their_nulls(name: str, values: list[object]) -> None:
    kind = arrow_type(name)
    assert type_name(kind) == name
    column = pa.array([None, *values, None], kind).slice(1, 3)
    flags = relabel_column(pa.chunked_array([column]), _with_flags(kind))
    assert relabel_column(flags, kind).to_pylist() == values
    for same in (zero_under_nulls(column), bits_of(column), rebuild_leaves(column, kind, lambda leaf, _: leaf)):
        assert (same.type, same.to_pylist()) == (kind, values)


def _with_flags(kind: pa.DataType) -> pa.DataType:
    """The type with a Boolean for each struct without fields."""
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _with_flags(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_with_flags(kind.value_type))
    if pa.types.is_struct(kind):
        fields = [pa.field(f.name, _with_flags(f.type)) for f in kind]
        return pa.struct(fields) if fields else pa.bool_()
    return kind
