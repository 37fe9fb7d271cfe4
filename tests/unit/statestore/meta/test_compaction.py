"""Compaction in the version log: one holder per SST, one winner per commit, and no old row that hides a newer one."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from tests.support.faulty_store import FaultyObjectStore
from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.meta.make import START_MS, Clock, open_meta, plan_on
from tussock.statestore.errors import MustStopError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.compaction import CompactionPlan
from tussock.statestore.meta.delta import (
    MAX_EPOCHS,
    CompactionClosed,
    CompactionCommitted,
    CompactionOpened,
    CompactionsRenewed,
    EpochCommitted,
    VersionDelta,
    apply_delta,
)
from tussock.statestore.meta.errors import (
    BadDeltaError,
    EpochExpiredError,
    EpochNotCommittedError,
    LostRaceError,
    SettingError,
)
from tussock.statestore.meta.levels import hull_of, order_objection, ranges_overlap, ssts_overlap
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import data_prefix, task_prefix
from tussock.statestore.meta.readable import check_readable, epoch_as_of
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import (
    CompactionTask,
    HeldBack,
    HummockVersion,
    KeyRange,
    LevelInput,
    SectionInfo,
    SstInfo,
)


def new_store(clock: Clock | None = None) -> tuple[MemoryObjectStore, MetaStore]:
    objects = MemoryObjectStore()
    MetaStore.init(objects, vnode_count=8)
    return objects, open_meta(objects, clock_ms=clock)


def sst(name: str, keys: Sequence[str], epochs: Sequence[int]) -> SstInfo:
    """An SST of these keys; the first letter of a key is its table."""
    sections = []
    for table in sorted({k[0] for k in keys}):
        mine = sorted(k.encode() for k in keys if k[0] == table)
        sections.append(SectionInfo(ord(table), mine[0], mine[-1], len(mine), 10 * len(mine)))
    return SstInfo(name, 10 * len(keys), 10, len(keys), min(epochs), max(epochs), tuple(sections))


def commit(meta: MetaStore, *runs: Sequence[str]) -> HummockVersion:
    """An epoch with an SST for each of `runs`: the keys it holds."""
    version = meta.read_latest()
    barrier = meta.inject_barrier(version.epoch, plan_on(version))
    ssts = tuple(sst(f"{data_prefix(barrier.epoch)}{i}.sst", keys, [barrier.epoch]) for i, keys in enumerate(runs))
    return meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, ssts)))[0]


def plan(version: HummockVersion, target: int, *inputs: Sequence[SstInfo]) -> CompactionPlan:
    """Merge SSTs, listed per level from L0 on, down to `target`."""
    return CompactionPlan(
        tuple(LevelInput(level, tuple(s.name for s in ssts)) for level, ssts in enumerate(inputs) if ssts), target
    )


def merged(version: HummockVersion, task: CompactionTask, label: str = "a") -> SstInfo:
    """One SST that spans a task's inputs."""
    names = {name for taken in task.inputs for name in taken.ssts}
    inputs = [s for level in version.levels for s in level if s.name in names]
    hull = hull_of(inputs)
    section = SectionInfo(hull.first[0], hull.first, hull.last, 1, 10)
    epochs = [e for s in inputs for e in (s.min_epoch, s.max_epoch)]
    return SstInfo(f"{task_prefix(task.id)}{label}.sst", 10, 10, 1, min(epochs), max(epochs), (section,))


def test_a_task_takes_its_inputs_and_its_commit_puts_the_outputs_in_their_place() -> None:
    _, meta = new_store()
    commit(meta, ["a1", "a5"])
    version = commit(meta, ["a3", "a9"])
    task = meta.open_compaction(plan(version, 1, version.levels[0]))
    assert (task.id, task.opened) == (1, version.id + 1)
    assert meta.read_latest().tasks == (task,)
    output = merged(version, task)
    later = commit(meta, ["a2"])
    after, mine = meta.commit_compaction(task, [output])
    assert mine
    assert after.levels == (later.levels[0][:1], (output,)), "an epoch that was committed meanwhile stays on top"
    assert (after.tasks, after.next_task_id, after.epoch) == ((), 2, later.epoch)
    assert after.retired == tuple(s.name for s in version.levels[0])
    assert commit(meta, ["a4"]).retired == (), "the run of the epoch after next reads none of them"
    assert open_meta(meta.objects, "b").read_latest() == meta.read_latest()


