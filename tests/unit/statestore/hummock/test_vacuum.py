"""Vacuum removes every unreferenced object, and never one that a slow reader or writer still needs."""

import threading
from contextlib import suppress
from functools import partial

import pytest

from tests.support.faulty_store import Fault, FaultyObjectStore, Killed
from tests.support.memory_store import MemoryObjectStore
from tests.support.small_pages import small_pages
from tests.support.statestore.hummock.living_store import LivingStore, named_by
from tests.support.statestore.meta.make import manifest_for, plan_on
from tussock.statestore.errors import MustStopError, RetryableError
from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.hummock.scrub import scrub_store
from tussock.statestore.hummock.vacuum import RECENT_SNAPSHOTS, vacuum_store
from tussock.statestore.meta.errors import DamagedDocumentError, EpochExpiredError, LostRaceError, PinLapsedError
from tussock.statestore.meta.names import data_prefix, snapshot_name, task_prefix
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore

HOUR_MS = 60 * 60 * 1000


def clean(store: LivingStore) -> MetaStore:
    """Retention to the published epoch, and a vacuum, by another process."""
    meta = store.open("cleaner")
    meta.apply_retention()
    vacuum_store(meta)
    return meta


def sweep(store: LivingStore) -> None:
    """As `clean`, for hooks."""
    clean(store)


def test_vacuum_removes_replaced_ssts_and_keeps_every_row() -> None:
    store = LivingStore()
    for i in range(4):
        epoch = store.run({i: i, 9: i})
    before = store.compact()
    store.run({5: 5})
    assert len(store.data()) == 4 + 1 + 1
    found = vacuum_store(store.meta, dry_run=True)
    assert not found.removed
    assert [g.name for g in found.garbage] == sorted(store.data() - named_by(store.meta.read_latest()))
    assert all(
        g.size == store.objects.head(g.name).size and "compaction has merged its rows" in g.reason
        for g in found.garbage
    )
    assert sum(g.size for g in found.garbage) > 0
    assert len(store.data()) == 6, "a dry run removes nothing"

    assert [g.name for g in vacuum_store(store.meta).garbage] == [g.name for g in found.garbage]
    assert store.data() == named_by(store.meta.read_latest())
    store.check(before, epoch)
    store.check(store.meta.read_latest(), store.meta.read_latest().epoch)
    assert vacuum_store(store.meta).garbage == ()


def test_a_dry_run_tells_committed_epochs_that_no_reader_can_name_from_lost_ones() -> None:
    store = LivingStore()
    for i in range(3):
        store.run({i: i})
    store.compact()
    store.run({5: 5})
    store.meta.apply_retention()
    reasons = {g.name: g.reason for g in vacuum_store(store.meta, dry_run=True).garbage}
    of_data = [reason for name, reason in reasons.items() if name.startswith("data/")]
    assert len(of_data) == 3
    assert all("compaction has merged its rows into other SSTs" in reason for reason in of_data)


def test_vacuum_and_pins_work_on_every_kind_of_store(any_store: ObjectStore) -> None:
    store = LivingStore(any_store)
    for i in range(3):
        epoch = store.run({i: i})
    with store.meta.open_for_reading(epoch) as version:
        store.compact()
        store.run({5: 5})
        clean(store)
        store.check(version, epoch)
    clean(store)
    store.check(store.meta.read_latest(), store.meta.read_latest().epoch)
    assert store.data() == named_by(store.meta.read_latest())
    assert scrub_store(any_store).is_whole


