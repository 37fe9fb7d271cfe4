"""A quality check with a verdict per view: failing views and their readers are held back, all others are published.

Without Spark; the tests set the verdicts. A model keeps the expected rows: the table's when the view last passed.
"""

import json
import random
import shutil
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyspark  # noqa: F401 (Great Expectations is imported once per process; one of these suites needs it with Spark)
import pytest
from deltalake import DeltaTable
from tussock_steps import pipeline_of

from tests.support.faulty_store import FaultyObjectStore, Killed, next_death
from tests.support.jobs.driver.embedded import append, insert
from tests.support.jobs.plan.catalogs import counted, scan, view
from tests.support.jobs.quality.hidden_views import apply_suites
from tests.support.jobs.sinks.delta_readers import package_rows
from tests.support.plugins import by_name as steps
from tests.support.plugins import quality_scope as shared
from tests.support.plugins.quality_scope import ANSWERS, BROKEN, Shop, counted_rows, sizes
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.logical.statements import Show, Shown, Transaction
from tussock.jobs.operations.news import LastEvent
from tussock.jobs.quality.record import (
    HeldViewsError,
    MissingRecordError,
    QualityCheckError,
    QualityVerdict,
    record_lines,
    stays_published,
)
from tussock.jobs.quality.suite import QualitySuiteError, read_suites
from tussock.jobs.reading.read import BackwardsError, HeldViewWarning, NeverPassedError
from tussock.jobs.session import Session
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.retention import Retention
from tussock.jobs.statements.show import answer_show
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.upkeep.compaction import compact_store
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

shop = shared.shop
pytestmark = pytest.mark.filterwarnings("ignore::tussock.jobs.reading.read.HeldViewWarning")


def test_a_failing_view_and_its_reader_are_held_back_and_the_others_are_published(shop: Shop) -> None:
    first = shop.change((1, 1, 1), (2, 1, 1), (3, 2, 1))
    assert [(v.name, v.since) for v in shop.publish(first).views] == [("per_g", 0), ("sizes", 0), ("keys", 0)]
    second = shop.change((4, 2, 1))
    done = shop.publish(second, "per_g")
    assert [v.name for v in done.views] == ["keys"]
    assert [v.name for v in steps.view_news("shop", lambda view: LastEvent(first)).views] == ["keys"]
    assert done.held == {"per_g": first, "sizes": first}
    shop.require(per_g=first, sizes=first, keys=second)
    with pytest.raises(HeldViewsError, match=r"the suites of per_g failed.*(?s:.)*failing rows: g=1"):
        steps.require_none_held_back("shop", second)
    with Session(str(shop.folder / "store"), create=False) as session:
        with pytest.warns(HeldViewWarning, match=f"'per_g' is held back: its rows are those of epoch {first}"):
            session.read("per_g")
        assert counted_rows(session.read("per_g", epoch=second)) == ANSWERS["per_g"](shop.rows), (
            "the rows that failed, by the epoch's number"
        )
    version = shop.meta.read_latest()
    shown = answer_show(version.catalog, Show(Shown.VIEWS), held=published_sight(version).held)
    assert dict(zip(shown["name"], shown["state"], strict=True)) == {
        "per_g": f"held back by a suite, seen as of epoch {first}",
        "sizes": f"held back by a suite, seen as of epoch {first}",
        "keys": "",
    }


def test_it_is_published_again_as_soon_as_its_suite_passes_with_all_that_changed_meanwhile(shop: Shop) -> None:
    first = shop.change((1, 1, 1))
    shop.publish(first)
    for number in range(3):
        last = shop.change((10 + number, 5, 1))
        shop.publish(last, "per_g")
        shop.require(per_g=first, sizes=first, keys=last)
    good = shop.change((20, 6, 1))
    done = {v.name: v for v in shop.publish(good).views}
    assert {name: v.since for name, v in done.items()} == {"per_g": first, "sizes": first, "keys": last}
    assert {name: v.changed_rows for name, v in done.items()} == {"per_g": 6, "sizes": 9, "keys": 1}
    told = {"per_g": first, "sizes": first, "keys": last}  # held-back views have no event
    assert {
        v.name: (v.since, v.changed_rows) for v in steps.view_news("shop", lambda view: LastEvent(told[view])).views
    } == {name: (v.since, v.changed_rows) for name, v in done.items()}
    assert done["per_g"].quality is QualityVerdict.PASSED
    assert done["sizes"].quality is QualityVerdict.NONE
    assert QualityVerdict.NONE.value == "not checked"
    shop.require(per_g=good, sizes=good, keys=good)
    steps.require_none_held_back("shop", last)  # a cleared task of the run that failed
    assert shop.meta.read_latest().held == ()
    with Session(str(shop.folder / "store"), create=False) as session:
        changes = session.changes("per_g", first)
    net = Counter(ANSWERS["per_g"](shop.at[first]))
    for row in changes.to_pylist():
        net[row["c1"], row["n"]] += 1 if row["_change_type"] == "insert" else -1
    assert +net == ANSWERS["per_g"](shop.rows)


