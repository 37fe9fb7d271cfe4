"""The quality check on the command line and in a session: nothing that fails a suite is published. Needs no Spark."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark  # noqa: F401 (Great Expectations is imported once per process; other tests need it with Spark)
import pytest
from msgspec import UNSET

from tests.support.jobs.driver.embedded import append, insert
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.jobs.quality.hidden_views import apply_suites
from tussock.jobs import cli
from tussock.jobs.facts.quality import EpochQuality, quality_of_epoch
from tussock.jobs.operations.publish import publish_checked_epoch
from tussock.jobs.operations.quality import check_once, failure, find_refusal
from tussock.jobs.operations.store import open_pipeline
from tussock.jobs.quality.epoch_check import NoEpochYetError, NoSuiteError
from tussock.jobs.quality.record import (
    HeldViewsError,
    MissingRecordError,
    QualityVerdict,
    failure_lines,
    read_record,
    record_lines,
)
from tussock.jobs.quality.suite import read_suites
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.progress import no_progress

Row = tuple[int, int, int]


@dataclass
class Shop:
    """A pipeline `shop` with the view per_g (c1: the group, n: its rows) over the table t (k, g, w)."""

    folder: Path
    meta: MetaStore
    capture: pytest.CaptureFixture[str]

    def suite(self, view: str, *expectations: dict[str, Any], **meta: Any) -> None:
        document = {"expectations": list(expectations), "meta": meta}
        (self.folder / f"pipelines/shop/quality/{view}.json").write_text(json.dumps(document))

    def apply(self) -> None:
        """Maintain the suites from the next epoch on, as `tussock apply` does."""
        apply_suites(self.meta, *read_suites(load_pipeline(self.folder / "pipelines/shop").quality))

    def configure(self, more: str) -> None:
        file = self.folder / "pipelines/shop/pipeline.toml"
        file.write_text(file.read_text() + more)

    def run(self, *command: str) -> tuple[int, str]:
        """Run `tussock`; return its exit code and all that it printed."""
        try:
            code = cli.main(command)
        except SystemExit as err:  # of argparse
            code = int(str(err.code))
        printed = self.capture.readouterr()
        return code, printed.out + "".join(line for line in printed.err.splitlines(True) if "CPU s" not in line)

    @property
    def published(self) -> int:
        return open_meta(f"{self.folder}/store").read_latest().published


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shop:
    folder = tmp_path / "pipelines/shop"
    (folder / "quality").mkdir(parents=True)
    (folder / "views.sql").write_text("")
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[epoch]\nrunner = "auto"\n'
        f'[quality]\ndocs = "{tmp_path}/docs"\n'
    )
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    MetaStore.init(open_object_store(f"{tmp_path}/store"))
    meta = open_meta(f"{tmp_path}/store")
    append(meta, table("t"), view("per_g", counted(scan("t"), 1)))
    return Shop(tmp_path, meta, capsys)


AT_MOST_ONE = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 1}}


def test_an_epoch_that_fails_its_suite_is_committed_and_not_published_until_the_rows_are_right(shop: Shop) -> None:
    shop.suite("per_g", AT_MOST_ONE)
    shop.apply()
    insert(shop.meta, "t", (1, 7, 0))
    code, printed = shop.run("epoch", "--pipeline", "shop")
    first = shop.published
    assert (code, f"published epoch {first}" in printed) == (0, True), printed
    assert "per_g: 1 expectation over 1 row, 0 failed" in printed
    insert(shop.meta, "t", (2, 7, 0))
    code, printed = shop.run("epoch", "--pipeline", "shop")
    assert code == 1
    assert "did not pass the quality check and is not published; readers still see the previous epoch." in printed
    assert printed.count("expect_column_values_to_be_between(column='n', max_value=1): found 1 of 1 rows, e.g. 2") == 1
    assert "failing rows: c1=7, n=2" in printed
    assert shop.published == first
    again = shop.run("epoch", "--pipeline", "shop")
    assert again[0] == 1, "without new input, it fails again"
    assert "the current suites have already judged epoch" in again[1]
    shop.suite("per_g", AT_MOST_ONE, severity="warning")
    code, printed = shop.run("epoch", "--pipeline", "shop")
    assert (code, shop.published) == (0, shop.meta.read_latest().epoch), "the corrected suite judges the waiting epoch"
    assert shop.run("epoch", "--pipeline", "shop") == (0, f"no new input; the store is at epoch {shop.published}\n")


def test_no_check_publishes_what_fails_and_the_store_records_it(shop: Shop) -> None:
    shop.suite("per_g", AT_MOST_ONE)
    shop.apply()
    insert(shop.meta, "t", (1, 7, 0), (2, 7, 0))
    code, printed = shop.run("epoch", "--pipeline", "shop", "--no-check")
    assert (code, "expectations" in printed, shop.published) == (0, False, shop.meta.read_latest().epoch)
    record = read_record(shop.meta.objects, shop.published)
    assert record is not None
    assert (record.unchecked, record.verdict) == ("tussock epoch --no-check", QualityVerdict.NONE)
    _, status = shop.run("status", "--pipeline", "shop")
    status = " ".join(status.split())
    assert "was published without its quality checks, by tussock epoch --no-check ->" in status, status
    assert shop.run("epoch", "--pipeline", "shop", "--hold", "--no-check")[0] == 2
    store = open_pipeline(load_pipeline(shop.folder / "pipelines/shop"))
    assert publish_checked_epoch(store, shop.published).epoch == shop.published, (
        "as the task publish_views of this run, if cleared"
    )
    insert(shop.meta, "t", (3, 8, 0))
    shop.run("epoch", "--pipeline", "shop", "--hold")
    with pytest.raises(MissingRecordError):
        publish_checked_epoch(store, shop.meta.read_latest().epoch)


@pytest.mark.parametrize("scope", ["pipeline", "view"])
def test_an_epoch_that_is_judged_after_its_publish_is_nowhere_called_unpublished(shop: Shop, scope: str) -> None:
    """As by the task validate_views, cleared after `tussock epoch --no-check`, or after the suite was written."""
    shop.configure(f'scope = "{scope}"\n')
    shop.suite("per_g", AT_MOST_ONE)
    shop.apply()
    insert(shop.meta, "t", (1, 7, 0), (2, 7, 0))
    assert shop.run("epoch", "--pipeline", "shop", "--no-check")[0] == 0
    store, epoch = open_pipeline(load_pipeline(shop.folder / "pipelines/shop")), shop.published

    def quality(epoch: int) -> EpochQuality:
        return quality_of_epoch(epoch, read_record(store.meta.objects, epoch), {}, by_view=scope == "view")

    assert (quality(epoch).published_by, quality(epoch).verdict) == ("tussock epoch --no-check", QualityVerdict.NONE)
    for _ in range(2):  # the second time by the suite's new version, which fails as well
        record = check_once(store, epoch, no_progress)
        assert (record.seen, record.published_by) == (("per_g",), "tussock epoch --no-check")
        found = quality(epoch)
        assert (found.verdict, found.refused, found.published_by) == (
            QualityVerdict.FAILED,
            False,
            "tussock epoch --no-check",
        )
        assert [check.seen for check in found.checks] == [True]
        told = [str(HeldViewsError(record)), failure(store, epoch) or ""]
        for text in told:
            assert re.search("published by tussock epoch --no-check before this check", text), text
            assert not re.search("not published|previous (epoch|rows)", text), text
        shop.suite("per_g", AT_MOST_ONE, changed=True)
    expected = f"epoch {epoch} did not pass its suites, but was published by tussock epoch --no-check before they ran"
    assert find_refusal(store, epoch) == (expected if scope == "pipeline" else None)
    _, status = shop.run("status", "shop")
    assert "did not pass its suite" in status
    assert "not published" not in status
    shop.suite("per_g", AT_MOST_ONE | {"kwargs": {"column": "n", "max_value": 2}})
    shop.apply()
    insert(shop.meta, "t", (3, 7, 0))
    shop.run("epoch", "--pipeline", "shop")
    refused = shop.meta.read_latest().epoch
    record = read_record(store.meta.objects, refused)
    assert record is not None
    assert record.seen is UNSET
    assert quality(refused).refused == (scope == "pipeline"), "in view scope, all other views were published"
    shop.suite("per_g", AT_MOST_ONE | {"kwargs": {"column": "n", "max_value": 9}})
    shop.apply()
    insert(shop.meta, "t", (4, 7, 0))
    assert shop.run("epoch", "--pipeline", "shop")[0] == 0
    if scope == "pipeline":
        assert f"and was not published; readers see epoch {shop.published}." in (failure(store, refused) or "")


def test_in_view_scope_the_other_views_are_published_and_the_command_fails(shop: Shop) -> None:
    shop.configure('scope = "view"\n')
    append(shop.meta, view("per_w", counted(scan("t"), 2)))
    shop.suite("per_g", AT_MOST_ONE)
    shop.apply()
    insert(shop.meta, "t", (1, 7, 0), (2, 7, 1))
    code, printed = shop.run("epoch", "--pipeline", "shop")
    epoch = shop.meta.read_latest().epoch
    assert (code, shop.published) == (1, epoch)
    assert f"published epoch {epoch}" in printed
    assert "the suites of per_g failed. Readers keep seeing the previous rows of per_g and of the views that" in printed
    assert shop.run("read", "--pipeline", "shop", "per_w")[0] == 0
    assert shop.run("read", "--pipeline", "shop", "per_g")[0] == 1
    shop.suite("per_g", AT_MOST_ONE, severity="warning")
    assert shop.run("epoch", "--pipeline", "shop")[0] == 0, "the same epoch is judged again by the corrected suite"
    assert shop.run("read", "--pipeline", "shop", "per_g")[0] == 0


def test_check_prints_the_report_of_any_epoch_and_changes_nothing(shop: Shop) -> None:
    shop.suite("per_g", AT_MOST_ONE)
    shop.apply()
    with Session(f"{shop.folder}/store") as session, pytest.raises(NoEpochYetError):
        session.check(shop.folder / "pipelines/shop")
    insert(shop.meta, "t", (1, 7, 0))
    assert shop.run("epoch", "--pipeline", "shop", "--hold")[0] == 0
    good = shop.meta.read_latest().epoch
    assert shop.run("check", "shop") == (0, f"per_g: 1 expectation over 1 row, 0 failed\nepoch {good}: passed\n")
    insert(shop.meta, "t", (2, 7, 0))
    assert shop.run("epoch", "--pipeline", "shop", "--hold")[0] == 0
    bad = shop.meta.read_latest().epoch
    code, printed = shop.run("check", "shop")
    assert (code, printed.splitlines()) == (
        1,
        [
            "per_g: 1 expectation over 1 row, 1 failed",
            "  view 'per_g': expect_column_values_to_be_between(column='n', max_value=1): found 1 of 1 rows, e.g. 2",
            "    failing rows: c1=7, n=2",
            f"epoch {bad}: failed",
        ],
    )
    assert shop.run("check", "shop", "per_g", "--epoch", str(good))[0] == 0
    with Session(f"{shop.folder}/store") as session:
        record = session.check(shop.folder / "pipelines/shop", "per_g")
        with pytest.raises(NoSuiteError, match=r"Found suites of per_g\. Did you mean .per_g"):
            session.check(shop.folder / "pipelines/shop", "per_h")
    assert [*record_lines(record), *failure_lines(record)] == printed.splitlines()[:-1], "a session finds the same"
    assert read_record(shop.meta.objects, bad) is None
    assert not (shop.folder / "docs").exists()
    assert re.search("no suites", shop.run("check", "shop", "none")[1]) is None


def test_a_proposed_suite_passes_and_fails_for_worse_rows(shop: Shop) -> None:
    shop.configure("")
    insert(shop.meta, "t", (1, 7, 0), (2, 8, 0))
    assert shop.run("epoch", "--pipeline", "shop")[0] == 0
    code, printed = shop.run("check", "shop", "--propose", "per_g")
    assert (code, f"wrote {shop.folder}/pipelines/shop/quality/per_g.json" in printed) == (0, True), printed
    document = json.loads((shop.folder / "pipelines/shop/quality/per_g.json").read_text())
    assert [(e["type"], e["kwargs"]) for e in document["expectations"]] == [
        ("expect_table_row_count_to_be_between", {}),
        ("expect_column_values_to_be_unique", {"column": "c1"}),
        ("expect_column_values_to_not_be_null", {"column": "c1"}),
        ("expect_column_values_to_be_between", {"column": "c1", "min_value": 0}),
        ("expect_column_values_to_not_be_null", {"column": "n"}),
        ("expect_column_values_to_be_between", {"column": "n", "min_value": 0}),
    ]
    shop.apply()
    insert(shop.meta, "t", (4, 8, 0))
    assert shop.run("epoch", "--pipeline", "shop")[0] == 0
    assert shop.run("check", "shop")[0] == 0
    assert "exists, and was not changed" in shop.run("check", "shop", "--propose", "per_g")[1]
    insert(shop.meta, "t", (3, -9, 0))
    assert shop.run("epoch", "--pipeline", "shop")[0] == 1


MISTAKES = {
    "type": (
        {"type": "expect_column_values_to_be_betwen", "kwargs": {"column": "n", "min_value": 0}},
        "betwen', expected 'expect_column_values_to_be_between', the nearest known name",
    ),
    "argument": (
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_valu": 0}},
        "argument 'min_valu' of expect_column_values_to_be_between, expected 'min_value', the nearest known name",
    ),
    "missing argument": (
        {"type": "expect_column_values_to_be_between", "kwargs": {"min_value": 0}},
        "expect_column_values_to_be_between without 'column'",
    ),
    "column": (
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "n1"}},
        "column 'n1', which per_g lacks, expected 'n', the nearest known name",
    ),
    "columns": (
        {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": ["c1", "d"]}},
        "column 'd', which per_g lacks, expected one of its columns: c1, n",
    ),
    "bound": (
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": "0"}},
        """min_value "0" for column 'n' of type bigint, expected a number""",
    ),
    "no bound": (
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n"}},
        "expect_column_values_to_be_between without a bound, expected min_value or max_value",
    ),
    "bounds": (
        {"type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "min_value": 3, "max_value": 1}},
        "min_value 3 above max_value 1",
    ),
    "set": (
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "c1", "value_set": [1, "2"]}},
        """value "2" for column 'c1' of type int, expected a number""",
    ),
    "mostly": (
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "n", "mostly": 95}},
        "mostly 95, expected a share of the rows, from 0 to 1",
    ),
    "kind of column": (
        {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "n", "regex": "a"}},
        "column 'n' of type bigint, expected a column of strings",
    ),
    "severity": (
        {"type": "expect_column_to_exist", "kwargs": {"column": "n"}, "severity": "warn"},
        """severity "warn", expected "error" or "warning\"""",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_suite_is_named_by_plan_and_by_check_before_anything_runs(shop: Shop, name: str) -> None:
    item, message = MISTAKES[name]
    insert(shop.meta, "t", (1, 7, 0))
    assert shop.run("epoch", "--pipeline", "shop", "--hold")[0] == 0
    shop.suite("per_g", item)
    for command in (("plan", "shop"), ("apply", "shop"), ("check", "shop")):
        code, printed = shop.run(*command)
        assert (code, message in " ".join(printed.split())) == (1, True), printed
    assert read_record(shop.meta.objects, shop.meta.read_latest().epoch) is None


def test_a_suite_of_a_table_is_judged_and_one_of_nothing_is_named(shop: Shop) -> None:
    shop.suite("t", {"type": "expect_column_values_to_be_between", "kwargs": {"column": "k", "max_value": 1}})
    shop.apply()
    insert(shop.meta, "t", (1, 7, 0), (2, 7, 0))
    code, printed = shop.run("epoch", "--pipeline", "shop")
    assert (code, "view 't': expect_column_values_to_be_between(column='k', max_value=1): found 1 of 2" in printed) == (
        1,
        True,
    ), printed
    shop.suite("per_h")
    code, printed = shop.run("plan", "shop")
    assert (code, "a suite of 'per_h', which is no view or table, expected 'per_g', the nearest name" in printed) == (
        1,
        True,
    ), printed