def test_an_epoch_rebases_on_a_compaction_that_was_committed_first() -> None:
    objects, meta = new_store()
    version = commit(meta, ["a1", "a5"])
    disturbed = FaultyObjectStore(objects)
    driver = open_meta(disturbed, "driver")
    driver.read_latest()
    task = meta.open_compaction(plan(version, 1, version.levels[0]))
    disturbed.before(5, lambda: meta.commit_compaction(task, [merged(version, task)]) and None)
    after = commit(driver, ["a2"])
    assert len(after.levels[0]) == len(after.levels[1]) == 1
    assert after.levels[0][0].min_epoch == after.epoch


def test_a_closed_task_cannot_commit_and_a_committed_one_commits_again_without_effect() -> None:
    _, meta = new_store()
    version = commit(meta, ["a1"])
    task = meta.open_compaction(plan(version, 1, version.levels[0]))
    output = merged(version, task)
    rival = open_meta(meta.objects, "rival")
    rival.close_compaction(task.id, "it was in the way")
    before = meta.read_latest()
    with pytest.raises(
        LostRaceError, match=r"compaction task 1 lost: writer 'rival' closed it in version 3: it was in the way"
    ):
        meta.commit_compaction(task, [output])
    assert meta.close_compaction(task.id, "again") == meta.read_latest() == before

    again = meta.open_compaction(plan(version, 1, version.levels[0]))
    assert again.id == 2
    done, mine = meta.commit_compaction(again, [merged(version, again)])
    assert mine
    for writer in ("a", "rival"):
        assert open_meta(meta.objects, writer).commit_compaction(again, [merged(version, again, "other")]) == (
            done,
            False,
        )
    assert meta.close_compaction(again.id, "too late") == done
    with pytest.raises(SettingError, match="one of 1 to 2"):
        meta.close_compaction(3, "never was")


def test_any_process_closes_tasks_whose_lease_is_over_and_others_stay() -> None:
    clock = Clock()
    _, meta = new_store(clock)
    version = commit(meta, ["a1"], ["b1"])
    first = meta.open_compaction(plan(version, 1, version.levels[0][:1]), lease_ms=1000)
    second = meta.open_compaction(plan(version, 1, version.levels[0][1:]), lease_ms=9000)
    assert meta.close_lapsed_compactions() == ()
    clock.now_ms = START_MS + 1000
    assert meta.close_lapsed_compactions() == (first.id,)
    assert meta.read_latest().tasks == (second,)


def test_a_lease_that_is_renewed_lasts_and_costs_one_delta_for_all_tasks_when_a_third_is_over() -> None:
    clock = Clock()
    objects, meta = new_store(clock)
    version = commit(meta, ["a1"], ["b1"])
    opened = [meta.open_compaction(plan(version, 1, version.levels[0][i : i + 1]), lease_ms=9000) for i in (0, 1)]
    before, other = meta.read_latest().id, open_meta(objects, "other", clock)
    clock.now_ms = START_MS + 2999
    assert meta.renew_compactions(opened, lease_ms=9000) == tuple(opened)
    assert meta.read_latest().id == before
    for third in range(1, 20):
        clock.now_ms = START_MS + 3000 * third
        opened = list(meta.renew_compactions(opened, lease_ms=9000))
        assert [task.expires_ms for task in opened] == [clock.now_ms + 9000] * 2
        assert other.close_lapsed_compactions() == ()
    assert meta.read_latest().id == before + 19
    clock.now_ms += 9000
    assert other.close_lapsed_compactions() == tuple(task.id for task in opened)
    assert meta.renew_compactions(opened, lease_ms=9000) == (), "too late: a closed task has no lease"
    with pytest.raises(LostRaceError, match="its lease ended"):
        meta.commit_compaction(opened[0], [merged(version, opened[0])])