def test_a_corrected_suite_publishes_the_same_epoch_once_more_and_a_repetition_answers_the_same(shop: Shop) -> None:
    shop.publish(first := shop.change((1, 1, 1)))
    second = shop.change((2, 1, 1))
    held = shop.publish(second, "per_g")
    assert steps.publish("shop", second) == held
    released = shop.publish(second)
    assert [(v.name, v.since, v.changed_rows) for v in released.views] == [("per_g", first, 2), ("sizes", first, 2)]
    version = shop.meta.read_latest()
    shop.meta.raise_floor(second)  # an unrelated delta
    assert steps.publish("shop", second) == released
    assert shop.meta.read_latest().held == version.held == ()
    shop.require(per_g=second, sizes=second, keys=second)
    shop.publish(second, "per_g")  # rows that readers have seen stay visible
    shop.require(per_g=second, sizes=second, keys=second)


def test_in_pipeline_scope_one_failing_suite_holds_back_the_whole_epoch(shop: Shop) -> None:
    toml = shop.folder / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace('scope = "view"\n', ""))
    shop.publish(first := shop.change((1, 1, 1)))
    with pytest.raises(QualityCheckError, match="readers still see the previous epoch"):
        shop.publish(shop.change((2, 1, 1)), "per_g")
    shop.require(per_g=first, sizes=first, keys=first)


def test_a_new_view_is_hidden_until_its_suite_passes_and_a_failing_replacement_keeps_the_old_rows(
    shop: Shop,
) -> None:
    first = shop.change((1, 1, 1), (2, 1, 1))
    shop.publish(first, "keys")
    with Session(str(shop.folder / "store"), create=False) as session:
        with pytest.raises(NeverPassedError, match="none of its rows have passed"):
            session.read("keys")
        assert session.read("keys", epoch=first).num_rows == 2
        other = msgspec.structs.replace(view("per_g", counted(scan("t"), 2)), sql="another", or_replace=True)
        over = msgspec.structs.replace(sizes(), or_replace=True)
        append(shop.meta, Transaction((other, over)))
        second = shop.change((3, 7, 3))
        shop.publish(second, "per_g")
        assert counted_rows(session.read("per_g")) == Counter([(1, 2)]), "GROUP BY g, as of the first epoch"
        assert counted_rows(session.read("per_g", epoch=second)) == Counter([(1, 2), (3, 1)]), "GROUP BY a"
        assert session.read("keys").num_rows == 3
        third = shop.change((4, 8, 3))
        shop.publish(third)
        assert counted_rows(session.read("per_g")) == Counter([(1, 2), (3, 2)])


def test_a_publish_without_the_quality_check_leaves_held_back_views_held_back(shop: Shop) -> None:
    shop.publish(first := shop.change((1, 1, 1)))
    shop.publish(shop.change((2, 1, 1)), "per_g")
    last = shop.change((3, 1, 1))
    publish_epoch(shop.meta, last)
    shop.require(per_g=first, sizes=first, keys=last)
    with pytest.raises(MissingRecordError):
        steps.publish("shop", last)


def test_reads_at_a_moment_and_changes_since_an_epoch_match_the_visible_rows(shop: Shop) -> None:
    shop.publish(first := shop.change((1, 1, 1)))
    second = shop.change((2, 1, 1))
    shop.publish(second, "per_g")
    with Session(str(shop.folder / "store"), create=False) as session:
        seen = session._stored.seen_at(datetime.now(UTC))
        assert (seen.epoch_of("per_g"), seen.epoch_of("keys")) == (first, second)
        assert session.changes("per_g", first).num_rows == 0
        assert session.changes("keys", first).num_rows == 1
        with pytest.raises(BackwardsError):  # a reader of rows that are now hidden needs an error
            session.changes("per_g", second)


