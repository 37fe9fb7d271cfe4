"""Rebalancing moves as few vnodes as possible. At every epoch the views equal DuckDB's answer over the same rows. No
JVM.
"""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.faulty_store import FaultyObjectStore, Killed
from tests.support.jobs.driver.embedded import append, insert, new_store, open_store, rows
from tests.support.jobs.plan.catalogs import counted, joined, scan, table, view
from tussock.jobs import cli
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.train import Train
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.texts.rebalance import rebalance_text
from tussock.jobs.upkeep.compaction import compact_store
from tussock.jobs.upkeep.rebalance import (
    MoveVerdict,
    OtherMappingError,
    Rebalance,
    cause_of,
    hottest_key,
    measure_loads,
    move_vnodes,
    plan_rebalance,
    verify_rebalance,
)
from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.errors import LostRaceError, SettingError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import VnodeMapping
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.vnode import vnodes_of

BY_G = Scan("by_g", (0, 1), (Field("g", "int"), Field("n", "bigint")))
#: The views' SELECTs, for DuckDB.
SELECTS = {
    "t": "SELECT * FROM t",
    "by_g": "SELECT g, count(*) FROM t GROUP BY g",
    "joined": "SELECT t.*, b.* FROM t JOIN (SELECT g, count(*) AS n FROM t GROUP BY g) b ON t.g = b.g",
    "by_n": "SELECT n, count(*) FROM (SELECT g, count(*) AS n FROM t GROUP BY g) GROUP BY n",
    "all": "SELECT count(*) FROM t",
}
Rows = dict[int, tuple[int, int]]
LONG = (1, 2, 3, 8, 3, 2, 8, 1)  # unit counts, one after another


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """A table, a count by group, the table joined to it, and counts over these. Some run on all units, one on a
    single unit.
    """
    meta = new_store(tmp_path / "store", units=2)
    append(meta, table("t"), view("by_g", counted(scan("t"), 1)), view("joined", joined(scan("t"), BY_G, 1, 0)))
    append(meta, view("by_n", counted(BY_G, 1)), view("all", counted(scan("t"))))
    return meta


def change(meta: MetaStore, held: Rows, rng: random.Random, of: int = 400) -> None:
    """Insert new rows; some replace others."""
    chosen = {rng.randrange(of): (rng.randrange(25), rng.randrange(9)) for _ in range(60)}
    insert(meta, "t", *((k, g, a) for k, (g, a) in chosen.items()))
    held.update(chosen)


def assert_right(meta: MetaStore, held: Rows) -> None:
    """Check that every relation equals DuckDB's SELECT over the rows."""
    with duckdb.connect() as judge:
        judge.execute("CREATE TABLE t (k int, g int, a int)")
        judge.executemany("INSERT INTO t VALUES (?, ?, ?)", [(k, g, a) for k, (g, a) in held.items()])
        for name, select in SELECTS.items():
            assert rows(meta, name) == sorted(judge.execute(select).fetchall(), key=repr), name


def epoch(meta: MetaStore, runner: LocalRunner, units: int | None = None) -> VnodeMapping:
    barrier = inject_barrier(meta, settings=EpochSettings(max_bytes=None, units=units))
    assert barrier is not None
    run_epoch(runner, meta, barrier)
    return barrier.mapping


def fewest(before: VnodeMapping, units: int) -> int:
    """The number of vnodes that any even spread over `units` moves.

    These are the vnodes beyond a unit's share, and all vnodes of removed units.
    """
    share, more = divmod(len(before.unit_of_vnode), units)
    held = sorted((before.unit_of_vnode.count(unit) for unit in range(units)), reverse=True)
    return len(before.unit_of_vnode) - sum(min(h, share + (i < more)) for i, h in enumerate(held))


def swapped(mapping: VnodeMapping, rng: random.Random) -> VnodeMapping:
    """Move some vnodes to other units; the number of units stays the same."""
    units = list(mapping.unit_of_vnode)
    for vnode in rng.sample(range(len(units)), 40):
        units[vnode] = rng.randrange(mapping.unit_count)
    return VnodeMapping(mapping.id + 1, tuple(units))