def test_a_task_renewed_just_before_another_process_closes_it_remains_open() -> None:
    clock = Clock()
    objects, meta = new_store(clock)
    version = commit(meta, ["a1"])
    task = meta.open_compaction(plan(version, 1, version.levels[0]), lease_ms=1000)
    clock.now_ms += 1000
    renewed: list[CompactionTask] = []

    class Objects(FaultyObjectStore):
        """Its first delta comes just after a renewal."""

        def put_if_absent(self, name: str, data: bytes) -> bool:
            renewed.extend(() if renewed else meta.renew_compactions([task], lease_ms=1000))
            return super().put_if_absent(name, data)

    assert open_meta(Objects(objects), "other", clock).close_lapsed_compactions() == ()
    assert [t.expires_ms for t in meta.read_latest().tasks] == [clock.now_ms + 1000]


def test_two_compactors_never_hold_the_same_sst_or_the_same_keys_of_a_level() -> None:
    _, meta = new_store()
    commit(meta, ["a1", "a5"])
    version = commit(meta, ["a3", "a4"])
    newest, oldest = version.levels[0]
    task = meta.open_compaction(plan(version, 1, [oldest]))
    other = open_meta(meta.objects, "other")
    with pytest.raises(LostRaceError, match=r"open task 1 of writer 'a' has reserved SSTs of these keys"):
        other.open_compaction(plan(version, 1, [newest, oldest]))
    with pytest.raises(LostRaceError, match="would stay above"):  # the newest alone: the run it covers is on L0 still
        other.open_compaction(plan(version, 1, [newest]))
    assert meta.open_compaction(plan(version, 1, [oldest])) == task, "a repeated call returns the same task"
    with pytest.raises(LostRaceError):
        other.open_compaction(plan(version, 1, [oldest]))

    # Into the gap of an open task's output: no SST is shared, but both would enter the same keys of level 1.
    _, meta = new_store()
    commit(meta, ["a1"], ["a9"])
    version = commit(meta, ["a5"])
    middle, low, high = version.levels[0]
    meta.open_compaction(plan(version, 1, [low, high]))
    with pytest.raises(LostRaceError, match="open task 1"):
        meta.open_compaction(plan(version, 1, [middle]))
    assert meta.open_compaction(plan(version, 0, [middle])).id == 2, "on L0 it conflicts with no task"


def test_a_run_is_not_moved_below_an_older_run_of_the_same_keys() -> None:
    _, meta = new_store()
    commit(meta, ["a1", "a5", "b1"])
    version = commit(meta, ["a4", "a9"])
    newest, oldest = version.levels[0]
    with pytest.raises(LostRaceError, match=r"would stay above it, although it is older"):
        meta.open_compaction(plan(version, 1, [newest]))
    version = commit(meta, ["c1", "c2"])
    meta.open_compaction(plan(version, 1, [version.levels[0][0]]))  # shares no key with older runs
    assert ssts_overlap(newest, oldest)
    assert not ssts_overlap(version.levels[0][0], oldest)


def test_all_that_a_level_holds_of_the_keys_has_to_move_along() -> None:
    _, meta = new_store()
    version = commit(meta, ["a1", "a5"])
    task = meta.open_compaction(plan(version, 1, version.levels[0]))
    version, _ = meta.commit_compaction(task, [merged(version, task)])
    version = commit(meta, ["a4", "a9"])
    with pytest.raises(LostRaceError, match="on level 1 holds keys in its range"):
        meta.open_compaction(plan(version, 1, version.levels[0]))
    with pytest.raises(LostRaceError, match="would stay above"):  # past level 1
        meta.open_compaction(plan(version, 2, version.levels[0]))
    task = meta.open_compaction(plan(version, 2, *version.levels))
    version, _ = meta.commit_compaction(task, [merged(version, task)])
    assert [len(level) for level in version.levels] == [0, 0, 1]