def test_objects_of_lost_epochs_and_closed_tasks_are_removed_and_those_of_open_ones_are_kept() -> None:
    store = LivingStore()
    store.run({1: 1})
    slow = store.inject()
    store.upload(slow, {2: 2})
    quick = store.meta.supersede_barrier(slow, plan_on(store.meta.read_latest()))
    manifest = store.upload(quick, {2: 2})
    version = store.meta.read_latest()
    task = store.meta.open_compaction(store.everything_to_level_1(version))
    store.merge(version, task)
    assert vacuum_store(store.meta).garbage == (), "either barrier may commit, and so may the task"
    assert vacuum_store(store.meta).pending_objects == 3

    store.meta.commit_epoch(store.meta.seal_epoch(manifest))
    store.meta.close_compaction(task.id, "given up")
    told = [g.reason for g in vacuum_store(store.meta, dry_run=True).garbage]
    assert sum(f"of epoch {slow.epoch}, which was never committed" in reason for reason in told) == 1
    gone = {g.name: g.reason for g in vacuum_store(store.meta).garbage}
    assert {name.rpartition("/")[0] + "/" for name in gone} == {data_prefix(slow.epoch), task_prefix(task.id)}
    assert any("closed" in reason for reason in gone.values())
    assert store.data() == named_by(store.meta.read_latest())


def test_a_superseded_barrier_that_commits_first_after_all_finds_its_objects() -> None:
    store = LivingStore()
    store.run({1: 1})
    first = store.inject()
    manifest = store.meta.seal_epoch(store.upload(first, {2: 2}))
    second = store.meta.supersede_barrier(first, plan_on(store.meta.read_latest()))
    store.upload(second, {2: 3})
    store.clock.now_ms += 48 * HOUR_MS
    clean(store)
    store.meta.commit_epoch(manifest)
    store.committed(manifest, {2: 2})
    clean(store)
    store.check(store.meta.read_latest(), first.epoch)


def test_an_object_with_an_unknown_name_is_reported_and_left_alone() -> None:
    store = LivingStore()
    store.run({1: 1})
    store.objects.put("data/notes.txt", b"mine")
    store.objects.put("data/task-17/x.sst", b"of no task of ours: ids have 16 digits")
    clean(store)
    report = vacuum_store(store.meta)
    assert report.unknown == ("data/notes.txt", "data/task-17/x.sst")
    assert "data/notes.txt" in store.data()


@pytest.mark.parametrize("loses", [True, False])
def test_a_writer_that_stalls_for_hours_before_its_commit_learns_that_it_lost_or_finds_its_objects(
    loses: bool,
) -> None:
    """After its upload, retention and vacuums run for hours; if it is to lose, a rival also commits 1,000 times."""
    store = LivingStore()
    store.run({1: 1})
    barrier = store.inject()
    disturbed = FaultyObjectStore(store.objects)
    writer = store.open("stalled", disturbed)
    writer.read_latest()
    manifest = store.upload(barrier, {2: 2}, disturbed)

    def meanwhile() -> None:
        rival = store.open("rival")
        for hour in range(4):
            store.clock.now_ms += HOUR_MS
            clean(store)
            if loses:
                for _ in range(250):
                    version = rival.read_latest()
                    following = rival.inject_barrier(version.epoch, plan_on(version))
                    if following == barrier:
                        following = rival.supersede_barrier(barrier, plan_on(version))
                    rival.commit_epoch(rival.seal_epoch(manifest_for(following, f"rival {hour}")))
                    rival.publish(following.epoch)
        clean(store)

    disturbed.before(0, meanwhile)  # before its manifest is put
    disturbed.before(1, meanwhile)  # and again between that and its look at the log
    if loses:
        with pytest.raises(LostRaceError, match="Nothing of this run is visible"):
            writer.commit_epoch(writer.seal_epoch(manifest))
        assert not store.data() & {sst.name for sst in manifest.ssts}, "its objects were removed"
        assert store.meta.read_latest().id > 2000
    else:
        version, mine = writer.commit_epoch(writer.seal_epoch(manifest))
        assert mine
        store.committed(manifest, {2: 2})
        store.check(version, barrier.epoch)


