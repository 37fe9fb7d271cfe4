"""Files in Spark's legacy calendar, compared with Spark's own read."""

from pathlib import Path

import pytest

from tests.support.jobs.sources.legacy_calendar import FIELDS
from tests.support.jobs.sources.pinned import pinned
from tests.support.spark_types import SparkSession
from tussock.jobs.sources.parquet import Split, read_split

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
