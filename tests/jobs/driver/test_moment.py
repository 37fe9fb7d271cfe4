"""The moment of an epoch: its origin, its order, and the rows that it alone moves. No Spark."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.jobs.driver.embedded import append, epoch, insert, new_store, open_store, rows
from tussock.jobs.driver.barrier import Wish, inject
from tussock.jobs.driver.detour import Detour
from tussock.jobs.driver.epoch import advance, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.supersede import abandon
from tussock.jobs.driver.train import Train
from tussock.jobs.logical.nodes import Call, Column, Comparison, Field, Scan, TemporalFilter
from tussock.jobs.logical.statements import CreateTable, CreateView
from tussock.jobs.sources.listing import Interval
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("k", "int"), Field("g", "int"), Field("a", "int"))
SECOND = 1_000_000
CLOCK = 1_700_000_000 * SECOND  # at least: the store's


def due(comparison: Comparison = Comparison.LESS_OR_EQUAL) -> CreateView:
    """SELECT k, a FROM t WHERE timestamp_seconds(a) <= now()"""
    scan = Scan("t", (0, 2), (FIELDS[0], FIELDS[2]))
    value = Call("SecondsToTimestamp", "timestamp", (Column(1, "int"),))
    return CreateView("due", "SELECT …", TemporalFilter(scan, value, comparison, Column(0, "timestamp"), True))


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    meta = new_store(tmp_path / "store")
    append(meta, CreateTable("t", FIELDS, (0,)), due())
    insert(meta, "t", (1, 1, 10), (2, 1, 20), (3, 1, 30), (4, 1, None))
    run(meta, 10)
    return meta


def run(meta: MetaStore, second: int) -> bool:
    """Run an epoch at this moment; return whether it had work to do."""
    if (barrier := inject(meta, Wish(moment=second * SECOND))) is None:
        return False
    run_epoch(LocalRunner(), meta, barrier)
    return True


def test_an_epoch_without_input_adds_due_rows(meta: MetaStore) -> None:
    assert rows(meta, "due") == [(1, 10)]
    assert run(meta, 25)
    assert rows(meta, "due") == [(1, 10), (2, 20)]
    assert meta.latest().moment == 25 * SECOND
    assert not run(meta, 25), "the moment is unchanged, and no input waits"


def test_the_moment_never_goes_back(meta: MetaStore) -> None:
    run(meta, 20)
    assert not run(meta, 15)
    insert(meta, "t", (5, 1, 18), (6, 1, 22))
    assert run(meta, 15)
    assert meta.latest().moment == 20 * SECOND
    assert rows(meta, "due") == [(1, 10), (2, 20), (5, 18)]


def test_a_store_without_such_views_rests_when_nothing_waits(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, CreateTable("t", FIELDS, (0,)))
    epoch(meta)
    assert inject(meta) is None
    assert meta.latest().moment >= CLOCK, "it has a moment all the same: a view that is created later is at the clock"


def test_a_run_takes_the_end_of_its_interval_and_another_the_clock_once(meta: MetaStore) -> None:
    end = datetime(1970, 1, 1, 0, 0, 29, 500_000, tzinfo=UTC)
    (scheduled,) = advance(LocalRunner(), meta, Wish(Interval(end - timedelta(hours=1), end)))
    assert meta.latest().moment == 29_500_000
    assert rows(meta, "due") == [(1, 10), (2, 20)]
    (by_clock,) = advance(LocalRunner(), meta)
    assert by_clock.epoch > scheduled.epoch
    assert meta.latest().moment >= CLOCK
    assert rows(meta, "due") == [(1, 10), (2, 20), (3, 30)]


def test_an_attempt_that_supersedes_another_has_its_moment(meta: MetaStore) -> None:
    insert(meta, "t", (7, 1, 11))
    held = inject(meta, Wish(moment=12 * SECOND))
    assert held is not None
    later = open_store(Path(meta.objects.uri.removeprefix("file://")), "later")
    following = abandon(later, Detour(take_log=True))
    assert (following.attempt, following.moment) == (1, held.moment)


def test_epochs_in_flight_count_on_the_moments_of_those_before_them(meta: MetaStore) -> None:
    with Train(LocalRunner(), meta, depth=3, keep=2) as train:
        for second in (20, 15, 30):
            insert(meta, "t", (second * 10, 1, second))
            barrier = train.next_barrier(Wish(moment=second * SECOND))
            assert barrier is not None
            train.run(barrier)
            assert barrier.moment == max(20, second) * SECOND
    assert set(rows(meta, "due")) == {(1, 10), (2, 20), (3, 30), (150, 15), (200, 20), (300, 30)}


def test_a_paused_view_causes_no_epoch(meta: MetaStore) -> None:
    abandon(meta, Detour(pause=("due",)))
    run(meta, 11)
    assert not run(meta, 40)
    assert rows(meta, "due") == [(1, 10)]
