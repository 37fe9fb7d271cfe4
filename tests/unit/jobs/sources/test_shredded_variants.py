"""Shredded variants of Parquet files, which Spark writes with random schemas. Spark's read of them is compared byte
by byte.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.errors import UnreadableFileError
from tussock.jobs.sources.parquet import Split, read_split
from tussock.jobs.sources.variants import canonical_variants, whole_variants
from tussock.statestore.types import VARIANT


def group(**columns: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


NOTHING = pa.array([b"\x01\x00\x00"])


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (
            group(metadata=NOTHING, value=pa.array([None], pa.binary()), typed_value=pa.array([None], pa.int32())),
            "has no value",
        ),
        (group(metadata=NOTHING, value=pa.array([None], pa.binary())), "has no value"),
        (group(metadata=NOTHING, typed_value=pa.array([1], pa.time64("us"))), "which Spark does not read"),
        (group(metadata=pa.array([b"\x02\x00\x00"]), typed_value=pa.array([1])), "metadata of version 2"),
        (group(metadata=pa.array([b"\x01"]), typed_value=pa.array([1])), "is damaged"),
        (
            group(metadata=NOTHING, value=pa.array([b"\x18\x00"]), typed_value=pa.array([None], pa.int64())),
            "is damaged",
        ),
        (
            group(metadata=NOTHING, value=pa.array([b"\x00"]), typed_value=group(a=group(value=pa.array([b"\x00"])))),
            "a `value` that is not an object",
        ),
        (
            group(
                metadata=pa.array([b"\x01\x01\x00\x01a"]),
                value=pa.array([b"\x02\x01\x00\x00\x01\x00"]),
                typed_value=group(a=group(value=pa.array([b"\x00"]))),
            ),
            "the field 'a' twice",
        ),
    ],
)
def test_parts_that_make_no_variant_are_an_error(array: pa.StructArray, reason: str, tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid, match=reason):
        whole_variants(array)
    pq.write_table(pa.table({"v": array}), tmp_path / "x.parquet")
    with pytest.raises(UnreadableFileError, match=reason):
        read_split(Split(pinned(tmp_path / "x.parquet")), (0,), [Field("v", "variant")], {})


def test_equal_variants_are_equal_bytes() -> None:
    one = {"metadata": b"\x01\x03\x00\x01\x02\x03bax", "value": b"\x02\x02\x01\x00\x02\x00\x04\x0c\x01\x0c\x02"}
    other = {"metadata": b"\x01\x02\x00\x01\x02ab", "value": b"\x02\x02\x00\x01\x00\x02\x04\x0c\x02\x0c\x01"}
    found = canonical_variants(pa.array([one, None, other], VARIANT)).to_pylist()
    assert found[1] is None
    assert found[0] == found[2]
    assert canonical_variants(pa.array([found[0]], VARIANT)).to_pylist() == [found[0]]
