"""Packs replace old objects of the logs. No process misses a document, or believes in a name that was used before."""

from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.support.faulty_store import FaultyObjectStore
from tests.support.memory_store import Killed as Dead
from tests.support.memory_store import MemoryObjectStore, MortalObjectStore
from tests.support.statestore.meta.make import manifest_for, new_meta, open_meta, plan_on, run_epoch
from tussock.statestore.errors import MustStopError
from tussock.statestore.hummock.in_use import is_needed
from tussock.statestore.hummock.scrub import scrub_store
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.delta import Published, VersionDelta, apply_delta
from tussock.statestore.meta.document import decode_document, encode_document
from tussock.statestore.meta.errors import DamagedDocumentError, LostRaceError
from tussock.statestore.meta.log_check import check_meta
from tussock.statestore.meta.names import (
    BARRIERS,
    CLAIMS,
    ENTRIES,
    STATEMENT_PACKS,
    VERSION_PACKS,
    VERSIONS,
    log_name,
    version_name,
)
from tussock.statestore.meta.packs import Pack, decode_pack, encode_pack, version_packs
from tussock.statestore.meta.settings import initial_version
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore

SIZE = 4
STORED = (
    "VFVTU09DS1AFAAAAAAAAAAcAAAAAAAAABAAAAP0DAAAAAAAA2wKpSHBXYykotS/9YP0C7QAAsAAAAAAEAAAA6AMAAAEAAABhCmIAeAoBAMlXgAk="
)


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tussock.statestore.meta.packs.PACK_SIZE", SIZE)
    monkeypatch.setattr("tussock.statestore.meta.packing.UNPACKED", SIZE)


def epoch_with_statement(meta: MetaStore) -> HummockVersion:
    """An epoch that takes one more statement, and is published."""
    position = meta.append_log(f"{meta.writer}/{meta.log_end()}", b'"a statement"', is_new=True)
    version = meta.read_latest()
    plan = plan_on(version)
    barrier = meta.inject_barrier(version.epoch, type(plan)(mapping=plan.mapping, log_end=position + 1))
    return meta.publish(meta.commit_epoch(meta.seal_epoch(manifest_for(barrier, meta.writer)))[0].epoch)


def grown(objects: ObjectStore, epochs: int = 20) -> MetaStore:
    meta = new_meta(objects)
    for _ in range(epochs):
        epoch_with_statement(meta)
    return meta


def clean(objects: ObjectStore) -> None:
    meta = open_meta(objects, "cleaner")
    meta.apply_retention()
    vacuum_store(meta)


def names(objects: ObjectStore, prefix: str) -> list[str]:
    return [found.name for found in objects.list(prefix)]


def all_versions(objects: ObjectStore) -> list[HummockVersion]:
    meta = open_meta(objects, "historian")
    return [meta.read_version(i) for i in range(meta.read_latest().id + 1)]


def test_after_a_vacuum_an_epoch_leaves_a_part_of_a_pack_and_all_versions_and_statements_can_be_read(
    any_store: ObjectStore,
) -> None:
    meta = grown(any_store, 8)
    versions, entries = all_versions(any_store), meta.read_log(0, 8)
    clean(any_store)
    assert [len(names(any_store, p)) for p in (VERSIONS, ENTRIES)] <= [2 * SIZE + 1, 2 * SIZE]
    assert len(names(any_store, BARRIERS)) <= 2 * SIZE
    assert names(any_store, CLAIMS) == []
    assert all_versions(any_store)[:-1] == versions
    assert open_meta(any_store, "b").read_log(0, 8) == entries
    assert meta.read_latest().epoch == versions[-1].epoch
    epoch_with_statement(meta)
    assert scrub_store(any_store).meta == ()


def test_a_file_that_is_no_object_of_the_log_does_not_keep_packed_ones() -> None:
    objects = MemoryObjectStore()
    grown(objects, 8)
    for prefix in (VERSIONS, ENTRIES):
        objects.put(f"{prefix}.DS_Store", b"of a file manager")
        objects.put(f"{prefix}{99:020}.json~", b"of an editor")
    clean(objects)
    assert [len(names(objects, p)) for p in (VERSIONS, ENTRIES)] <= [2 * SIZE + 3, 2 * SIZE + 2]
    assert scrub_store(objects).meta == ()