@pytest.mark.parametrize("stall_at", range(4))
def test_an_epoch_that_stalls_at_any_request_reads_and_commits_on_while_compaction_and_vacuum_go_by(
    stall_at: int,
) -> None:
    """A barrier's run reads and uploads for hours. Compactions replace its SSTs, and vacuum must keep them."""
    store = LivingStore()
    for i in range(3):
        base = store.run({i: i})
    barrier = store.inject()
    reads = store.open("slow").read_latest()

    disturbed = FaultyObjectStore(store.objects)

    def meanwhile() -> None:
        store.clock.now_ms += 5 * HOUR_MS
        store.compact()
        clean(store)
        clean(store)

    writer = store.open("slow", disturbed)
    writer.read_latest()
    disturbed.before(stall_at, meanwhile)  # before its upload, its seal, its look at the log, its commit
    manifest = store.upload(barrier, {7: 7}, disturbed)
    store.check(reads, base)
    version, _ = writer.commit_epoch(writer.seal_epoch(manifest))
    store.committed(manifest, {7: 7})
    store.meta.publish(barrier.epoch)
    store.check(version, barrier.epoch)
    clean(store)
    latest = store.meta.read_latest()
    store.check(latest, barrier.epoch)
    assert store.data() == named_by(latest), "SSTs that only the run read are removed"


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.sampled(2)
def test_a_compaction_that_stalls_for_a_thousand_commits_learns_that_it_lost_or_finds_its_objects(
    closed: bool,
) -> None:
    store = LivingStore()
    for i in range(3):
        store.run({i: i})
    version = store.meta.read_latest()
    task = store.meta.open_compaction(store.everything_to_level_1(version))
    outputs = store.merge(version, task)
    for step in range(1000):
        epoch = store.run({100 + step % 7: step})
        if step % 100 == 50:
            clean(store)
    if closed:
        store.clock.now_ms += 10 * HOUR_MS
        assert store.meta.close_lapsed_compactions() == (task.id,)
    clean(store)
    if closed:
        with pytest.raises(LostRaceError, match="its lease ended"):
            store.open("stalled").commit_compaction(task, outputs)
        assert not store.data() & {sst.name for sst in outputs}
    else:
        _, mine = store.open("stalled").commit_compaction(task, outputs)
        assert mine
    clean(store)
    latest = store.meta.read_latest()
    store.check(latest, epoch)
    assert store.data() == named_by(latest)


@pytest.mark.parametrize("nth", range(7))
def test_a_pin_taken_at_any_moment_of_compaction_and_vacuum_is_refused_or_honoured(nth: int) -> None:
    store = LivingStore()
    for i in range(4):
        store.run({i: i, 9: i})
    epochs = store.meta.read_latest().epochs
    disturbed = FaultyObjectStore(store.objects)
    reader = store.open("reader", disturbed)
    reader.read_latest()

    def meanwhile() -> None:
        store.compact()
        store.run({20: 20})
        clean(store)

    disturbed.before(nth, meanwhile)
    try:
        pin = reader.pin_epoch(epochs[-1])
    except EpochExpiredError:
        assert store.meta.all_pins() == ()
        return
    version = reader.pinned_version(pin)
    meanwhile() if nth > len(disturbed.calls) else None
    clean(store)
    store.check(version, epochs[-1])
    reader.unpin(pin)
    clean(store)
    assert store.data() == named_by(store.meta.read_latest())


@pytest.mark.parametrize("nth", range(6))
def test_vacuum_keeps_the_objects_of_a_pin_that_is_taken_during_any_of_its_requests(nth: int) -> None:
    store = LivingStore()
    for i in range(3):
        epoch = store.run({i: i})
    meta = store.open("reader")
    old = store.meta.pin_epoch(epoch)  # before compaction: keeps all three runs
    store.compact()
    store.run({8: 8})
    disturbed = FaultyObjectStore(store.objects)
    cleaner = store.open("cleaner", disturbed)
    cleaner.read_latest()
    taken = []
    disturbed.before(nth, lambda: taken.append(meta.pin_epoch(epoch)))
    disturbed.before(nth + 1, lambda: store.meta.unpin(old))
    vacuum_store(cleaner)
    if taken:
        store.check(meta.pinned_version(taken[0]), epoch)