def test_ssts_move_down_unchanged_if_nothing_overlaps() -> None:
    _, meta = new_store()
    commit(meta, ["a1", "a2"])
    version = commit(meta, ["b1", "b2"])
    b, a = version.levels[0]
    version = meta.move_ssts(plan(version, 3, [b]))
    assert version.levels == ((a,), (), (), (b,))
    assert meta.move_ssts(plan(version, 3, [b])) == version, "again: they are there"
    version = meta.move_ssts(plan(version, 3, [a]))
    assert version.levels == ((), (), (), (a, b))
    assert version.retired == ()
    version = commit(meta, ["a2", "b1"])
    with pytest.raises(LostRaceError, match="on level 3 holds keys in its range"):
        meta.move_ssts(plan(version, 3, version.levels[0]))
    task = meta.open_compaction(plan(version, 1, version.levels[0]))
    with pytest.raises(LostRaceError, match="open task"):
        meta.move_ssts(plan(version, 2, version.levels[0]))
    moved, _ = meta.commit_compaction(task, version.levels[0])  # a task may find that there was nothing to merge
    assert moved.levels[1] == version.levels[0]


def test_runs_of_l0_merge_in_their_place_and_only_with_neighbours() -> None:
    _, meta = new_store()
    for _ in range(4):
        version = commit(meta, ["a1", "a5"])
    newest, second, third, oldest = version.levels[0]
    with pytest.raises(LostRaceError, match="not adjacent"):
        meta.open_compaction(plan(version, 0, [second, oldest]))
    task = meta.open_compaction(plan(version, 0, [second, third]))
    output = merged(version, task)
    version, _ = meta.commit_compaction(task, [output])
    assert version.levels[0] == (newest, output, oldest)
    with pytest.raises(LostRaceError, match="would stay above"):
        meta.open_compaction(plan(version, 1, [output]))


def test_an_invalid_result_of_a_task_is_refused_before_anything_is_written() -> None:
    _, meta = new_store()
    version = commit(meta, ["a3", "a5"])
    task = meta.open_compaction(plan(version, 1, version.levels[0]))
    good = merged(version, task)
    before = meta.read_latest()
    wide = sst(f"{task_prefix(task.id)}x.sst", ["a3", "a9"], [version.epoch])
    stray = sst(f"{task_prefix(task.id + 1)}x.sst", ["a3"], [version.epoch])
    for outputs, named in (
        ([wide], "outside the range of its inputs"),
        ([stray], "vacuum could remove it"),
        ([good, good], "would overlap"),
    ):
        with pytest.raises(SettingError, match=named):
            meta.commit_compaction(task, outputs)
    assert meta.read_latest() == before
    assert meta.commit_compaction(task, [good])[1]


def test_an_sst_that_is_not_named_after_its_epoch_is_refused_at_the_seal() -> None:
    _, meta = new_store()
    barrier = meta.inject_barrier(0, plan_on(meta.read_latest()))
    with pytest.raises(SettingError, match="vacuum relies on it"):
        meta.seal_epoch(manifest_of(barrier, "a", (sst("data/elsewhere/x.sst", ["a1"], [barrier.epoch]),)))