def test_a_second_vacuum_reads_and_writes_what_is_new() -> None:
    objects = MemoryObjectStore()
    meta = grown(objects, 40)
    clean(objects)
    counted = FaultyObjectStore(objects)
    vacuum_store(open_meta(counted, "again"))
    idle = len(counted.calls)
    assert not [call for call in counted.calls if call[0] in ("put_if_absent", "delete")]
    for _ in range(SIZE):
        epoch_with_statement(meta)
    counted.calls.clear()
    vacuum_store(open_meta(counted, "again"))
    assert len(counted.calls) - idle <= 12 * SIZE
    assert len([name for operation, name in counted.calls if operation == "put_if_absent"]) <= 3


def test_every_epoch_is_known_after_its_barrier_and_its_delta_are_packed_and_lost_ones_are_not() -> None:
    objects = MemoryObjectStore()
    meta = new_meta(objects)
    committed, lost = [0], []
    for _ in range(40):
        version = meta.read_latest()
        first = meta.inject_barrier(version.epoch, plan_on(version))
        second = meta.supersede_barrier(first, plan_on(version))
        meta.commit_epoch(meta.seal_epoch(manifest_for(second)))
        committed.append(second.epoch)
        lost.append(first.epoch)
        meta.publish(second.epoch)
    clean(objects)
    assert len(names(objects, BARRIERS)) < 2 * 2 * SIZE
    other = open_meta(objects, "b")
    assert [epoch for epoch in committed if not other.has_epoch(epoch)] == []
    assert [epoch for epoch in lost if other.has_epoch(epoch)] == []
    assert not other.has_epoch(committed[-1] + 1)


def stale_commit(meta: MetaStore) -> Callable[[], object]:
    version = meta.read_latest()
    sealed = meta.seal_epoch(manifest_for(meta.inject_barrier(version.epoch, plan_on(version)), meta.writer))
    return lambda: meta.commit_epoch(sealed)


def stale_rescale(meta: MetaStore) -> Callable[[], object]:
    return lambda: meta.rescale(3)


def stale_append(meta: MetaStore) -> Callable[[], object]:
    meta.log_end()
    return lambda: meta.append_log("sleeper", b'"mine"')


def stale_new_append(meta: MetaStore) -> Callable[[], object]:
    meta.log_end()
    return lambda: meta.append_log("sleeper", b'"mine"', is_new=True)


def stale_expected_append(meta: MetaStore) -> Callable[[], object]:
    end = meta.log_end()
    return lambda: meta.append_log("sleeper", b'"mine"', end, end)


def stale_inject(meta: MetaStore) -> Callable[[], object]:
    version = meta.read_latest()
    return lambda: meta.inject_barrier(version.epoch, plan_on(version))


def stale_reads(meta: MetaStore) -> Callable[[], object]:
    meta.log_end()
    version = meta.read_latest()
    return lambda: (meta.read_latest(), meta.read_version(version.id), meta.log_end(), meta.read_log(0, 2))


@pytest.mark.parametrize(
    "step",
    [
        stale_commit,
        stale_rescale,
        stale_append,
        stale_new_append,
        stale_expected_append,
        stale_inject,
        stale_reads,
    ],
)
@pytest.mark.parametrize("dies", [False, True])
def test_a_process_that_sleeps_at_any_request_while_its_names_are_packed_and_removed_is_right_after_it(
    step: Callable[[MetaStore], Callable[[], object]], dies: bool
) -> None:
    nth = 0
    while True:
        objects = MemoryObjectStore()
        meta = grown(objects, 2)
        store = FaultyObjectStore(objects)
        sleeper = open_meta(store, "sleeper")
        act = step(sleeper)
        if (barrier := meta.open_barrier()) is not None:
            meta.supersede_barrier(barrier, plan_on(meta.read_latest()))  # the sleeper's epoch loses

        def meanwhile(meta: MetaStore = meta, objects: MemoryObjectStore = objects) -> None:
            while (barrier := meta.open_barrier()) is not None:
                meta.publish(meta.commit_epoch(meta.seal_epoch(manifest_for(barrier, meta.writer)))[0].epoch)
            for _ in range(20):
                epoch_with_statement(meta)
            clean(objects)

        began = len(store.calls)
        store.before(nth, meanwhile)
        if dies:
            store.kill(nth + 1)
        answer: object = None
        with suppress(MustStopError, LogMovedError, BaseException if dies else LogMovedError):
            answer = act()
        if len(store.calls) - began <= nth:
            return
        check(objects, sleeper if not dies else open_meta(objects, "c"))
        if step is stale_rescale and not dies:
            assert open_meta(objects).read_latest().mapping.unit_count == 3
        if step is stale_commit and barrier is not None and not dies:
            assert open_meta(objects).has_epoch(barrier.epoch) is (answer is not None)
        statements = statements_of(objects)
        assert statements.count("sleeper") <= 1
        if isinstance(answer, int):
            assert statements[answer] == "sleeper", f"slept at request {nth}"
        if step is stale_append:
            repeated = open_meta(objects).append_log("sleeper", b'"mine"')
            assert [i for i, client in enumerate(statements_of(objects)) if client == "sleeper"] == [repeated]
        nth += 1


