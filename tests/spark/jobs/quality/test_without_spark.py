"""Expectations judged without Spark: their verdicts and report pages equal Spark's. Spark judges all others."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.flights import load
from tests.spark.jobs.quality.test_gate import without_places
from tests.support.jobs.quality.without_spark import decimal, expectation
from tussock.jobs.quality.conditions import filter_of
from tussock.jobs.quality.gate import SparkNeededError, validate_epoch, without_spark
from tussock.jobs.quality.row_metrics import RowMetrics
from tussock.jobs.quality.rows import RowsOfMetrics, SparkRows, ViewRows
from tussock.jobs.quality.suite import Suite, read_suite
from tussock.jobs.quality.suite_runs import SuiteFound, SuiteRuns
from tussock.jobs.quality.without_spark import EXPECTATIONS, MOST_ROWS, key_objection, objection
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import load_pipeline

ROOT = Path(__file__).resolve().parents[4]
EPOCH = 1_357_084_800_000 << 16
KEY = ["id", "day"]


#: Rows for which `PASS` holds. They have every supported type, with NULL if the type allows it.
GOOD = pa.table(
    {
        "id": pa.array(range(6), pa.int32()),
        "day": pa.array([date(2013, 1, d) for d in (1, 2, 3, 4, 5, 6)]),
        "small": pa.array([1, 2, None, 4, 5, 6], pa.int16()),
        "big": pa.array([10, 20, 30, 40, 50, 2**40], pa.int64()),
        "amount": pa.array([0.1, -0.0, 1e300, None, 5e-324, 2.5], pa.float64()),
        "text": pa.array(["a", "bé", "🂡x", None, "", "zz"]),
        "name": pa.array(["a", "b", "c", "d", "e", "f"]),
        "flag": pa.array([True, None, False, True, False, None]),
        "none": pa.array([None] * 6, pa.string()),
        "at": pa.array([datetime(2013, 1, 1)] * 6, pa.timestamp("us", tz="UTC")),
        "price": pa.array(list(map(decimal, ("0.10", "0.20", "0.30", None, "99.99", "-0.07"))), pa.decimal128(10, 2)),
        "real": pa.array([0.1, 0.2, 0.3, None, 99.5, 0.7], pa.float32()),
        "odd": pa.array([1.0, 2.0, float("nan"), None, -0.0, 0.0]),
    }
)

#: The same, but each expectation of PASS fails on some row.
BAD = pa.table(
    {
        "id": pa.array([0, 1, 2, 3, 4, 4, 6], pa.int32()),
        "day": pa.array([None, *(date(2013, 1, d) for d in (2, 3, 4, 5, 5, 6))]),
        "small": pa.array([1, -2, None, 400, 5, 6, None], pa.int16()),
        "big": pa.array([-1, 20, 30, 40, 3, 3, 7], pa.int64()),
        "amount": pa.array([0.1, -1e-9, 1e301, None, 5.5, 2.5, None], pa.float64()),
        "text": pa.array(["a", "long text", "🂡x", None, "q'uote", "zz", "<b>"]),
        "name": pa.array(["a", "b", "c", "d", "e", "e", ""]),
        "flag": pa.array([True, None, False, True, False, None, None]),
        "none": pa.array([None, "x", None, None, None, None, "y"]),
        "at": pa.array([None, *[datetime(2013, 1, 1)] * 6], pa.timestamp("us", tz="UTC")),
        "price": pa.array(
            list(map(decimal, ("0.09", "0.60", "0.60", None, "100.00", "-0.07", None))), pa.decimal128(10, 2)
        ),
        "real": pa.array([0.1, 0.2, 0.3, None, 99.75, -0.7, 0.2], pa.float32()),
        "odd": pa.array([1.0, float("nan"), float("nan"), -3.0, -0.0, 0.0, None]),
    }
)


#: Every supported expectation, with each of its arguments; each holds for GOOD and not for BAD.
BOTH = [
    expectation("expect_column_values_to_be_null", column="none"),
    expectation("expect_column_values_to_not_be_null", column="day"),
    expectation("expect_column_values_to_be_between", column="small", min_value=1, max_value=6),
    expectation("expect_column_values_to_be_between", column="amount", min_value=0, max_value=1e300),
    expectation("expect_column_values_to_be_between", column="big", min_value=9.5, strict_min=True, mostly=0.9),
    expectation("expect_column_values_to_be_in_set", column="small", value_set=[1, 2, 4, 5, 6]),
    expectation("expect_column_values_to_be_in_set", column="text", value_set=["a", "bé", "🂡x", "", "zz"]),
    expectation("expect_column_values_to_not_be_in_set", column="text", value_set=["q'uote", "<b>"]),
    expectation("expect_column_values_to_be_unique", column="id"),
    expectation("expect_column_values_to_be_unique", column="name"),
    expectation("expect_column_value_lengths_to_be_between", column="text", max_value=2),
    expectation("expect_column_value_lengths_to_equal", column="name", value=1),
    expectation("expect_column_min_to_be_between", column="small", min_value=0, max_value=1),
    expectation("expect_column_max_to_be_between", column="amount", max_value=1e300),
    expectation("expect_column_pair_values_a_to_be_greater_than_b", column_A="big", column_B="id", or_equal=True),
    expectation("expect_compound_columns_to_be_unique", column_list=["id", "name"]),
    expectation("expect_column_values_to_not_be_null", column="at"),
    expectation("expect_column_values_to_be_between", column="price", min_value=-0.07, max_value=99.99),
    expectation("expect_column_values_to_be_between", column="price", min_value=0.1, mostly=0.8),
    expectation("expect_column_values_to_be_between", column="real", min_value=0, max_value=99.5),
    expectation("expect_column_values_to_be_between", column="odd", min_value=-0.5, strict_min=True),
    expectation("expect_column_values_to_be_between", column="day", max_value="2013-01-04", mostly=0.6),
    expectation("expect_column_values_to_not_be_in_set", column="price", value_set=[100, 7]),
    expectation("expect_column_values_to_be_unique", column="price"),
    expectation("expect_column_values_to_match_regex", column="name", regex="^[a-f]$"),
    expectation("expect_column_values_to_not_match_regex", column="text", regex="'|long"),
    expectation("expect_column_min_to_be_between", column="real", min_value=0, max_value=0.2),
    expectation("expect_column_max_to_be_between", column="price", max_value=99.99),
    expectation("expect_column_sum_to_be_between", column="price", min_value=100.51, max_value=100.53),
    expectation("expect_column_sum_to_be_between", column="id", min_value=15, max_value=15),
    expectation("expect_column_mean_to_be_between", column="price", min_value=20.1, max_value=20.2),
    expectation("expect_column_mean_to_be_between", column="id", min_value=2.5, max_value=2.5),
    expectation("expect_column_median_to_be_between", column="price", min_value=0.2, max_value=0.25),
    expectation(
        "expect_column_quantile_values_to_be_between",
        column="big",
        quantile_ranges={
            "quantiles": [0.0, 0.25, 0.5, 0.9, 1.0],
            "value_ranges": [[10, 10], [20, 20], *[[30, None]] * 3],
        },
    ),
    expectation("expect_column_unique_value_count_to_be_between", column="price", min_value=5, max_value=5),
    expectation("expect_column_proportion_of_unique_values_to_be_between", column="price", min_value=1),
    expectation("expect_column_proportion_of_non_null_values_to_be_between", column="price", min_value=0.8),
    expectation("expect_column_distinct_values_to_be_in_set", column="small", value_set=[1, 2, 4, 5, 6, 7]),
    expectation("expect_column_distinct_values_to_contain_set", column="name", value_set=["a", "f"]),
    expectation("expect_column_distinct_values_to_equal_set", column="name", value_set=["a", "b", "c", "d", "e", "f"]),
    expectation("expect_column_most_common_value_to_be_in_set", column="big", value_set=[10, 20, 30], ties_okay=True),
    expectation(
        "expect_column_values_to_be_between",
        column="big",
        min_value=30,
        row_condition="id >= 2 AND (name <> 'x' OR price IS NULL)",
        condition_parser="spark",
    ),
    expectation(
        "unexpected_rows_expectation",
        unexpected_rows_query="SELECT * FROM {batch} WHERE price < -0.07 OR price >= 100 OR day IN (DATE '2013-02-01')",
    ),
    expectation("expect_table_row_count_to_be_between", max_value=6),
    expectation("expect_table_row_count_to_equal", value=6),
]
#: Spark adds doubles in another order, so the last digit may differ.
CLOSE = [expectation("expect_column_stdev_to_be_between", column="id", min_value=1.8, max_value=1.9)]
EQUAL = [expectation("expect_column_pair_values_to_be_equal", column_A="id", column_B="other")]
COLUMNS = [
    expectation("expect_table_columns_to_match_ordered_list", column_list=GOOD.column_names),
    expectation("expect_column_to_exist", column="at"),
]


def suite(folder: Path, *items: dict[str, Any]) -> Suite:
    file = folder / "v.json"
    file.write_text(json.dumps({"expectations": items, "meta": {"key": KEY}}))
    return read_suite(file)


def judged(docs: Path, read: Suite, rows: ViewRows) -> tuple[SuiteFound, dict[str, str]]:
    """The gate's verdict, and its pages by name."""
    with SuiteRuns(docs) as gate:
        found = gate.check(read, read.whole, rows, EPOCH, KEY)
    return found, {str(page.relative_to(docs)): page_text(page) for page in docs.rglob("*.html")}