@pytest.mark.parametrize(
    ("seed", "route"), [(0, (1, 3, 8, 2)), *(pytest.param(s, LONG, marks=pytest.mark.deep) for s in range(1, 5))]
)
@pytest.mark.deep
def test_units_back_and_forth_under_changes_are_right_at_every_epoch_and_move_the_fewest_vnodes(
    seed: int, route: tuple[int, ...], meta: MetaStore
) -> None:
    rng, held = random.Random(seed), Rows()
    runner = UnkindShuffle(seed)
    change(meta, held, rng)
    mapping = epoch(meta, runner)
    for units in route:
        found = plan_rebalance(measure_loads(meta), units)
        assert found.verdict is MoveVerdict.MOVE
        assert found.moved_vnodes == fewest(mapping, units)
        assert len(found.after) == units
        change(meta, held, rng)
        move_vnodes(meta, found)
        verify_rebalance(meta, found)
        mapping = epoch(meta, runner)
        assert mapping == found.planned
        assert_right(meta, held)
        change(meta, held, rng)  # to other vnodes of the same units, and back one epoch later
        move_vnodes(meta, Rebalance(MoveVerdict.MOVE, mapping, swapped(mapping, rng), (), (), (), 0, None, 0, 0.0))
        mapping = epoch(meta, runner)
        assert_right(meta, held)
    compact_store(meta, full=True)
    change(meta, held, rng)
    epoch(meta, runner, units=3)
    assert_right(meta, held)


@pytest.mark.parametrize(("seed", "epochs"), [(1, 7), *(pytest.param(s, 15, marks=pytest.mark.deep) for s in range(4))])
@pytest.mark.deep
def test_a_train_continues_while_another_process_moves_vnodes(
    seed: int, epochs: int, meta: MetaStore, tmp_path: Path
) -> None:
    rng, held, mappings = random.Random(seed), Rows(), []
    other = open_store(tmp_path / "store", "other")
    with Train(UnkindShuffle(seed), meta, depth=1 + seed, keep=seed % 2) as train:
        for number in range(epochs):
            change(meta, held, rng)
            if number % 3 == 2:
                last = other.read_latest().mapping
                planned = (
                    swapped(last, rng)
                    if number % 2
                    else plan_rebalance(measure_loads(other), 1 + (last.unit_count + 2) % 5).planned
                )
                other.move_vnodes(planned)
            barrier = train.next_barrier()
            assert barrier is not None
            train.run(barrier)
            mappings.append(barrier.mapping.id)
    assert_right(meta, held)
    assert len(set(mappings)) > 1
    assert meta.all_pins() == ()


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.deep)])
def test_a_kill_at_each_request_of_a_rebalancing_epoch_leaves_a_correct_store(
    step: int, meta: MetaStore, tmp_path: Path
) -> None:
    rng, held = random.Random(9), Rows()
    for _ in range(2):
        change(meta, held, rng)
        epoch(meta, LocalRunner())
    change(meta, held, rng)

    def rebalanced(meta: MetaStore) -> None:
        """Move to three units unless that is done, then run the waiting input."""
        if meta.read_latest().mapping.unit_count != 3:
            move_vnodes(meta, plan_rebalance(measure_loads(meta), 3))
        advance_store(LocalRunner(), meta)

    calls: list[tuple[str, str]] = []
    written: set[str] = set()
    number = 0
    while number <= len(calls):
        store = Path(shutil.copytree(tmp_path / "store", tmp_path / f"store-{number}"))
        objects = FaultyObjectStore(open_object_store(str(store)))
        if number < len(calls):
            objects.kill(number)
        elif not calls:
            rebalanced(MetaStore(objects, "first", lambda: 1_700_000_100_000))
            calls = list(objects.calls)
            written = {sst.name for level in open_store(store).read_latest().levels for sst in level}
            shutil.rmtree(store)
            continue
        with suppress(Killed, RetryableError, LostRaceError):
            rebalanced(MetaStore(objects, "first", lambda: 1_700_000_100_000))
        second = MetaStore(open_object_store(str(store)), "second", lambda: 1_700_000_100_000)
        rebalanced(second)
        assert second.read_latest().mapping.unit_count == 3, f"killed at request {number}"
        assert_right(second, held)
        assert {sst.name for level in second.read_latest().levels for sst in level} == written, (
            f"killed at request {number}"
        )
        shutil.rmtree(store)
        number += step
    assert sum(operation == "put_if_absent" and name.startswith("meta/version") for operation, name in calls) >= 2