def statements_of(objects: ObjectStore) -> list[str]:
    meta = open_meta(objects)
    return [entry.client_id for entry in meta.read_log(0, meta.log_end())]


def check(objects: MemoryObjectStore, meta: MetaStore) -> None:
    """Check that a process and a fresh one agree with a replay of packs and objects, and can continue."""
    fresh = open_meta(objects, "fresh")
    assert meta.read_latest() == fresh.read_latest()
    assert meta.log_end() == fresh.log_end()
    version = initial_version(fresh.settings)
    for number, data in version_packs(objects).read_documents(1, fresh.read_latest().id + 1):
        version = apply_delta(version, decode_document(version_name(number), data, VersionDelta))
    assert version == fresh.read_latest()
    assert [entry.position for entry in fresh.read_log(0, fresh.log_end())] == list(range(fresh.log_end()))
    before = fresh.read_latest().id
    clean(objects)
    assert not [n for n in names(objects, VERSIONS) if n < version_name(before - 3 * SIZE)], "leftovers are removed"
    epoch_with_statement(meta)
    assert fresh.read_latest() == meta.read_latest()
    assert check_meta(objects).damages == []


def test_a_vacuum_killed_at_any_request_harms_nothing_and_the_next_one_ends_it() -> None:
    fuse = 0
    while True:
        objects = MortalObjectStore()
        grown(objects, 9)
        versions = all_versions(objects)
        open_meta(objects, "cleaner").apply_retention()
        objects.fuse = fuse
        with suppress(Dead):
            vacuum_store(open_meta(objects, "first"))
        if objects.fuse is not None:
            return
        assert all_versions(objects)[: len(versions)] == versions
        vacuum_store(open_meta(objects, "second"))
        assert len(names(objects, VERSIONS)) <= 2 * SIZE + 1
        check(objects, open_meta(objects, "d"))
        fuse += 1


@pytest.mark.parametrize("step", ["vacuum", "scrub", "latest", "version", "log", "has_epoch"])
def test_work_beside_a_whole_vacuum_before_any_of_its_requests_is_right(step: str) -> None:
    nth = 0
    while True:
        objects = MemoryObjectStore()
        meta = grown(objects, 9)
        versions, entries = all_versions(objects), meta.read_log(0, 9)
        epoch = versions[5].epoch
        open_meta(objects, "cleaner").apply_retention()
        store = FaultyObjectStore(objects)
        other = open_meta(store, "other")
        store.before(nth, lambda objects=objects: clean(objects))  # type: ignore[misc]
        match step:
            case "vacuum":
                vacuum_store(other)
            case "scrub":
                assert scrub_store(store).meta == ()
            case "latest":
                assert other.read_latest().epoch == versions[-1].epoch
            case "version":
                assert [other.read_version(i) for i in (3, 9, 14)] == [versions[i] for i in (3, 9, 14)]
            case "log":
                assert other.read_log(0, other.log_end()) == entries
            case "has_epoch":
                assert other.has_epoch(epoch)
        if len(store.calls) <= nth:
            return
        check(objects, other)
        nth += 1


