"""The bill of a deployment, beside the rows that its epochs then read, and the limits that refuse one."""

import random
from pathlib import Path

import pytest

from tests.support.spark_types import SparkSession
from tussock.jobs.facts.bill import RowsCompared, compare_rows
from tussock.jobs.facts.history import one_epoch
from tussock.jobs.operations.bill import OverLimitError, bill_of
from tussock.jobs.operations.deploy import apply, plan
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.jobs.texts.bill import bill_text, describe_bill

SETTINGS = 'name = "shop"\nstore = "store"\nsql = ["views.sql"]\n[schedule]\ncron = "@daily"\nstart = 2026-01-01\n'
SOURCES = """CREATE TABLE shops (shop int, city string, PRIMARY KEY (shop));
CREATE SOURCE sales (id int, shop int, price int) USING csv OPTIONS (path 'sales', header 'false');
INSERT INTO shops VALUES (0, 'Ghent'), (1, 'Turin'), (2, 'Porto'), (3, 'Split');
CREATE MATERIALIZED VIEW per_shop AS SELECT shop, count(*) AS n, sum(price) AS total FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW per_city AS
  SELECT city, max(price) AS top FROM sales JOIN shops ON sales.shop = shops.shop GROUP BY city;
"""
LATER = """CREATE MATERIALIZED VIEW cheap AS
  SELECT city, sales.id FROM sales JOIN shops ON sales.shop = shops.shop WHERE price >= 0;
CREATE MATERIALIZED VIEW by_price AS SELECT price, count(*) AS n FROM sales GROUP BY price;
CREATE MATERIALIZED VIEW busy AS SELECT n, count(*) AS prices FROM by_price GROUP BY n;
"""
WITHIN = 0.25


def deliver(folder: Path, day: int, rows: int) -> None:
    chosen = random.Random(day)
    lines = (f"{day * 10_000 + n},{chosen.randrange(4)},{chosen.randrange(100)}\n" for n in range(rows))
    path = folder / "sales" / f"{day:03}.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(lines))


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """A pipeline with five days of sales."""
    folder = tmp_path / "pipelines" / "shop"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(SETTINGS)
    (folder / "views.sql").write_text(SOURCES)
    pipeline = load_pipeline(folder)
    deliver(folder, 0, 500)
    apply(pipeline)
    run_epoch(pipeline, spark)
    for day in range(1, 5):
        deliver(folder, day, 190 + 5 * day)
        run_epoch(pipeline, spark)
    return pipeline


def run_epoch(pipeline: Pipeline, spark: SparkSession) -> tuple[RowsCompared, ...]:
    """Run an epoch, and return its rows beside the expected ones, of views."""
    with Session(pipeline.store, spark, create=False) as session:
        session.flush()
    meta = open_meta(pipeline.store)
    facts = one_epoch(meta, meta.read_latest().epoch)
    assert facts is not None
    return tuple(rows for rows in compare_rows(meta, facts) if rows.kind == "view")


def is_near(actual: int, expected: int | None) -> bool:
    return expected is not None and abs(actual - expected) <= WITHIN * max(actual, 1)


def test_the_rows_of_a_bill_are_those_that_the_epochs_read(shop: Pipeline, spark: SparkSession) -> None:
    (shop.folder / "views.sql").write_text(SOURCES + LATER)
    bill = bill_of(shop, plan(shop))
    assert bill is not None
    assert (bill.past, bill.runs_a_month) == (4, 30)
    assert bill.change is not None
    assert [line.name for line in bill.change.lines] == ["cheap", "by_price", "busy"]
    apply(shop)
    built = {rows.relation: rows for rows in run_epoch(shop, spark)}
    for line in bill.change.lines[:2]:
        assert is_near(built[line.name].rows_in, line.rows_read), (line, built[line.name])
        assert built[line.name].expected_in == line.rows_read, "the page compares with the bill of the deployment"
    for line in bill.change.lines:
        assert line.rows_written is not None
        assert line.at_most
        assert built[line.name].rows_out <= line.rows_written
    deliver(shop.folder, 5, 205)
    usual = {rows.relation: rows for rows in run_epoch(shop, spark)}
    lines = {line.name: line for line in bill.usual.lines}
    for name in ("per_shop", "per_city", "cheap", "by_price"):
        assert is_near(usual[name].rows_in, lines[name].rows_read), (usual[name], lines[name])
    assert all(is_near(rows.rows_in, rows.expected_in) for name, rows in usual.items() if name.startswith("per_"))