def page_text(page: Path) -> str:
    """The page without the parts that vary: element ids, the time of the check, and the engine."""
    text = re.sub(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "<id>", page.read_text())
    text = re.sub(r"<tr>(?:(?!<tr>).)*pandas_data_fingerprint.*?</tr>", "", text, flags=re.DOTALL)
    return re.sub(r"\d{8}T\d{6}\.\d{6}Z", "<moment>", re.sub(r"\b(Pandas|Spark)DataFrame\b", "<engine>", text))


@pytest.mark.spark
@pytest.mark.parametrize("rows", [GOOD, BAD, GOOD.slice(0, 0)], ids=["rows that pass", "rows that fail", "no rows"])
@pytest.mark.sampled(3)
def test_every_expectation_of_the_list_finds_the_same_over_arrow_rows_as_over_spark(
    spark: SparkSession, tmp_path: Path, rows: pa.Table
) -> None:
    empty = rows.num_rows == 0
    items = [item for item in (*BOTH, *COLUMNS) if not (empty and objection(item, rows))]
    read = suite(tmp_path, *items)
    assert [objection(item, rows) for item in read.items if objection(item, rows)] == []
    assert key_objection(KEY, rows) is None
    here = judged(tmp_path / "here", read, RowsOfMetrics(RowMetrics(rows)))
    there = judged(tmp_path / "there", read, SparkRows(spark.createDataFrame(rows).coalesce(1).cache()))
    assert here == there
    assert repr(here[0]) == repr(there[0]), "in the same order, too"
    if rows is GOOD:
        assert here[0].failures == ()
        assert {item["type"] for item in (*BOTH, *COLUMNS, *EQUAL, *CLOSE)} == EXPECTATIONS
    if rows is BAD:
        assert len(here[0].failures) == len(BOTH)


