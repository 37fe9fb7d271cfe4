"""Hidden views answer suites. Their verdicts equal those of Great Expectations over all rows in Spark."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from tests.support.jobs.quality.measures import FILLED, ITEMS, MEAN, UNIQUE, VIEW, expectation, pipeline_in, where
from tests.support.spark_types import SparkSession
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.operations.deploy import derive_measures
from tussock.jobs.quality.epoch_check import check_epoch, refuse_spark
from tussock.jobs.quality.expectations import EXPECTATIONS, Duplicates, IgnoredRows
from tussock.jobs.quality.measured import NOT_MAINTAINED, MeasureReader
from tussock.jobs.quality.measures import (
    Measures,
    failing_view,
    find_measures,
    numbers_view,
    repeated_view,
    select_statements,
)
from tussock.jobs.quality.record import SAMPLE_KEYS, JudgedBy, ViewQuality
from tussock.jobs.quality.rows import SparkRows
from tussock.jobs.quality.suite import QualitySuiteError, read_suite
from tussock.jobs.quality.suite_runs import SuiteFound, SuiteRuns
from tussock.jobs.reading.reader import relation_frame
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.statements.deployment import DeployOptions, StepAction
from tussock.jobs.statements.statement_maker import ReservedNameError
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind


def apply(session: Session, pipeline: Pipeline) -> list[tuple[StepAction, str]]:
    found = session.apply(pipeline.read_scripts(), DeployOptions(derived=derive_measures(pipeline)))
    return [(step.action, step.what) for step in found.steps]


def by_spark(spark: SparkSession, session: Session, pipeline: Pipeline, epoch: int) -> SuiteFound:
    """The verdict of Great Expectations over all rows, in Spark."""
    assert pipeline.quality is not None
    (file,) = pipeline.quality.list_suites()
    suite = read_suite(file)
    with (
        session.meta.open_for_reading(epoch) as version,
        SuiteRuns(pipeline.quality.docs.with_name("spark")) as suite_runs,
    ):
        frame = relation_frame(
            spark, session.meta.objects.uri, version, find_relation(version.catalog, suite.view), epoch
        )
        rows = frame.coalesce(1).cache()  # each expectation runs a query or two over them
        try:
            return suite_runs.check(suite, suite.whole, SparkRows(rows), epoch, ["id"])
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


#: Numbers of no value, for which Great Expectations' engines differ.
NO_ROWS = ("median", "quantile")


@pytest.mark.spark
@pytest.mark.parametrize("epochs", [2, pytest.param(20, marks=pytest.mark.deep)])
@pytest.mark.sampled(2)
def test_hidden_views_answer_as_great_expectations_over_all_rows(
    spark: SparkSession, tmp_path: Path, epochs: int
) -> None:
    """The last epoch leaves no row."""
    assert {item["type"] for item in ITEMS} == {*EXPECTATIONS}
    pipeline, chance, rows = pipeline_in(tmp_path, ITEMS), random.Random(4), set[int]()
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
            (here,) = check_epoch(refuse_spark, session.meta, pipeline, epoch).views
            there = by_spark(spark, session, pipeline, epoch)
            require_same(here, there, empty=not rows)
            assert here.rows == there.rows == len(rows)
            for failure in here.failures:
                failed[failure.expectation] = failed.get(failure.expectation, 0) + 1
    assert len(failed) > len(ITEMS) // 2, "or too little of it can fail"


def require_same(here: ViewQuality, there: SuiteFound, *, empty: bool) -> None:
    """Verdicts, numbers, and the failing rows if the report has all of them, are those of Spark."""
    theirs = {failure.expectation: failure for failure in there.failures}
    mine = {failure.expectation: failure for failure in here.failures}
    if empty:
        mine, theirs = ({k: v for k, v in each.items() if not any(n in k for n in NO_ROWS)} for each in (mine, theirs))
    assert mine.keys() == theirs.keys()
    numbers = {metric.expectation: metric.value for metric in there.metrics}
    for metric in here.metrics:
        assert metric.place == JudgedBy.MAINTAINED
        value = numbers.pop(metric.expectation)
        if not (empty and any(name in metric.expectation for name in NO_ROWS)):
            assert metric.value == (value if value is None else pytest.approx(value, rel=1e-12)), metric
    assert not numbers
    for text, failure in mine.items():
        seen, expected = (one.observed.split(", e.g.")[0].split(" of ")[-1] for one in (failure, theirs[text]))
        if "stdev" in text and not empty:  # Spark rounds it with each row, in the order of reading
            seen, expected = f"{float(seen):.12g}", f"{float(expected):.12g}"
        assert seen == expected
        if 0 < len(failure.keys) < SAMPLE_KEYS and "unique" not in text:
            assert sorted(map(str, failure.keys)) == sorted(map(str, theirs[text].keys)), text


Z_SCORES = expectation("expect_column_value_z_scores_to_be_less_than", column="n", threshold=99, double_sided=True)


NUMBERS, FAILING = f"view {numbers_view('kept', '')}", f"view {failing_view('kept', '')}"


REPEATED = f"view {repeated_view('kept', '', Duplicates(('code',), IgnoredRows.ANY_MISSING))}"


@pytest.mark.spark
def test_measures_come_and_go_with_their_suite_and_view(spark: SparkSession, tmp_path: Path) -> None:
    def steps() -> list[tuple[StepAction, str]]:
        return [
            step for step in apply(session, pipeline) if "__quality__" in step[1] and step[0] is not StepAction.NONE
        ]

    pipeline = pipeline_in(tmp_path, [UNIQUE, MEAN])
    with Session(pipeline.store, spark) as session:
        assert steps() == [(StepAction.CREATE, NUMBERS), (StepAction.CREATE, REPEATED)]
        session.execute(
            "INSERT INTO sales SELECT id, 'a', NULL, 20, 1.5, 1.25, concat('k', id) FROM VALUES (1), (2), (3) AS t(id)"
        )
        session.flush()
        assert steps() == []
        (shown,) = session.execute("SHOW MATERIALIZED VIEWS")
        assert shown.table is not None
        assert shown.table["name"].to_pylist() == ["kept"]

        pipeline_in(tmp_path, [MEAN, FILLED])
        assert steps() == [(StepAction.CHANGE, NUMBERS), (StepAction.CREATE, FAILING), (StepAction.DROP, REPEATED)]
        pipeline_in(tmp_path, [MEAN], scan="full")
        assert {*steps()} == {(StepAction.DROP, NUMBERS), (StepAction.DROP, FAILING)}
        pipeline_in(tmp_path, [UNIQUE, MEAN])
        assert steps() == [(StepAction.CREATE, NUMBERS), (StepAction.CREATE, REPEATED)]
        session.flush()

        (pipeline.folder / "views.sql").write_text(VIEW.replace("n < 1000", "n < 2000"))
        assert steps() == [(StepAction.FOLLOW, NUMBERS), (StepAction.FOLLOW, REPEATED)]
        epoch = session.flush().epoch
        (view,) = check_epoch(refuse_spark, session.meta, pipeline, epoch).views
        assert (view.rows, view.failures) == (3, ())
        session.execute("DROP MATERIALIZED VIEW kept")
        session.flush()
        assert [r.name for r in session.meta.read_latest().catalog.live_relations()] == ["sales"]
        (pipeline.folder / "views.sql").write_text("CREATE TABLE other (id INT, PRIMARY KEY (id))")
        with pytest.raises(QualitySuiteError, match=r"kept.json: found a suite of 'kept', which is no view or table"):
            apply(session, pipeline)


@pytest.mark.spark
def test_spark_judges_only_expectations_that_no_hidden_view_answers(spark: SparkSession, tmp_path: Path) -> None:
    """Those of another kind, those that were not applied, those whose view is paused, and sums beyond their type."""
    total = expectation("expect_column_sum_to_be_between", column="price", min_value=0)
    pipeline = pipeline_in(tmp_path, [MEAN, total, Z_SCORES])
    with Session(pipeline.store, spark) as session:
        apply(session, pipeline)
        session.execute("INSERT INTO sales SELECT id, 'a', NULL, 20, 1.5, 1.25, 'k' FROM range(3) AS t(id)")
        epoch = session.flush().epoch

        def by_spark() -> dict[str, str]:
            (view,) = check_epoch(lambda _: spark, session.meta, pipeline, epoch).views
            assert view.failures == ()
            return {m.expectation.partition("(")[0]: m.why for m in view.metrics if m.place == JudgedBy.SPARK}

        assert by_spark() == {Z_SCORES["type"]: "no hidden view can answer it"}
        pipeline_in(tmp_path, [MEAN, total, FILLED])
        assert by_spark() == {FILLED["type"]: NOT_MAINTAINED}
        apply(session, pipeline)
        assert by_spark() == {FILLED["type"]: NOT_MAINTAINED}, "the epoch does not contain it"
        epoch = session.flush().epoch
        assert by_spark() == {}
        assert pipeline.quality is not None
        suite = read_suite(pipeline.quality.list_suites()[0])
        with session.meta.open_for_reading(epoch) as version:
            there = {r.name: r for r in version.catalog.relations_at(epoch)}
            wanted = find_measures(suite, there["kept"])
            paused = {
                name: msgspec.structs.replace(r, paused=epoch) if r.is_internal else r for name, r in there.items()
            }
            other = msgspec.structs.replace(there["kept"], id=99)  # another view of that name
            for relations, view in ((paused, there["kept"]), (there, other)):
                reader = MeasureReader(session.meta.objects, version, relations, view, epoch)
                assert reader.read(wanted)[:2] == (None, ())


@pytest.mark.spark
@pytest.mark.parametrize(
    ("item", "why"),
    [
        (where("n / 0 > 1", FILLED), "it raises an error on some values, which would stop an epoch"),
        (where("regexp_extract(code, '(?<x>k)') = ''", FILLED), "only Spark computes it"),
        (
            expectation("unexpected_rows_expectation", unexpected_rows_query="SELECT * FROM {batch} WHERE rand() < 0"),
            "it gives another value on every run",
        ),
    ],
)
def test_conditions_and_queries_that_would_stop_epochs_or_need_spark_for_them_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, item: dict[str, Any], why: str
) -> None:
    pipeline = pipeline_in(tmp_path, [MEAN, item])
    with Session(pipeline.store, spark) as session:
        notes = [
            step.note
            for step in session.apply(pipeline.read_scripts(), DeployOptions(derived=derive_measures(pipeline))).steps
            if step.note
        ]
        assert notes, "the plan says so"
        assert all(why in note for note in notes), notes
        assert [r.name for r in session.meta.read_latest().catalog.live_relations()] == []


@pytest.mark.spark
@pytest.mark.parametrize("condition", ["flag", "`flag` -- a column", "NOT flag", "flag AND flag"])
def test_a_condition_that_is_a_column_keeps_its_rows(spark: SparkSession, condition: str) -> None:
    """Without more parentheses, Spark takes WHERE as another name of the view, and reads all rows."""
    spark.sql("SELECT * FROM VALUES (true), (false), (true), (NULL) AS t(flag)").createOrReplaceTempView("flags")
    view = Relation(1, "flags", RelationKind.VIEW, (ColumnSpec("flag", "boolean"),), msgspec.Raw(b"{}"))
    with patch("tussock.jobs.quality.measures.is_unique_by_key", return_value=False):
        measures = Measures(condition, duplicates={Duplicates(("flag",), IgnoredRows.NONE): None})
        found = [[tuple(row) for row in spark.sql(sql).collect()] for _, sql in select_statements(view, measures)]
    assert found == ([[(1,)], []] if condition.startswith("NOT") else [[(2,)], [(True, 2)]])


@pytest.mark.spark
def test_a_mistake_in_a_condition_is_an_error_of_apply_that_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, [where("nn > 1", FILLED)])
    with Session(pipeline.store, spark) as session, pytest.raises(InputError, match="nn") as caught:
        apply(session, pipeline)
    assert f"in {pipeline.folder}/quality/kept.json" in caught.value.__notes__


@pytest.mark.spark
def test_a_rule_is_compared_with_its_earlier_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Rows within 30 % of the median of the last four published runs. A failed run does not count."""
    rule = {
        "type": "expect_table_row_count_to_be_between",
        "kwargs": {},
        "meta": {"history": {"runs": 4, "within": 0.3}},
    }
    pipeline = pipeline_in(tmp_path, [rule])
    seen = []
    with Session(pipeline.store, spark) as session:
        apply(session, pipeline)
        for first, last in ((0, 100), (100, 300), (300, 310), (310, 330), (330, 900), (900, 901)):
            session.execute(
                f"INSERT INTO sales SELECT id, 'a', NULL, 1, 1.5, 1.25, 'k' FROM range({first}, {last}) AS t(id)"
            )
            (run,) = advance_store(SparkRunner(spark), session.meta)
            record = check_epoch(refuse_spark, session.meta, pipeline, run.epoch)
            assert check_epoch(refuse_spark, session.meta, pipeline, run.epoch) == record
            if record.passed:
                session.meta.publish(run.epoch)
                assert check_epoch(refuse_spark, session.meta, pipeline, run.epoch) == record, (
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
    views = check_epoch(lambda _: spark, session.meta, pipeline, epoch).views
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
    pipeline = pipeline_in(tmp_path, items)
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
