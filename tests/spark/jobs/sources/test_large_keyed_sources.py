"""A first load of a keyed source that is sent, applied and sealed in parts: on Spark, and on two workers."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.driver.embedded import append, new_store, rows
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LevelRunner, LocalRunner
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Literal, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy
from tussock.jobs.wire.flush_policy import FlushPolicy

pytestmark = pytest.mark.spark

KEYS = 320_000
FIELDS = (Field("id", "bigint"), Field("v", "int"))
BY_VALUE = Aggregate(
    Scan("numbers", (1,), (FIELDS[1],)),
    (Column(0, "int"),),
    (AggCall("Count", "bigint", (Literal(1, "int"),)),),
    (Field("v", "int"), Field("rows", "bigint")),
)


@pytest.mark.parametrize("changes", ["upsert", "snapshot"])
@pytest.mark.parametrize("where", ["Spark", "two workers"])
def test_a_large_first_load_has_the_last_row_of_each_key(
    tmp_path: Path, spark: SparkSession, where: str, changes: str
) -> None:
    policy = FlushPolicy(target_bytes=1 << 20)
    runner: LevelRunner = SparkRunner(spark, policy) if where == "Spark" else LocalRunner(policy, workers=2)
    ids = np.random.default_rng(7).permutation(KEYS)
    again = ids[: KEYS // 4] if changes == "upsert" else ids[:0]
    values = np.concatenate([ids % 5, again % 3 + 5]).astype(np.int32)
    (tmp_path / "in").mkdir()
    table = pa.table({"id": np.concatenate([ids, again]), "v": values})
    pq.write_table(table, tmp_path / "in/1.parquet", row_group_size=KEYS // 8)
    options = {"path": str(tmp_path / "in"), "retain": "none", "changes": changes}
    meta = new_store(tmp_path / "store", units=2)
    append(
        meta,
        CreateSource("numbers", "parquet", FIELDS, options, keyed=KeyedBy((0,))),
        CreateView("by_value", "SELECT …", BY_VALUE),
    )
    advance_store(runner, meta)
    last = ids % 5
    last[: len(again)] = again % 3 + 5
    assert rows(meta, "numbers") == sorted(zip(ids.tolist(), last.tolist(), strict=True), key=repr)
    assert rows(meta, "by_value") == list(enumerate(np.bincount(last).tolist()))
    assert len(meta.read_latest().levels[0]) >= 4  # each unit uploads an SST as soon as it is full
