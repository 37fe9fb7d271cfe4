"""Pausing a view in the catalog: which views pause with it, which cannot be paused, and which cannot be built over
it.
"""

import msgspec
import pytest

from tests.support.jobs.plan.catalogs import catalog_of, counted, scan, table, view
from tussock.jobs.catalog.apply import CannotPauseError, apply_log, apply_statement, pause_view
from tussock.jobs.catalog.create import PausedViewError
from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.logical.statements import Drop
from tussock.jobs.schedule.explain import explain_relation
from tussock.statestore.meta.catalog import Catalog, RelationKind


def shop() -> Catalog:
    """A table, a view over it, a view over that, and an independent view."""
    over = view("v", counted(scan("t"), 1)), view("w", counted(scan("v", 2), 1)), view("beside", counted(scan("t"), 2))
    return catalog_of(table("t"), *over)


def paused_in(catalog: Catalog) -> dict[str, int]:
    return {r.name: r.paused for r in catalog.live_relations() if r.paused is not None}


def test_only_the_readers_of_a_paused_view_are_paused_with_it() -> None:
    assert paused_in(pause_view(shop(), "V", 7)) == {"v": 7, "w": 7}
    assert paused_in(pause_view(shop(), "w", 7)) == {"w": 7}


def test_a_view_that_was_paused_before_its_input_keeps_its_own_epoch() -> None:
    assert paused_in(pause_view(pause_view(shop(), "w", 7), "v", 9)) == {"v": 9, "w": 7}


def test_a_reader_sees_older_rows_from_the_pause_on() -> None:
    (v,) = (r for r in pause_view(shop(), "v", 7).live_relations() if r.name == "v")
    assert [v.paused_at(epoch) for epoch in (6, 7, 8)] == [False, True, True]


def test_only_a_view_that_runs_and_has_rows_can_be_paused() -> None:
    for name in ("t", "nobody"):
        with pytest.raises(UnknownRelationError, match="there is no view"):
            pause_view(shop(), name, 7)
    with pytest.raises(CannotPauseError, match="'v' cannot be paused: it is paused since epoch 7"):
        pause_view(pause_view(shop(), "v", 7), "v", 8)
    with pytest.raises(
        CannotPauseError, match=r"'v' cannot be paused: it is new in this epoch and has no rows yet.*--drop v"
    ):
        pause_view(shop(), "v", 1)
    with_new = catalog_of(view("late", counted(scan("v", 2), 1)), epoch=7, before=shop())
    with pytest.raises(
        CannotPauseError, match=r"'v' cannot be paused: 'late', which reads it, is new in this epoch.*--drop late"
    ):
        pause_view(with_new, "v", 7)


def test_no_view_is_created_over_a_paused_one_until_that_was_dropped_and_created_again() -> None:
    paused, over = pause_view(shop(), "v", 7), view("late", counted(scan("v", 2), 1))
    with pytest.raises(
        PausedViewError, match=r"'late' cannot be created, because it reads 'v', which is paused since epoch 7"
    ):
        apply_statement(paused, over, 8)
    ((index, why),) = apply_log(paused, [over], 8).rejected
    assert (index, "is paused since epoch 7" in why) == (0, True)
    again = apply_log(paused, [Drop(RelationKind.VIEW, "v", cascade=True), view("v", counted(scan("t"), 1)), over], 8)
    assert again.rejected == ()
    assert paused_in(again.catalog) == {}
    assert {r.name for r in again.catalog.live_relations()} == {"t", "beside", "v", "late"}


def test_a_catalog_older_than_pauses_has_no_paused_view() -> None:
    old = msgspec.json.decode(msgspec.json.encode(shop()), type=dict)
    for relation in old["relations"]:
        del relation["paused"]
    assert msgspec.json.decode(msgspec.json.encode(old), type=Catalog) == shop()


def test_explain_shows_that_a_view_is_paused_and_its_plan() -> None:
    running, paused = shop(), pause_view(shop(), "v", 7)
    (before,), (after,) = (
        [explain_relation(c, r) for r in c.live_relations() if r.name == "w"] for c in (running, paused)
    )
    head, *rest = before.splitlines()
    assert after.splitlines() == [
        head,
        "paused since epoch 7: nothing below runs, readers see the rows of the epoch before",
        *rest,
    ]
    (beside,) = (explain_relation(paused, r) for r in paused.live_relations() if r.name == "beside")
    assert "paused" not in beside
