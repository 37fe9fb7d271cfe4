"""Schemas of sources without rows, found by Spark's analysis of the models that read them."""

import pytest
from pyspark.sql import SparkSession

from scripts.survey_sources import SourceFit
from tussock.jobs.importing.project import Model, ProjectPlace
from tussock.jobs.spark.session import sql_session


def model(name: str, sql: str, *reads: str) -> Model:
    return Model(name, "view model", ProjectPlace("m.sql"), f"CREATE VIEW {name} AS\n{sql}", reads=reads)


def fit(spark: SparkSession, *models: Model) -> SourceFit:
    search = SourceFit(sql_session(spark, "UTC"), list(models), {"raw.orders": {}}, {"shops": "`shop_id` bigint"})
    search.fit()
    return search


def test_a_source_gets_the_columns_that_pass_through_stars_to_a_later_model(spark: SparkSession) -> None:
    staged = model(
        "staged", "with source as (select * from raw.orders) select *, upper(note) as n from source", "raw.orders"
    )
    totals = model(
        "totals",
        "select s.shop_id, sum(s.amount) from staged s join shops using (shop_id) group by 1",
        "staged",
        "shops",
    )
    search = fit(spark, staged, totals)
    assert search.schemas["raw.orders"] == {"note": "string", "shop_id": "string", "amount": "double"}
    assert not any(analysis.error for analysis in search.analyses.values())


def test_a_type_follows_from_a_cast_or_from_the_error_of_spark(spark: SparkSession) -> None:
    sql = "select cast(size as int), explode(parts) as part from raw.orders where paid"
    search = fit(spark, model("m", sql, "raw.orders"))
    assert search.schemas["raw.orders"] == {"size": "int", "parts": "array<string>", "paid": "boolean"}


@pytest.mark.parametrize(
    ("sql", "error", "deterministic"),
    [
        ("select * from raw.orders where day = current_date()", "", False),
        ("select rand() from raw.orders", "", False),
        ("select no_such_function(id) from raw.orders", "UNRESOLVED_ROUTINE", True),
        ("select id from shops", "UNRESOLVED_COLUMN", True),
    ],
)
def test_an_analysis_has_the_reason_of_the_model_itself(
    sql: str, error: str, deterministic: bool, spark: SparkSession
) -> None:
    analysis = fit(spark, model("m", sql, "raw.orders", "shops")).analyses["m"]
    assert analysis.error.startswith(error)
    assert bool(analysis.error) == bool(error)
    assert analysis.deterministic == deterministic