@pytest.mark.spark
def test_numbers_that_depend_on_the_order_of_additions_are_close_to_sparks(spark: SparkSession, tmp_path: Path) -> None:
    read = suite(tmp_path, *CLOSE)
    assert objection(CLOSE[0], BAD) is None
    here, _ = judged(tmp_path / "here", read, RowsOfMetrics(RowMetrics(BAD)))
    there, _ = judged(tmp_path / "there", read, SparkRows(spark.createDataFrame(BAD).coalesce(1)))
    assert [m.value for m in here.metrics] == pytest.approx([m.value for m in there.metrics], rel=1e-12)


@pytest.mark.spark
def test_pairs_of_numbers_and_of_texts_compare_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3, None, None], pa.int32()),
            "day": ["a", "b", "c", None, None],
            "other": pa.array([1, 2, 4, 4, None]),
            "copy": ["a", "B", "c", "d", None],
            "price": pa.array(list(map(decimal, ("1.00", "2.01", None, "0.10", None))), pa.decimal128(10, 2)),
            "cost": pa.array(list(map(decimal, ("1.0001", "2.0099", "3", None, None))), pa.decimal128(20, 4)),
            "real": pa.array([1.0, 2.01, float("nan"), 0.1, None]),
            "odd": pa.array([float("nan"), 2.0, float("nan"), -0.0, None]),
        }
    )
    greater = "expect_column_pair_values_a_to_be_greater_than_b"
    numbers = itertools.permutations(("id", "price", "cost", "real", "odd"), 2)
    read = suite(
        tmp_path,
        *EQUAL,
        expectation("expect_column_pair_values_to_be_equal", column_A="day", column_B="copy"),
        *(expectation(greater, column_A=a, column_B=b, or_equal=e) for a, b in numbers for e in (True, False)),
    )
    assert [objection(item, rows) for item in read.items if objection(item, rows)] == []
    assert key_objection(KEY, rows) is None
    here = judged(tmp_path / "here", read, RowsOfMetrics(RowMetrics(rows)))
    assert here == judged(tmp_path / "there", read, SparkRows(spark.createDataFrame(rows).coalesce(1)))
    assert len(here[0].failures) > 2


