"""Measures of views answer suites that need all rows.

Their verdicts equal Great Expectations' own over all rows in Spark.
"""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.jobs.quality.measures import FILLED, MEAN, UNIQUE, VIEW, expectation, pipeline_in
from tests.support.spark_types import SparkSession
from tussock.jobs.catalog.definition import find
from tussock.jobs.driver.epoch import advance
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.operations.deploy import measures
from tussock.jobs.quality.gate import validate_epoch, without_spark
from tussock.jobs.quality.measured import measured
from tussock.jobs.quality.measures import EXPECTATIONS, measures_of, numbers_view, repeated_view
from tussock.jobs.quality.record import (
    record_lines,
)
from tussock.jobs.quality.rows import SparkRows
from tussock.jobs.quality.suite import QualitySuiteError, read_suite
from tussock.jobs.quality.suite_runs import SuiteFound, SuiteRuns
from tussock.jobs.reading.reader import relation_frame
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.statements.deployment import StepAction
from tussock.jobs.statements.statement_maker import ReservedNameError

#: Each kind of measure, some more than once; about half fail in some epochs.
ITEMS = [
    expectation("expect_table_row_count_to_be_between", min_value=45, max_value=60),
    expectation("expect_table_row_count_to_equal", value=50),
    expectation("expect_column_max_to_be_between", column="n", max_value=95),
    expectation("expect_column_max_to_be_between", column="price", max_value=90.5, strict_max=True),
    expectation("expect_column_min_to_be_between", column="amount", min_value=-10),
    expectation("expect_column_min_to_be_between", column="n", min_value=2),
    expectation("expect_column_mean_to_be_between", column="n", min_value=45, max_value=55),
    expectation("expect_column_mean_to_be_between", column="price", min_value=40),
    expectation("expect_column_sum_to_be_between", column="n", max_value=2400),
    expectation("expect_column_sum_to_be_between", column="amount", max_value=100),
    expectation("expect_column_sum_to_be_between", column="price", max_value=2400),
    expectation("expect_column_stdev_to_be_between", column="n", max_value=29),
    expectation("expect_column_stdev_to_be_between", column="amount", max_value=29),
    expectation("expect_column_unique_value_count_to_be_between", column="code", min_value=20),
    expectation("expect_column_unique_value_count_to_be_between", column="at", min_value=5),
    expectation("expect_column_proportion_of_unique_values_to_be_between", column="n", min_value=0.8),
    expectation("expect_column_proportion_of_non_null_values_to_be_between", column="n", min_value=0.9),
    expectation("expect_column_distinct_values_to_be_in_set", column="shop", value_set=["a", "b", "c"]),
    expectation("expect_column_distinct_values_to_contain_set", column="shop", value_set=["a", "b", "z"]),
    expectation("expect_column_distinct_values_to_equal_set", column="shop", value_set=["a", "b", "c", "d"]),
    expectation("expect_column_distinct_values_to_contain_set", column="n", value_set=[1, 2, 3]),
    expectation("expect_column_most_common_value_to_be_in_set", column="shop", value_set=["a", "b"], ties_okay=True),
    expectation("expect_column_values_to_be_unique", column="id"),
    expectation("expect_column_values_to_be_unique", column="code"),
    expectation("expect_column_values_to_be_unique", column="n", mostly=0.6),
    expectation("expect_compound_columns_to_be_unique", column_list=["shop", "code"]),
    expectation("expect_compound_columns_to_be_unique", column_list=["id", "shop"]),
    expectation("expect_column_values_to_not_be_null", column="n", mostly=0.95),
    expectation("expect_column_values_to_be_null", column="n", mostly=0.05),
    expectation("expect_column_values_to_be_between", column="n", min_value=5, mostly=0.95),
    expectation(
        "expect_column_values_to_be_between", column="n", min_value=50, max_value=90, strict_max=True, mostly=0.4
    ),
    expectation("expect_column_values_to_be_between", column="amount", min_value=-1.5, mostly=0.9),
    expectation("expect_column_values_to_be_in_set", column="shop", value_set=["a", "b", "c"], mostly=0.9),
    expectation("expect_column_values_to_not_be_in_set", column="n", value_set=[3, 4, 5], mostly=0.95),
    expectation("expect_column_value_lengths_to_be_between", column="code", min_value=2, mostly=0.8),
    expectation("expect_column_value_lengths_to_equal", column="code", value=2, mostly=0.8),
    expectation("expect_column_values_to_match_regex", column="code", regex="^k[0-9]+$", mostly=0.9),
    expectation("expect_column_values_to_not_match_regex", column="code", regex="[|]|\\d{2}", mostly=0.3),
]


