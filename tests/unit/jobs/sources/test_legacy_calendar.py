"""Files in Spark's legacy calendar, compared with Spark's own read."""

import pyarrow as pa
import pytest

from tests.support.jobs.sources.legacy_calendar import FIELDS
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.legacy_calendar import legacy_zones, rebased
from tussock.jobs.sources.parquet import ParquetFiles


def test_the_footer_defines_the_calendar_of_a_file() -> None:
    spark2 = {b"org.apache.spark.version": b"2.4.8"}
    spark30 = {b"org.apache.spark.version": b"3.0.1"}
    legacy = {
        b"org.apache.spark.version": b"4.2.0",
        b"org.apache.spark.legacyDateTime": b"",
        b"org.apache.spark.timeZone": b"Asia/Tokyo",
    }
    found = [legacy_zones(keys, {}) for keys in (spark2, spark30, legacy, {b"writer": b"hive"}, None)]
    assert [(z.datetime, z.int96) for z in found] == [
        ("UTC", "UTC"),
        (None, "UTC"),
        ("Asia/Tokyo", None),
        (None, None),
        (None, None),
    ]
    said = legacy_zones(None, {"datetimerebasemode": "legacy", "timeZone": "Europe/Berlin"})
    assert (said.datetime, said.int96) == ("Europe/Berlin", None)


def test_an_unknown_mode_is_refused() -> None:
    source = CreateSource("s", "parquet", FIELDS, {"path": "/x", "int96RebaseMode": "EXCEPTION"})
    with pytest.raises(BadOptionError, match="expected CORRECTED or LEGACY"):
        ParquetFiles().check(source)


def test_nulls_and_recent_values_stay() -> None:
    recent = pa.chunked_array([pa.array([0, None, -141427], pa.date32())])
    assert rebased(recent, "UTC") is recent
    mixed = pa.chunked_array([pa.array([-141428, None, 5], pa.date32())])
    assert rebased(mixed, "UTC").cast(pa.int32()).to_pylist() == [-141438, None, 5]
