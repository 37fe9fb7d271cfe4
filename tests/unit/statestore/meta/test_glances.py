"""Glances at the logs: one request each, and never the reason for an answer that was wrong all the time."""

import pytest

from tests.support.faulty_store import FaultyObjectStore
from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.meta.make import manifest_for, new_meta, open_meta, plan_on
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.names import STATEMENT_PACKS, VERSION_PACKS
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


def run_epoch(meta: MetaStore) -> HummockVersion:
    """An epoch that takes all statements, as a driver runs it, and publishes it."""
    version = meta.read_latest()
    plan = plan_on(version)
    barrier = meta.inject_barrier(version.epoch, type(plan)(mapping=plan.mapping, log_end=meta.log_end()))
    return meta.publish(meta.commit_epoch(meta.seal_epoch(manifest_for(barrier, meta.writer))).version.epoch)


def find_nothing(meta: MetaStore) -> tuple[HummockVersion, int]:
    """The newest version and the log's end, as an operation reads them that finds nothing to do."""
    while True:
        with meta.glances() as glances:
            meta.read_latest()
            end = meta.log_end()
            newest = meta.read_latest(proven=True)
        if glances.are_proven_by(newest):
            return newest, end


def test_looks_for_packs_are_few() -> None:
    objects = FaultyObjectStore(MemoryObjectStore())
    meta = new_meta(objects)
    run_epoch(meta)
    objects.calls.clear()
    meta.read_latest()
    assert len(objects.calls) == 2, "the next delta, and its pack"
    objects.calls.clear()
    find_nothing(meta)
    assert len(objects.calls) == 4, "the next delta twice, the next statement, and one pack"
    objects.calls.clear()
    with meta.glances():
        run_epoch(meta)
    looks = [call for call in objects.calls if call[1].startswith((VERSION_PACKS, STATEMENT_PACKS))]
    assert len(looks) == 2, "after the commit, and after the publication"
    assert len(objects.calls) == 12


def test_another_thread_needs_no_request_for_what_its_process_knows() -> None:
    objects = FaultyObjectStore(MemoryObjectStore())
    meta = new_meta(objects)
    other = meta.for_another_thread()
    version = run_epoch(meta)
    objects.calls.clear()
    with other.glances():
        assert meta.read_latest() == other.read_latest() == version
    assert len(objects.calls) == 2


@pytest.mark.parametrize("known", [False, True])
def test_an_operation_that_sleeps_while_the_logs_are_packed_never_ends_with_a_glance_that_was_wrong(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tussock.statestore.meta.packs.PACK_SIZE", 4)
    monkeypatch.setattr("tussock.statestore.meta.packing.UNPACKED", 4)
    nth = 0
    while True:
        objects = MemoryObjectStore()
        meta = new_meta(objects)
        run_epoch(meta)
        store = FaultyObjectStore(objects)
        sleeper = open_meta(store, "sleeper")
        if known:
            find_nothing(sleeper)

        def meanwhile(meta: MetaStore = meta) -> None:
            for number in range(20):
                meta.append_log(str(number), b'"a statement"', is_new=True)
                run_epoch(meta)
            meta.apply_retention()
            vacuum_store(meta)

        began = len(store.calls)
        store.before(nth, meanwhile)
        version, end = find_nothing(sleeper)
        if len(store.calls) - began <= nth:
            return
        assert (version, end) == (meta.read_latest(), 20), f"slept at request {nth}"
        nth += 1


def test_a_change_that_seems_to_be_made_already_is_decided_on_the_newest_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tussock.statestore.meta.packs.PACK_SIZE", 4)
    monkeypatch.setattr("tussock.statestore.meta.packing.UNPACKED", 4)
    objects = MemoryObjectStore()
    meta, sleeper = new_meta(objects), open_meta(objects, "sleeper")
    units = sleeper.read_latest().mapping.unit_count
    meta.rescale(units + 1)
    for _ in range(20):
        run_epoch(meta)
    vacuum_store(meta)
    assert sleeper.rescale(units).mapping.unit_count == units
    assert meta.read_latest().mapping.unit_count == units
