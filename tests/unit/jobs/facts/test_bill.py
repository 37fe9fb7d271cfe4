"""Bills of deployments, from recorded epochs that follow a known rule."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from tussock.jobs.facts.bill import DAYS, PARTIAL, SECONDS_PER_ROW, Bill, Groups, estimate_bill
from tussock.jobs.facts.epochs import EpochFacts, RelationRows
from tussock.jobs.settings.prices import Prices
from tussock.jobs.statements.deployment import Step, StepAction, ViewShape
from tussock.statestore.meta.barrier import Mutation, MutationKind
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.manifest import StepSeconds, UnitWork
from tussock.statestore.meta.version import HummockVersion, VnodeMapping
from tussock.statestore.objectstore.requests import Requests

START = datetime(2026, 1, 1, tzinfo=UTC)
FIXED_S, ROW_S, GETS = 0.5, 1e-3, 20
ORDERS, DAILY = 1, 2
NEW = Step(StepAction.CREATE, "view fresh", "views.sql:1", rebuilt=True, shape=ViewShape(("orders",), 1, 0))
TOTALS = Step(StepAction.CREATE, "view totals", "views.sql:2", rebuilt=True, shape=ViewShape(("fresh",), 1, 1))


def version(taken: int | None) -> HummockVersion:
    """A store with one source and one view. `taken`: rows that the source has taken; None: not counted."""
    catalog = Catalog(
        (
            Relation(ORDERS, "orders", RelationKind.SOURCE, (), b"{}"),  # type: ignore[arg-type]
            Relation(DAILY, "daily", RelationKind.VIEW, (), b"{}", depends_on=(ORDERS,)),  # type: ignore[arg-type]
        )
    )
    counts = {DAILY: 40} if taken is None else {ORDERS: taken, DAILY: 40}
    return HummockVersion(1, 9, 9, 0, 0, ((),), catalog, VnodeMapping(1, (0,)), rows=counts)


def past_epoch(number: int, rows: int, kind: MutationKind = MutationKind.NOTHING) -> EpochFacts:
    """An epoch a minute after the one before, whose seconds are FIXED_S and ROW_S per row."""
    counts = (
        RelationRows("orders", RelationKind.SOURCE, 0, rows),
        RelationRows("daily", RelationKind.VIEW, 2 * rows, rows // 10),
    )
    return EpochFacts(
        epoch=number,
        at=START + timedelta(minutes=number),
        prev_epoch=number - 1,
        attempt=0,
        writer="writer",
        published=True,
        rows=counts,
        seconds=StepSeconds(0.0, FIXED_S + ROW_S * 2 * rows, 0.0),
        mutation=Mutation(kind),
        skipped=(),
        columns=(),
        ssts=1,
        bytes=100,
        units=(UnitWork(0, 2 * rows, 0, ROW_S * 2 * rows),),
        requests=Requests(get=GETS, put=3),
    )


def bill(
    past: list[EpochFacts],
    *steps: Step,
    taken: int | None = 5_000,
    runs: float | None = None,
    daily: ViewShape = ViewShape(("orders",), 1, 0),  # noqa: B008  a frozen value
) -> Bill:
    return estimate_bill(version(taken), steps, past, Prices(unit_hour=3.6), runs, {"daily": daily})


def test_a_usual_epoch_is_the_median_and_omits_builds() -> None:
    past = [past_epoch(n, rows) for n, rows in enumerate((100, 110, 900, 120, 130), 1)]
    (line,) = bill([past_epoch(0, 9_999, MutationKind.ADD), *past]).usual.lines
    assert (line.name, line.rows_read, line.rows_written, line.at_most) == ("daily", 240, 12, False)


def test_the_cost_of_a_row_is_measured_once_epochs_differ_in_size() -> None:
    told = bill([past_epoch(n, 100 * n) for n in range(1, 10)])
    assert told.measured
    assert told.usual.rest.seconds == pytest.approx(FIXED_S)
    assert told.usual.rest.requests == pytest.approx(GETS + 3)
    (line,) = told.usual.lines
    assert line.seconds == pytest.approx(1_400 * ROW_S)
    assert line.dollars == pytest.approx(1_400 * ROW_S * 3.6 / 3600)
    alike = bill([past_epoch(n, 500) for n in range(1, 10)])
    assert not alike.measured
    assert alike.usual.lines[0].seconds == pytest.approx(1_000 * SECONDS_PER_ROW)


def test_new_views_are_estimated_from_the_stored_rows_of_their_inputs() -> None:
    change = bill([past_epoch(n, 100) for n in range(1, 4)], NEW, TOTALS).change
    assert change is not None
    fresh, totals = change.lines
    assert (fresh.rows_read, fresh.rows_written, fresh.at_most) == (10_000, 5_000, True)
    assert totals.rows_read == 5_000 + PARTIAL * 5_000
    assert change.total.rows_read == 16_000


def test_what_depends_on_an_uncounted_source_is_unknown() -> None:
    told = bill([past_epoch(1, 100)], NEW, TOTALS, taken=None)
    assert told.change is not None
    assert [line.rows_read for line in told.change.lines] == [None, None]
    assert told.change.total.seconds is None
    assert [line.rows_read for line in told.usual.lines] == [200, 200, 120], "a usual epoch is known"


def test_a_view_that_is_dropped_costs_nothing_afterwards() -> None:
    gone = Step(StepAction.DROP, "view daily", "")
    assert bill([past_epoch(1, 100)], gone).usual.lines == ()


def test_a_month_has_the_runs_of_the_schedule_or_the_pace_of_the_past() -> None:
    past = [past_epoch(n, 100) for n in range(1, 5)]
    scheduled = bill(past, runs=30.0)
    dollars = scheduled.usual.total.dollars
    assert dollars is not None
    assert scheduled.dollars_a_month == pytest.approx(30 * dollars)
    assert bill(past).runs_a_month == pytest.approx(DAYS * 24 * 60)
    assert bill(past[:1]).dollars_a_month is None


def test_a_view_that_follows_a_replaced_view_reads_at_most_its_old_and_new_rows() -> None:
    changed = Step(StepAction.CHANGE, "view daily", "views.sql:1", rebuilt=True, shape=ViewShape(("orders",), 0, 0))
    follows = Step(StepAction.FOLLOW, "view weekly", "", shape=ViewShape(("daily",), 1, 1))
    change = bill([past_epoch(n, 100) for n in range(1, 4)], changed, follows).change
    assert change is not None
    daily, weekly = change.lines
    assert (daily.rows_read, daily.rows_written) == (5_000, 40)
    assert (weekly.rows_read, weekly.rows_written, weekly.at_most) == (160, 80, True)


def test_a_changed_comment_reads_no_rows() -> None:
    step = Step(StepAction.CHANGE, "view daily", "views.sql:1", shape=ViewShape(("orders",), 1, 0))
    assert bill([past_epoch(1, 100)], step).change is None


def test_rows_behind_a_partial_aggregate_of_a_replaced_view_follow_from_its_own_epochs() -> None:
    """The recorded epochs let 2n - n = n rows through: every row has its own group."""
    grouped = ViewShape(("orders",), 1, 1)
    past = [past_epoch(n, 100) for n in range(1, 4)]
    for name, left in (("daily", 5_000), ("fresh", PARTIAL * 5_000)):
        step = Step(StepAction.CHANGE, f"view {name}", "views.sql:1", rebuilt=True, shape=grouped)
        change = bill(past, step, daily=grouped).change
        assert change is not None
        assert change.lines[0].rows_read == 5_000 + left


@pytest.mark.parametrize("groups", [10, 1_000, 100_000])
def test_the_groups_of_a_large_epoch_follow_from_a_small_one(groups: int) -> None:
    """Against draws of equally frequent groups."""
    chosen = random.Random(0)
    small, large = (len({chosen.randrange(groups) for _ in range(rows)}) for rows in (500, 20_000))
    assert Groups(500, small).left_of(20_000) == pytest.approx(large, rel=0.25)
