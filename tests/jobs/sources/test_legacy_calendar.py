"""Files in Spark's legacy calendar, compared with Spark's own read."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.jobs.sources.pinned import pinned
from tests.support.spark_types import SparkSession
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.legacy_calendar import legacy_zones, rebased
from tussock.jobs.sources.parquet import ParquetFiles, Split, read_split

FIELDS = (Field("d", "date"), Field("ts", "timestamp"), Field("n", "timestamp_ntz"))
#: Every 11 days and some hours from the year 1 to 2100: 70,000 dates in all centuries, including leap days.
ROWS = """SELECT date_add(DATE'0001-01-01', CAST(id * 11 AS int)) AS d,
  timestamp_micros(-62135596800000000 + id * 950400000000 + id * 12345678901) AS ts,
  CAST(date_add(DATE'0001-01-01', CAST(id * 11 AS int)) AS timestamp_ntz) AS n FROM range(68000)"""


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED"])
@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Los_Angeles", "+05:30"])
@pytest.mark.sampled(4)
def test_dates_and_timestamps_of_all_years_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path, zone: str, kind: str, mode: str
) -> None:
    writer = spark.newSession()
    writer.conf.set("spark.sql.session.timeZone", zone)
    writer.conf.set("spark.sql.parquet.outputTimestampType", kind)
    for key in ("datetimeRebaseModeInWrite", "int96RebaseModeInWrite"):
        writer.conf.set(f"spark.sql.parquet.{key}", mode)
    writer.sql(ROWS).coalesce(1).write.parquet(str(tmp_path / "f"))
    (path,) = (tmp_path / "f").glob("*.parquet")
    found = read_split(Split(pinned(path)), (0, 1, 2), FIELDS, {}).rows.drop_columns("_row_id")
    expected = spark.read.parquet(str(path)).toArrow().cast(found.schema)
    assert found.equals(expected)


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