def test_one_of_two_concurrent_calls_wins_the_other_reports_it_and_a_repeat_changes_nothing(
    meta: MetaStore, tmp_path: Path
) -> None:
    held = Rows()
    change(meta, held, random.Random(1))
    epoch(meta, LocalRunner())
    first, second = plan_rebalance(measure_loads(meta), 3), plan_rebalance(measure_loads(meta), 5)
    other = open_store(tmp_path / "store", "other")
    version = move_vnodes(other, first)
    with pytest.raises(LostRaceError, match=r"the move of vnodes by mapping 1 lost: mapping 1, .*is in force instead"):
        move_vnodes(meta, second)
    assert move_vnodes(meta, first).id == version.id == meta.read_latest().id
    verify_rebalance(meta, first)
    with pytest.raises(OtherMappingError, match="mapping 1 was planned, but mapping 1 is in force"):
        verify_rebalance(meta, second)
    objects = FaultyObjectStore(open_object_store(str(tmp_path / "store")))
    racing = MetaStore(objects, "racing", lambda: 1_700_000_100_000)
    planned = plan_rebalance(measure_loads(racing), 2)
    racing.read_latest()
    objects.before(
        len([c for c in objects.calls if c[0] == "put_if_absent"]),
        lambda: move_vnodes(other, plan_rebalance(measure_loads(other), 4)),
    )
    with pytest.raises(LostRaceError):
        move_vnodes(racing, planned)
    assert meta.read_latest().mapping.unit_count == 4


def test_an_open_barrier_keeps_the_units_it_pinned_and_the_next_has_those_that_were_planned(meta: MetaStore) -> None:
    held, rng = Rows(), random.Random(2)
    change(meta, held, rng)
    epoch(meta, LocalRunner())
    change(meta, held, rng)
    pinned = inject_barrier(meta)
    assert pinned is not None
    found = plan_rebalance(measure_loads(meta), 8)
    move_vnodes(meta, found)
    run_epoch(LocalRunner(), meta, pinned)
    assert pinned.mapping.unit_count == 2
    assert_right(meta, held)
    change(meta, held, rng)
    assert epoch(meta, LocalRunner()) == found.planned
    assert_right(meta, held)


def skew(meta: MetaStore, heavy: Callable[[int], bool], size: int = 3_000) -> None:
    """Epochs in which some keys change repeatedly, and the others once."""
    insert(meta, "t", *((k, k % 500, 0) for k in range(size)))
    epoch(meta, LocalRunner())
    for n in range(3):
        insert(meta, "t", *((k, k % 500, n) for k in range(size) if heavy(k)))
        epoch(meta, LocalRunner())


