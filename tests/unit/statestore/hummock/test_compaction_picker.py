"""The picker: due merges, moves without a merge, parallel tasks; and meta accepts every pick."""

import random
from dataclasses import replace

import msgspec
import pytest

from tests.support.growth import Use, too_often
from tests.support.statestore.hummock.store_model import empty_version
from tussock.statestore.hummock import compaction_picker
from tussock.statestore.hummock.compaction_picker import (
    BOTTOM,
    CompactionOptions,
    full_compaction,
    l0_runs,
    level_goals,
    pick_compactions,
)
from tussock.statestore.meta.delta import CompactionOpened, SstsMoved, VersionDelta, apply_delta
from tussock.statestore.meta.levels import hull_of, inputs_of, levels_after, ranges_overlap
from tussock.statestore.meta.names import data_prefix, task_prefix
from tussock.statestore.meta.version import CompactionTask, HummockVersion, SectionInfo, SstInfo

OPTIONS = CompactionOptions(base_bytes=1_000, target_bytes=100, small_bytes=10)
ONE_LEVEL = replace(OPTIONS, base_bytes=1 << 50)  # none opens above the last


def sst(
    first: int, last: int, size: int = 100, epoch: int = 0, task: int = 0, table: int = 1, dead: int = 0
) -> SstInfo:
    """An SST of one table with keys of vnodes first … last and 5 rows, `dead` of them dead; of an epoch or a task."""
    low, high = (table.to_bytes(4, "big") + vnode.to_bytes(2, "big") + b"k" for vnode in (first, last))
    name = f"{task_prefix(task) if task else data_prefix(epoch)}{first}-{last}-{table}-{size}.sst"
    return SstInfo(name, size, 10, 5, epoch or 1, epoch or 9, (SectionInfo(table, low, high, 5, size, dead),))


def version_with(l0: list[SstInfo], **levels: list[SstInfo]) -> HummockVersion:
    """L0, newest first, and `level_<n>` below."""
    held = [tuple(l0)] + [tuple(levels.get(f"level_{n}", ())) for n in range(1, BOTTOM + 1)]
    return msgspec.structs.replace(empty_version(), levels=tuple(held), epoch=1_000)


def test_nothing_is_due_in_an_empty_store_nor_with_few_small_runs() -> None:
    assert pick_compactions(version_with([]), OPTIONS) == []
    assert pick_compactions(version_with([sst(0, 9, 5, epoch=2), sst(0, 9, 5, epoch=1)]), OPTIONS) == []


def test_the_oldest_run_moves_down_unchanged_if_no_lower_level_has_its_keys() -> None:
    runs = [sst(0, 9, 300, epoch=e) for e in (4, 3, 2, 1)]
    (pick,) = pick_compactions(version_with(runs), OPTIONS)
    assert (pick.move, pick.plan.target, pick.plan.inputs[0].ssts) == (True, BOTTOM, (runs[-1].name,))


def test_a_run_whose_own_ssts_reach_into_each_other_is_merged_instead_of_moved() -> None:
    run = [sst(0, 5, 600, epoch=1), sst(3, 9, 600, epoch=1)]
    (pick,) = pick_compactions(version_with(run), OPTIONS)
    assert (pick.move, len(pick.plan.inputs[0].ssts)) == (False, 2)


def test_runs_of_l0_are_merged_with_the_base_if_they_are_large_enough_and_otherwise_with_each_other() -> None:
    runs = [sst(0, 9, 30, epoch=e) for e in (4, 3, 2, 1)]
    below = [sst(0, 4, 200, task=1), sst(5, 9, 200, task=1)]
    (pick,) = pick_compactions(version_with(runs, level_7=below), OPTIONS)
    assert [(i.level, len(i.ssts)) for i in pick.plan.inputs] == [(0, 4), (7, 2)]
    large = [sst(0, 4, 800, task=1), sst(5, 9, 800, task=1)]
    (pick,) = pick_compactions(version_with(runs, level_7=large), OPTIONS)
    assert ([(i.level, len(i.ssts)) for i in pick.plan.inputs], pick.plan.target) == ([(0, 4)], 0)


def test_too_many_runs_of_unequal_sizes_are_merged_at_the_least_price() -> None:
    sizes = [1, 2, 4, 8, 16, 32]
    runs = [sst(0, 9, size, epoch=100 - i) for i, size in enumerate(sizes)]
    (pick,) = pick_compactions(version_with(runs, level_7=[sst(0, 9, 100_000, task=1)]), ONE_LEVEL)
    assert pick.plan.inputs[0].ssts == tuple(s.name for s in runs[:2])


