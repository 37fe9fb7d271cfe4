"""The choice of the runner for an epoch. All runners write the same bytes."""

import pytest

from tests.support.jobs.driver import runner as shared
from tests.support.jobs.driver.embedded import epoch, insert, rows
from tussock.jobs.driver import runner as runners
from tussock.jobs.driver.runner import AutoRunner, LocalRunner, SparkWantedError, no_spark
from tussock.statestore.meta.store import MetaStore

meta = shared.meta


class Asked(LocalRunner):
    """Replaces Spark and records whether it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []

    def run(self, levels):  # type: ignore[no-untyped-def]
        self.epochs.append(levels.task.epoch)
        return super().run(levels)


def test_spark_with_machines_runs_large_epochs_and_not_small_ones(
    meta: MetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, told = Asked(), list[str]()
    monkeypatch.setattr(runners, "WORTH_MACHINES_BYTES", 700)
    auto = AutoRunner(lambda: spark, lambda: True, progress=told.append)
    created = epoch(meta, auto).epoch
    insert(meta, "t", (1, 1, 1))
    epoch(meta, auto)
    insert(meta, "t", *((k, k % 3, k) for k in range(11)))
    large = epoch(meta, auto).epoch
    assert spark.epochs == [large]
    assert created not in spark.epochs, "the store is empty"
    assert rows(meta, "v") == [(0, 4), (1, 4), (2, 3)]
    sealed = meta.read_manifest(large)
    assert sealed is not None
    assert sealed.ran.endswith(", because about 0 MB are expected, and Spark has other machines")
    insert(meta, "t", *((k, k % 3, k) for k in range(11, 22)))
    epoch(meta, auto)
    assert len(spark.epochs) == 2
    assert told == ["starting Spark, because about 0 MB are expected, and Spark has other machines"]


def test_a_process_without_spark_names_the_reason(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "WORTH_MACHINES_BYTES", 0)
    with pytest.raises(SparkWantedError, match="requires Spark: about 0 MB are expected, and Spark has other machines"):
        epoch(meta, AutoRunner(no_spark, lambda: True))


def test_spark_without_machines_runs_only_what_needs_spark(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Asked()
    monkeypatch.setattr(runners, "WORTH_MACHINES_BYTES", 0)
    auto = AutoRunner(lambda: spark, lambda: False)
    epoch(meta, auto)
    insert(meta, "t", *((k, k % 3, k) for k in range(11)))
    epoch(meta, auto)
    assert spark.epochs == []