@pytest.mark.spark
def test_conditions_on_decimals_that_spark_rounds_are_left_to_spark(spark: SparkSession) -> None:
    wide = pa.table(
        {
            "a": pa.array([Decimal(1)], pa.decimal128(38, 0)),
            "b": pa.array([Decimal("1.4")], pa.decimal128(38, 18)),
            "c": pa.array([Decimal("1.4")], pa.decimal128(20, 2)),
            "d": pa.array([Decimal("1.4")], pa.decimal128(38, 30)),
            "e": pa.array([Decimal("12345678901.0000000000000000000000001")], pa.decimal128(38, 25)),
            "n": [1],
        }
    )
    frame = spark.createDataFrame(wide)
    rounded = ("a = b", "b = a", "a >= b", "a = 1.4", "a IN (1.4)", "a BETWEEN 1.4 AND 2", "n = d", "d <> 12345678901")
    rounded += ("d IN (5)", "d IN (1.4, 5)", "e IN (12345678901)", "NOT e IN (1, 12345678901)")
    assert [condition for condition in rounded if filter_of(condition, wide.schema) is not None] == []
    (found,) = frame.selectExpr(*rounded[:4]).collect()
    assert [*found] == [True] * 4, "Spark rounds"
    assert frame.selectExpr("e IN (12345678901)", "e = 12345678901").collect()[0][0] is True, "in a list too"
    exact = ("b = c", "b > n", "d > 1", "c > 1.4000000001", "c = b AND a < 2", "n < b", "c IN (1, 1.40)")
    (wanted,) = frame.selectExpr(*exact).collect()
    masks = [filter_of(condition, wide.schema) for condition in exact]
    assert [mask and mask(wide).to_pylist()[0] for mask in masks] == [*wanted]


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("fails", [False, True], ids=["as they are", "made to fail"])
def test_the_suites_of_the_flights_make_the_same_record_and_pages_with_and_without_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setenv("FLIGHTS_STORE", f"{tmp_path}/store")
    monkeypatch.setenv("FLIGHTS_DATA", f"{tmp_path}/data")
    load.load(tmp_path / "data", days=2)
    folder = shutil.copytree(ROOT / "pipelines/flights", tmp_path / "pipelines/flights")
    for file in (folder / "quality").iterdir() if fails else ():
        text = (
            file.read_text()
            .replace('"min_value": 1}', '"min_value": 40}')
            .replace('"EWR", ', "")
            .replace('"max_value": 10}', '"max_value": 9}')
        )
        file.write_text(text)
    found = {}
    with Session(f"{tmp_path}/store", spark) as session:
        for path, script in load_pipeline(folder).scripts():
            list(session.run(script, base=path.parent))
        epoch = session.flush().epoch
        for side, most_rows in (("here", MOST_ROWS), ("by Spark", 0)):
            toml = (ROOT / "pipelines/flights/pipeline.toml").read_text()
            (folder / "pipeline.toml").write_text(toml.replace('docs = ".airflow', f'docs = "{tmp_path}/{side}'))
            pipeline = load_pipeline(folder)
            assert pipeline.quality is not None
            record = validate_epoch(lambda _: spark, session.meta, pipeline, epoch, most_rows_here=most_rows)
            docs = pipeline.quality.docs
            found[side] = (
                without_places(record),
                {str(page.relative_to(docs)): page_text(page) for page in docs.rglob("*.html")},
            )
    assert found["here"] == found["by Spark"]
    assert found["here"][0].passed is not fails
    assert len(found["here"][0].views) == 5