def test_small_epochs_keep_few_runs_and_each_row_is_written_a_few_times_on_l0() -> None:
    version = version_with([], level_7=[sst(0, 9, 1 << 40, task=1)])
    written = most = 0
    for epoch in range(2, 400):
        version = msgspec.structs.replace(
            version, levels=((sst(0, 9, 10, epoch=epoch), *version.levels[0]), *version.levels[1:])
        )
        while picks := pick_compactions(version, ONE_LEVEL):
            (pick,) = picks
            assert pick.plan.target == 0
            names = set(pick.plan.inputs[0].ssts)
            taken = [s for s in version.levels[0] if s.name in names]
            place = version.levels[0].index(taken[0])
            out = sst(0, 9, sum(s.size for s in taken), task=epoch)
            rest = [s for s in version.levels[0] if s.name not in names]
            version = msgspec.structs.replace(
                version, levels=((*rest[:place], out, *rest[place:]), *version.levels[1:])
            )
            written += out.size
        most = max(most, len(l0_runs(version)))
    assert most <= ONE_LEVEL.l0_limit
    assert written / (398 * 10) < 8


def test_a_level_opens_above_when_the_last_one_is_large_and_gives_way_down_when_it_is_full() -> None:
    small, large = version_with([], level_7=[sst(0, 9, 900)]), version_with([], level_7=[sst(0, 9, 50_000)])
    assert [level_goals(v, OPTIONS)[0] for v in (small, large)] == [7, 6]
    below = [sst(v, v, 5_000, task=1) for v in range(0, 20, 2)]
    above = [sst(v, v + 1, 1_500, task=2) for v in range(0, 10, 2)] + [sst(31, 32, 1_500, task=2)]
    picks = pick_compactions(version_with([], level_6=above, level_7=below), OPTIONS)
    assert (picks[0].move, picks[0].plan.inputs[0].ssts[0]) == (True, above[-1].name), (
        "what drags nothing along goes first"
    )
    assert len(picks) == 3, "as many as bring the level to its goal, in parallel"


def test_ssts_full_of_dropped_tables_are_written_anew_in_their_place() -> None:
    ssts = [sst(0, 9, table=1), sst(0, 9, table=2), sst(0, 9, table=3)]
    (pick,) = pick_compactions(version_with([], level_7=ssts), OPTIONS, frozenset({2}))
    assert (pick.move, pick.plan.target, [i.ssts for i in pick.plan.inputs]) == (False, 7, [(ssts[1].name,)])


def test_mostly_dead_ssts_of_the_last_level_are_rewritten_when_no_reader_needs_the_old_rows() -> None:
    ssts = [sst(0, 1, dead=1), sst(2, 3, dead=2), sst(4, 5, dead=5), sst(6, 7), sst(8, 9, dead=3)]
    version = version_with([], level_7=ssts)
    assert pick_compactions(version, OPTIONS) == []
    assert pick_compactions(version, OPTIONS, oldest=8) == [], (
        "the newest rows are of epoch 9: some dead ones may be all that epoch 8 sees"
    )
    picks = pick_compactions(version, OPTIONS, oldest=9)
    assert [(pick.move, pick.plan.target, pick.plan.inputs[0].ssts) for pick in picks] == [
        (False, 7, (ssts[1].name, ssts[2].name)),
        (False, 7, (ssts[4].name,)),
    ]


def test_deletes_above_older_rows_of_their_table_wait_until_they_get_there() -> None:
    dead = [sst(0, 4, dead=5, task=1), sst(5, 9, dead=5, task=1)]
    below = [sst(0, 2, 9_000, task=2), sst(5, 9, 9_000, task=2, table=3)]
    (pick,) = pick_compactions(version_with([], level_6=dead, level_7=below), OPTIONS, oldest=9)
    assert (pick.plan.target, pick.plan.inputs[0].ssts) == (6, (dead[1].name,)), "below it is another table only"


def test_dead_ssts_are_taken_in_tasks_of_a_size_that_many_can_share() -> None:
    ssts = [sst(v, v, 400, dead=5) for v in range(6)]
    picks = pick_compactions(version_with([], level_7=ssts), OPTIONS, oldest=9)
    assert [len(pick.plan.inputs[0].ssts) for pick in picks] == [3, 3]


