"""Small epochs that one unit runs for all: the same SSTs, and rows in flight that epochs with several units read."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import NOW, after, append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, joined, scan, table, view
from tussock.jobs.driver.runner import LevelsToRun, LocalRunner
from tussock.jobs.driver.sealed_tables import SealedTables
from tussock.jobs.driver.train import Train
from tussock.jobs.logical.nodes import Call, Column, Field, Join, JoinKind, Literal, Project, SingleRow
from tussock.jobs.logical.statements import Delete
from tussock.jobs.task.opened import measure_work
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.jobs.wire.measured import Measurement, MeasurementSum, Report
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.work import HowFar
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.objectstore.requests import Requests

POLICIES = {
    "a small epoch": (FlushPolicy(), True),
    "more than the share of one unit is sealed": (FlushPolicy(driver_bytes=3000, target_bytes=4096), True),
    "whole SSTs are sealed": (FlushPolicy(target_bytes=1024), True),
    "the last MemTables of a level exceed the share": (FlushPolicy(driver_bytes=30_000, target_bytes=1 << 20), True),
    "a large epoch": (FlushPolicy(little_rows=-1, target_bytes=4096), False),
}


class Divided(LocalRunner):
    """Each unit runs for itself, also in a small epoch."""

    def may_unite(self, task: EpochTask) -> bool:
        """Never."""
        return False


class Seen:
    """Passes epochs on to a runner, and records whether one unit ran for all."""

    def __init__(self, runner: LocalRunner) -> None:
        self.policy, self._runner, self.undivided = runner.policy, runner, False
        self.measured, self.progress = MeasurementSum(), HowFar()
        self.for_a_thread = runner.for_a_thread

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """See LevelRunner."""
        answer = self._runner.run(levels)
        self.undivided, self.measured, self.progress = levels.measured.undivided, levels.measured, levels.far
        return answer


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    meta = new_store(tmp_path / "store", units=3)
    pairs = joined(scan("t"), scan("t"), 1, 2)
    append(meta, table("t"), view("v", counted(scan("t"), 1)), view("w", counted(pairs, 0)))
    insert(meta, "t", (0, 0, 0))
    epoch(meta, Divided())
    return meta


@pytest.mark.parametrize("case", POLICIES)
def test_one_unit_for_all_writes_the_ssts_of_several(case: str, meta: MetaStore, tmp_path: Path) -> None:
    policy, undivided = POLICIES[case]
    insert(meta, "t", *((k, k % 40, k % 7) for k in range(1, 300)))
    seen = Seen(LocalRunner(policy))
    expected = after(tmp_path / "store", tmp_path / "divided", Divided(policy))
    assert after(tmp_path / "store", tmp_path / "seen", seen) == expected
    assert seen.undivided == undivided


def test_changes_of_several_units_that_cancel_out_write_no_row(tmp_path: Path) -> None:
    """The row of t moves to another unit, and the value that the scalar subquery selects stays."""
    store = new_store(tmp_path / "store", units=3)
    moved = Join(scan("t"), scan("d"), JoinKind.SEMI, (Column(0, "int"),), (Column(0, "int"),), (False,))
    value = SingleRow(Project(moved, (Column(2, "int"),), (Field("a", "int"),)))
    append(store, table("t"), table("d"), view("one", value), view("n", counted(scan("d"), 1)))
    insert(store, "d", *((k, 0, 0) for k in range(12)))
    insert(store, "t", (0, 0, 7))
    epoch(store, Divided())
    assert rows(store, "one") == [(7,)]
    for key in range(11):
        append(store, Delete("t", Call("EqualTo", "boolean", (Column(0, "int"), Literal(key, "int")))))
        insert(store, "t", (key + 1, 0, 7))
        copy = tmp_path / f"{key}"
        seen = Seen(LocalRunner())
        expected = after(tmp_path / "store", copy / "divided", Divided())
        assert after(tmp_path / "store", copy / "undivided", seen) == expected
        assert seen.undivided
        epoch(store)
    assert rows(store, "one") == [(7,)]


def test_epochs_in_flight_of_one_unit_are_read_by_several_and_back(meta: MetaStore, tmp_path: Path) -> None:
    """In a train, an epoch reads the rows that the epochs before it sealed, whatever units these had."""
    stores = []
    for name, runner in (("divided", Divided), ("mixed", LocalRunner)):
        folder = shutil.copytree(tmp_path / "store", tmp_path / name)
        store = MetaStore(open_object_store(str(folder)), "the same", lambda: NOW)
        with Train(runner(FlushPolicy(little_rows=50)), store, depth=3, keep=4) as train:
            for number, count in enumerate((10, 10, 100, 10, 100, 100)):
                insert(store, "t", *((k, (k + number) % 7, number) for k in range(0, 2 * count, 2)))
                barrier = train.next_barrier()
                assert barrier is not None
                train.run(barrier)
        stores.append(store)
    assert stores[0].read_latest() == stores[1].read_latest()
    assert len(rows(stores[1], "t")) == 100
    assert rows(stores[1], "v") == [(g, len([k for k in range(0, 200, 2) if (k + 5) % 7 == g])) for g in range(7)]


@pytest.mark.parametrize("case", POLICIES)
def test_an_epoch_runs_once_whatever_it_seals(case: str, meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task counts as one second."""
    policy, undivided = POLICIES[case]
    sent: list[Requests] = []

    def in_seconds(
        work: Iterable[pa.RecordBatch], uri: str, unit: int | None, report: Report
    ) -> Iterator[pa.RecordBatch]:
        def one_second(found: Measurement) -> None:
            sent.append(found[1])
            report((dict.fromkeys(found[0], 1.0), found[1]))

        return measure_work(work, uri, unit, one_second)

    monkeypatch.setattr("tussock.jobs.task.level.measure_work", in_seconds)
    insert(meta, "t", *((k, k % 40, k % 7) for k in range(1, 300)))
    seen = Seen(LocalRunner(policy))
    epoch(meta, seen)
    seconds, requests = seen.measured.sum
    assert seconds == dict.fromkeys((0,) if undivided else (0, 1, 2), max(seconds.values()))
    levels = max(seconds.values())
    assert len(sent) == levels * (1 if undivided else 3)
    assert requests == sum(sent, Requests())
    assert seen.progress.ask() == (len(sent), len(sent))


def test_each_unit_counts_for_an_equal_part_of_the_work(meta: MetaStore) -> None:
    insert(meta, "t", *((k, 1, 1) for k in range(1, 12)))
    done = epoch(meta)
    sealed = meta.read_manifest(done.epoch)
    assert sealed is not None
    assert [work.unit for work in sealed.units] == [0, 1, 2]
    assert sum(work.rows for work in sealed.units) == sum(counts.rows_in for counts in done.rows.values())
    assert max(work.rows for work in sealed.units) - min(work.rows for work in sealed.units) <= 1
