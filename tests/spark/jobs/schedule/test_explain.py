"""EXPLAIN of the flights pipeline, bound by Spark from the files its user wrote.

`pytest tests/spark/jobs/schedule/test_explain.py --update-cases` rewrites the case file; read the difference as code.
"""

from pathlib import Path

import pytest

from tests.support.spark_types import SparkSession
from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.logical.script import split_script
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView
from tussock.jobs.schedule.explain import explain_relations
from tussock.jobs.sql.binder import Binder
from tussock.statestore.meta.catalog import Catalog

FLIGHTS = Path(__file__).resolve().parents[4] / "pipelines" / "flights"
CASE = Path(__file__).parent / "cases" / "flights.txt"


@pytest.mark.spark
def test_the_flights_views_are_explained_as_in_the_case_file(
    spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    catalog = Catalog()
    binder = Binder(spark, (), "UTC", ("parquet",))
    for file in ("sources.sql", "tables.sql", "views.sql"):
        for statement in split_script((FLIGHTS / file).read_text().replace("${data}", "/data")):
            binder.set_relations(catalog.live_relations())
            bound = binder.bind(statement.source)
            assert isinstance(bound, CreateSource | CreateTable | CreateView)
            catalog = apply_statement(catalog, bound, 1)
    text = explain_relations(catalog, [r for r in catalog.live_relations() if r.kind == "view"]) + "\n"
    if request.config.getoption("--update-cases"):
        CASE.write_text(text)
    assert text == CASE.read_text(), "the plans of the flights views changed: read the difference, then --update-cases"
