"""The moment of an epoch: its origin, its order, and the rows that it alone moves. No Spark."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, open_store, rows
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.moment import Clock, InputRequest, IntervalsNotRunError, Pace
from tussock.jobs.driver.epoch import advance_store, epochs_of_call, next_epoch, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import show_summary
from tussock.jobs.driver.train import Train
from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.logical.nodes import Call, Column, Comparison, Field, Scan, TemporalFilter
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.listing import Interval
from tussock.jobs.trouble.restate import Restating
from tussock.jobs.trouble.supersede import abandon_barrier
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
    if (barrier := inject_barrier(meta, InputRequest(moment=second * SECOND))) is None:
        return False
    run_epoch(LocalRunner(), meta, barrier)
    return True


def test_an_epoch_without_input_adds_due_rows(meta: MetaStore) -> None:
    assert rows(meta, "due") == [(1, 10)]
    assert run(meta, 25)
    assert rows(meta, "due") == [(1, 10), (2, 20)]
    assert meta.read_latest().moment == 25 * SECOND
    assert not run(meta, 25), "the moment is unchanged, and no input waits"


def test_the_moment_never_goes_back(meta: MetaStore) -> None:
    run(meta, 20)
    assert not run(meta, 15)
    insert(meta, "t", (5, 1, 18), (6, 1, 22))
    assert run(meta, 15)
    assert meta.read_latest().moment == 20 * SECOND
    assert rows(meta, "due") == [(1, 10), (2, 20), (5, 18)]


def test_a_store_without_such_views_rests_when_nothing_waits(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, CreateTable("t", FIELDS, (0,)))
    epoch(meta)
    assert inject_barrier(meta) is None
    assert meta.read_latest().moment >= CLOCK, (
        "it has a moment all the same: a view that is created later is at the clock"
    )


def test_a_run_takes_the_end_of_its_interval_and_another_the_clock_once_if_asked(meta: MetaStore) -> None:
    end = datetime(1970, 1, 1, 0, 0, 29, 500_000, tzinfo=UTC)
    (scheduled,) = advance_store(LocalRunner(), meta, InputRequest(Interval(end - timedelta(hours=1), end)))
    assert meta.read_latest().moment == 29_500_000
    assert rows(meta, "due") == [(1, 10), (2, 20)]
    (by_clock,) = advance_store(LocalRunner(), meta, InputRequest(moment=Clock.NOW))
    assert by_clock.epoch > scheduled.epoch
    assert meta.read_latest().moment >= CLOCK
    assert rows(meta, "due") == [(1, 10), (2, 20), (3, 30)]


def test_an_attempt_that_supersedes_another_has_its_moment(meta: MetaStore) -> None:
    insert(meta, "t", (7, 1, 11))
    held = inject_barrier(meta, InputRequest(moment=12 * SECOND))
    assert held is not None
    later = open_store(Path(meta.objects.uri.removeprefix("file://")), "later")
    following = abandon_barrier(later, Detour(take_log=True))
    assert (following.attempt, following.moment) == (1, held.moment)


def test_epochs_in_flight_count_on_the_moments_of_those_before_them(meta: MetaStore) -> None:
    with Train(LocalRunner(), meta, depth=3, keep=2) as train:
        for second in (20, 15, 30):
            insert(meta, "t", (second * 10, 1, second))
            barrier = train.next_barrier(InputRequest(moment=second * SECOND))
            assert barrier is not None
            train.run(barrier)
            assert barrier.moment == max(20, second) * SECOND
    assert set(rows(meta, "due")) == {(1, 10), (2, 20), (3, 30), (150, 15), (200, 20), (300, 30)}


def test_a_paused_view_causes_no_epoch(meta: MetaStore) -> None:
    abandon_barrier(meta, Detour(pause=("due",)))
    run(meta, 11)
    assert not run(meta, 40)
    assert rows(meta, "due") == [(1, 10)]


# --- a store that runs by intervals ---------------------------------------------------------------------------------


def day(number: int) -> Interval:
    """An interval of 100 seconds; days count from 1."""
    start = datetime.fromtimestamp(number * 100, UTC)
    return Interval(start, start + timedelta(seconds=100))


def second(meta: MetaStore) -> float:
    """The moment of the newest epoch."""
    return meta.read_latest().moment / SECOND


@pytest.fixture
def by_days(tmp_path: Path) -> MetaStore:
    """A store with the view `due` over a table and a source with files, after the run of its first interval."""
    meta = new_store(tmp_path / "store")
    files = tmp_path / "in"
    files.mkdir()
    write(files / "a.csv", "1")
    append(meta, CreateTable("t", FIELDS, (0,)), due())
    append(meta, CreateSource("s", "csv", (Field("id", "int"),), {"path": str(files), "retain": "files"}))
    insert(meta, "t", (1, 1, 150), (2, 1, 250), (3, 1, 350))
    advance_store(LocalRunner(), meta, InputRequest(day(1)))
    assert (second(meta), meta.read_latest().by_intervals) == (200, True)
    return meta


def write(file: Path, text: str) -> Path:
    file.write_text(f"{text}\n")
    return file


def source_file(meta: MetaStore) -> Path:
    return Path(meta.objects.uri.removeprefix("file://")).parent / "in" / "a.csv"


def restate(meta: MetaStore) -> None:
    file = write(source_file(meta), "7")
    assert Restating(meta, "s", Restated(str(file))).begin_restating() is not None
    next_epoch(LocalRunner(), meta)


def restate_before_another_run(meta: MetaStore) -> None:
    """As in Airflow: one task begins it, and another runs all epochs."""
    file = write(source_file(meta), "7")
    assert Restating(meta, "s", Restated(str(file))).begin_restating() is not None
    advance_store(LocalRunner(), meta)


def statement(meta: MetaStore) -> None:
    insert(meta, "t", (9, 1, 120))
    advance_store(LocalRunner(), meta)


def new_view(meta: MetaStore) -> None:
    append(meta, CreateView("late", "SELECT …", due().plan))
    next_epoch(LocalRunner(), meta)


def new_file(meta: MetaStore) -> None:
    write(source_file(meta).parent / "b.csv", "8")
    advance_store(LocalRunner(), meta)


def one_flush(meta: MetaStore) -> None:
    insert(meta, "t", (9, 1, 120))
    assert list(epochs_of_call(LocalRunner(), meta))


def train(meta: MetaStore) -> None:
    with Train(LocalRunner(), meta, depth=3, keep=2) as going:
        for key in (8, 9):
            insert(meta, "t", (key, 1, 120))
            barrier = going.next_barrier()
            assert barrier is not None
            going.run(barrier)


def pause(meta: MetaStore) -> None:
    abandon_barrier(meta, Detour(pause=("due",)))
    advance_store(LocalRunner(), meta)


def supersede(meta: MetaStore) -> None:
    insert(meta, "t", (9, 1, 120))
    assert inject_barrier(meta) is not None
    insert(meta, "t", (8, 1, 120))
    abandon_barrier(meta, Detour(take_log=True))
    advance_store(LocalRunner(), meta)


def skip(meta: MetaStore) -> None:
    write(source_file(meta), "7 7")
    abandon_barrier(meta, Detour(skip_files=(str(source_file(meta)),)))
    advance_store(LocalRunner(), meta)


ENTRIES = (
    restate,
    restate_before_another_run,
    statement,
    new_view,
    new_file,
    one_flush,
    train,
    pause,
    supersede,
    skip,
)
"""Everything that runs an epoch without an interval."""


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_epoch_between_intervals_moves_the_moment(by_days: MetaStore, entry: Callable[[MetaStore], None]) -> None:
    before = by_days.read_latest().epoch
    entry(by_days)
    assert by_days.read_latest().epoch > before
    assert (second(by_days), by_days.read_latest().by_intervals) == (200, True)
    advance_store(LocalRunner(), by_days, InputRequest(day(2)))
    assert second(by_days) == 300 or entry is pause, "a paused view requests no epoch"


def test_every_way_to_a_barrier_takes_its_moment_from_one_function() -> None:
    """A new caller of `inject_barrier` or `supersede_barrier` belongs in ENTRIES."""
    calls = re.compile(r"\bmeta\.(?:inject_barrier|draft_barrier|supersede_barrier)\(")
    jobs = Path(__file__).parents[4] / "jobs"
    found = {str(path.relative_to(jobs)): len(calls.findall(path.read_text())) for path in jobs.rglob("*.py")}
    follows = {"barriers/follow.py": 1, "barriers/undo.py": 1}  # they repeat the moment of another epoch
    leaves = 1  # a barrier of a following branch, which keeps its moment when Spark reads a file of it
    expected = {"barriers/barrier.py": 3, "trouble/restate.py": 1, "trouble/supersede.py": 5 + leaves, **follows}
    assert {name: n for name, n in found.items() if n} == expected


def test_a_jump_over_an_interval_that_has_not_run_is_refused(by_days: MetaStore) -> None:
    before = by_days.read_latest()
    with pytest.raises(IntervalsNotRunError, match="over the intervals from 1970-01-01 00:03:20 UTC to "):
        advance_store(LocalRunner(), by_days, InputRequest(day(3)))
    assert (by_days.read_latest(), by_days.open_barrier()) == (before, None)
    advance_store(LocalRunner(), by_days, InputRequest(day(2)))
    advance_store(LocalRunner(), by_days, InputRequest(day(3)))
    assert second(by_days) == 400


def test_a_jump_in_a_train_is_refused_after_the_epochs_before_it(by_days: MetaStore) -> None:
    insert(by_days, "t", (9, 1, 120))
    with Train(LocalRunner(), by_days, depth=3, keep=2) as going:
        barrier = going.next_barrier(InputRequest(day(2)))
        assert barrier is not None
        going.run(barrier)
        with pytest.raises(IntervalsNotRunError):
            going.next_barrier(InputRequest(day(4)))
    assert second(by_days) == 300


@pytest.mark.parametrize("moment", [400 * SECOND, 310 * SECOND])
def test_a_jump_that_is_asked_for_is_in_the_summary_and_the_facts(by_days: MetaStore, moment: int) -> None:
    (summary,) = advance_store(LocalRunner(), by_days, InputRequest(day(3), moment))
    assert second(by_days) == 400
    passed = "the intervals from 1970-01-01 00:03:20 UTC to 1970-01-01 00:05:00 UTC, which have not run"
    assert summary.moment == f"now() in views is 1970-01-01 00:06:40 UTC; it passed over {passed}"
    assert f"\n  {summary.moment}" in show_summary(summary)
    (facts,) = list_epochs(by_days, 1)
    assert facts.now == datetime.fromtimestamp(400, UTC)
    assert facts.passed_over == (datetime.fromtimestamp(200, UTC), datetime.fromtimestamp(300, UTC))
    advance_store(LocalRunner(), by_days, InputRequest(day(2)))
    assert second(by_days) == 400, "it never goes back"


def test_an_asked_moment_without_an_interval_passes_over_all_before_it(by_days: MetaStore) -> None:
    (summary,) = advance_store(LocalRunner(), by_days, InputRequest(moment=500 * SECOND))
    assert "passed over the intervals from 1970-01-01 00:03:20 UTC to 1970-01-01 00:08:20 UTC" in summary.moment
    insert(by_days, "t", (9, 1, 120))
    (kept,) = advance_store(LocalRunner(), by_days)
    assert kept.moment == "now() in views is 1970-01-01 00:08:20 UTC"


def test_a_store_follows_the_clock_again_once_it_is_asked_for(by_days: MetaStore) -> None:
    advance_store(LocalRunner(), by_days, InputRequest(moment=Clock.NOW))
    first = by_days.read_latest().moment
    assert (first >= CLOCK, by_days.read_latest().by_intervals) == (True, False)
    advance_store(LocalRunner(), by_days)
    assert by_days.read_latest().moment > first


def test_a_store_without_views_of_the_moment_passes_over_intervals(tmp_path: Path) -> None:
    """No run without input commits an epoch there, so such a store does not know which intervals have run."""
    meta = new_store(tmp_path / "store")
    append(meta, CreateTable("t", FIELDS, (0,)))
    advance_store(LocalRunner(), meta, InputRequest(day(1)))
    insert(meta, "t", (1, 1, 1))
    (summary,) = advance_store(LocalRunner(), meta, InputRequest(day(7)))
    assert (second(meta), summary.moment) == (800, "")


def test_until_an_interval_has_run_the_moment_is_the_start_of_the_schedule(tmp_path: Path) -> None:
    for catchup in (True, False):
        meta, pace = new_store(tmp_path / f"{catchup}"), Pace(100 * SECOND, catchup)
        append(meta, CreateTable("t", FIELDS, (0,)), due())
        advance_store(LocalRunner(), meta, InputRequest(pace=pace))
        assert second(meta) == 100
        if catchup:
            with pytest.raises(IntervalsNotRunError):
                advance_store(LocalRunner(), meta, InputRequest(day(3), pace=pace))
        else:  # a user chooses the first interval
            advance_store(LocalRunner(), meta, InputRequest(day(3), pace=pace))
            with pytest.raises(IntervalsNotRunError):
                advance_store(LocalRunner(), meta, InputRequest(day(6), pace=pace))
            (summary,) = advance_store(LocalRunner(), meta, InputRequest(day(6), pace=replace(pace, is_scheduled=True)))
            assert "passed over the intervals from 1970-01-01 00:06:40 UTC" in summary.moment


def test_an_open_barrier_of_an_earlier_interval_does_not_set_the_moment_of_the_next_run(by_days: MetaStore) -> None:
    insert(by_days, "t", (9, 1, 120))
    assert inject_barrier(by_days, InputRequest(day(2))) is not None
    advance_store(LocalRunner(), by_days, InputRequest(day(3)))
    assert second(by_days) == 400
    assert rows(by_days, "due") == [(1, 150), (2, 250), (3, 350), (9, 120)]
