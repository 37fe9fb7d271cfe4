"""A train of epochs that another driver overtakes, while retention releases the epoch that it is based on. No Spark."""

from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, insert, new_store, open_store, rows
from tests.support.jobs.plan.catalogs import table
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.train import Train
from tussock.statestore.meta.errors import LostRaceError


def test_a_train_whose_base_is_no_longer_kept_has_lost_the_race(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, table("t"))
    with Train(LocalRunner(), meta, 2) as train:
        insert(meta, "t", (1, 1, 1))
        first = train.next_barrier()
        assert first is not None
        train.run(first)
        train.drain_epochs()
        insert(meta, "t", (2, 1, 1))
        second = train.next_barrier()
        assert second is not None
        other = open_store(tmp_path / "store", "other")
        publish_epoch(other, advance_store(LocalRunner(), other)[-1].epoch)
        other.apply_retention(1)
        with pytest.raises(LostRaceError, match="no longer kept"):
            train.run(second)
    assert rows(open_store(tmp_path / "store"), "t") == [(1, 1, 1), (2, 1, 1)]
    assert meta.all_pins() == ()


def test_an_epoch_that_is_released_right_after_its_commit_is_reported_as_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, table("t"))
    commit = type(meta).commit_epoch

    def overtaken(self: object, manifest: object) -> object:
        committed = commit(self, manifest)  # type: ignore[arg-type]
        monkeypatch.setattr(type(meta), "commit_epoch", commit)
        other = open_store(tmp_path / "store", "other")
        insert(other, "t", (2, 1, 1))
        publish_epoch(other, advance_store(LocalRunner(), other)[-1].epoch)
        other.apply_retention(1)
        return committed

    monkeypatch.setattr(type(meta), "commit_epoch", overtaken)
    with Train(LocalRunner(), meta, 2, keep=0) as train:
        insert(meta, "t", (1, 1, 1))
        barrier = train.next_barrier()
        assert barrier is not None
        train.run(barrier)
        train.drain_epochs()
        assert [done.epoch for done in train.done] == [barrier.epoch]
