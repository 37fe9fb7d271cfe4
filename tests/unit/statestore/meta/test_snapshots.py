"""Snapshots with pages: every version equals the replay of its deltas, after kills, removals and damage."""

import logging
import random
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed, next_death
from tests.support.memory_store import MemoryObjectStore
from tests.support.small_pages import small_pages
from tests.support.statestore.meta.make import open_meta, plan_on
from tussock.statestore.hummock.vacuum import RECENT_SNAPSHOTS, vacuum_store
from tussock.statestore.hummock.version import sections_at
from tussock.statestore.meta.compaction import CompactionPlan
from tussock.statestore.meta.delta import VersionDelta, apply_delta
from tussock.statestore.meta.document import decode_document, encode_document, require_document
from tussock.statestore.meta.errors import DamagedDocumentError
from tussock.statestore.meta.levels import hull_of, ssts_between
from tussock.statestore.meta.log_check import check_meta
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import (
    HEAD,
    PAGES,
    ROOTS,
    SNAPSHOTS,
    VERSIONS,
    data_prefix,
    number_in,
    page_origin,
    root_name,
    snapshot_name,
    task_prefix,
    version_name,
)
from tussock.statestore.meta.pages import PagedLevel
from tussock.statestore.meta.settings import initial_version
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY, Head, VersionRoot
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, LevelInput, SectionInfo, SstInfo
from tussock.statestore.objectstore.base import ObjectStore


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records that people see; another test of the process may have turned on the others."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


DEEP = 6  # the level of most SSTs
TABLES, KEYS = 8, 1 << 16


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch)


def sst(name: str, first: int, last: int, epoch: int) -> SstInfo:
    """An SST of the keys `first` to `last`; each KEYS of them are of one table."""
    tables = range(first // KEYS, last // KEYS + 1)
    sections = tuple(
        SectionInfo(t, _key(max(first, t * KEYS)), _key(min(last, t * KEYS + KEYS - 1)), 5, 100) for t in tables
    )
    return SstInfo(name, 100, 10, 5 * len(sections), epoch, epoch, sections)


def _key(number: int) -> bytes:
    return (number // KEYS).to_bytes(4, "big") + (number % KEYS).to_bytes(4, "big")


def _number(key: bytes) -> int:
    return int.from_bytes(key[:4], "big") * KEYS + int.from_bytes(key[4:], "big")


def run_epoch(meta: MetaStore, *ranges: tuple[int, int]) -> HummockVersion:
    """An epoch with an SST for each range of keys."""
    version = meta.read_latest()
    barrier = meta.inject_barrier(version.epoch, plan_on(version))
    ssts = (sst(f"{data_prefix(barrier.epoch)}{i}.sst", *keys, barrier.epoch) for i, keys in enumerate(ranges))
    return meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, tuple(ssts))))[0]


def compact(meta: MetaStore, rng: random.Random) -> HummockVersion:
    """Merge L0 with the SSTs of its keys on the deep level, into a random number of SSTs."""
    version = meta.read_latest()
    newest = version.levels[0]
    hull = hull_of(newest)
    met = ssts_between(version.levels[DEEP], hull.first, hull.last)
    inputs = [(0, newest), *([(DEEP, met)] if met else [])]
    plan = CompactionPlan(tuple(LevelInput(level, tuple(s.name for s in ssts)) for level, ssts in inputs), DEEP)
    task = meta.open_compaction(plan)
    hull = hull_of((*newest, *met))
    low, high = _number(hull.first), _number(hull.last)
    many = max(1, len(met) + rng.randint(-2, 4))
    ends = sorted(rng.sample(range(low, high + 1), min(high - low, 2 * many)))
    epoch = newest[0].max_epoch
    outputs = [
        sst(f"{task_prefix(task.id)}{first}.sst", first, last, epoch)
        for first, last in zip(ends[::2], ends[1::2], strict=False)
    ]
    return meta.commit_compaction(task, outputs)[0]


