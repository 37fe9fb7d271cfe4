"""EXPLAIN of the flights pipeline, bound by Spark from the files its user wrote.

`pytest tests/jobs/plan/test_explain.py --update-cases` rewrites the case file; read the difference as code.
"""

from pathlib import Path

import pytest

from tests.jobs.plan.catalogs import catalog_of, counted, scan, source, table, view
from tests.support.spark_types import SparkSession
from tussock.jobs.logical.script import split_script
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView
from tussock.jobs.plan.apply import apply_statement
from tussock.jobs.plan.explain import explain_relation
from tussock.jobs.sql.binder import Binder
from tussock.statestore.meta.catalog import Catalog

FLIGHTS = Path(__file__).resolve().parents[3] / "pipelines" / "flights"
CASE = Path(__file__).parent / "cases" / "flights.txt"


@pytest.mark.spark
def test_the_flights_views_are_explained_as_in_the_case_file(
    spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    catalog = Catalog()
    binder = Binder(spark, (), "UTC", ("parquet",))
    for file in ("sources.sql", "tables.sql", "views.sql"):
        for statement in split_script((FLIGHTS / file).read_text().replace("${data}", "/data")):
            binder.set_relations(catalog.live())
            bound = binder.bind(statement.text, statement.place)
            assert isinstance(bound, CreateSource | CreateTable | CreateView)
            catalog = apply_statement(catalog, bound, 1)
    text = "\n\n".join(explain_relation(catalog, r) for r in catalog.live() if r.kind == "view") + "\n"
    if request.config.getoption("--update-cases"):
        CASE.write_text(text)
    assert text == CASE.read_text(), "the plans of the flights views changed: read the difference, then --update-cases"


def test_a_view_is_explained_with_its_inputs_only() -> None:
    catalog = catalog_of(
        source("s"), table("other"), view("v", counted(scan("s"), 1)), view("w", counted(scan("other"), 1))
    )
    text = explain_relation(catalog, catalog.live()[2])
    assert "source s" in text
    assert "other" not in text
    assert "view w" not in text


def test_equal_catalogs_explain_equally() -> None:
    texts = {
        explain_relation(catalog, catalog.live()[-1])
        for catalog in (catalog_of(source("s"), view("v", counted(scan("s"), 1))) for _ in range(2))
    }
    assert len(texts) == 1


def test_a_table_and_a_source_are_explained_too() -> None:
    catalog = catalog_of(source("s"), table("t"))
    texts = [explain_relation(catalog, r) for r in catalog.live()]
    assert "SourceScan parquet" in texts[0]
    assert "state rows#2 key=[c0]" in texts[1]
