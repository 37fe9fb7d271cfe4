"""Commits: one winner, the old version or the new one, found again from any remaining objects."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.faulty_store import FaultyObjectStore
from tests.support.statestore.meta.make import manifest_for, new_meta, open_meta, plan_on, run_epoch, sst_of
from tussock.statestore.meta.delta import EpochCommitted, MappingChanged, Published, VersionDelta, apply_delta
from tussock.statestore.meta.document import encode_document
from tussock.statestore.meta.errors import (
    BadDeltaError,
    DamagedDocumentError,
    EpochNotCommittedError,
    LostRaceError,
    NoSuchVersionError,
)
from tussock.statestore.meta.names import HEAD, snapshot_name, version_name
from tussock.statestore.meta.settings import StoreSettings, initial_version
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY, Head
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import VnodeMapping
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore


def test_epochs_rise_and_every_version_is_the_one_before_plus_its_delta(any_store: ObjectStore) -> None:
    meta = new_meta(any_store)
    versions = [meta.read_latest(), *(run_epoch(meta) for _ in range(3))]
    assert [v.id for v in versions] == [0, 1, 2, 3]
    assert versions[3].epochs == (0, *sorted(v.epoch for v in versions[1:]))
    assert [sst.min_epoch for sst in versions[3].levels[0]] == [v.epoch for v in reversed(versions[1:])], (
        "L0 has the newest run first"
    )
    assert [open_meta(any_store, "b").read_version(i) for i in range(4)] == versions
    with pytest.raises(NoSuchVersionError, match="0 to 3"):
        meta.read_version(4)


@pytest.mark.deep
def test_a_thousand_commits_reopen_with_a_handful_of_requests_and_no_listing(objects: ObjectStore) -> None:
    counted = FaultyObjectStore(objects)
    meta = new_meta(counted)
    for _ in range(1000):
        version = run_epoch(meta)
    assert len(counted.calls) < 13 * 1000
    assert "list" not in {operation for operation, _ in counted.calls}

    counted.calls.clear()
    assert open_meta(counted, "b").read_latest() == version
    assert len(counted.calls) <= 4 + SNAPSHOT_EVERY

    steady = open_meta(counted, "c")
    steady.read_latest()
    counted.calls.clear()
    assert steady.read_latest() == version
    assert [operation for operation, _ in counted.calls] == ["get", "head"]

    # A hint that is absent, damaged, too old, or of a removed snapshot only costs probes.
    hint = objects.get(HEAD)
    objects.delete([HEAD])
    hints: list[bytes | None] = [None, b"x" + hint[1:], encode_document(Head(16)), encode_document(Head(4_000_000))]
    for wrong in hints:
        if wrong is not None:
            objects.put(HEAD, wrong)
        counted.calls.clear()
        assert open_meta(counted, "d").read_latest() == version
        assert len(counted.calls) < 80
        assert "list" not in {operation for operation, _ in counted.calls}

    # A process that slept over all of them catches up in the same way.
    objects.delete([snapshot_name(i) for i in range(900, 1001)])
    assert open_meta(counted, "e").read_latest() == version
    assert open_meta(counted, "e").read_version(950).id == 950


def test_a_reader_that_slept_over_many_commits_jumps_to_the_newest(objects: ObjectStore) -> None:
    counted = FaultyObjectStore(objects)
    meta = new_meta(objects)
    sleeper = open_meta(counted, "sleeper")
    sleeper.read_latest()
    for _ in range(10 * SNAPSHOT_EVERY):
        version = run_epoch(meta)
    counted.calls.clear()
    assert sleeper.read_latest() == version
    assert len(counted.calls) < 4 * SNAPSHOT_EVERY


def test_one_of_two_racing_writers_commits_and_the_other_learns_the_winner(
    objects: ObjectStore,
) -> None:
    ours, theirs = new_meta(objects, "ours"), open_meta(objects, "theirs")
    first = ours.inject_barrier(0, plan_on(ours.read_latest()))
    second = theirs.supersede_barrier(first, plan_on(theirs.read_latest()))
    assert second.epoch != first.epoch
    mine, other = ours.seal_epoch(manifest_for(first, "ours")), theirs.seal_epoch(manifest_for(second, "theirs"))
    version, _ = theirs.commit_epoch(other)
    with pytest.raises(
        LostRaceError, match=rf"epoch {first.epoch} .* lost: epoch {second.epoch} \(sealed by 'theirs'"
    ) as lost:
        ours.commit_epoch(mine)
    assert "Nothing of this run is visible" in str(lost.value)
    assert open_meta(objects).read_latest() == version
    assert version.epoch == second.epoch


def test_eight_writers_racing_for_every_epoch_leave_a_chain_without_gap_or_double(objects: ObjectStore) -> None:
    MetaStore.init(objects, vnode_count=8)
    writers, rounds = 8, 12
    start = threading.Barrier(writers)

    def race(writer: int) -> int:
        meta = open_meta(objects, f"writer {writer}")
        lost = 0
        for number in range(rounds):
            start.wait()
            base = meta.read_latest()
            start.wait()
            try:
                barrier = meta.inject_barrier(base.epoch, plan_on(base))
                if writer % 2:
                    barrier = meta.supersede_barrier(barrier, plan_on(base))
                meta.commit_epoch(meta.seal_epoch(manifest_for(barrier, meta.writer)))
            except LostRaceError:
                lost += 1
            start.wait()
            assert len(meta.read_latest().epochs) == number + 2
        return lost

    with ThreadPoolExecutor(writers) as pool:
        assert sum(pool.map(race, range(writers))) > 0
    version = open_meta(objects).read_latest()
    assert version.id == rounds
    assert len(version.levels[0]) == rounds, "one manifest per epoch, none twice"
    assert sorted(version.epochs) == list(version.epochs)


def test_an_epoch_rebases_on_deltas_of_other_kinds(objects: ObjectStore) -> None:
    meta, other = new_meta(objects), open_meta(objects, "other")
    first = run_epoch(meta)
    barrier = meta.inject_barrier(first.epoch, plan_on(first))
    sealed = meta.seal_epoch(manifest_for(barrier))
    other.publish(first.epoch)
    other.rescale(3)
    version, mine = meta.commit_epoch(sealed)
    assert mine
    assert (version.id, version.epoch, version.published) == (4, barrier.epoch, first.epoch)
    assert set(version.mapping.unit_of_vnode) == {0, 1, 2}
    assert version == open_meta(objects, "c").read_latest()


def test_committing_an_epoch_again_changes_nothing_even_when_the_floor_has_passed_it(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    version = run_epoch(meta)
    sealed = meta.read_manifest(version.epoch)
    assert sealed is not None
    assert open_meta(objects, "b").commit_epoch(sealed) == (version, False)
    for _ in range(2):
        later = run_epoch(meta)
    meta.publish(later.epoch)
    later = meta.raise_floor(later.epoch)
    assert open_meta(objects, "c").commit_epoch(sealed) == (later, False)


def test_a_superseded_barrier_that_lost_is_refused_even_below_the_floor(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    lost = meta.inject_barrier(0, plan_on(meta.read_latest()))
    sealed = meta.seal_epoch(manifest_for(lost))
    won = meta.supersede_barrier(lost, plan_on(meta.read_latest()))
    meta.commit_epoch(meta.seal_epoch(manifest_for(won)))
    for _ in range(2):
        later = run_epoch(meta)
    meta.publish(later.epoch)
    meta.raise_floor(later.epoch)
    with pytest.raises(LostRaceError):
        open_meta(objects, "b").commit_epoch(sealed)


def test_a_writer_that_stalled_over_many_commits_learns_that_it_lost(objects: ObjectStore) -> None:
    stalled, meta = new_meta(FaultyObjectStore(objects), "stalled"), open_meta(objects)
    barrier = stalled.inject_barrier(0, plan_on(stalled.read_latest()))
    assert isinstance(stalled.objects, FaultyObjectStore)

    def others_commit() -> None:
        rival = meta.supersede_barrier(barrier, plan_on(meta.read_latest()))
        meta.commit_epoch(meta.seal_epoch(manifest_for(rival)))
        for _ in range(3 * SNAPSHOT_EVERY):
            run_epoch(meta)

    sealed = stalled.seal_epoch(manifest_for(barrier, "stalled"))
    stalled.objects.before(1, others_commit)  # between its look at the newest version and its put
    with pytest.raises(LostRaceError):
        stalled.commit_epoch(sealed)
    assert barrier.epoch not in meta.read_latest().epochs


def test_publishing_moves_forward_only_and_only_to_committed_epochs(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    first, second = run_epoch(meta), run_epoch(meta)
    assert meta.publish(first.epoch).published == first.epoch
    assert meta.publish(second.epoch).published == second.epoch
    assert meta.publish(first.epoch).published == second.epoch
    with pytest.raises(EpochNotCommittedError, match="is not committed"):
        meta.publish(second.epoch + 1)


def test_rescaling_twice_to_the_same_units_is_one_change(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    assert meta.rescale(4).id == 1
    assert meta.rescale(4).id == 1
    assert meta.read_latest().mapping.id == 1


EMPTY = initial_version(StoreSettings(1, 8, 2, "UTC"))


@pytest.mark.parametrize(
    ("delta", "why"),
    [
        (VersionDelta(2, "x", Published(1)), "it follows version 1"),
        (VersionDelta(1, "x", EpochCommitted(5, 9, 0, (), 0)), "onto 5, but the committed epoch is 0"),
        (VersionDelta(1, "x", EpochCommitted(0, 0, 0, (), 0)), "commits epoch 0"),
        (VersionDelta(1, "x", Published(7)), "not committed"),
        (VersionDelta(1, "x", MappingChanged(EMPTY.mapping)), "mapping 0 is in force"),
        (VersionDelta(1, "x", MappingChanged(VnodeMapping(5, (0,)))), "has 1 vnodes"),
    ],
)
def test_replay_refuses_a_delta_that_does_not_fit_its_version(delta: VersionDelta, why: str) -> None:
    with pytest.raises(BadDeltaError, match=why):
        apply_delta(EMPTY, delta)


def test_a_delta_written_past_the_protocol_stops_every_reader(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    run_epoch(meta)
    objects.put(version_name(2), encode_document(VersionDelta(2, "rogue", EpochCommitted(1, 2, 0, (), 0))))
    with pytest.raises(BadDeltaError, match="version delta 2"):
        open_meta(objects, "b").read_latest()


def test_every_byte_of_a_delta_flipped_in_turn_is_detected_and_named(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    run_epoch(meta)
    name = version_name(1)
    good = objects.get(name)
    assert isinstance(objects, LocalObjectStore)
    reader = _Altered(objects, name)
    for place in range(len(good)):
        for bit in (0x01, 0x20, 0x80):
            reader.data = good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :]
            with pytest.raises(DamagedDocumentError, match=r"meta/version/00000000000000000001\.json"):
                open_meta(reader, "b").read_latest()
    for length in range(len(good)):
        reader.data = good[:length]
        with pytest.raises(DamagedDocumentError):
            open_meta(reader, "b").read_latest()


class _Altered(LocalObjectStore):
    """A store in which the object `name` reads as `data`."""

    def __init__(self, store: LocalObjectStore, name: str) -> None:
        super().__init__(store._root)
        self.name, self.data = name, b""

    def get(self, name: str) -> bytes:
        return self.data if name == self.name else super().get(name)


@pytest.mark.parametrize("attempt", range(6))
def test_a_process_killed_during_its_commit_leaves_a_whole_version_and_the_next_one_continues(
    tmp_path: Path, attempt: int
) -> None:
    root = tmp_path / "store"
    MetaStore.init(LocalObjectStore(root), vnode_count=8)
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tussock.statestore.objectstore.local import LocalObjectStore\n"
        "from tests.support.statestore.meta.make import open_meta, run_epoch\n"
        "meta = open_meta(LocalObjectStore(Path(sys.argv[1])), 'victim')\n"
        "print('up', flush=True)\n"
        "while True:\n"
        "    print(run_epoch(meta).epoch, flush=True)\n"
    )
    victim = subprocess.Popen(
        [sys.executable, "-c", program, str(root)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
        bufsize=1,
    )
    assert victim.stdout is not None
    told = [
        victim.stdout.readline() for _ in range(3 + attempt)
    ]  # the kill then falls into some request of the next epoch
    os.kill(victim.pid, signal.SIGKILL)
    told += victim.stdout.readlines()
    victim.wait()
    committed = [int(line) for line in told[1:] if line.endswith("\n")]

    meta = open_meta(LocalObjectStore(root), "heir")
    version = meta.read_latest()
    assert set(committed) <= set(version.epochs), "every reported commit is in the version"
    assert len(version.epochs) <= len(committed) + 2
    assert len(version.levels[0]) == version.id
    assert run_epoch(meta).id == version.id + 1


def test_numbers_of_a_version_are_exact_after_the_log(objects: ObjectStore) -> None:
    meta = new_meta(objects)
    version = run_epoch(meta)
    assert open_meta(objects, "b").read_latest().levels[0] == (sst_of(version.epoch),), "u64 epochs and bytes are exact"