def test_retention_compaction_and_vacuum_keep_the_rows_of_a_held_back_view(shop: Shop) -> None:
    shop.publish(first := shop.change(*((k, k % 3, 1) for k in range(20))))
    for number in range(4):
        shop.publish(last := shop.change((100 + number, number, 1)), "per_g")
        compact_store(shop.meta, full=True)
        clean_store(shop.meta, Retention(1, 0))
        assert shop.meta.read_latest().min_readable_epoch == first
        shop.require(per_g=first, sizes=first, keys=last)
    shop.publish(good := shop.change((200, 1, 1)))
    clean_store(shop.meta, Retention(1, 0))
    assert shop.meta.read_latest().min_readable_epoch == good
    shop.require(per_g=good, sizes=good, keys=good)


def test_a_held_back_view_that_is_paused_keeps_the_rows_that_passed(shop: Shop) -> None:
    shop.publish(first := shop.change((1, 1, 1)))
    shop.publish(shop.change((2, 1, 1)), "per_g")
    insert(shop.meta, "t", (3, 3, 3))
    steps.inject("shop", None, None, {})
    abandon_barrier(shop.meta, Detour(pause=("per_g",)))
    last = shop.change((4, 4, 4))
    shop.rows = [*shop.rows[:2], (3, 3, 3), (4, 4, 4)]
    shop.at[last] = shop.rows
    version = shop.meta.read_latest()
    (paused,) = (r for r in version.catalog.live_relations() if r.name == "per_g")
    assert not stays_published(version, paused, last), (
        "the quality check looks at it: readers do not see the rows that it is paused at"
    )
    shop.publish(last, "per_g")
    shop.require(per_g=first, sizes=first, keys=last)


def test_published_tables_show_the_rows_that_readers_see_and_catch_up(shop: Shop) -> None:
    def tables() -> dict[str, "Counter[tuple[int, ...]]"]:
        places = {name: shop.folder / "tables" / name for name in ANSWERS}
        return {name: counted_rows(package_rows(DeltaTable(place))) for name, place in places.items() if place.exists()}

    def wanted(**seen: int) -> dict[str, "Counter[tuple[int, ...]]"]:
        return {name: ANSWERS[name](shop.at[epoch]) for name, epoch in seen.items()}

    first = shop.change((1, 1, 1))
    shop.publish(first, "keys")
    steps.publish_tables("shop", first)
    assert tables() == wanted(per_g=first, sizes=first)
    second = shop.change((2, 1, 1), (3, 2, 2))
    shop.publish(second, "per_g")
    steps.publish_tables("shop", second)
    steps.publish_tables("shop", second)
    assert tables() == wanted(per_g=first, sizes=first, keys=second)
    third = shop.change((4, 2, 2))
    shop.publish(third, "per_g")
    steps.publish_tables("shop", third)
    assert tables() == wanted(per_g=first, sizes=first, keys=third)
    shop.publish(third)  # the suite was corrected: the same epoch
    steps.publish_tables("shop", third)
    assert tables() == wanted(per_g=third, sizes=third, keys=third)
    assert steps.tables_at("shop", third)["per_g"].written == str(third)
    fourth = shop.change((5, 9, 2))
    shop.publish(fourth)
    steps.publish_tables("shop", fourth)
    assert tables() == wanted(per_g=fourth, sizes=fourth, keys=fourth)


@pytest.mark.parametrize("seed", range(2))
def test_readers_see_each_view_as_it_last_passed_for_any_order_of_failures(shop: Shop, seed: int) -> None:
    random_ = random.Random(seed)
    shop.publish(first := shop.change((0, 0, 0)))
    seen = dict.fromkeys(ANSWERS, first)
    for number in range(1, 9):
        epoch = shop.change(*((number * 10 + i, random_.randrange(4), i) for i in range(random_.randrange(1, 4))))
        if random_.random() < 0.2:
            continue  # not published: the next one is
        failed = [name for name in ("per_g", "keys") if random_.random() < 0.5]
        over = {"per_g": ["per_g", "sizes"], "keys": ["keys"]}
        shop.publish(epoch, *failed)
        held = {name for each in failed for name in over[each]}
        seen = {name: seen[name] if name in held else epoch for name in seen}
        if random_.random() < 0.3:
            compact_store(shop.meta, full=True)
            clean_store(shop.meta, Retention(1, 0))
        shop.require(**seen)


