"""The quality check over Spark DataFrames: passing and failing suites, their reports, and unusable suites."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from tussock.jobs.barriers.detour import Detour
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.quality.epoch_check import check_epoch
from tussock.jobs.quality.index import SuiteResult, add_results
from tussock.jobs.quality.record import (
    SAMPLE_KEYS,
    Failure,
    Metric,
    QualityCheckError,
    QualityRecord,
    ViewQuality,
    stays_published,
)
from tussock.jobs.quality.rows import SparkRows
from tussock.jobs.quality.suite import QualitySuiteError, read_suite
from tussock.jobs.quality.suite_runs import SuiteFound, SuiteRuns
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.retention import Retention
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.upkeep.compaction import compact_store
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.statestore.errors import InputError

pytestmark = pytest.mark.spark
EPOCH = 1_357_084_800_000 << 16  # 2013-01-02


def expectation(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs, "meta": {}}


def suite(folder: Path, *expectations: dict[str, Any], key: list[str] | None = None) -> Path:
    file = folder / "delays.json"
    file.write_text(json.dumps({"name": "delays", "expectations": expectations, "meta": {"key": key} if key else {}}))
    return file


def checked(suite_runs: SuiteRuns, rows: DataFrame, file: Path, key: list[str], epoch: int = EPOCH) -> SuiteFound:
    read = read_suite(file)
    with suite_runs:
        return suite_runs.check(read, read.whole, SparkRows(rows), epoch, key)


@pytest.fixture
def suite_runs(tmp_path: Path) -> SuiteRuns:
    return SuiteRuns(tmp_path / "docs")


@pytest.fixture(scope="module")
def delays(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [("AA", 1, 4.0), ("B6", 1, None), ("UA", 2, -3.0)], "carrier string, month int, delay double"
    )


def test_a_view_that_meets_its_suite_passes_and_gets_a_page(
    suite_runs: SuiteRuns, delays: DataFrame, tmp_path: Path
) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_be_unique", column="carrier"))
    metric = Metric("expect_column_values_to_be_unique(column='carrier')", 0.0)
    assert checked(suite_runs, delays, file, ["carrier"]) == SuiteFound(rows=3, failures=(), metrics=(metric,))
    (page,) = (tmp_path / "docs/validations/delays").rglob("*.html")
    assert f"epoch-{EPOCH}" in str(page)
    index = (tmp_path / "docs/index.html").read_text()
    assert f'href="{page.relative_to(tmp_path / "docs")}">all 1 passed</a>' in index
    assert "<script" not in index
    assert "http" not in index


def test_the_index_lists_every_epochs_result_once_the_newest_first(tmp_path: Path) -> None:
    first = SuiteResult(EPOCH, "delays", "delays", 3, 2, 1, "validations/a.html")
    later = SuiteResult(EPOCH + (86_400_000 << 16), "delays", "<delays>", 1_234, 2, 0, 'b".html')
    for result in (first, later, msgspec.structs.replace(first, failed=0), first):
        add_results(tmp_path, [result])
    index = (tmp_path / "index.html").read_text()
    assert index.index("all 2 passed") < index.index("1 of 2 failed")
    assert index.count("<tr><td>") == 2
    assert "<td>&lt;delays&gt;</td>" in index
    assert 'href="b&quot;.html"' in index
    assert sorted(file.name for file in tmp_path.iterdir()) == ["index.html", "results.jsonl"]


def test_a_failing_expectation_is_reported_with_its_finding_and_the_keys_of_rows(
    suite_runs: SuiteRuns, delays: DataFrame, tmp_path: Path
) -> None:
    file = suite(
        tmp_path,
        expectation("expect_column_values_to_be_between", column="delay", min_value=0),
        expectation("expect_table_row_count_to_be_between", min_value=10),
        expectation("expect_column_values_to_not_be_null", column="carrier"),
    )
    found = checked(suite_runs, delays, file, ["carrier", "month"])
    assert found.failures == (
        Failure(
            "expect_column_values_to_be_between(column='delay', min_value=0)",
            "1 of 3 rows, e.g. -3.0",
            ({"carrier": "UA", "month": "2", "delay": "-3.0"},),
        ),
        Failure("expect_table_row_count_to_be_between(min_value=10)", "3"),
    )
    record = QualityRecord(EPOCH, (ViewQuality("delays", found.rows, 3, found.failures),))
    assert not record.passed
    message = str(QualityCheckError(record))
    assert (
        f"epoch {EPOCH} did not pass the quality check and is not published; readers still see the previous epoch."
        in message
    )
    assert (
        "view 'delays': expect_column_values_to_be_between(column='delay', min_value=0): found 1 of 3 rows, e.g. -3.0"
        in message
    )
    assert "failing rows: carrier=UA, month=2, delay=-3.0" in message


def test_quantiles_and_distributions_are_judged_over_all_rows(
    suite_runs: SuiteRuns, spark: SparkSession, tmp_path: Path
) -> None:
    ranges = {"quantiles": [0.5, 0.9], "value_ranges": [[40, 60], [None, 80]]}
    bins = {"bins": [0, 50, 100], "weights": [0.5, 0.5]}
    file = suite(
        tmp_path,
        expectation("expect_column_quantile_values_to_be_between", column="id", quantile_ranges=ranges),
        expectation("expect_column_median_to_be_between", column="id", min_value=40, max_value=60),
        expectation("expect_column_kl_divergence_to_be_less_than", column="id", partition_object=bins, threshold=0.1),
        expectation("expect_column_value_z_scores_to_be_less_than", column="id", threshold=3, double_sided=True),
        expectation("expect_column_distinct_values_to_be_in_set", column="id", value_set=list(range(99))),
    )
    found = checked(suite_runs, spark.range(100).toDF("id"), file, ["id"])
    failure, beside = found.failures
    assert beside.observed == "1 distinct values, e.g. 99"
    assert failure.expectation.startswith("expect_column_quantile_values_to_be_between(column='id'")
    assert "'values': [49, 89]" in failure.observed or "'values': [49.0, 89.0]" in failure.observed, failure
    (page,) = (tmp_path / "docs/validations/delays").rglob("*.html")
    assert "1 distinct values, e.g. 99" in page.read_text()


def test_the_key_of_the_suite_takes_precedence_over_the_views_key(
    suite_runs: SuiteRuns, delays: DataFrame, tmp_path: Path
) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_not_be_null", column="delay"), key=["month"])
    assert checked(suite_runs, delays, file, ["carrier"]).failures[0].keys == ({"month": "1", "delay": "None"},)


def test_a_view_of_many_failing_rows_names_a_sample(suite_runs: SuiteRuns, spark: SparkSession, tmp_path: Path) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_be_between", column="id", max_value=-1))
    (failure,) = checked(suite_runs, spark.range(500).toDF("id"), file, ["id"]).failures
    assert failure.observed.startswith("500 of 500 rows")
    assert len(failure.keys) == SAMPLE_KEYS


def test_an_empty_view_passes_expectations_that_do_not_depend_on_its_size(
    suite_runs: SuiteRuns, delays: DataFrame, tmp_path: Path
) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_not_be_null", column="delay"))
    found = checked(suite_runs, delays.limit(0), file, ["carrier"])
    assert (found.rows, found.failures) == (0, ())


def test_later_epochs_add_pages_to_the_same_docs(delays: DataFrame, tmp_path: Path) -> None:
    file = suite(tmp_path, expectation("expect_column_values_to_not_be_null", column="carrier"))
    for day in (0, 1):
        checked(SuiteRuns(tmp_path / "docs"), delays, file, ["carrier"], EPOCH + (day * 86_400_000 << 16))
    assert len(list((tmp_path / "docs/validations/delays").rglob("*.html"))) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "found a list without this list"),
        (
            '{"expectations": [], "meta": {"key": "carrier"}}',
            'found meta.key "carrier", expected a list of column names',
        ),
        ('{"expectations": [], "meta": {"scan": "some"}}', 'found meta.scan "some", expected "full" or no value'),
        ('{"expectations": [{"kwargs": {}}]}', 'found expectation 1: {"kwargs": {}}'),
        ('{"expectations": [{"type": "expect_wonders", "kwargs": {}}]}', "expect_wonders"),
        ('{"expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"colum": "delay"}}]}', "column"),
    ],
)
def test_a_suite_that_cannot_be_used_is_named_with_the_reason(
    suite_runs: SuiteRuns, delays: DataFrame, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "delays.json"
    file.write_text(text)
    with pytest.raises(QualitySuiteError) as caught:
        checked(suite_runs, delays, file, ["carrier"])
    assert str(caught.value).startswith(f"{file}: found ")
    assert message in str(caught.value)


def test_a_record_survives_the_store() -> None:
    record = QualityRecord(
        EPOCH, (ViewQuality("delays", 3, 1, (Failure("expect_x()", "1 of 3", ({"carrier": "UA"},)),)),)
    )
    assert msgspec.json.decode(msgspec.json.encode(record), type=QualityRecord) == record


def test_a_validation_continues_during_compaction_and_vacuum_of_its_view(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pipelines/shop"
    (folder / "quality").mkdir(parents=True)
    (folder / "quality/dear.json").write_text(
        json.dumps({"expectations": [expectation("expect_column_values_to_be_unique", column="id")]})
    )
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[quality]\ndocs = "{tmp_path}/docs"\n'
    )
    with Session(f"{tmp_path}/store", spark) as session:
        meta = session.meta
        session.execute("CREATE TABLE items (id int, price int, PRIMARY KEY (id))")
        session.execute("CREATE MATERIALIZED VIEW dear AS SELECT id, price FROM items WHERE price < 100")
        for start in (0, 20, 40):
            session.execute("INSERT INTO items VALUES " + ", ".join(f"({i}, {i})" for i in range(start, start + 20)))
            (summary,) = advance_store(SparkRunner(spark), meta)
        meta.publish(summary.epoch)
        read = {sst.name for level in meta.read_latest().levels for sst in level}
        check = SuiteRuns.check

        def check_later(suite_runs: SuiteRuns, *given: Any) -> SuiteFound:
            """The frame exists, but none of it has been read yet."""
            other = open_meta(f"{tmp_path}/store")
            assert [task.outcome for task in compact_store(other, full=True)] == ["merged"]
            session.execute("DELETE FROM items WHERE id = 1")
            (later,) = advance_store(SparkRunner(spark), other)
            other.publish(later.epoch)
            clean_store(other, Retention(keep_ms=0))
            assert {sst.name for level in other.read_latest().levels for sst in level}.isdisjoint(read)
            return check(suite_runs, *given)

        monkeypatch.setattr(SuiteRuns, "check", check_later)
        (view,) = check_epoch(lambda _: spark, meta, load_pipeline(folder), summary.epoch).views
        assert (view.rows, view.failures) == (60, ())
        assert meta.all_pins() == ()
        clean_store(meta, Retention(keep_ms=0))
        assert read.isdisjoint(found.name for found in meta.objects.list("data/"))


def pipeline_whose(view: str, column: str, tmp_path: Path) -> Pipeline:
    """A pipeline with one suite: the view's column has no negative value."""
    folder = tmp_path / "pipelines/shop"
    (folder / "quality").mkdir(parents=True)
    (folder / f"quality/{view}.json").write_text(
        json.dumps({"expectations": [expectation("expect_column_values_to_be_between", column=column, min_value=0)]})
    )
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[quality]\ndocs = "{tmp_path}/docs"\n'
    )
    return load_pipeline(folder)


