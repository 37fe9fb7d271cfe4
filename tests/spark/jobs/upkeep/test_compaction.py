"""Compactors: complete runs, several at once, next to epochs, failing, stopped, and in Spark."""

from pathlib import Path

import pytest

from tests.support.spark_types import SparkSession
from tests.support.statestore.hummock.living_store import living_store
from tussock.jobs.upkeep.compaction import compact_with_spark
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.objectstore.local import LocalObjectStore


@pytest.mark.spark
def test_spark_runs_the_pieces_of_a_round_in_parallel(spark: SparkSession, tmp_path: Path) -> None:
    store = living_store(LocalObjectStore(tmp_path / "store"), rows=4_000)
    compactor = store.open("compactor")
    lines: list[str] = []
    options = CompactionOptions(base_bytes=1 << 20, small_bytes=1 << 10, target_bytes=10_000)
    done = compact_with_spark(spark, compactor, options, progress=lines.append)
    assert [task.outcome for task in done] == ["moved", "merged"]
    version = store.meta.read_latest()
    assert len(version.levels[7]) > 2
    for epoch in version.epochs[1:]:
        store.check(version, epoch)
    victim = version.levels[7][0]
    data = store.objects.get(victim.name)
    store.objects.delete([victim.name])
    with pytest.raises(TussockError, match=victim.name):
        compact_with_spark(spark, compactor, options, full=True)
    assert store.meta.read_latest().tasks == ()
    store.objects.put(victim.name, data)
    assert [task.outcome for task in compact_with_spark(spark, compactor, options, full=True)] == ["merged"]
    store.check(store.meta.read_latest(), version.epoch)
