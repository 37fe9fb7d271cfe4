"""Store and sources in Google's and Azure's storage: views equal Spark's answer over the same rows."""

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.cloud_servers import (
    ACCOUNT,
    ACCOUNT_KEY,
    BUCKET,
    GOOGLE_KEY,
    azurite,
    fake_gcs_server,
    find_emulator,
    memory_server,
)
from tussock import Session
from tussock.statestore.objectstore.open import open_object_store

VIEW = "SELECT shop, count(*) AS sales, sum(amount) AS amount, max(note) AS last_note FROM {} GROUP BY shop"
DDL = "id BIGINT, shop INT, amount DOUBLE, note STRING"


@pytest.fixture(params=["google", *(pytest.param(k, marks=pytest.mark.deep) for k in ("fake-gcs-server", "azurite"))])
def place(
    request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """The beginning of addresses in an empty bucket, and their options."""
    # The JVM started without these; a cluster's workers have their own.
    monkeypatch.setitem(spark.sparkContext.environment, "GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY)
    monkeypatch.setitem(spark.sparkContext.environment, "AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY)
    if request.param == "google":
        with memory_server() as endpoint:
            yield f"gs://{BUCKET}", f"endpoint={endpoint}"
    elif request.param == "fake-gcs-server":
        with fake_gcs_server(_program("fake-gcs-server")) as endpoint:
            yield f"gs://{BUCKET}", f"endpoint={endpoint}"
    else:
        with azurite(_program("azurite-blob")) as endpoint:
            yield f"az://{BUCKET}", f"account={ACCOUNT}&endpoint={endpoint}"


def _program(name: str) -> str:
    if (program := find_emulator(name)) is None:
        pytest.skip(f"{name} is not installed: see tests/support/cloud_servers.py")
    return program


def _day(number: int) -> pa.Table:
    ids = range(number * 100, number * 100 + 50)
    notes = [None if i % 7 == 0 else f"note {i}, ü" for i in ids]
    return pa.table(
        [pa.array(ids, pa.int64()), pa.array([i % 4 for i in ids], pa.int32()), [i * 0.25 for i in ids], notes],
        ["id", "shop", "amount", "note"],
    )


def _encode(table: pa.Table, form: str) -> bytes:
    sink = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, sink)
    else:
        pa.csv.write_csv(table, sink)
    return sink.getvalue()


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_views_over_files_in_a_cloud_equal_spark_at_every_epoch(
    place: tuple[str, str], form: str, spark: SparkSession, tmp_path: Path
) -> None:
    root, options = place
    files = open_object_store(f"{root}/files?{options}")
    days = [_day(0)]
    files.put(f"day0.{form}", _encode(days[0], form))
    with Session(f"{root}/store?{options}", spark) as session:
        header = ", header true" if form == "csv" else ""
        session.execute(
            f"CREATE SOURCE sales ({DDL}) USING {form} OPTIONS (path '{root}/files/*.{form}?{options}'{header})"
        )
        session.execute(f"CREATE MATERIALIZED VIEW shops AS {VIEW.format('sales')}")
        for number in range(1, 4):
            session.flush()
            rows = sorted(session.read("shops").to_pylist(), key=lambda row: row["shop"])
            spark.createDataFrame(pa.concat_tables(days).to_pylist(), DDL).createOrReplaceTempView("expected")
            expected = spark.sql(VIEW.format("expected") + " ORDER BY shop").collect()
            assert rows == [row.asDict() for row in expected]
            days.append(_day(number))
            files.put(f"day{number}.{form}", _encode(days[-1], form))


def test_spark_reads_files_of_a_cloud_through_the_driver(place: tuple[str, str], spark: SparkSession) -> None:
    root, options = place
    files = open_object_store(f"{root}/files?{options}")
    files.put("a b.json", b'{"id": 1, "tags": {"x": [1, 2]}}\n')
    with Session(f"{root}/store?{options}", spark) as session:
        session.execute(
            "CREATE SOURCE events (id BIGINT, tags MAP<STRING, ARRAY<INT>>) USING json "
            f"OPTIONS (path '{root}/files/*.json?{options}', multiLine true)"
        )
        session.execute("CREATE MATERIALIZED VIEW tags AS SELECT id, tags['x'][1] AS second FROM events")
        session.flush()
        assert session.read("tags").to_pylist() == [{"id": 1, "second": 2}]