def test_a_unit_that_carries_too_much_gives_vnodes_away_until_it_is_within_the_target(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store", units=4)
    append(meta, table("t"), view("all", counted(scan("t"))))
    busy = set(np.flatnonzero(vnodes_of([pa.array(range(3_000), pa.int32())], 256) < 64).tolist())  # of unit 0
    skew(meta, lambda k: k in busy)
    found = plan_rebalance(measure_loads(meta), target=1.25)
    assert found.epochs == 3, "the epoch that created the view does not count"
    assert found.verdict is MoveVerdict.MOVE
    assert found.before[0].load * 4 > 1.9
    assert max(share.load for share in found.after) * 4 <= 1.25
    assert {m.source for m in found.moves} == {0}
    assert "of 256 vnodes move, to 4 units" in rebalance_text(found)
    move_vnodes(meta, found)
    assert plan_rebalance(measure_loads(meta), target=1.25).verdict is MoveVerdict.EVEN
    assert "the target is 1.25" in rebalance_text(plan_rebalance(measure_loads(meta), target=1.25))
    with pytest.raises(SettingError, match=r"the target is 0\.5, expected 1 or more"):
        plan_rebalance(measure_loads(meta), target=0.5)


def test_one_hot_key_is_named_and_nothing_moves(meta: MetaStore) -> None:
    meta.rescale(4)
    epoch(meta, LocalRunner())
    insert(meta, "t", *((k, 7 if k % 10 else k % 400, 0) for k in range(4_000)))
    epoch(meta, LocalRunner())
    measured = measure_loads(meta)
    found = plan_rebalance(measured, target=1.2)
    assert found.verdict is MoveVerdict.HOT
    assert found.moves == ()
    hot = cause_of(meta, measured, found)
    assert hot is not None
    assert hot.relation == "joined"
    assert hot.share > 0.9
    text = rebalance_text(found, hot)
    assert "One hot key is the cause, and moving vnodes does not help" in text
    assert " = 7 of joined" in text


def test_state_that_one_unit_keeps_as_a_whole_is_reported(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store", units=2)
    append(meta, table("t"), view("all", counted(scan("t"))))
    insert(meta, "t", (1, 1, 1))
    epoch(meta, LocalRunner())
    measured = measure_loads(meta)
    hot = hottest_key(meta, measured, 0)
    assert hot is not None
    assert (hot.relation, hot.key) == ("all", "")
    assert "kept on one unit as a whole" in rebalance_text(plan_rebalance(measured, target=1.0), hot)


def test_rows_and_bytes_of_units_are_those_of_the_store(meta: MetaStore) -> None:
    held = Rows()
    change(meta, held, random.Random(3))
    epoch(meta, LocalRunner())
    found = plan_rebalance(measure_loads(meta), 3)
    stored = [s for level in meta.read_latest().levels for sst in level for s in sst.sections]
    for shares in (found.before, found.after):
        assert sum(share.rows for share in shares) == pytest.approx(sum(s.rows for s in stored), abs=3)
        assert sum(share.vnodes for share in shares) == 256
        assert sum(share.load for share in shares) == pytest.approx(1)


def test_the_command_plans_without_a_change_then_moves_and_the_next_epoch_runs_on_it(
    meta: MetaStore, capsys: pytest.CaptureFixture[str]
) -> None:
    held, store = Rows(), meta.objects.uri
    change(meta, held, random.Random(4))
    epoch(meta, LocalRunner())
    assert cli.main(["rebalance", "--store", store, "--units", "3", "--plan"]) == 0
    said = capsys.readouterr().out
    assert "85 of 256 vnodes move, to 3 units" in said
    assert "vnodes 86 to 127: unit 0 -> unit 2" in said
    assert said.endswith("nothing was changed\n")
    assert meta.read_latest().mapping.id == 0
    assert cli.main(["rebalance", "--store", store, "--units", "3"]) == 0
    assert "has mapping 1; new barriers use it" in capsys.readouterr().out
    assert cli.main(["rebalance", "--store", store, "--units", "3"]) == 0
    assert "nothing moves: the vnodes are already distributed as requested" in capsys.readouterr().out
    change(meta, held, random.Random(5))
    assert epoch(meta, LocalRunner()).unit_count == 3
    assert_right(meta, held)
    assert cli.main(["rebalance", "--store", store, "--units", "0"]) == 1
    assert "the number of parallel units is 0, expected 1 to 256" in capsys.readouterr().err


def test_a_pipeline_whose_file_names_other_units_is_not_moved_for_one_epoch(
    meta: MetaStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    toml = 'name = "shop"\nstore = "{}"\nsql = ["views.sql"]\n[epoch]\nunits = 2\n[rebalance]\ntarget = 9.0\n'
    (folder / "pipeline.toml").write_text(toml.format(meta.objects.uri.removeprefix("file://")))
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder.parent))
    change(meta, Rows(), random.Random(6))
    epoch(meta, LocalRunner())
    assert cli.main(["rebalance", "--pipeline", "shop", "--units", "3"]) == 1
    assert "sets units = 2, so the next epoch would revert a change to 3 units" in capsys.readouterr().err
    assert meta.read_latest().mapping.id == 0
    assert cli.main(["rebalance", "--pipeline", "shop", "--units", "3", "--plan"]) == 0
    printed = capsys.readouterr().out
    assert "vnodes move, to 3 units" in printed
    assert "without --plan, this command refuses: " in printed
    assert "sets units = 2, so the next epoch would revert a change to 3 units" in printed
    assert cli.main(["rebalance", "--pipeline", "shop", "--units", "2", "--plan"]) == 0
    assert "refuses" not in capsys.readouterr().out
    assert cli.main(["rebalance", "--pipeline", "shop"]) == 0
    assert "the target is 9" in capsys.readouterr().out
