"""Compactors: complete runs, several at once, next to epochs, failing, stopped, and in Spark."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.amplification import Load, run_load
from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.living_store import living_store
from tests.support.statestore.meta.make import Clock
from tests.support.waiting import eventually
from tussock.jobs.cli import main
from tussock.jobs.submitted import main as run_job
from tussock.jobs.upkeep.compaction import (
    Beat,
    Merged,
    TasksOpenError,
    compact_round,
    compact_store,
    due_picks,
    run_here,
)
from tussock.statestore.hummock.compaction import MergePiece
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.hummock.errors import DamagedSstError
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.compaction import LEASE_MS
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import CompactionTask
from tussock.statestore.meta.work import HowFar
from tussock.statestore.objectstore.base import ObjectStoreUnavailableError
from tussock.statestore.objectstore.local import LocalObjectStore

ROOT = Path(__file__).resolve().parents[4]
SMALL = CompactionOptions(base_bytes=1 << 20, small_bytes=1 << 10, target_bytes=20_000)


def test_compaction_continues_until_nothing_is_due_and_changes_no_row() -> None:
    store = living_store(MemoryObjectStore())
    epochs = store.meta.read_latest().epochs[1:]
    done = compact_store(store.open("compactor"), SMALL)
    assert [task.outcome for task in done] == ["moved", "merged"]
    version = store.meta.read_latest()
    assert (version.levels[0], version.tasks) == ((), ())
    for epoch in epochs:
        store.check(version, epoch)
    assert compact_store(store.open("compactor"), SMALL) == []


def test_a_long_compaction_reports_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tussock.statestore.meta.work.EVERY_S", 0.01)
    store, said, far = living_store(MemoryObjectStore()), list[str](), HowFar()
    inner, all_done = run_here(store.objects, far), re.compile(r"compaction: (\d) of \1 tasks done after ")

    def slow(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        found = inner(pieces, beat)
        if pieces:
            eventually("all tasks are reported", lambda: any(all_done.match(line) for line in said))
        return found

    compact_store(store.open("compactor"), SMALL, run=slow, far=far, pieces=3, progress=said.append)
    assert any(all_done.match(line) for line in said), said
    assert list(store.objects.list("work/")) == []


def test_a_full_compaction_keeps_the_newest_epochs_rows_and_waits_for_others() -> None:
    store = living_store(MemoryObjectStore())
    store.meta.apply_retention(1)
    compactor = store.open("compactor")
    task = store.meta.open_compaction(store.everything_to_level_1(store.meta.read_latest()))
    with pytest.raises(TasksOpenError):
        compact_store(compactor, SMALL, full=True)
    with pytest.raises(TasksOpenError):
        due_picks(compactor, full=True)
    store.meta.close_compaction(task.id, "test")
    (due,) = due_picks(compactor, full=True)
    assert due.reason == "everything, on demand"
    (done,) = compact_store(compactor, SMALL, full=True)
    version = store.meta.read_latest()
    assert (done.outcome, sum(sst.rows for level in version.levels for sst in level)) == ("merged", 400)
    store.check(version, version.epoch)


def test_epochs_and_another_compactor_get_on_while_a_task_is_merged() -> None:
    store = living_store(MemoryObjectStore())
    other = store.open("other")

    def run(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        for number in range(4):
            store.run(dict.fromkeys(range(0, 400, 3), -number))
        assert all(task.outcome in ("merged", "moved") for task in compact_store(other, SMALL))
        vacuum_store(other)
        return run_here(store.objects)(pieces, beat)

    (done,) = compact_round(store.open("compactor"), SMALL, run, full=True)
    assert done.outcome == "merged"
    version = store.meta.read_latest()
    for epoch in version.epochs[1:]:
        store.check(version, epoch)


def test_a_task_that_fails_is_closed_and_its_error_reported() -> None:
    store = living_store(MemoryObjectStore())
    assert isinstance(store.objects, MemoryObjectStore)
    victim = store.meta.read_latest().levels[0][0].name
    whole = store.objects.held[victim]
    store.objects.held[victim] = whole[:-1] + bytes([whole[-1] ^ 1])
    compactor = store.open("compactor")
    with pytest.raises(DamagedSstError, match=victim):
        compact_store(compactor, SMALL)
    assert compactor.read_latest().tasks == ()
    store.objects.held[victim] = whole
    assert [task.outcome for task in compact_store(compactor, SMALL)] == ["merged"]
    store.check(store.meta.read_latest(), store.meta.read_latest().epoch)


def test_a_task_whose_upload_breaks_off_otherwise_is_closed_too() -> None:
    store = living_store(MemoryObjectStore())

    def broken(pieces: object, beat: Beat) -> list[Merged]:
        raise ObjectStoreUnavailableError("memory:", "PUT", "test")

    with pytest.raises(ObjectStoreUnavailableError):
        compact_round(store.open("compactor"), SMALL, broken, full=True)
    assert store.meta.read_latest().tasks == ()


def test_a_task_closed_by_others_is_lost_and_its_objects_are_removed() -> None:
    store = living_store(MemoryObjectStore())

    def slow(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        made = run_here(store.objects)(pieces, beat)
        store.clock.now_ms += 3 * LEASE_MS
        assert len(store.meta.close_lapsed_compactions()) == 1
        beat()  # too late
        return made

    (done,) = compact_round(store.open("compactor"), SMALL, slow, full=True)
    assert done.outcome == "lost"
    before = len(store.data())
    vacuum_store(store.meta)
    assert len(store.data()) < before
    store.check(store.meta.read_latest(), store.meta.read_latest().epoch)


def test_a_task_whose_inputs_went_after_others_closed_it_is_lost_and_not_called_damaged() -> None:
    store = living_store(MemoryObjectStore())

    def asleep(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        store.clock.now_ms += 3 * LEASE_MS
        compact_store(store.open("other"), SMALL, full=True)
        store.run({0: 0})
        vacuum_store(store.meta)
        return run_here(store.objects)(pieces, beat)

    (done,) = compact_round(store.open("compactor"), SMALL, asleep, full=True)
    assert done.outcome == "lost"
    store.check(store.meta.read_latest(), store.meta.read_latest().epoch)


class SlowStore(MemoryObjectStore):
    """An object store whose uploads are slow."""

    def __init__(self, held: dict[str, bytes], clock: Clock, put_ms: int) -> None:
        super().__init__()
        self.held, self.clock, self.put_ms = held, clock, put_ms

    def put(self, name: str, data: bytes) -> None:
        super().put(name, data)
        self.clock.now_ms += self.put_ms


def test_a_merge_of_hours_keeps_its_tasks_while_others_close_lapsed_ones() -> None:
    store = living_store(MemoryObjectStore(), rows=8_000)
    assert isinstance(store.objects, MemoryObjectStore)
    slow = SlowStore(store.objects.held, store.clock, put_ms=LEASE_MS // 2)
    began = store.clock.now_ms
    closed: list[int] = []

    def run(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        def judged() -> None:
            beat()
            closed.extend(store.meta.close_lapsed_compactions())

        return run_here(slow)(pieces, judged)

    (done,) = compact_round(store.open("compactor"), replace(SMALL, target_bytes=6_000), run, full=True)
    assert (done.outcome, closed) == ("merged", [])
    assert store.clock.now_ms - began > 3 * LEASE_MS, "or nothing had to be renewed"
    store.check(store.meta.read_latest(), store.meta.read_latest().epoch)


def test_a_merge_without_renewal_ends_after_one_lease() -> None:
    store = living_store(MemoryObjectStore())
    store.meta.open_compaction(store.everything_to_level_1(store.meta.read_latest()))  # by a compactor that was killed
    other = store.open("other")
    with pytest.raises(TasksOpenError):
        compact_store(other, SMALL, full=True)
    store.clock.now_ms += LEASE_MS
    (done,) = compact_store(other, SMALL, full=True)
    assert done.outcome == "merged"


def test_a_store_that_is_unreachable_during_a_renewal_costs_only_another_try() -> None:
    store = living_store(MemoryObjectStore(), rows=2_000)
    away = [True, False]

    class Meta(MetaStore):
        def renew_compactions(
            self, tasks: Sequence[CompactionTask], lease_ms: int = LEASE_MS
        ) -> tuple[CompactionTask, ...]:
            if away and away.pop(0):
                raise ObjectStoreUnavailableError("memory:", "PUT", "test")
            return super().renew_compactions(tasks, lease_ms)

    (done,) = compact_round(Meta(store.objects, "compactor", store.clock), SMALL, run_here(store.objects), full=True)
    assert (done.outcome, away) == ("merged", [])


def test_the_command_lists_due_work_and_does_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = living_store(LocalObjectStore(tmp_path / "store"))
    uri = store.objects.uri
    assert main(["compact", "--store", uri, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "due: 4 runs of L0 into level 7" in told
    assert "a read searches at most 4 sorted runs; stored: unknown (all rows are on L0); " in told
    assert "; written: 1.00x the bytes that epochs flushed" in told
    assert main(["compact", "--store", uri]) == 0
    assert "merged" in capsys.readouterr().out
    assert run_job(["compact", "--store", uri, "--full"]) == 0
    told = capsys.readouterr().out
    assert "a read searches at most 1 sorted run; stored: 1.00x the largest level; written" in told
    store.check(store.meta.read_latest(), store.meta.read_latest().epoch)


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_uniform_updates_stay_within_the_budgets_of_reads_space_and_writes(share: float) -> None:
    options = CompactionOptions(base_bytes=2 << 20, small_bytes=32 << 10, target_bytes=256 << 10)
    found = run_load(MemoryObjectStore(), Load(keys=20_000, share=share), options)
    assert found.rows_right
    assert (found.runs <= 8, found.space <= 1.6, found.writes <= 12) == (True, True, True), found


def test_unneeded_old_versions_and_deletes_are_removed_without_a_full_compaction() -> None:
    """Each epoch deletes a ninth of the rows and changes the others. All stays readable until retention ends."""
    store = living_store(MemoryObjectStore(), epochs=4, rows=900)
    for number in range(3):
        change: dict[int, int | None] = {n: n if n % 9 > number else None for n in range(900)}
        store.run(change)
    compact_store(store.open("compactor"), SMALL)
    kept = sum(sst.rows for level in store.meta.read_latest().levels for sst in level)
    for epoch in store.meta.read_latest().epochs[1:]:
        store.check(store.meta.read_latest(), epoch)
    assert kept > 4 * 900

    store.meta.apply_retention(1)
    assert compact_store(store.open("compactor"), SMALL)
    version = store.meta.read_latest()
    assert sum(sst.rows for level in version.levels for sst in level) <= 1.34 * 600
    store.check(version, version.epoch)
    assert compact_store(store.open("compactor"), SMALL) == [], "rewritten SSTs are not due again"