def test_a_paused_view_is_checked_only_if_its_rows_were_never_published(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = pipeline_whose("price", "each", tmp_path)
    with Session(pipeline.store, spark) as session:
        meta = session.meta
        session.execute(
            "CREATE TABLE items (id int, price int, n int, PRIMARY KEY (id)); INSERT INTO items VALUES (1, 6, 2)"
        )
        session.execute("CREATE MATERIALIZED VIEW price AS SELECT id, price div n AS each FROM items")
        first = session.flush()
        session.execute("INSERT INTO items VALUES (2, -6, 2)")
        (second,) = advance_store(SparkRunner(spark), meta)  # held back, so not published
        session.execute("INSERT INTO items VALUES (3, 1, 0)")
        with pytest.raises(InputError, match="view 'price'"):
            advance_store(SparkRunner(spark), meta)
        abandon_barrier(meta, Detour(pause=("price",)))
        (third,) = advance_store(SparkRunner(spark), meta)
        record = check_epoch(lambda _: spark, meta, pipeline, third.epoch)
        assert [len(view.failures) for view in record.views] == [1], "the row of the epoch that was held is still there"
        assert record.paused == ()
        (view,) = (relation for relation in meta.read_latest().catalog.live_relations() if relation.name == "price")
        assert not stays_published(meta.read_latest(), view, third.epoch)

        meta.publish(second.epoch)  # manually, like `tussock epoch`
        record = check_epoch(lambda _: spark, meta, pipeline, third.epoch)
        assert (record.views, record.paused, record.passed) == ((), ("price",), True)
        with meta.open_for_reading(first.epoch) as version:
            assert not stays_published(version, view, first.epoch), "then it was not paused"