def test_a_publish_killed_at_any_request_leaves_all_of_it_or_nothing_and_its_repetition_ends_the_same(
    shop: Shop, tmp_path: Path
) -> None:
    shop.publish(first := shop.change((1, 1, 1)))
    second = shop.change((2, 1, 1))
    refused = [r.id for r in shop.meta.read_latest().catalog.live_relations() if r.name == "per_g"]
    calls: list[tuple[str, str]] = []
    number = 0
    while number <= len(calls):
        store = Path(shutil.copytree(tmp_path / "store", tmp_path / f"store-{number}"))
        objects = FaultyObjectStore(open_object_store(str(store)))
        if number < len(calls):
            objects.kill(number)
        with suppress(Killed, RetryableError, LostRaceError):
            MetaStore(objects, "first", lambda: 0).publish(second, refused)
        calls = calls or list(objects.calls)
        other = open_meta(str(store))
        sight = published_sight(other.read_latest())
        assert (sight.epoch, dict(sight.held)) in ((first, {}), (second, {"per_g": first, "sizes": first})), (
            f"killed at request {number}"
        )
        sight = published_sight(other.publish(second, refused))
        assert (sight.epoch, dict(sight.held)) == (second, {"per_g": first, "sizes": first})
        shutil.rmtree(store)
        number = next_death(calls, number)


def test_an_expectation_that_only_warns_is_reported_and_keeps_nothing_from_readers(shop: Shop) -> None:
    def suite(view: str, *items: tuple[str, str | None], severity: str | None = None) -> None:
        found = [
            {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": column, "value_set": [0]}}
            | ({"severity": s} if s else {})
            for column, s in items
        ]
        meta = {} if severity is None else {"severity": severity}
        (shop.folder / f"pipelines/shop/quality/{view}.json").write_text(
            json.dumps({"expectations": found, "meta": meta})
        )

    suite("per_g", ("c1", "warning"))
    suite("keys", ("k", None), severity="info")
    apply_suites(shop.meta, *read_suites(pipeline_of("shop").quality))
    first = shop.change((0, 0, 1))
    record = steps.judge("shop", first)
    assert record.passed
    shop.publish(first)
    second = shop.change((7, 3, 1))
    record = steps.judge("shop", second)
    assert (record.failed, [len(v.warnings) for v in record.views]) == ((), [1, 1])
    lines = "\n".join(record_lines(record))
    assert "per_g: 1 expectation over 2 rows, 1 failed, 1 of them only reported" in lines
    assert (
        "view 'per_g': expect_column_values_to_be_in_set(column='c1', value_set=[0]): found 1 of 2 rows, e.g. 3"
        in lines
    )
    done = {v.name: v for v in steps.publish("shop", second).views}
    assert {name: (v.quality, v.warnings) for name, v in done.items()} == {
        "per_g": (QualityVerdict.PASSED, 1),
        "sizes": (QualityVerdict.NONE, 0),
        "keys": (QualityVerdict.PASSED, 1),
    }
    shop.require(per_g=second, sizes=second, keys=second)
    assert "0 of 1 passed, 1 reported" in (shop.folder / "docs/index.html").read_text()
    suite("per_g", ("c1", "critical"), severity="warning")  # an expectation's own severity wins
    assert steps.judge("shop", second).failed == ("per_g",)


def test_a_suite_of_a_view_that_is_gone_is_named_and_holds_back_nothing(shop: Shop) -> None:
    (shop.folder / "pipelines/shop/quality/old.json").write_text('{"expectations": []}')
    first = shop.change((0, 0, 1))
    steps.judge("shop", first)
    steps.publish("shop", first)
    shop.require(per_g=first, sizes=first, keys=first)
    with pytest.raises(
        HeldViewsError,
        match=r"old\.json: found a suite of 'old', which is no view or table",
    ):
        steps.require_none_held_back("shop", first)


def test_an_unusable_suite_is_an_error_if_the_quality_check_judges_the_pipeline(shop: Shop) -> None:
    toml = shop.folder / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace('scope = "view"', 'scope = "pipeline"'))
    (shop.folder / "pipelines/shop/quality/per_g.json").write_text(BROKEN["an unknown severity"])
    epoch = shop.change((0, 0, 1))
    with pytest.raises(QualitySuiteError, match='expectation 1: severity "fatal", expected "error" or "warning"'):
        steps.judge("shop", epoch)