def test_a_full_compaction_takes_everything_and_waits_for_open_tasks() -> None:
    version = version_with([sst(0, 9, epoch=3)], level_5=[sst(0, 9, task=1)])
    pick = full_compaction(version)
    assert pick is not None
    assert [i.level for i in pick.plan.inputs] == [0, 5]
    task = CompactionTask(1, "w", 1, 0, 5, pick.plan.inputs)
    assert full_compaction(msgspec.structs.replace(version, tasks=(task,))) is None
    assert full_compaction(version_with([])) is None


@pytest.mark.parametrize("seed", range(60))
def test_meta_takes_all_picks_of_random_versions_together(seed: int) -> None:
    rng = random.Random(seed)

    def level(number: int) -> list[SstInfo]:
        places = sorted(rng.sample(range(200), 2 * rng.randrange(20)))
        sizes, dead = [10, 100, 1000], [0, 1, 2, 5]
        return [
            sst(a, b, rng.choice(sizes), task=number, dead=rng.choice(dead))
            for a, b in zip(places[::2], places[1::2], strict=True)
        ]

    l0 = []
    for epoch in range(rng.randrange(9), 0, -1):
        low = rng.randrange(200)
        l0.append(sst(low, rng.randrange(low, 200), rng.choice([10, 100, 1000]), epoch=epoch + 20))
    version = version_with(l0, level_5=level(1), level_6=level(2), level_7=level(3))
    for pick in pick_compactions(version, OPTIONS, most=20, oldest=9):
        if pick.move:
            change: CompactionOpened | SstsMoved = SstsMoved(pick.plan.inputs, pick.plan.target)
        else:
            change = CompactionOpened(
                CompactionTask(version.next_task_id, "w", version.id + 1, 0, pick.plan.target, pick.plan.inputs)
            )
        version = apply_delta(version, VersionDelta(version.id + 1, "w", change))


@pytest.mark.parametrize("order", ["ascending", "random"])
def test_small_epochs_of_keys_that_are_apart_leave_few_ssts_and_write_each_row_a_few_times(order: str) -> None:
    draw, version, written, epochs = random.Random(3), version_with([]), 0, 600
    options = replace(ONE_LEVEL, small_bytes=1 << 20)
    keys = list(range(epochs)) if order == "ascending" else draw.sample(range(epochs), epochs)
    for epoch, key in enumerate(keys, start=2):
        version = msgspec.structs.replace(
            version, levels=((sst(key, key, 100, epoch=epoch), *version.levels[0]), *version.levels[1:])
        )
        while picks := pick_compactions(version, options):
            inputs = inputs_of(version, picks[0].plan.inputs)
            assert not picks[0].move, "it would stay as small as it is"
            assert not isinstance(inputs, str)
            hull, size = hull_of(inputs), sum(s.size for s in inputs)
            first, last = (int.from_bytes(k[4:6], "big") for k in (hull.first, hull.last))
            levels = levels_after(
                version.levels, picks[0].plan.inputs, picks[0].plan.target, [sst(first, last, size, task=epoch)]
            )
            version, written = msgspec.structs.replace(version, levels=levels), written + size
    assert sum(map(len, version.levels)) < 12
    assert written < 15 * 100 * epochs


def test_ssts_between_two_keys_are_those_that_a_look_at_each_finds() -> None:
    draw = random.Random(4)
    for _ in range(200):
        borders = sorted(draw.sample(range(60), 2 * draw.randrange(12)))
        version = version_with([], level_7=[sst(a, b) for a, b in zip(borders[::2], borders[1::2], strict=True)])
        one = sst(*sorted(draw.choices(range(60), k=2)))
        expected = [other for other in version.levels[7] if ranges_overlap(hull_of((one,)), hull_of((other,)))]
        assert compaction_picker._touched_ssts(version, 7, (one,)) == expected


def test_the_cost_of_a_pick_grows_with_the_number_of_ssts() -> None:
    def of(n: int) -> Use:
        above, below = (
            [sst(3 * i, 3 * i + 1, 2_000, task=task, dead=dead) for i in range(n)] for task, dead in ((1, 2), (2, 0))
        )
        version = version_with([], level_6=above, level_7=below)
        return lambda: pick_compactions(version, OPTIONS, oldest=9)

    assert too_often(of, 16) == []
