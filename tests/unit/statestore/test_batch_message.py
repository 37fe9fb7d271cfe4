"""The message of a batch has the buffers of its columns, and cells of equal rows have equal bytes."""

import random

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.statestore.test_stacked import table
from tussock.jobs.chunks.chunk import encode_table, to_inserts
from tussock.statestore.batch_message import BatchMessage
from tussock.statestore.named_rows import numbered_schema, plain_schema, rename_columns, with_schema
from tussock.statestore.stacked import canonical_rows, count_bytes

NUMBERS = ("int8", "int16", "int32", "int64", "float32", "float64", "bool_")


@pytest.mark.parametrize("count", [0, 1, 2, 700])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_message_has_the_nulls_and_the_values_of_each_column(count: int, rows: int) -> None:
    r = random.Random(count + rows)
    kinds = [pa.type_for_alias(r.choice(NUMBERS[:-1])) for _ in range(count)]
    columns = [pa.array([r.choice([None, 1, 2, 3]) for _ in range(rows + 2)], kind).slice(1, rows) for kind in kinds]
    message = BatchMessage.from_batch(pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(count)]))
    assert message.null_counts.tolist() == [column.null_count for column in columns]
    for kind in set(kinds):
        places = [i for i, one in enumerate(kinds) if one == kind]
        found = message.read_values(2 * np.array(places) + 1, rows * kind.bit_width // 8)
        for values, place in zip(found.copy().view(kind.to_pandas_dtype()), places, strict=True):
            valid = columns[place].is_valid().to_numpy(zero_copy_only=False)
            assert values[valid].tolist() == columns[place].drop_null().to_pylist()


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_cells_of_equal_rows_have_equal_bytes_wherever_the_rows_lie(seed: int, nested: bool) -> None:
    rows = table(seed, 30, 25).slice(3, 11)
    rows = rows if nested else rows.select([f.name for f in rows.schema if not pa.types.is_nested(f.type)])
    rebuilt = pa.Table.from_batches(
        [pa.RecordBatch.from_pylist([row], rows.schema) for row in rows.to_pylist()], rows.schema
    )
    assert canonical_rows(rows).schema == rows.schema
    assert [bytes(b) for b in encode_table(rows)] == [bytes(b) for b in encode_table(rebuilt)]
    assert count_bytes(canonical_rows(rows)) == count_bytes(canonical_rows(rebuilt))


def test_cells_have_no_bytes_under_nulls() -> None:
    bitmap, values = pa.py_buffer(b"\x05"), pa.py_buffer(np.array([1, 99, 3], np.int32))
    dirty = pa.table({"a": pa.Array.from_buffers(pa.int32(), 3, [bitmap, values])})
    (cell,), (clean,) = encode_table(dirty), encode_table(pa.table({"a": pa.array([1, None, 3], pa.int32())}))
    assert bytes(cell) == bytes(clean)


def test_a_chunk_has_plain_columns_whatever_the_rows_are_called() -> None:
    fields = [pa.field("a", pa.int32(), nullable=False, metadata={"id": "1"}), pa.field("b", pa.string())]
    rows = pa.table([[1, 2], ["x", None]], schema=pa.schema(fields, metadata={"of": "a file"}))
    expected = pa.schema([("c0", pa.int32()), ("c1", pa.string()), ("w", pa.int64())])
    assert to_inserts(rows).schema.equals(expected, check_metadata=True)
    assert to_inserts(rows).to_pylist() == [{"c0": 1, "c1": "x", "w": 1}, {"c0": 2, "c1": None, "w": 1}]


def test_rows_are_renamed_only_under_a_schema_of_their_types() -> None:
    rows = pa.table({"a": pa.array([1], pa.int32())})
    wide = pa.schema([("b", pa.int64())])
    strict = pa.schema([pa.field("b", pa.int32(), nullable=False)])
    assert rename_columns(rows, wide) is None
    assert rename_columns(rows, pa.schema([])) is None
    assert with_schema(rows, strict).schema.equals(strict, check_metadata=True)
    assert plain_schema(strict) == pa.schema([("b", pa.int32())])
    assert numbered_schema(strict) == pa.schema([("c0", pa.int32())])
