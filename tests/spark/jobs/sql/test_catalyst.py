"""SELECTs bound into logical plans: as text, compared with Spark's answers, and through JSON."""

from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.sql.bound import bind_expressions
from tests.support.jobs.sql.fixtures import Case, load_cases
from tests.support.jobs.sql.plan_oracle import ROWS, answer_of_plan, answer_of_query
from tests.support.release import needs_spark
from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.logical.nodes import Call, Field, Literal, Place, Plan, Scan
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.spark.zones import rules_of_jvm
from tussock.jobs.sql.catalyst import bind_view
from tussock.jobs.sql.sandbox import Sandbox
from tussock.jobs.sql.show import show_expr, show_plan

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("case", load_cases("selects.yaml", "plan"))
def test_a_select_is_bound_to_the_plan_of_its_case(case: Case, sandbox: Sandbox, expect: Any) -> None:
    expect(case, "plan", show_plan(bind_view(sandbox, SourceText(case.sql))))


def over_rows() -> list[Any]:
    """The SELECTs that need no files. tests/spark/end_to_end/test_hidden_columns.py compares the others with Spark."""
    hidden = ("_metadata", "_ingested_at")
    return [c for c in load_cases("selects.yaml", "plan") if not any(h in c.values[0].sql.lower() for h in hidden)]


@pytest.mark.parametrize("case", over_rows())
@pytest.mark.sampled(7)
def test_the_bound_plan_gives_the_rows_that_spark_gives_for_the_select(
    case: Case, sandbox: Sandbox, spark: SparkSession
) -> None:
    plan = bind_view(sandbox, SourceText(case.sql))
    names, expected = answer_of_query(spark, case.sql)
    assert [f.name for f in plan.fields] == names
    assert answer_of_plan(spark, plan) == expected
    assert len(expected) > 0 or "false" in case.sql, f"the case proves nothing with these rows: {ROWS}"


@pytest.mark.parametrize("case", load_cases("selects.yaml", "plan"))
def test_a_plan_survives_json(case: Case, sandbox: Sandbox) -> None:
    plan = bind_view(sandbox, SourceText(case.sql))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_the_same_select_is_bound_to_equal_plans_every_time(sandbox: Sandbox) -> None:
    sql = SourceText(
        "SELECT shop, sum(amount) AS total FROM orders JOIN shops ON shop = shops.id GROUP BY shop HAVING count(*) > 1"
    )
    assert bind_view(sandbox, sql) == bind_view(sandbox, sql)


def test_eval_modes_survive_and_do_not_depend_on_the_users_session(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        texts = ["a + 1", "try_add(a, 1)", "cast(b AS int)", "try_cast(b AS int)"]
        exprs = bind_expressions(spark, [Field("a", "int"), Field("b", "string")], texts)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert [show_expr(e) for e in exprs] == [
        "Add[ANSI](#0, 1):int",
        "Add[TRY](#0, 1):int",
        "Cast[ANSI](#1):int",
        "Cast[TRY](#1):int",
    ]


def test_literals_are_held_in_physical_form(spark: SparkSession) -> None:
    texts = {
        "DATE'2020-01-02'": Literal(18263, "date"),
        "TIMESTAMP'1970-01-01 00:00:01.5'": Literal(1_500_000, "timestamp"),
        "TIMESTAMP_NTZ'1970-01-01 00:00:01'": Literal(1_000_000, "timestamp_ntz"),
        "1.50BD": Literal("1.50", "decimal(3,2)"),
        "-1e-7BD": Literal("-0.0000001", "decimal(7,7)"),
        "0.1D": Literal("0.1", "double"),
        "CAST('NaN' AS DOUBLE)": Literal("nan", "double"),
        "CAST('-Infinity' AS FLOAT)": Literal("-inf", "float"),
        "CAST(0.1 AS FLOAT)": Literal("0.1", "float"),
        "X'00FF'": Literal("AP8=", "binary"),
        r"'it\'s'": Literal("it's", "string"),
        "9223372036854775807": Literal(2**63 - 1, "bigint"),
        "3Y": Literal(3, "tinyint"),
        "true": Literal(True, "boolean"),
        "CAST(NULL AS INT)": Literal(None, "int"),
    }
    assert bind_expressions(spark, [Field("a", "int")], list(texts)) == list(texts.values())


@needs_spark("4.1")
def test_a_doubled_quote_inside_a_string_is_one_quote(spark: SparkSession) -> None:
    assert bind_expressions(spark, [Field("a", "int")], ["'it''s'"]) == [Literal("it's", "string")]


def test_a_doubled_quote_is_refused_for_a_release_that_drops_it(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tussock.jobs.sql.sandbox.RELEASE", (4, 0))
    with pytest.raises(SqlError, match=r"doubled quotes inside a string.*write \\' instead") as caught:
        bind_view(sandbox, SourceText("SELECT 'it''s' AS a FROM orders"))
    assert caught.value.place == Place(1, 8)
    bind_view(sandbox, SourceText(r"SELECT 'it\'s' AS a, r'b' AS b, '' AS c FROM orders"))


def test_only_casts_that_need_a_time_zone_have_one(spark: SparkSession) -> None:
    texts = ["cast(ts AS date)", "cast(a AS bigint)", "cast(ts AS bigint)", "cast(ts AS string)"]
    exprs = bind_expressions(spark, [Field("ts", "timestamp"), Field("a", "int")], texts, time_zone="Europe/Berlin")
    berlin = rules_of_jvm(spark, "Europe/Berlin").ruled_zone
    assert [e.params for e in exprs if isinstance(e, Call)] == [
        (("timeZoneId", berlin),),
        (),
        (),
        (("timeZoneId", berlin),),
    ]


def test_a_scan_reads_only_the_columns_that_are_used(sandbox: Sandbox) -> None:
    plan = bind_view(sandbox, SourceText("SELECT price FROM orders"))
    assert plan == Scan("orders", (4,), (Field("price", "double"),))


def test_places_count_from_the_start_of_the_statement_in_its_script(sandbox: Sandbox) -> None:
    with pytest.raises(UnsupportedQueryError) as caught:
        bind_view(sandbox, SourceText("SELECT\n now() AS n FROM orders", Place(10, 5)))
    assert caught.value.place == Place(11, 2)