def test_objects_that_a_reading_block_uses_are_kept_until_the_block_ends() -> None:
    store = LivingStore()
    for i in range(3):
        epoch = store.run({i: i})
    with store.open("reader").open_for_reading(epoch) as version:
        store.compact()
        store.run({9: 9})
        clean(store)
        store.check(version, epoch)
    clean(store)
    assert store.data() == named_by(store.meta.read_latest())


def test_uploads_after_the_pin_of_a_train_are_kept_after_compaction_replaced_them() -> None:
    store = LivingStore()
    train = store.open("train")
    pin = train.pin_epoch(store.run({1: 1}), onward=True)
    for i in range(4):
        store.run({i: i})
    uploaded = named_by(store.meta.read_latest())
    store.compact()
    assert not uploaded & named_by(store.meta.read_latest())
    clean(store)
    assert uploaded <= store.data()
    train.unpin(pin)
    clean(store)
    assert store.data() == named_by(store.meta.read_latest())


def test_a_lease_ends_only_when_the_floor_is_raised_and_a_renewed_one_does_not() -> None:
    store = LivingStore()
    epochs = [store.run({i: i}) for i in range(3)]
    left, kept = store.meta.pin_epoch(epochs[0], HOUR_MS), store.meta.pin_epoch(epochs[1], HOUR_MS)
    on = store.meta.pinned_version(left)
    store.compact()
    store.run({9: 9})
    store.clock.now_ms += 2 * HOUR_MS
    vacuum_store(store.meta)
    store.check(on, epochs[0])  # vacuum does not look at the clock
    for _ in range(3):
        kept = store.meta.renew_lease(kept, HOUR_MS)
    store.clock.now_ms += HOUR_MS // 2
    clean(store)
    assert store.meta.pinned_epochs() == (epochs[1],)
    store.check(store.meta.pinned_version(kept), epochs[1])
    with pytest.raises(PinLapsedError, match="Pin an epoch again"):
        store.meta.renew_lease(left)
    with pytest.raises(EpochExpiredError):
        store.meta.pin_epoch(epochs[0])
    store.meta.unpin(kept)
    assert store.meta.all_pins() == (), "a renewed pin leaves nothing"
    clean(store)
    with pytest.raises(MissingSstError, match="vacuum has removed"):
        store.check(on, epochs[0])


def test_a_pin_renewed_while_its_lease_is_judged_is_refused_or_honoured() -> None:
    for nth in range(4):
        store = LivingStore()
        epoch = store.run({1: 1})
        disturbed = FaultyObjectStore(store.objects)
        reader = store.open("reader", disturbed)
        pin = reader.pin_epoch(epoch, HOUR_MS)
        version = reader.pinned_version(pin)
        store.compact()
        store.run({2: 2})
        store.clock.now_ms += 2 * HOUR_MS
        disturbed.before(nth, partial(sweep, store))
        try:
            reader.renew_lease(pin, 10 * HOUR_MS)
        except PinLapsedError:
            assert store.meta.all_pins() == ()
        else:
            clean(store)
            store.check(version, epoch)


