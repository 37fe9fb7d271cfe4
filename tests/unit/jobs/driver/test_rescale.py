"""A new number of parallel units takes effect at the next barrier, within a train too. No row is lost, duplicated or
changed.
"""

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.jobs.driver.embedded import append, insert, new_store, open_store, rows
from tests.support.jobs.plan.catalogs import counted, joined, scan, table, view
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import barrier_text
from tussock.jobs.driver.train import Train
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Aggregate,
    Call,
    Column,
    Field,
    Join,
    JoinKind,
    Literal,
    Scan,
)
from tussock.jobs.settings.tables import EpochSettings
from tussock.statestore.meta.barrier import MutationKind
from tussock.statestore.meta.store import MetaStore

BY_G = Scan("by_g", (0, 1), (Field("g", "int"), Field("n", "bigint")))
Rows = dict[int, tuple[int, int]]


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """A table, its counts by g, and joins of the table with the counts: by equality, by inequality, and by a scalar
    subquery.
    """
    meta = new_store(tmp_path / "store", units=2)
    below = Join(
        scan("t"), BY_G, JoinKind.LEFT, (), (), (), Call("LessThan", "boolean", (Column(1, "int"), Column(3, "int")))
    )
    most = Aggregate(scan("t"), (), (AggCall(AggFunction.MAX, "int", (Column(0, "int"),)),), (Field("most", "int"),))
    late = Call(
        "GreaterThan", "boolean", (Call("Add", "int", (Column(0, "int"), Literal(50, "int")), "ANSI"), Column(3, "int"))
    )
    views = {"below": below, "last": Join(scan("t"), most, JoinKind.SEMI, (), (), (), late)}
    append(meta, table("t"), view("by_g", counted(scan("t"), 1)), view("joined", joined(scan("t"), BY_G, 1, 0)))
    append(meta, *(view(name, plan) for name, plan in views.items()))
    return meta


def change(meta: MetaStore, held: Rows, rng: random.Random) -> None:
    """Insert new rows; some replace others."""
    chosen = {rng.randrange(300): (rng.randrange(20), rng.randrange(9)) for _ in range(40)}
    insert(meta, "t", *((k, g, a) for k, (g, a) in chosen.items()))
    held.update(chosen)


def assert_right(meta: MetaStore, held: Rows) -> None:
    counts = Counter(g for g, _ in held.values())
    assert rows(meta, "t") == sorted(((k, g, a) for k, (g, a) in held.items()), key=repr)
    assert rows(meta, "by_g") == sorted(counts.items(), key=repr)
    pairs = [(k, g, a, other, n) for k, (g, a) in held.items() for other, n in counts.items() if g < other]
    alone = [(k, g, a, None, None) for k, (g, a) in held.items() if g == max(counts)]
    assert rows(meta, "below") == sorted(pairs + alone, key=repr)
    assert rows(meta, "last") == sorted(((k, g, a) for k, (g, a) in held.items() if k + 50 > max(held)), key=repr)
    assert rows(meta, "joined") == sorted(((k, g, a, g, counts[g]) for k, (g, a) in held.items()), key=repr)


def test_epochs_before_and_after_a_rescale_and_their_barriers_are_right(meta: MetaStore) -> None:
    held, rng, kinds = Rows(), random.Random(1), []
    for units in (2, 5, 1, 3, 3, None):
        change(meta, held, rng)
        barrier = inject_barrier(meta, settings=EpochSettings(max_bytes=None, units=units))
        assert barrier is not None
        assert barrier.mapping.unit_count == (3 if units is None else units)
        kinds.append(barrier.mutation.kind)
        run_epoch(UnkindShuffle(7 * (units or 3)), meta, barrier)
        assert_right(meta, held)
    update, nothing = MutationKind.UPDATE, MutationKind.NOTHING
    assert kinds == [MutationKind.ADD, update, update, update, nothing, nothing]


def test_nothing_waits_and_nothing_is_rescaled(meta: MetaStore) -> None:
    held = Rows()
    change(meta, held, random.Random(2))
    advance_store(LocalRunner(), meta)
    version = meta.read_latest()
    assert advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=None, units=7)) == []
    assert meta.read_latest() == version


def test_the_progress_of_a_run_names_the_new_number_of_units(meta: MetaStore) -> None:
    change(meta, Rows(), random.Random(3))
    advance_store(LocalRunner(), meta)
    change(meta, Rows(), random.Random(3))
    lines: list[str] = []
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=None, units=4), progress=lines.append)
    assert lines[0].endswith(": runs on 4 units from this epoch on")


def test_an_open_barrier_runs_on_the_units_it_pinned_and_the_next_on_the_new_ones(meta: MetaStore) -> None:
    held, rng = Rows(), random.Random(4)
    change(meta, held, rng)
    advance_store(LocalRunner(), meta)
    change(meta, held, rng)
    pinned = inject_barrier(meta)
    assert pinned is not None
    meta.rescale(5)
    assert (found := inject_barrier(meta, settings=EpochSettings(max_bytes=None, units=5))) is not None
    assert found == pinned
    assert barrier_text(found, meta.read_latest().catalog) == f"barrier {pinned.epoch} after {pinned.prev_epoch}"
    change(meta, held, rng)  # waits for the epoch after it
    ran: list[int] = []

    class Counted(UnkindShuffle):
        def run_unit(self, unit, function, cells):  # type: ignore[no-untyped-def]
            ran.append(unit)
            return super().run_unit(unit, function, cells)

    with Train(Counted(4), meta, depth=3) as train:
        for expected in (1, 4):
            barrier = train.next_barrier(settings=EpochSettings(max_bytes=None, units=5))
            assert barrier is not None
            ran.clear()
            train.run(barrier)
            assert max(ran) == expected
    assert_right(meta, held)
    assert meta.all_pins() == ()


@pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=pytest.mark.deep), 1, 2, pytest.param(3, marks=pytest.mark.deep)]
)
@pytest.mark.deep
def test_a_train_whose_units_change_drains_and_continues(seed: int, meta: MetaStore, tmp_path: Path) -> None:
    """Requested by the train's own run, or by another process."""
    rng, held, pinned = random.Random(seed), Rows(), []
    shuffle, other, units = UnkindShuffle(seed), open_store(tmp_path / "store", "other"), 2
    with Train(shuffle, meta, depth=1 + seed % 3, keep=seed % 2) as train:
        for number in range(10):
            change(meta, held, rng)
            if number % 4 == 3:
                units = 1 + (units + rng.randrange(4)) % 6
                if rng.random() < 0.5:
                    other.rescale(units)
            barrier = train.next_barrier(settings=EpochSettings(max_bytes=None, units=units))
            assert barrier is not None
            train.run(barrier)
            pinned.append(barrier.mapping.unit_count)
    assert_right(meta, held)
    assert len(train.done) == 10
    assert len(set(pinned)) > 1
    assert meta.all_pins() == ()