def test_a_view_that_follows_a_replaced_one_reads_at_most_the_rows_of_the_bill(
    shop: Pipeline, spark: SparkSession
) -> None:
    views = shop.folder / "views.sql"
    views.write_text(SOURCES + LATER)
    apply(shop)
    run_epoch(shop, spark)
    views.write_text(views.read_text().replace("price, count(*) AS n", "price, 2 * count(*) AS n"))
    bill = bill_of(shop, plan(shop))
    assert bill is not None
    assert bill.change is not None
    lines = {line.name: line for line in bill.change.lines}
    assert list(lines) == ["by_price", "busy"]
    apply(shop)
    read = {rows.relation: rows.rows_in for rows in run_epoch(shop, spark)}
    assert is_near(read["by_price"], lines["by_price"].rows_read), (read, lines)
    assert 0 < read["busy"] <= (lines["busy"].rows_read or 0), (read, lines)


def test_a_limit_refuses_a_deployment_before_it_is_logged(shop: Pipeline) -> None:
    (shop.folder / "views.sql").write_text(SOURCES + LATER)
    settings = shop.folder / "pipeline.toml"
    settings.write_text(SETTINGS + "[limits]\nrows_read = 1000\n")
    refused = load_pipeline(shop.folder)
    end = open_meta(shop.store).log_end()
    with pytest.raises(
        OverLimitError, match=r"would read .* rows, but rows_read in \[limits\] .* allows 1,000"
    ) as told:
        apply(refused)
    assert "by_price with" in str(told.value)
    assert open_meta(shop.store).log_end() == end
    assert "`tussock apply` will refuse this" in describe_bill(refused, plan(refused))
    settings.write_text(SETTINGS + "[limits]\nrows_read = 100_000\ndollars_per_month = 1.0\n")
    assert apply(load_pipeline(shop.folder)).position == end, "the remedy: a higher limit"


def test_dollars_count_the_epochs_of_the_schedule(shop: Pipeline) -> None:
    (shop.folder / "views.sql").write_text(SOURCES + LATER)
    settings = shop.folder / "pipeline.toml"
    settings.write_text(SETTINGS + "[prices]\nget = 100.0\n[limits]\ndollars_per_month = 1.0\n")
    dear = load_pipeline(shop.folder)
    bill = bill_of(dear, plan(dear))
    assert bill is not None
    dollars = bill.usual.total.dollars
    assert dollars is not None
    assert bill.dollars_a_month == pytest.approx(30 * dollars + bill.stored_dollars)
    with pytest.raises(OverLimitError, match=r"would cost \$[0-9.,]+ a month, but dollars_per_month"):
        apply(dear)


def test_a_new_pipeline_has_no_bill_yet(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "pipelines" / "shop"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(SETTINGS)
    (folder / "views.sql").write_text(SOURCES)
    pipeline = load_pipeline(folder)
    deliver(folder, 0, 500)
    assert describe_bill(pipeline, plan(pipeline)) == "", "there is no store"
    apply(pipeline)
    with Session(pipeline.store, spark, create=False) as session:
        session.flush()
    (folder / "views.sql").write_text(SOURCES + LATER)
    bill = bill_of(pipeline, plan(pipeline))
    assert bill is not None
    assert "per_shop" in bill_text(bill)
