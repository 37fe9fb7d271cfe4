"""Nested columns taken apart and rebuilt."""

import pyarrow as pa

from tussock.statestore.nested import unsliced

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
    whole = unsliced(parts)
    assert whole.equals(parts)
    assert [chunk.offset for name in "mls" for chunk in whole.column(name).chunks] == [0] * 9
    assert whole.column("id").chunk(0).offset == 1, "only nested columns are copied"


def test_columns_that_are_not_sliced_are_not_copied() -> None:
    assert unsliced(ROWS) is ROWS