def apply(session: Session, pipeline: Pipeline) -> list[tuple[StepAction, str]]:
    found = session.apply(pipeline.scripts(), derived=measures(pipeline))
    return [(step.action, step.what) for step in found.steps]


def by_spark(spark: SparkSession, session: Session, pipeline: Pipeline, epoch: int) -> SuiteFound:
    """The verdict of Great Expectations over all rows, in Spark."""
    assert pipeline.quality is not None
    (file,) = pipeline.quality.suites()
    suite = read_suite(file)
    with session.meta.reading(epoch) as version, SuiteRuns(pipeline.quality.docs.with_name("spark")) as gate:
        frame = relation_frame(spark, session.meta.objects.uri, version, find(version.catalog, suite.view), epoch)
        rows = frame.coalesce(1).cache()  # each expectation runs a query or two over them
        try:
            return gate.check(suite, suite.whole, SparkRows(rows), epoch, ["id"])
        finally:
            rows.unpersist()


def change(chance: random.Random, session: Session, rows: set[int]) -> None:
    """Some inserts, deletes and updates. Sums of doubles are exact, so the order of rows does not matter to Spark."""

    def literal(value: Any) -> str:
        return "NULL" if value is None else repr(value) if not isinstance(value, Decimal) else str(value)

    def row(id_: int) -> str:
        n = chance.choice([None, *range(1, 100)])
        values = [id_, chance.choice(["a", "b", "c", "d", None]), chance.choice(["2024-01-01", "2024-02-29", None])]
        values += [n, chance.choice([None, chance.randrange(-80, 81) / 4]), Decimal(chance.randrange(10_000)) / 100]
        values += [chance.choice([None, "k", f"k{chance.randrange(40)}", "x|1"])]
        return f"({', '.join(map(literal, values))})"

    if rows and (gone := chance.sample(sorted(rows), len(rows) // 5)):
        session.execute(f"DELETE FROM sales WHERE id IN ({', '.join(map(str, gone))})")
        rows -= {*gone}
    new = [i for i in chance.sample(range(200), 25 if rows else 55) if i not in rows]
    session.execute(f"INSERT INTO sales VALUES {', '.join(map(row, new))}")
    rows |= {*new}
    session.execute(f"UPDATE sales SET n = n + 7, code = concat(code, '1') WHERE id % 7 = {chance.randrange(7)}")


@pytest.mark.spark
@pytest.mark.parametrize("epochs", [2, pytest.param(20, marks=pytest.mark.deep)])
@pytest.mark.sampled(2)
def test_measures_of_a_view_equal_great_expectations_over_all_rows(
    spark: SparkSession, tmp_path: Path, epochs: int
) -> None:
    """The last epoch leaves no row."""
    assert {item["type"] for item in ITEMS} == EXPECTATIONS
    pipeline, chance, rows = pipeline_in(tmp_path, ITEMS, maintain=True), random.Random(4), set[int]()
    failed: dict[str, int] = {}
    with Session(pipeline.store, spark) as session:
        apply(session, pipeline)
        for number in range(epochs):
            if number == epochs - 1:
                session.execute("DELETE FROM sales")
                rows.clear()
            else:
                change(chance, session, rows)
            epoch = session.flush().epoch
            record = validate_epoch(without_spark, session.meta, pipeline, epoch)
            (here,) = record.views
            assert here.maintained == len(ITEMS)
            there = by_spark(spark, session, pipeline, epoch)
            assert {f.expectation for f in here.failures} == {f.expectation for f in there.failures}
            theirs = {m.expectation: m.value for m in there.metrics}
            for metric in here.metrics:
                value = theirs.pop(metric.expectation)
                assert metric.value == (value if value is None else pytest.approx(value, rel=1e-12)), metric
            assert not theirs
            assert here.rows == there.rows == len(rows)
            for mine, its in zip(sorted(here.failures, key=str), sorted(there.failures, key=str), strict=True):
                mine_seen, its_seen = (f.observed.split(", e.g.")[0].split(" of ")[-1] for f in (mine, its))
                if "stdev" in mine.expectation and rows:  # Spark rounds it with each row, in the order of reading
                    mine_seen, its_seen = f"{float(mine_seen):.12g}", f"{float(its_seen):.12g}"
                assert mine_seen == its_seen
            for failure in here.failures:
                failed[failure.expectation] = failed.get(failure.expectation, 0) + 1
    assert len(failed) > len(ITEMS) // 2, "or too little of it can fail"


MEDIAN = expectation("expect_column_median_to_be_between", column="n", min_value=1)
NUMBERS, REPEATED = f"view {numbers_view('kept')}", f"view {repeated_view('kept', ['code'])}"


@pytest.mark.spark
def test_measures_come_and_go_with_their_suite_and_view(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps() -> list[tuple[StepAction, str]]:
        return [
            step for step in apply(session, pipeline) if "__quality__" in step[1] and step[0] is not StepAction.NONE
        ]

    pipeline = pipeline_in(tmp_path, [UNIQUE, MEAN])
    with Session(pipeline.store, spark) as session:
        assert steps() == [], "the view is new, and so it is small"
        session.execute(
            "INSERT INTO sales SELECT id, 'a', NULL, 20, 1.5, 1.25, concat('k', id) FROM VALUES (1), (2), (3) AS t(id)"
        )
        session.flush()
        monkeypatch.setattr("tussock.jobs.quality.measures.SMALL_VIEW_ROWS", 2)
        assert steps() == [(StepAction.CREATE, NUMBERS), (StepAction.CREATE, REPEATED)]
        session.flush()
        assert steps() == []
        (shown,) = session.execute("SHOW MATERIALIZED VIEWS")
        assert shown.table is not None
        assert shown.table["name"].to_pylist() == ["kept"]

        monkeypatch.setattr("tussock.jobs.quality.measures.SMALL_VIEW_ROWS", 100)
        pipeline_in(tmp_path, [MEAN])
        assert steps() == [(StepAction.CHANGE, NUMBERS), (StepAction.DROP, REPEATED)], (
            "needed measures stay, and the others are dropped"
        )
        pipeline_in(tmp_path, [MEAN], scan="full")
        assert steps() == [(StepAction.DROP, NUMBERS)]
        pipeline_in(tmp_path, [UNIQUE, MEAN], maintain=True)
        assert steps() == [(StepAction.CREATE, NUMBERS), (StepAction.CREATE, REPEATED)]
        session.flush()

        (pipeline.folder / "views.sql").write_text(VIEW.replace("n < 1000", "n < 2000"))
        assert steps() == [(StepAction.FOLLOW, NUMBERS), (StepAction.FOLLOW, REPEATED)]
        epoch = session.flush().epoch
        (view,) = validate_epoch(without_spark, session.meta, pipeline, epoch).views
        assert (view.maintained, view.rows, view.failures) == (2, 3, ())
        session.execute("DROP MATERIALIZED VIEW kept")
        session.flush()
        assert [r.name for r in session.meta.latest().catalog.live()] == ["sales"]
        (pipeline.folder / "views.sql").write_text("CREATE TABLE other (id INT, PRIMARY KEY (id))")
        with pytest.raises(QualitySuiteError, match=r"kept.json: found a suite of 'kept', which is no view or table"):
            apply(session, pipeline)


@pytest.mark.spark
def test_a_large_view_is_read_only_for_expectations_without_measures(spark: SparkSession, tmp_path: Path) -> None:
    """A median reads all rows, a rule on rows only changed ones, the others none. A warning does not change that."""
    warned = {**UNIQUE, "severity": "warning"}
    pipeline = pipeline_in(tmp_path, [MEAN, MEDIAN, FILLED, warned], maintain=True)
    with Session(pipeline.store, spark) as session:
        apply(session, pipeline)
        session.execute("INSERT INTO sales SELECT id, 'a', NULL, id, 1.5, 1.25, 'k' FROM range(50) AS t(id)")
        epoch = session.flush().epoch  # published, so that the next check reads only the difference
        (view,) = validate_epoch(lambda _: spark, session.meta, pipeline, epoch, small_view_rows=10).views
        assert (view.maintained, view.scanned, view.rows) == (2, 2, 50), "the first check reads all rows"
        assert [w.observed for w in view.warnings] == ["50 of 50 rows, e.g. " + ", ".join("k" * 10)]
        session.execute("UPDATE sales SET shop = NULL WHERE id = 7")
        (run,) = advance(SparkRunner(spark), session.meta)
        record = validate_epoch(lambda _: spark, session.meta, pipeline, run.epoch, small_view_rows=10)
        (view,) = record.views
        assert (view.maintained, view.scanned) == (2, 1)
        assert [(f.expectation, f.observed) for f in view.failures] == [
            ("expect_column_values_to_not_be_null(column='shop')", "1 of 1 rows, e.g. None")
        ]
        assert {"  2 of them answered by maintained measures, no row read", "  1 of them read all rows"} <= {
            *record_lines(record)
        }


@pytest.mark.spark
def test_measures_that_do_not_match_the_suite_are_not_used(spark: SparkSession, tmp_path: Path) -> None:
    """All rows are read if the suite was changed but not applied, a measure is paused, or a sum exceeds its type."""
    total = expectation("expect_column_sum_to_be_between", column="price", min_value=0)
    pipeline = pipeline_in(tmp_path, [MEAN, total], maintain=True)
    with Session(pipeline.store, spark) as session:
        apply(session, pipeline)
        session.execute("INSERT INTO sales SELECT id, 'a', NULL, 20, 1.5, 1.25, 'k' FROM range(3) AS t(id)")
        epoch = session.flush().epoch

        def maintained() -> int:
            (view,) = validate_epoch(lambda _: spark, session.meta, pipeline, epoch, small_view_rows=0).views
            assert view.failures == ()
            return view.maintained

        assert maintained() == 2
        pipeline_in(
            tmp_path,
            [MEAN, total, expectation("expect_column_max_to_be_between", column="n", max_value=99)],
            maintain=True,
        )
        assert maintained() == 0
        pipeline_in(tmp_path, [MEAN, total], maintain=True)
        assert maintained() == 2
        assert pipeline.quality is not None
        suite = read_suite(pipeline.quality.suites()[0])
        with session.meta.reading(epoch) as version:
            there = {r.name: r for r in version.catalog.at(epoch)}
            wanted = measures_of(suite, there["kept"])
            assert measured(session.meta.objects, version, there, there["kept"], wanted, epoch) is not None
            paused = {name: msgspec.structs.replace(r, paused=epoch) if r.internal else r for name, r in there.items()}
            assert measured(session.meta.objects, version, paused, there["kept"], wanted, epoch) is None
            other = msgspec.structs.replace(
                there["kept"], id=99
            )  # another view of that name: these are not its measures
            assert measured(session.meta.objects, version, there, other, wanted, epoch) is None


@pytest.mark.spark
def test_a_rule_is_compared_with_its_earlier_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Rows within 30 % of the median of the last four published runs. A failed run does not count."""
    rule = {
        "type": "expect_table_row_count_to_be_between",
        "kwargs": {},
        "meta": {"history": {"runs": 4, "within": 0.3}},
    }
    pipeline = pipeline_in(tmp_path, [rule], maintain=True)
    seen = []
    with Session(pipeline.store, spark) as session:
        apply(session, pipeline)
        for first, last in ((0, 100), (100, 300), (300, 310), (310, 330), (330, 900), (900, 901)):
            session.execute(
                f"INSERT INTO sales SELECT id, 'a', NULL, 1, 1.5, 1.25, 'k' FROM range({first}, {last}) AS t(id)"
            )
            (run,) = advance(SparkRunner(spark), session.meta)
            record = validate_epoch(without_spark, session.meta, pipeline, run.epoch)
            assert validate_epoch(without_spark, session.meta, pipeline, run.epoch) == record
            if record.passed:
                session.meta.publish(run.epoch)
                assert validate_epoch(without_spark, session.meta, pipeline, run.epoch) == record, (
                    "also once it is published"
                )
            (view,) = record.views
            seen.append((view.metrics[0].value, view.metrics[0].earlier, [f.observed for f in view.failures]))
    said = "; the last 4 runs and a tolerance of 30% allow {}"
    assert seen == [
        (100, (), []),
        (300, (100,), []),
        (310, (300, 100), []),
        (330, (310, 300, 100), []),
        (900, (330, 310, 300, 100), [f"900{said.format('213 to 396')}"]),
        (901, (330, 310, 300, 100), [f"901{said.format('213 to 396')}"]),
    ]


def verdicts(spark: SparkSession, session: Session, pipeline: Pipeline, epoch: int) -> list[dict[str, Any]]:
    """The failures of each suite, and every number."""
    views = validate_epoch(lambda _: spark, session.meta, pipeline, epoch).views
    return [
        {"failed": {f.expectation for f in v.failures}, **{m.expectation: m.value for m in v.metrics}} for v in views
    ]


@pytest.mark.spark
@pytest.mark.deep
def test_measures_change_no_verdict_with_any_column_names(spark: SparkSession, tmp_path: Path) -> None:
    """Two views of the same rows, one with measures. For the other, Great Expectations reads every row.

    Some columns' names are equal when joined by underscores; others are named like the columns of measures.
    """
    columns = ["a", "b", "a__b", "c", "b__c", "rows", "value", "c0"]
    names = ", ".join(f"`{name}`" for name in columns)
    rows = [(1, 1, None, 7, 1, 5, 5, 1), (2, 1, None, 7, 2, 5, 6, 2), (2, 2, 3, 7, 3, 6, 7, 2)]
    items = [
        expectation("expect_column_values_to_not_be_null", column="a__b", mostly=0.9),
        expectation("expect_compound_columns_to_be_unique", column_list=["a", "b"]),
        expectation("expect_compound_columns_to_be_unique", column_list=["a", "b__c"]),
        expectation("expect_compound_columns_to_be_unique", column_list=["a__b", "c"]),
        expectation("expect_compound_columns_to_be_unique", column_list=["rows", "c0"]),
        expectation("expect_column_distinct_values_to_be_in_set", column="rows", value_set=[5]),
        expectation("expect_column_distinct_values_to_be_in_set", column="value", value_set=[5, 6, 7]),
    ]
    pipeline = pipeline_in(tmp_path, items, maintain=True)
    pipeline_in(tmp_path, items, "plain", maintain=False)
    table = f"CREATE TABLE t (id INT, {', '.join(f'`{name}` INT' for name in columns)}, PRIMARY KEY (id));\n"
    views = "".join(f"CREATE MATERIALIZED VIEW {view} AS SELECT id, {names} FROM t;\n" for view in ("kept", "plain"))
    (pipeline.folder / "views.sql").write_text(table + views)
    with Session(pipeline.store, spark) as session:
        apply(session, pipeline)
        values = ", ".join(str((n, *row)).replace("None", "NULL") for n, row in enumerate(rows))
        session.execute(f"INSERT INTO t VALUES {values}")
        kept, plain = verdicts(spark, session, pipeline, session.flush().epoch)
        assert kept == plain
        assert len(plain["failed"]) == 3
        with pytest.raises(ReservedNameError, match="__quality__kept"):
            session.execute("CREATE MATERIALIZED VIEW __quality__kept AS SELECT * FROM t")