def test_vacuum_keeps_the_barriers_of_readable_epochs_and_the_others_are_not_needed() -> None:
    objects = MemoryObjectStore()
    meta = grown(objects, 30)
    listed = names(objects, BARRIERS)
    meta.raise_floor(meta.read_latest().epochs[12])
    vacuum_store(meta)
    removed = set(listed) - set(names(objects, BARRIERS))
    assert len(removed) == 11
    assert not any(is_needed(meta, name) for name in removed)
    for epoch in meta.read_latest().epochs:
        sealed = meta.read_manifest(epoch)
        assert sealed is not None
        assert meta.barrier_after(sealed.prev_epoch) is not None


def test_an_object_with_a_packed_name_counts_for_nothing_and_is_removed() -> None:
    objects = MemoryObjectStore()
    meta = grown(objects)
    versions, entries = all_versions(objects), meta.read_log(0, 20)
    newest = {prefix: objects.held[names(objects, prefix)[-1]] for prefix in (VERSIONS, ENTRIES)}
    vacuum_store(meta)
    for name in (version_name(3), version_name(4), log_name(1), log_name(4)):
        objects.held[name] = newest[name[: name.rindex("/") + 1]]
    assert all_versions(objects) == versions
    assert open_meta(objects).read_log(0, 20) == entries
    assert open_meta(objects).read_log(1, 2) == entries[1:2]
    check(objects, meta)
    assert min(names(objects, ENTRIES)) > log_name(8)


def test_leftovers_that_fit_nothing_do_not_stop_a_sleeper() -> None:
    objects = MemoryObjectStore()
    meta = grown(objects, 2)
    sleeper = open_meta(objects, "sleeper")
    known = sleeper.read_latest().id
    for _ in range(20):
        epoch_with_statement(meta)
    clean(objects)
    stray = VersionDelta(known + 1, "x", Published(12345))
    objects.held[version_name(known + 1)] = encode_document(stray)
    check(objects, sleeper)


def test_a_damaged_pack_is_reported_once_and_stops_no_process_that_does_without_it() -> None:
    objects = MemoryObjectStore()
    meta = grown(objects)
    clean(objects)
    newest = meta.read_latest()
    for name in (names(objects, VERSION_PACKS)[1], names(objects, STATEMENT_PACKS)[1]):
        data = objects.held[name]
        for at in range(0, len(data), 7):
            objects.held[name] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            assert [damage.name for damage in check_meta(objects).damages] == [name]
        assert open_meta(objects, "b").read_latest() == newest
        vacuum_store(open_meta(objects, "c"))
        objects.held[name] = data
    assert check_meta(objects).damages == []
    with pytest.raises(DamagedDocumentError, match="another name"):
        decode_pack(names(objects, VERSION_PACKS)[0], objects.held[names(objects, VERSION_PACKS)[1]])


def test_a_pack_holds_any_documents_and_stored_ones_stay_readable() -> None:
    pack = Pack(5, 7, (b"", b"a\nb\0", b"x" * 1000, b"\n"))
    for data in (encode_pack(pack), b64decode(STORED)):
        assert decode_pack("p/00000000000000000005.pack", data) == pack


def test_a_log_with_a_missing_object_is_not_packed() -> None:
    objects = MemoryObjectStore()
    grown(objects)
    objects.delete([log_name(2)])
    clean(objects)
    assert names(objects, STATEMENT_PACKS) == []
    assert len(names(objects, ENTRIES)) == 19


def test_a_sleeping_driver_learns_who_won_although_the_proof_is_packed() -> None:
    objects = MemoryObjectStore()
    meta = new_meta(objects)
    run_epoch(meta)
    sleeper = open_meta(objects, "sleeper")
    version = sleeper.read_latest()
    barrier = sleeper.inject_barrier(version.epoch, plan_on(version))
    sealed = sleeper.seal_epoch(manifest_for(barrier, "sleeper"))
    other = meta.supersede_barrier(barrier, plan_on(meta.read_latest()))
    meta.commit_epoch(meta.seal_epoch(manifest_for(other)))
    for _ in range(30):
        epoch_with_statement(meta)
    clean(objects)
    with pytest.raises(LostRaceError):
        sleeper.commit_epoch(sealed)
    assert sleeper.commit_epoch(meta.seal_epoch(manifest_for(other))).mine is False