def test_replay_refuses_compactions_that_were_written_past_the_protocol() -> None:
    _, meta = new_store()
    version = commit(meta, ["a1"])
    inputs = (LevelInput(0, (version.levels[0][0].name,)),)
    number = version.id + 1
    task = CompactionTask(1, "w", number, 0, 1, inputs)
    opened = apply_delta(version, VersionDelta(number, "w", CompactionOpened(task)))
    gone = CompactionTask(1, "w", number, 0, 1, (LevelInput(0, ("data/x",)),))
    again = CompactionTask(2, "w", number + 1, 0, 1, inputs)
    skipping = CompactionTask(5, "w", number, 0, 1, inputs)
    for on, change, named in (
        (version, CompactionCommitted(1, ()), "is not open"),
        (version, CompactionClosed(1, "r"), "is not open"),
        (version, CompactionsRenewed((1,), 9), "is not open"),
        (version, CompactionOpened(gone), "is not on level 0"),
        (version, CompactionOpened(skipping), "the next task is 1"),
        (opened, CompactionOpened(again), "open compaction task 1"),
    ):
        with pytest.raises(BadDeltaError, match=named):
            apply_delta(on, VersionDelta(on.id + 1, "w", change))


@pytest.mark.parametrize("seed", range(12))
def test_no_order_of_epochs_tasks_and_moves_lets_an_older_row_hide_a_newer_one(seed: int) -> None:
    """Make random picks, most of them wrong. Run accepted ones on plain dicts; each read must find the newest row."""
    chance = random.Random(seed)
    clock = Clock()
    objects, meta = new_store(clock)
    rows: dict[str, dict[str, int]] = {}  # SST -> key -> epoch of its row
    newest: dict[str, int] = {}
    keys = [f"{t}{i}" for t in "abc" for i in range(10)]
    held: list[CompactionTask] = []
    done = dict.fromkeys(("epoch", "open", "refused", "commit", "close", "move"), 0)

    def put(name: str, mine: dict[str, int]) -> SstInfo:
        rows[name] = mine
        return sst(name, list(mine), list(mine.values()))

    for _ in range(150):
        version = meta.read_latest()
        match chance.choice(("epoch", "epoch", "open", "open", "open", "move", "commit", "commit", "close")):
            case "epoch":
                done["epoch"] += 1
                barrier = meta.inject_barrier(version.epoch, plan_on(version))
                picked = chance.sample(keys, chance.randint(1, 6))
                cut = chance.randint(1, len(picked))
                ssts = []
                for i, part in enumerate((picked[:cut], picked[cut:])):
                    if part:
                        ssts.append(put(f"{data_prefix(barrier.epoch)}{i}", dict.fromkeys(part, barrier.epoch)))
                meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, "a", tuple(ssts))))
                newest |= dict.fromkeys(picked, barrier.epoch)
            case "open" | "move" as kind:
                picked_ssts = _pick(chance, version)
                if picked_ssts is None:
                    continue
                try:
                    if kind == "move":
                        meta.move_ssts(picked_ssts)
                    else:
                        held.append(open_meta(objects, f"w{chance.random()}", clock).open_compaction(picked_ssts))
                    done[kind] += 1
                except LostRaceError:
                    done["refused"] += 1
            case "commit" if held:
                task = held.pop(chance.randrange(len(held)))
                outputs = _merge(version, task, rows, chance)
                infos = [put(f"{task_prefix(task.id)}{i}", part) for i, part in enumerate(outputs)]
                assert meta.commit_compaction(task, infos)[1], "an open task can be committed"
                done["commit"] += 1
            case "close" if held and chance.random() < 0.3:
                meta.close_compaction(held.pop().id, "chance")
                done["close"] += 1
        version = meta.read_latest()
        for level in version.levels[1:]:
            assert order_objection(level) is None
        found: dict[str, int] = {}
        for level in version.levels:
            for info in level:
                found = (
                    {**rows[info.name], **found} if level is not version.levels[0] else _first(found, rows[info.name])
                )
        assert found == newest
    assert min(done[kind] for kind in ("epoch", "open", "refused", "commit")) > 0, done
    assert open_meta(objects, "judge").read_latest() == meta.read_latest()


def _first(found: dict[str, int], mine: dict[str, int]) -> dict[str, int]:
    return {**mine, **found}


