"""Barriers: never edited, resumed, superseded; epochs that never meet."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.support.faulty_store import FaultyObjectStore
from tests.support.statestore.meta.make import (
    START_MS,
    Clock,
    manifest_for,
    new_meta,
    open_meta,
    plan_on,
    run_epoch,
    sst_of,
)
from tussock.statestore.meta.barrier import BarrierPlan, Mutation
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.epoch import MAX_ATTEMPT, allot_epoch, epoch_ms
from tussock.statestore.meta.errors import LostRaceError, SettingError
from tussock.statestore.objectstore.base import ObjectStore


def test_every_process_reads_the_input_that_a_barrier_pinned(any_store: ObjectStore) -> None:
    meta = new_meta(any_store)
    version = meta.read_latest()
    plan = BarrierPlan(
        mapping=version.mapping,
        log_end=4,
        splits={
            7: msgspec.Raw('[{"path":"s3://b/ä 1.parquet","size":10}]'.encode()),
            3: msgspec.Raw(b'{"from":0,"to":9}'),
        },
        unread={7: msgspec.Raw(b'["s3://b/2.parquet"]')},
        catalog=Catalog(next_relation_id=8),
        mutation=Mutation("add", (7,)),
        run={"start": "2013-01-01", "end": "2013-01-02"},
        skipped=("one file",),
    )
    barrier = meta.inject_barrier(0, plan)
    assert open_meta(any_store, "b").open_barrier() == barrier
    assert (barrier.prev_epoch, barrier.attempt, barrier.writer, barrier.log_start, barrier.log_end) == (
        0,
        0,
        "a",
        0,
        4,
    )
    assert all(getattr(barrier, name) == getattr(plan, name) for name in BarrierPlan.__struct_fields__)


def test_the_barrier_in_force_is_resumed_instead_of_injecting_another(objects: ObjectStore) -> None:
    meta, other = new_meta(objects), open_meta(objects, "b")
    assert meta.open_barrier() is None
    barrier = meta.inject_barrier(0, plan_on(meta.read_latest()))
    plan = msgspec.structs.replace(plan_on(other.read_latest()), log_end=9)
    assert other.inject_barrier(0, plan) == barrier
    assert other.open_barrier() == barrier


def test_a_barrier_that_lost_to_another_at_the_very_put_is_the_other_one(objects: ObjectStore) -> None:
    slow, fast = new_meta(FaultyObjectStore(objects), "slow"), open_meta(objects, "fast")
    base = slow.read_latest()
    assert isinstance(slow.objects, FaultyObjectStore)
    slow.objects.before(2, lambda: assert_(fast.inject_barrier(0, plan_on(base)).writer == "fast"))
    assert slow.inject_barrier(0, plan_on(base)).writer == "fast"


def assert_(holds: bool) -> None:
    assert holds


def test_no_barrier_follows_an_epoch_that_is_not_the_newest(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    version = run_epoch(meta)
    for base in (0, version.epoch + 1):
        with pytest.raises(LostRaceError, match="the store is at epoch"):
            meta.inject_barrier(base, plan_on(version))
    assert meta.open_barrier() is None


def test_the_highest_attempt_is_in_force_and_a_losing_attempt_learns_the_winner(objects: ObjectStore) -> None:
    meta, other = new_meta(objects), open_meta(objects, "b")
    first = meta.inject_barrier(0, plan_on(meta.read_latest()))
    second = meta.supersede_barrier(first, msgspec.structs.replace(plan_on(meta.read_latest()), skipped=("x.parquet",)))
    assert (second.attempt, second.prev_epoch, second.skipped) == (1, 0, ("x.parquet",))
    assert other.open_barrier() == second
    with pytest.raises(LostRaceError, match=rf"writer 'a' put barrier {second.epoch} \(attempt 1\)"):
        other.supersede_barrier(first, plan_on(other.read_latest()))
    third = other.supersede_barrier(second, plan_on(other.read_latest()))
    assert meta.open_barrier() == third
    assert len({first.epoch, second.epoch, third.epoch}) == 3


@pytest.mark.parametrize("winner", [0, 1])
def test_a_barrier_or_its_successor_wins_whichever_commits_first(objects: ObjectStore, winner: int) -> None:
    meta = new_meta(objects)
    first = meta.inject_barrier(0, plan_on(meta.read_latest()))
    second = meta.supersede_barrier(first, plan_on(meta.read_latest()))
    sealed = [meta.seal_epoch(manifest_for(barrier)) for barrier in (first, second)]
    version, mine = meta.commit_epoch(sealed[winner])
    assert (version.epoch, mine) == (sealed[winner].epoch, True)
    with pytest.raises(LostRaceError):
        meta.commit_epoch(sealed[1 - winner])
    with pytest.raises(LostRaceError):
        meta.supersede_barrier(second, plan_on(meta.read_latest()))
    assert meta.open_barrier() is None


def test_sealing_twice_by_two_drivers_gives_both_the_first(objects: ObjectStore) -> None:
    meta, other = new_meta(objects), open_meta(objects, "b")
    barrier = meta.inject_barrier(0, plan_on(meta.read_latest()))
    first = meta.seal_epoch(manifest_for(barrier, "a"))
    late = msgspec.structs.replace(manifest_for(barrier, "b"), ssts=(sst_of(barrier.epoch, "cut otherwise"),))
    assert other.seal_epoch(late) == first
    assert other.read_manifest(barrier.epoch) == first
    version, mine = other.commit_epoch(first)
    assert mine
    assert meta.commit_epoch(first) == (version, False)


def test_a_barrier_cannot_give_back_log_entries_that_are_taken(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    barrier = meta.inject_barrier(0, msgspec.structs.replace(plan_on(meta.read_latest()), log_end=5))
    version, _ = meta.commit_epoch(meta.seal_epoch(manifest_for(barrier)))
    assert version.log_end == 5
    with pytest.raises(SettingError, match="at least 5"):
        meta.inject_barrier(version.epoch, msgspec.structs.replace(plan_on(version), log_end=4))


def test_epochs_rise_strictly_with_any_clock(objects: ObjectStore) -> None:
    clock = Clock()
    new_meta(objects)
    meta = open_meta(objects, "b", clock)
    epochs = []
    for now_ms in (START_MS, START_MS, START_MS - 5_000, START_MS + 90_000, 0):
        clock.now_ms = now_ms
        epochs.append(run_epoch(meta).epoch)
    assert sorted(set(epochs)) == epochs
    assert [epoch_ms(e) - START_MS for e in epochs] == [0, 1, 2, 90_000, 90_001]


def test_a_barrier_never_gets_the_epoch_of_one_that_was_superseded_in_the_same_millisecond() -> None:
    def chains() -> Iterator[int]:
        prev = 0
        for _ in range(
            50
        ):  # the clock stands still; every second barrier is superseded, and the first or the last one commits
            attempts = [allot_epoch(prev, START_MS)]
            for attempt in range(1, 4):
                attempts.append(allot_epoch(attempts[-1], START_MS, attempt))
            yield from attempts
            prev = attempts[0]

    firsts = [e for e in chains() if not e & MAX_ATTEMPT]
    assert len(set(firsts)) == len(firsts) == 50
    assert not set(firsts) & {e for e in chains() if e & MAX_ATTEMPT}


def test_an_epoch_fits_the_u64_and_its_attempt_the_counter() -> None:
    assert allot_epoch(0, (1 << 48) - 1, MAX_ATTEMPT) == (1 << 64) - 1
    with pytest.raises(SettingError, match="attempt"):
        allot_epoch(0, START_MS, MAX_ATTEMPT + 1)
