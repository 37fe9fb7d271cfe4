"""Rows and helpers of test_store_in_s3.py, which is in several lanes."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.lossy_proxy import LossyProxy
from tests.support.s3_servers import BUCKET, KEY, SECRET, moto_server


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