def test_old_manifests_and_snapshots_are_removed_and_every_version_can_still_be_read() -> None:
    store = LivingStore()
    for i in range(40):
        store.run({i % 5: i})
    store.run({1: 1})
    pin = store.meta.pin_epoch(store.meta.read_latest().epoch)
    for i in range(5 * RECENT_SNAPSHOTS):
        store.run({i % 5: i})
    before = [store.meta.read_version(i) for i in range(0, store.meta.read_latest().id, 7)]
    strays = [f"meta/{kind}/.DS_Store" for kind in ("barrier", "manifest", "snapshot")]  # of a file manager
    strays += [f"meta/{kind}/{1:020}.json~" for kind in ("manifest", "snapshot")]  # of an editor
    for stray in strays:
        store.objects.put(stray, b"")
    meta = clean(store)
    assert set(strays) <= {o.name for o in store.objects.list("meta/")}
    store.objects.delete(strays)
    version = meta.read_latest()
    snapshots = [o.name for o in store.objects.list("meta/snapshot/")]
    assert len(snapshots) <= RECENT_SNAPSHOTS + 2
    assert snapshot_name(pin.version - pin.version % SNAPSHOT_EVERY) in snapshots
    assert [m.name for m in store.objects.list("meta/manifest/")] == [f"meta/manifest/{version.epoch:020}.json"]
    assert [store.open("historian").read_version(v.id) for v in before] == before


@pytest.mark.parametrize("fault", [*Fault, None], ids=lambda fault: "KILLED" if fault is None else fault.name)
def test_a_vacuum_broken_at_any_request_harms_nothing_and_the_next_one_ends_it(fault: Fault | None) -> None:
    def prepare() -> LivingStore:
        store = LivingStore()
        for i in range(3):
            store.run({i: i})
        store.meta.pin_epoch(store.meta.read_latest().epoch)
        store.compact()
        store.run({7: 7})
        store.upload(store.inject(), {8: 8})
        return store

    undisturbed = prepare()
    counted = FaultyObjectStore(undisturbed.objects)
    vacuum_store(undisturbed.open("once", counted))
    for nth in range(len(counted.calls)):
        store = prepare()
        disturbed = FaultyObjectStore(store.objects)
        disturbed.kill(nth) if fault is None else disturbed.fail(nth, fault)
        with suppress(Killed, RetryableError, DamagedDocumentError):
            vacuum_store(store.open("first", disturbed))
        store.check(store.meta.read_latest(), store.meta.read_latest().epoch)
        vacuum_store(store.open("second"))
        assert len(store.data()) == len(undisturbed.data()), f"broken at request {nth} of {counted.calls}"
        store.check(store.meta.read_latest(), store.meta.read_latest().epoch)


@pytest.mark.parametrize("paged", [False, True])
def test_four_concurrent_vacuums_keep_all_objects_of_epochs_compactions_and_readers(
    paged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if paged:
        small_pages(monkeypatch, page_ssts=1, paged_ssts=1)
    store = LivingStore()
    stop = threading.Event()
    failures: list[BaseException] = []

    def keep_sweeping(number: int) -> None:
        meta = store.open(f"vacuum {number}")
        try:
            while not stop.is_set():
                meta.apply_retention()
                vacuum_store(meta)
        except BaseException as err:
            failures.append(err)

    sweepers = [threading.Thread(target=keep_sweeping, args=(i,)) for i in range(4)]
    store.run({0: 0})
    for thread in sweepers:
        thread.start()
    reader = store.open("reader")
    for step in range(60):
        store.run({step % 11: step})
        if step % 3 == 0:
            with suppress(EpochExpiredError):
                pin = reader.pin_epoch(store.meta.read_latest().epochs[0])
                at = reader.pinned_version(pin)
                if step % 2:
                    store.compact()
                store.check(at, pin.epoch)
                reader.unpin(pin)
        if step % 5 == 0:
            with suppress(MustStopError):
                store.compact()
    stop.set()
    for thread in sweepers:
        thread.join()
    assert failures == []
    clean(store)
    latest = store.meta.read_latest()
    store.check(latest, latest.epoch)
    assert store.data() == named_by(latest), "nothing leaked, nothing is missing"
    assert bool(next(store.objects.list("meta/root/"), None)) is paged


def test_the_store_for_these_tests_keeps_the_contract() -> None:
    store = MemoryObjectStore()
    assert store.put_if_absent("a/b", b"1")
    assert store.put_if_absent("a/b", b"1")
    assert not store.put_if_absent("a/b", b"2")
    assert [o.name for o in store.list("a/")] == ["a/b"]
