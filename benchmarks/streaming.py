"""The peer: the same group-by in Spark Structured Streaming with the RocksDB state store, one file per micro-batch."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

BIDS_DDL = "bid bigint, auction bigint, bidder bigint, price bigint, date_time timestamp"
#: RocksDB as its guide recommends; one state partition per core; no row counting, which costs a read per write.
_STATE = "org.apache.spark.sql.execution.streaming.state"
STREAMING = {
    "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.shuffle.partitions": "2",
}


def run_streaming(spark: SparkSession, folder: Path, checkpoint: Path) -> tuple[float, list[float]]:
    """Process all files of `folder` with availableNow, oldest first, into a new state. Results go to a noop sink.

    Returns: (wall seconds of the query, seconds of each micro-batch that had rows).
    """
    with _settings(spark):
        bids = spark.readStream.schema(BIDS_DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))
        bids.createOrReplaceTempView("streamed_bids")
        changes = spark.sql("SELECT auction, count(*) AS bids, sum(price) AS total FROM streamed_bids GROUP BY auction")
        writer = changes.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
        started = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - started
    batches = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows]
    if len(batches) != len(list(folder.glob("*.parquet"))):
        raise RuntimeError(f"{len(batches)} micro-batches for {len(list(folder.glob('*.parquet')))} files")
    return seconds, batches


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in STREAMING}
    for name, value in STREAMING.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