def grown(objects: ObjectStore, ssts: int = 100) -> MetaStore:
    """A store with SSTs on the deep level, and a first root."""
    MetaStore.init(objects, vnode_count=8)
    meta = open_meta(objects)
    step = TABLES * KEYS // ssts
    version = run_epoch(meta, *((i * step, i * step + step // 2) for i in range(ssts)))
    moved = LevelInput(0, tuple(s.name for s in version.levels[0]))
    meta.move_ssts(CompactionPlan((moved,), DEEP))
    to_snapshot(meta)
    return meta


def step(meta: MetaStore) -> HummockVersion:
    """Commit a small change."""
    return meta.rescale(5 - meta.read_latest().mapping.unit_count)


def to_snapshot(meta: MetaStore) -> HummockVersion:
    """Commit until a snapshot was written."""
    version = meta.read_latest()
    while version.id % SNAPSHOT_EVERY:
        version = step(meta)
    return version


def replayed(objects: ObjectStore, last: int) -> Iterator[HummockVersion]:
    """All versions, from deltas alone."""
    version = initial_version(open_meta(objects).settings)
    for i in range(1, last + 1):
        version = apply_delta(version, require_document(objects, version_name(i), VersionDelta))
        yield version


def _calls_of_a_commit(objects: MemoryObjectStore) -> list[tuple[str, str]]:
    """The requests of a process that commits a small change now."""
    copy = MemoryObjectStore()
    copy.held = dict(objects.held)
    meta = open_meta(counted := FaultyObjectStore(copy), "other")
    meta.read_latest()
    counted.calls.clear()
    step(meta)
    return counted.calls


def names(objects: ObjectStore, prefix: str) -> list[str]:
    return [found.name for found in objects.list(prefix)]


def named_pages(objects: ObjectStore, root: str) -> set[str]:
    return decode_document(root, objects.get(root), VersionRoot).page_names()


def test_a_large_version_opens_without_its_pages_and_reads_those_of_its_tables() -> None:
    objects = MemoryObjectStore()
    version = grown(objects).read_latest()
    counted = FaultyObjectStore(objects)
    opened = open_meta(counted, "reader").read_latest()
    assert [type(level) for level in opened.levels] == [*[tuple] * DEEP, PagedLevel]
    assert not [name for _, name in counted.calls if name.startswith((PAGES, SNAPSHOTS))]
    assert len(counted.calls) <= 4, "the hint, the root, the next delta, and its pack"
    found = list(sections_at(opened, 3))
    assert found == list(sections_at([*replayed(objects, version.id)][-1], 3))
    read = {name for _, name in counted.calls if name.startswith(PAGES)}
    assert 0 < len(read) < len(names(objects, PAGES)) / 3
    assert opened == version


def test_a_commit_writes_the_pages_of_changed_keys_only_and_a_replay_reads_them_only() -> None:
    objects = MemoryObjectStore()
    meta = grown(objects)
    reader = open_meta(counted := FaultyObjectStore(objects), "reader")
    reader.read_latest()
    before = set(names(objects, PAGES))
    run_epoch(meta, (1000, 9000))
    compact(meta, random.Random(1))
    replay = reader.read_latest()
    assert 0 < len({name for _, name in counted.calls if name.startswith(PAGES)}) <= 4
    assert replay == meta.read_latest()
    version = to_snapshot(meta)
    made = set(names(objects, PAGES)) - before
    assert 0 < len(made) <= 4 < len(before) / 4
    assert named_pages(objects, root_name(version.id)) & before, "the other pages are named again"
    assert open_meta(objects, "late").read_latest() == version == [*replayed(objects, version.id)][-1]


@pytest.mark.parametrize("seed", range(4))
def test_versions_of_many_writers_and_vacuums_equal_the_replay_of_their_deltas(seed: int) -> None:
    rng = random.Random(seed)
    objects = MemoryObjectStore()
    grown(objects)
    writers = [open_meta(objects, f"writer {i}") for i in range(3)]
    for _ in range(250):
        meta = rng.choice(writers)
        version = meta.read_latest()
        match rng.choice(("epoch", "compact", "compact", "rescale", "vacuum", "reopen")):
            case "epoch":
                start = rng.randrange(TABLES * KEYS - 40_000)
                run_epoch(meta, (start, start + rng.randrange(100, 40_000)))
            case "compact" if version.levels[0]:
                compact(meta, rng)
            case "vacuum":
                meta.publish(version.epoch)
                meta.apply_retention()
                vacuum_store(meta)
                kept = names(objects, ROOTS)
                assert len(kept) <= RECENT_SNAPSHOTS
                there = set(names(objects, PAGES))
                assert all(named_pages(objects, root) <= there for root in kept)
                named = set[str]().union(*(named_pages(objects, root) for root in kept))
                oldest = min((number_in(root) or 0 for root in kept), default=0)
                assert all((origin := page_origin(name)) and origin.root >= oldest for name in there - named)
            case "reopen":
                writers[rng.randrange(3)] = open_meta(objects, f"writer {rng.random()}")
            case _:
                step(meta)
    version = writers[0].read_latest()
    every = [*replayed(objects, version.id)]
    assert [meta.read_latest() for meta in writers] == [every[-1]] * 3
    reader = open_meta(objects, "reader")
    assert [reader.read_version(i) for i in range(1, version.id + 1, 7)] == every[::7]
    assert check_meta(objects).damages == []
    assert sum(map(len, version.levels)) > 16


@pytest.mark.parametrize("damage", ["missing", "changed", "exchanged"])
def test_a_lost_page_is_replayed_from_the_log_reported_and_written_anew(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    objects = MemoryObjectStore()
    version = grown(objects).read_latest()
    plain = [*replayed(objects, version.id)][-1]
    pages = sorted(named_pages(objects, root_name(version.id)))
    for name in pages[:: len(pages) // 3]:
        hurt = MemoryObjectStore()
        hurt.held = dict(objects.held)
        if damage == "missing":
            hurt.delete([name])
        elif damage == "exchanged":
            hurt.put(name, hurt.get(next(other for other in pages if other != name)))
        else:
            data = hurt.get(name)
            hurt.put(name, data[:50] + bytes([data[50] ^ 1]) + data[51:])
        (found,) = check_meta(hurt).damages
        assert (found.name, found.missing) == (name, damage == "missing")
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            meta = open_meta(hurt, "reader")
            assert meta.read_latest() == plain
        assert [name in record.getMessage() for record in warnings_in(caplog)] == [True]
        assert "`tussock scrub`" in caplog.text
        step(meta)
        after = to_snapshot(meta)
        assert name not in named_pages(hurt, root_name(after.id))
        caplog.clear()
        assert open_meta(hurt, "reader").read_latest() == after == [*replayed(hurt, after.id)][-1]
        assert not warnings_in(caplog)


def test_a_copy_without_any_page_has_every_version_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    objects = MemoryObjectStore()
    version = grown(objects).read_latest()
    objects.delete(names(objects, PAGES))
    reader = open_meta(objects, "reader")
    with caplog.at_level(logging.WARNING):
        assert reader.read_latest() == [*replayed(objects, version.id)][-1]
    assert ["it is missing" in record.getMessage() for record in warnings_in(caplog)] == [True]
    step(reader)
    after = to_snapshot(reader)
    assert open_meta(objects, "next").read_latest() == after == [*replayed(objects, after.id)][-1]
    assert len(names(objects, PAGES)) > 5


def test_writers_that_take_turns_name_equal_contents_alike() -> None:
    objects = MemoryObjectStore()
    writers = [grown(objects), open_meta(objects, "other")]
    writers[1].read_latest()
    run_epoch(writers[0], (1000, 9000))
    compact(writers[0], random.Random(1))
    for meta in writers * 2:
        meta.read_latest()
        to_snapshot(meta)
        step(meta)
    first, *others = (named_pages(objects, root) for root in names(objects, ROOTS)[1:])
    assert len(others) == 3
    assert all(other == first for other in others)


@pytest.mark.parametrize("renamed", [True, False])
def test_a_page_that_vacuum_removed_under_a_slow_reader_is_no_damage(
    renamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    objects, rng = MemoryObjectStore(), random.Random(8)
    meta = grown(objects)
    counted = FaultyObjectStore(objects)
    old = open_meta(counted, "slow").read_latest()
    plain, pages = [*replayed(objects, old.id)][-1], names(objects, PAGES)
    if renamed:  # another writer named all contents anew
        objects.delete([*pages, HEAD])
        meta = open_meta(objects, "writer")
        meta.read_latest()
    for _ in range(2 * RECENT_SNAPSHOTS):
        if not renamed:
            start = rng.randrange(TABLES * KEYS // 2)
            run_epoch(meta, (start, start + 30_000))
            compact(meta, rng)
        step(meta)
        to_snapshot(meta)
    meta.publish(meta.read_latest().epoch)
    vacuum_store(meta)
    named = {
        page.info.name for level in old.levels if isinstance(level, PagedLevel) for page in level.pages if page.info
    }
    assert not named <= set(names(objects, PAGES)), "pages of the slow reader are gone"
    counted.calls.clear()
    with caplog.at_level(logging.WARNING):
        assert old == plain
    assert not warnings_in(caplog)
    assert any(name.startswith(VERSIONS) for _, name in counted.calls) != renamed


def test_a_page_that_the_log_contradicts_stops_its_reader() -> None:
    objects = MemoryObjectStore()
    name = root_name(grown(objects).read_latest().id)
    root = decode_document(name, objects.get(name), VersionRoot)
    first, *others = root.pages[DEEP]
    wrong = msgspec.structs.replace(first, rows=first.rows + 1)
    objects.put(name, encode_document(msgspec.structs.replace(root, pages=(*root.pages[:DEEP], (wrong, *others)))))
    objects.delete([first.name])
    with pytest.raises(DamagedDocumentError, match=rf"{name}.*{first.name}") as stopped:
        list(open_meta(objects, "reader").read_latest().levels[DEEP])
    assert f"has {first.ssts} SSTs" in str(stopped.value)


def test_a_root_that_is_whole_but_wrong_and_an_exchanged_page_are_reported() -> None:
    objects = MemoryObjectStore()
    name = root_name(grown(objects).read_latest().id)
    root = decode_document(name, objects.get(name), VersionRoot)
    one, other, *_ = root.pages[DEEP]
    wrong = msgspec.structs.replace(root, version=msgspec.structs.replace(root.version, log_end=9))
    whole = objects.get(name)
    objects.put(name, encode_document(wrong))
    (found,) = check_meta(objects).damages
    assert (found.name, "differs from the version that the log produces" in found.detail) == (name, True)
    objects.put(name, whole)
    objects.put(one.name, objects.get(other.name))
    (found,) = check_meta(objects).damages
    assert (found.name, found.missing) == (one.name, False)
    assert "do not match the hash in its name" in found.detail


def test_a_writer_killed_at_each_request_of_a_snapshot_leaves_a_whole_version() -> None:
    base = MemoryObjectStore()
    rng = random.Random(3)
    meta = grown(base)
    run_epoch(meta, (1000, 90_000), (200_000, 260_000))
    compact(meta, rng)
    while meta.read_latest().id % SNAPSHOT_EVERY != SNAPSHOT_EVERY - 1:
        step(meta)
    number, calls = 0, list[tuple[str, str]]()
    while number <= len(calls):
        copy = MemoryObjectStore()
        copy.held = dict(base.held)
        objects = FaultyObjectStore(copy)
        victim = open_meta(objects, "victim")
        victim.read_latest()
        objects.calls.clear()
        if calls and number < len(calls):
            objects.kill(number)
        with suppress(Killed):
            run_epoch(victim, (5, 6))
        calls = calls or list(objects.calls)
        heir = open_meta(copy, "heir")
        version = heir.read_latest()
        assert version == [*replayed(copy, version.id)][-1], f"killed at {number} of {calls}"
        run_epoch(heir, (7, 8))
        vacuum_store(heir)
        version = to_snapshot(heir)
        assert open_meta(copy, "next").read_latest() == version == [*replayed(copy, version.id)][-1]
        assert check_meta(copy).damages == []
        number = next_death(calls, number)
    assert {name.split("/")[1] for _, name in calls} >= {"page", "root", "head.json", "version"}


def test_a_vacuum_killed_at_each_request_keeps_every_page_that_a_root_names() -> None:
    base = MemoryObjectStore()
    meta, rng = grown(base), random.Random(4)
    for _ in range(2 * RECENT_SNAPSHOTS):
        start = rng.randrange(TABLES * KEYS // 2)
        run_epoch(meta, (start, start + 30_000))
        compact(meta, rng)
        to_snapshot(meta)
        step(meta)
    meta.publish(meta.read_latest().epoch)
    number, calls = 0, list[tuple[str, str]]()
    while number <= len(calls):
        copy = MemoryObjectStore()
        copy.held = dict(base.held)
        objects = FaultyObjectStore(copy)
        if calls and number < len(calls):
            objects.kill(number)
        with suppress(Killed):
            vacuum_store(open_meta(objects, "victim"))
        calls = calls or list(objects.calls)
        vacuum_store(again := open_meta(copy, "again"))
        kept = names(copy, ROOTS)
        assert len(kept) == RECENT_SNAPSHOTS
        assert set[str]().union(*(named_pages(copy, root) for root in kept)) <= set(names(copy, PAGES))
        assert len(names(copy, PAGES)) < len(names(base, PAGES))
        assert again.read_latest() == meta.read_latest()
        number = next_death(calls, number)
    removals = [batch.split() for operation, batch in calls if operation == "delete"]
    assert [{name.startswith(PAGES) for name in batch} for batch in removals] == [{False}, {True}], "roots, then pages"


@pytest.mark.parametrize("asleep_at", ["page", "root", "head.json"])
def test_a_writer_that_sleeps_over_vacuums_leaves_versions_that_are_right(asleep_at: str) -> None:
    objects, rng = MemoryObjectStore(), random.Random(6)
    others = grown(objects)
    slow = open_meta(counted := FaultyObjectStore(objects), "slow")
    run_epoch(others, (1000, 90_000))
    compact(others, rng)
    while others.read_latest().id % SNAPSHOT_EVERY != SNAPSHOT_EVERY - 1:
        step(others)
    slow.read_latest()

    def others_work() -> None:
        for _ in range(3 * RECENT_SNAPSHOTS):
            start = rng.randrange(TABLES * KEYS // 2)
            run_epoch(others, (start, start + 30_000))
            compact(others, rng)
            step(others)
            to_snapshot(others)
        others.publish(others.read_latest().epoch)
        vacuum_store(others)

    counted.calls.clear()
    calls = _calls_of_a_commit(objects)
    counted.before(next(i for i, (_, name) in enumerate(calls) if name.split("/")[1] == asleep_at), others_work)
    step(slow)
    assert decode_document(HEAD, objects.get(HEAD), Head) == Head(2 * SNAPSHOT_EVERY, True), "an old one"
    every = [*replayed(objects, others.read_latest().id)]
    assert open_meta(objects, "reader").read_latest() == every[-1]
    reader = open_meta(objects, "reader")
    assert [reader.read_version(i) for i in range(1, every[-1].id + 1, 5)] == every[::5]
    vacuum_store(others)
    assert check_meta(objects).damages == []


def test_the_pages_of_a_pinned_version_stay() -> None:
    objects = MemoryObjectStore()
    meta, rng = grown(objects), random.Random(5)
    pinned = run_epoch(meta, (5, 6))
    pin = meta.pin_epoch(pinned.epoch)
    for _ in range(2 * RECENT_SNAPSHOTS):
        start = rng.randrange(TABLES * KEYS // 2)
        run_epoch(meta, (start, start + 30_000))
        compact(meta, rng)
        step(meta)
        to_snapshot(meta)
    vacuum_store(meta)
    start = root_name(pinned.id - pinned.id % SNAPSHOT_EVERY)
    assert start in names(objects, ROOTS)
    assert named_pages(objects, start) <= set(names(objects, PAGES))
    assert open_meta(objects, "reader").pinned_version(pin) == pinned
    meta.unpin(pin)
    vacuum_store(meta)
    assert start not in names(objects, ROOTS)


def test_a_version_with_pages_becomes_one_object_when_it_is_small_again(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = MemoryObjectStore()
    meta = grown(objects, 20)
    run_epoch(meta, (0, TABLES * KEYS - 1))
    version = meta.read_latest()
    inputs = tuple(LevelInput(level, tuple(s.name for s in ssts)) for level, ssts in enumerate(version.levels) if ssts)
    task = meta.open_compaction(CompactionPlan(inputs, DEEP))
    meta.commit_compaction(task, [sst(f"{task_prefix(task.id)}all.sst", 0, TABLES * KEYS - 1, version.epoch)])
    step(meta)
    version = to_snapshot(meta)
    assert decode_document(HEAD, objects.get(HEAD), Head) == Head(version.id)
    reader = open_meta(objects, "reader").read_latest()
    assert [type(level) for level in reader.levels] == [tuple] * (DEEP + 1)
    assert reader == version


def test_each_1024th_version_is_one_object_from_which_releases_without_pages_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tussock.statestore.meta.snapshots.SPARSE_SNAPSHOTS", 2 * SNAPSHOT_EVERY)
    objects = MemoryObjectStore()
    meta = grown(objects)
    for _ in range(3):
        step(meta)
        to_snapshot(meta)
    assert names(objects, SNAPSHOTS) == [snapshot_name(i) for i in (32, 64)]
    for name in names(objects, SNAPSHOTS):
        version = decode_document(name, objects.get(name), HummockVersion)
        assert version == [*replayed(objects, version.id)][-1]
