"""The Python session and the command line with store and source in S3: the same answers, few requests, and a clear
error if S3 is down.
"""

import io
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.lossy_proxy import LossyProxy
from tests.s3_servers import BUCKET, KEY, SECRET, moto_server
from tests.truth.compare import assert_same_answer
from tussock.jobs import cli
from tussock.jobs.session import Session

VIEWS = {
    "by_shop": "SELECT shop, count(*) AS sales, sum(amount) AS total FROM sales GROUP BY shop",
    "named": "SELECT s.name, b.sales, b.total FROM by_shop b JOIN shops s ON b.shop = s.id",
}
REFUSED_WITHIN_S = 20  # up to four attempts and their backoff, with room for a busy machine


@dataclass
class Bucket:
    """A bucket that records its requests, and its source files, one per day."""

    proxy: LossyProxy
    days: list[pa.Table] = field(default_factory=list)

    @property
    def store(self) -> str:
        return f"s3://{BUCKET}/store?endpoint={self.proxy.endpoint}&path_style=true"

    def put_day(self) -> None:
        ids = range(len(self.days) * 100, len(self.days) * 100 + 50)
        columns = [
            pa.array(ids, pa.int64()),
            pa.array([i % 4 for i in ids], pa.int32()),
            pa.array([i * 0.25 for i in ids], pa.float64()),
        ]
        self.days.append(pa.table(columns, ["id", "shop", "amount"]))
        sink = io.BytesIO()
        pq.write_table(self.days[-1], sink)
        client = boto3.client("s3", endpoint_url=self.proxy.upstream, region_name="us-east-1")
        client.put_object(Bucket=BUCKET, Key=f"files/day{len(self.days)}.parquet", Body=sink.getvalue())

    def requests(self) -> list[str]:
        """The requests since the last call, such as `LIST files`, `GET store/meta/head.json`."""
        seen = [
            (method, *path.removeprefix(f"/{BUCKET}").lstrip("/").partition("?")) for method, path in self.proxy.seen
        ]
        self.proxy.seen.clear()
        return [f"LIST {query}" if "list-type" in query else f"{method} {name}" for method, name, _, query in seen]


@pytest.fixture
def bucket(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    login = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    for name, value in login.items():  # the JVM may have started without them; a cluster's workers have their own
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    with moto_server() as endpoint, LossyProxy(endpoint) as proxy:
        yield Bucket(proxy)


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
    assert len(idle) <= 12, idle


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
    assert len(epoch) - len(blocks) <= 25, f"{len(epoch)} requests: {epoch}"


def compare(session: Session, spark: SparkSession, bucket: Bucket, shops: str) -> None:
    judge = spark.newSession()
    judge.createDataFrame(pa.concat_tables(bucket.days)).createOrReplaceTempView("sales")
    judge.sql(f"SELECT * FROM VALUES {shops} AS shops(id, name)").createOrReplaceTempView("shops")
    for name, select in VIEWS.items():
        truth = judge.sql(select)
        truth.createOrReplaceTempView(name)
        assert_same_answer(session.query(f"SELECT * FROM {name}"), truth.toArrow(), name)


@pytest.fixture
def refusing() -> Iterator[str]:
    """A store's address at a port that refuses connections; the port stays reserved."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"s3://bucket/store?endpoint=http://127.0.0.1:{taken.getsockname()[1]}&path_style=true"


@pytest.mark.parametrize(
    "command",
    [
        ("init",),
        ("show",),
        ("epoch",),
        ("query", "SELECT 1"),
        ("explain",),
        ("inspect", "versions"),
        ("barrier", "show"),
    ],
    ids=lambda command: command[0],
)
def test_every_command_reports_that_an_endpoint_refuses(
    command: tuple[str, ...], refusing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log_in(monkeypatch)
    start = time.monotonic()
    assert cli.main([*command, "--store", refusing]) == 1
    assert time.monotonic() - start < REFUSED_WITHIN_S
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert (
        f"failed at {refusing}: the endpoint refuses connections, or its host name is unknown. Check the endpoint"
        in told.err
    )
    assert told.err.count("\n") <= 2, "one message, no traceback"


def test_applying_a_pipeline_reports_that_its_endpoint_refuses(
    refusing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log_in(monkeypatch)
    monkeypatch.setenv("FLIGHTS_STORE", refusing)
    start = time.monotonic()
    assert cli.main(["apply", "flights"]) == 1
    assert time.monotonic() - start < REFUSED_WITHIN_S
    assert f"failed at {refusing}: the endpoint refuses connections" in capsys.readouterr().err


def test_an_endpoint_without_credentials_names_their_origin(
    refusing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    assert cli.main(["show", "--store", refusing]) == 1
    assert "Credentials for S3 come from boto3's standard chain" in capsys.readouterr().err


def log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}.items():
        monkeypatch.setenv(name, value)
