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
from tussock.jobs.sources.variants import canonical_variants
from tussock.statestore.types import VARIANT


def test_a_variant_without_its_value_is_an_error(tmp_path: Path) -> None:
    parts = [pa.array([b"\x01\x00\x00"]), pa.array([None], pa.binary())]
    group = pa.StructArray.from_arrays(parts, names=["metadata", "value"])
    pq.write_table(pa.table({"v": group}), tmp_path / "x.parquet")
    with pytest.raises(UnreadableFileError, match="has no value"):
        read_split(Split(pinned(tmp_path / "x.parquet")), (0,), [Field("v", "variant")], {})


def test_equal_variants_are_equal_bytes() -> None:
    one = {"metadata": b"\x01\x03\x00\x01\x02\x03bax", "value": b"\x02\x02\x01\x00\x02\x00\x04\x0c\x01\x0c\x02"}
    other = {"metadata": b"\x01\x02\x00\x01\x02ab", "value": b"\x02\x02\x00\x01\x00\x02\x04\x0c\x02\x0c\x01"}
    found = canonical_variants(pa.array([one, None, other], VARIANT)).to_pylist()
    assert found[1] is None
    assert found[0] == found[2]
    assert canonical_variants(pa.array([found[0]], VARIANT)).to_pylist() == [found[0]]
