"""The Python session and the command line with store and source in S3: the same answers, few requests, and a clear
error if S3 is down.
"""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.end_to_end import store_in_s3 as shared
from tests.support.end_to_end.store_in_s3 import Bucket
from tests.support.s3_servers import BUCKET
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.session import Session

bucket = shared.bucket

VIEWS = {
    "by_shop": "SELECT shop, count(*) AS sales, sum(amount) AS total FROM sales GROUP BY shop",
    "named": "SELECT s.name, b.sales, b.total FROM by_shop b JOIN shops s ON b.shop = s.id",
}


@pytest.mark.spark
def test_a_session_lives_in_s3_with_store_and_source(bucket: Bucket, spark: SparkSession) -> None:
    bucket.put_day()
    place = f"path 's3://{BUCKET}/files', endpoint '{bucket.proxy.endpoint}', path_style 'true'"
    session = Session(bucket.store, spark)
    session.execute(f"CREATE SOURCE sales (id bigint, shop int, amount double) USING parquet OPTIONS ({place})")
    session.execute(
        "CREATE TABLE shops (id int, name string, PRIMARY KEY (id)); INSERT INTO shops VALUES (1, "
        "'north'), (2, 'south')"
    )
    for name, select in VIEWS.items():
        session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    session.flush()
    compare(session, spark, bucket, "(1, 'north'), (2, 'south')")
    session.execute("INSERT INTO shops VALUES (3, 'east'); DELETE FROM shops WHERE id = 1")
    bucket.put_day()
    session.flush()
    compare(session, spark, bucket, "(2, 'south'), (3, 'east')")
    again = Session(bucket.store, spark, create=False)  # as another process would open it
    compare(again, spark, bucket, "(2, 'south'), (3, 'east')")

    session.execute("INSERT INTO shops VALUES (0, 'west')")
    bucket.requests()
    session.flush()
    assert_few(bucket.requests())
    session.flush()
    idle = bucket.requests()
    assert not [r for r in idle if r.startswith("PUT")], f"nothing waits, nothing is written: {idle}"
    assert len(idle) <= 9, idle


def assert_few(epoch: list[str]) -> None:
    """Check the requests of an epoch that changes one row, with 2 units, one INSERT and one SST per earlier epoch.

    It writes a barrier, manifest, delta, published pointer and SST. It reads the log, the log's end and the rows that
    the state tables need.
    """
    assert not [r for r in epoch if r.startswith("LIST") and "store" in r], f"no LIST in the store: {epoch}"
    puts = sorted(r.split("/")[2 if "/meta/" in r else 1] for r in epoch if r.startswith("PUT"))
    assert puts == ["barrier", "data", "manifest", "version", "version"], puts
    blocks = [r for r in epoch if r.startswith("GET") and "/data/" in r]
    assert len(blocks) <= 8, blocks
    assert len(epoch) - len(blocks) <= 27, f"{len(epoch)} requests: {epoch}"


def compare(session: Session, spark: SparkSession, bucket: Bucket, shops: str) -> None:
    judge = spark.newSession()
    judge.createDataFrame(pa.concat_tables(bucket.days)).createOrReplaceTempView("sales")
    judge.sql(f"SELECT * FROM VALUES {shops} AS shops(id, name)").createOrReplaceTempView("shops")
    for name, select in VIEWS.items():
        truth = judge.sql(select)
        truth.createOrReplaceTempView(name)
        assert_same_answer(session.query(f"SELECT * FROM {name}"), truth.toArrow(), name)
