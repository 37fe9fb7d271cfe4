"""Files in Spark's legacy calendar, compared with Spark's own read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.legacy_calendar import FIELDS, OLD, SPARK_2
from tests.support.jobs.sources.pinned import pinned
from tests.support.jobs.sources.plain_texts import as_decided
from tests.support.spark_types import SparkSession
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import LegacyZoneError
from tussock.jobs.sources.file_documents import document_of
from tussock.jobs.sources.parquet import ParquetFiles

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
    source = CreateSource("s", "parquet", FIELDS, {"path": str(path)})
    reason, ours = as_decided(spark, source, pinned(path))
    assert (reason != "") == (mode == "LEGACY")
    assert isinstance(ours, pa.Table)
    ours = ours.select(range(3)).rename_columns(["d", "ts", "n"])
    assert ours.equals(spark.read.parquet(str(path)).toArrow().cast(ours.schema))


@pytest.mark.spark
def test_times_without_a_zone_are_refused_if_sparks_java_has_another_one(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(OLD).replace_schema_metadata(SPARK_2), path)
    fields = (Field("d", "date"), Field("t", "timestamp"))
    source = CreateSource("s", "parquet", fields, {"path": str(path), "timeZone": "Asia/Tokyo"})
    with pytest.raises(LegacyZoneError, match=r"expects Asia/Tokyo.* of its Java, \S*UTC.*-Duser.timezone=Asia/Tokyo"):
        ParquetFiles().frame(spark, source, document_of([pinned(path)]), (0, 1))