def _pick(chance: random.Random, version: HummockVersion) -> CompactionPlan | None:
    """A stretch of some levels, sometimes with all SSTs in its key range."""
    start = chance.randrange(len(version.levels))
    target = start + chance.randint(0, 2) if start else chance.randint(0, 2)
    chosen = {s.name for s in version.levels[start] if chance.random() < 0.5}
    if start == 0 and version.levels[0] and chance.random() < 0.7:  # the oldest runs
        chosen = {s.name for s in version.levels[0][-chance.randint(1, len(version.levels[0])) :]}
    if not chosen:
        return None
    if chance.random() < 0.8:
        for _ in range(5):
            hull = hull_of(s for level in version.levels for s in level if s.name in chosen)
            chosen |= {
                s.name
                for level in version.levels[max(start, 1) : target + 1]
                for s in level
                if ranges_overlap(hull, hull_of((s,)))
            }
    names = [tuple(s.name for s in level if s.name in chosen) for level in version.levels]
    return CompactionPlan(tuple(LevelInput(level, taken) for level, taken in enumerate(names) if taken), target)


def _merge(
    version: HummockVersion, task: CompactionTask, rows: dict[str, dict[str, int]], chance: random.Random
) -> list[dict[str, int]]:
    """The newest row of each key of a task's inputs, cut in two at times."""
    names = [name for taken in task.inputs for name in taken.ssts]
    best: dict[str, int] = {}
    for name in names:
        for key, epoch in rows[name].items():
            best[key] = max(epoch, best.get(key, 0))
    ordered = sorted(best)
    cut = chance.randint(1, len(ordered))
    return [{k: best[k] for k in part} for part in (ordered[:cut], ordered[cut:]) if part]


def test_ranges_overlap_if_they_share_a_key() -> None:
    assert ranges_overlap(KeyRange(b"a", b"c"), KeyRange(b"c", b"d"))
    assert not ranges_overlap(KeyRange(b"a", b"b"), KeyRange(b"c", b"d"))


def test_retention_keeps_epochs_by_number_and_by_age_whichever_reaches_further_back() -> None:
    clock = Clock()
    _, meta = new_store(clock)
    epochs = [0]
    for _ in range(6):
        clock.now_ms += 60_000
        epochs.append(commit(meta, ["a1"]).epoch)
    meta.publish(epochs[5])
    assert meta.apply_retention(keep_epochs=5).min_readable_epoch == epochs[1]
    assert meta.apply_retention(keep_epochs=1, keep_ms=150_000).epochs == tuple(epochs[3:]), (
        "150 s ago, the epoch of 180 s ago was the newest"
    )
    assert meta.apply_retention(keep_epochs=4).epochs == tuple(epochs[3:]), "the floor never falls"
    assert meta.apply_retention().epochs == tuple(epochs[5:]), "the published epoch and later ones stay"
    for keep_epochs, keep_ms in ((0, 0), (1, -1)):
        with pytest.raises(SettingError, match="1 epoch or more"):
            meta.apply_retention(keep_epochs, keep_ms)


def test_time_travel_finds_the_epoch_that_was_the_newest_at_a_moment() -> None:
    clock = Clock()
    _, meta = new_store(clock)
    epochs = []
    for _ in range(4):
        clock.now_ms += 60_000
        epochs.append(commit(meta, ["a1"]).epoch)
    meta.publish(epochs[-1])
    meta.raise_floor(epochs[1])
    version = meta.read_latest()
    assert epoch_as_of(version, START_MS + 120_000) == epochs[1]
    assert epoch_as_of(version, START_MS + 179_999) == epochs[1]
    assert epoch_as_of(version, START_MS + 180_000) == epochs[2]
    assert epoch_as_of(version, START_MS + 9_000_000) == epochs[3]
    with pytest.raises(EpochExpiredError):
        epoch_as_of(version, START_MS + 119_999)


