"""The footer of a Parquet file decides whether Spark reads it for its calendar."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.legacy_calendar import FIELDS, OLD, SPARK_2
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.parquet import ParquetFiles
from tussock.jobs.sources.parquet_footer import reason_for_spark


def reason_of(path: Path, keys: dict[bytes, bytes], values: dict[str, pa.Array], **options: str) -> str | None:
    """Why Spark reads a file with these keys and columns."""
    int96 = options.pop("int96", "") == "true"
    table = pa.table(values).replace_schema_metadata(keys)
    pq.write_table(table, path, use_deprecated_int96_timestamps=int96)
    fields = tuple(Field(name, "date" if name == "d" else "timestamp") for name in values)
    return reason_for_spark(pq.read_metadata(path), fields, options)


NEW = {"d": pa.array([0, None], pa.date32()), "t": pa.array([0, None], pa.timestamp("us", "UTC"))}
SPARK_3 = {b"org.apache.spark.version": b"3.0.1"}
LEGACY = {b"org.apache.spark.version": b"4.2.0", b"org.apache.spark.legacyDateTime": b""}


@pytest.mark.parametrize(
    ("keys", "values", "options", "legacy"),
    [
        (SPARK_2, OLD, {}, True),
        (SPARK_2, {"d": OLD["d"]}, {}, True),
        (SPARK_2, NEW, {}, False),
        (SPARK_2, {"t": NEW["t"]}, {"int96": "true"}, True),  # INT96 has no statistics
        (SPARK_2, {}, {}, False),
        (SPARK_3, OLD, {}, False),
        (SPARK_3, {"t": OLD["t"]}, {"int96": "true"}, True),
        (LEGACY, OLD, {}, True),
        ({b"writer": b"hive"}, OLD, {}, False),
        ({}, OLD, {"datetimeRebaseMode": "legacy"}, True),
        (SPARK_3, OLD, {"datetimeRebaseMode": "legacy"}, False),
    ],
)
def test_the_footer_and_its_statistics_decide_who_reads_old_dates(
    keys: dict[bytes, bytes], values: dict[str, pa.Array], options: dict[str, str], legacy: bool, tmp_path: Path
) -> None:
    reason = reason_of(tmp_path / "x.parquet", keys, values, **options)
    assert reason == ("its dates or times are in Spark's legacy calendar" if legacy else None)


def test_an_unknown_mode_is_refused() -> None:
    source = CreateSource("s", "parquet", FIELDS, {"path": "/x", "int96RebaseMode": "EXCEPTION"})
    with pytest.raises(BadOptionError, match="expected CORRECTED or LEGACY"):
        ParquetFiles().check(source)