@pytest.mark.spark
def test_one_gate_takes_rows_of_both_engines_in_any_order(spark: SparkSession) -> None:
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    rows: dict[str, ViewRows] = {
        "MetricsSource": RowsOfMetrics(RowMetrics(pa.table({"k": [1]}))),
        "SparkDatasource": SparkRows(spark.range(1)),
    }
    for engine in ("MetricsSource", "SparkDatasource", "MetricsSource", "MetricsSource", "SparkDatasource"):
        assert type(rows[engine].source(context)).__name__ == engine


@pytest.mark.spark
def test_a_gate_without_spark_imports_none_and_names_the_suite_that_needs_it(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines/shop"
    (folder / "quality").mkdir(parents=True)
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[quality]\ndocs = "{tmp_path}/docs"\n'
    )
    fine = expectation("expect_column_values_to_not_be_null", column="id")
    (folder / "quality/t.json").write_text(json.dumps({"expectations": [fine]}))
    with Session(f"{tmp_path}/store", runner="local") as session:
        session.execute("CREATE TABLE t (id int, price decimal(4,2), PRIMARY KEY (id))")
        session.insert(
            "t", pa.table({"id": pa.array([1], pa.int32()), "price": pa.array([Decimal("1.50")], pa.decimal128(4, 2))})
        )
        session.flush()
        meta = session.meta
    code = (
        "import sys; from pathlib import Path; from tussock.jobs.quality.gate import *;"
        "from tussock.jobs.settings.pipeline import load_pipeline;"
        "from tussock.jobs.settings.process import open_meta; p = load_pipeline(Path(sys.argv[1])); "
        "meta = open_meta(p.store);"
        "print(validate_epoch(without_spark, meta, p, meta.latest().epoch).views[0].rows,"
        " sorted({'pyspark', 'sqlalchemy', 'boto3', 'scipy.stats._stats_py', 'altair.vegalite'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, cwd=Path.cwd())
    assert done.stdout.strip().splitlines()[-1:] == ["1 []"], done.stderr
    money = expectation("expect_column_value_z_scores_to_be_less_than", column="price", threshold=1, double_sided=True)
    (folder / "quality/t.json").write_text(json.dumps({"expectations": [fine, money]}))
    with pytest.raises(SparkNeededError, match=r"t\.json: expect_column_value_z_scores_to_be_less_than"):
        validate_epoch(without_spark, meta, load_pipeline(folder), meta.latest().epoch)