def test_a_version_stays_small_however_many_epochs_are_not_retired() -> None:
    _, meta = new_store()
    published = commit(meta).epoch
    meta.publish(published)
    for _ in range(MAX_EPOCHS + 5):
        version = commit(meta)
    assert len(version.epochs) == MAX_EPOCHS
    assert version.epochs[0] == version.min_readable_epoch == published, "what readers see stays, however old"
    with pytest.raises(EpochExpiredError):
        check_readable(version, 0)
    dropped = meta.read_version(4).epoch
    with pytest.raises(EpochNotCommittedError):
        meta.pin_epoch(dropped)
    sealed = meta.read_manifest(dropped)
    assert sealed is not None
    assert meta.commit_epoch(sealed) == (version, False), "that it was committed is known all the same"
    meta.publish(version.epoch)
    version = commit(meta)
    assert version.min_readable_epoch > published


def test_held_back_rows_remain_readable_after_any_number_of_epochs() -> None:
    _, meta = new_store()
    catalog = Catalog(
        tuple(Relation(i, name, RelationKind.VIEW, (), msgspec.Raw(b"{}")) for i, name in enumerate("ab", 1)), 3, 1
    )
    barrier = meta.inject_barrier(0, msgspec.structs.replace(plan_on(meta.read_latest()), catalog=catalog))
    shown = meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, ())))[0].epoch
    meta.publish(shown)
    for _ in range(3):
        last = commit(meta).epoch
    assert meta.publish(last, [2]).held == (HeldBack(2, shown),)
    assert meta.publish(last, [2]) == meta.read_latest(), "once more, without effect"
    assert meta.raise_floor(last).min_readable_epoch == shown
    for _ in range(MAX_EPOCHS + 5):
        version = commit(meta)
    assert len(version.epochs) == MAX_EPOCHS
    assert version.epochs[:2] == (shown, last)
    check_readable(version, shown)
    assert meta.apply_retention().min_readable_epoch == shown
    assert meta.publish(version.epoch, ()).held == ()
    assert meta.apply_retention().min_readable_epoch == version.epoch
    with pytest.raises(EpochExpiredError):
        check_readable(meta.read_latest(), shown)


@pytest.mark.parametrize("commits", [20_000, pytest.param(100_000, marks=pytest.mark.deep)])
def test_a_store_with_many_commits_behind_it_opens_with_a_handful_of_requests(commits: int) -> None:
    objects, meta = new_store()
    log = meta._versions
    version, since = meta.read_latest(), 0
    while version.id < commits:
        epoch = version.epoch + (1 << 16)
        change = EpochCommitted(version.epoch, epoch, 0, (sst(f"{data_prefix(epoch)}0", ["a1", "a9"], [epoch]),), 0)
        version, since = log.append_change(lambda _, change=change: change).version, since + 1  # type: ignore[misc]
        if since == 20:
            task = meta.open_compaction(plan(version, 1, *version.levels))
            version, since = meta.commit_compaction(task, [merged(version, task)])[0], 0
    counted = FaultyObjectStore(objects)
    assert open_meta(counted, "b").read_latest() == version
    assert len(counted.calls) <= 4 + SNAPSHOT_EVERY
    assert {operation for operation, _ in counted.calls} == {"get", "head"}
    assert sum(len(objects.held[name]) for _, name in counted.calls if name in objects.held) < 100_000, "bytes"
    counted.calls.clear()
    assert open_meta(counted, "c").read_version(commits // 2 + 321).id == commits // 2 + 321
    assert len(counted.calls) <= 6 + 2 * SNAPSHOT_EVERY
    del objects.held["meta/head.json"]
    counted.calls.clear()
    assert open_meta(counted, "d").read_latest() == version
    assert len(counted.calls) < 80, "without the hint it probes"


def test_a_task_that_this_store_never_opened_is_refused() -> None:
    _, meta = new_store()
    commit(meta, ["a1"])
    with pytest.raises((SettingError, MustStopError), match="of this store opened"):
        meta.commit_compaction(CompactionTask(9, "w", 0, 0, 1, ()), [])
