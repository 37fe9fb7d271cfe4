"""An imported dbt project: its views have the rows that Spark computes from dbt's compiled SQL over the seeds."""

import json
from collections import Counter
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.seeds import SEED, SEED_ROWS
from tussock.jobs.importing.clock_columns import leave_out_clocks
from tussock.jobs.importing.dbt_manifest import DbtNode
from tussock.jobs.importing.dbt_project import DbtOptions, read_dbt_project
from tussock.jobs.importing.dbt_sources import seed_model
from tussock.jobs.importing.imports import ImportOutcome, ImportReport, import_project
from tussock.jobs.importing.judge import judge_project
from tussock.jobs.importing.project import models_in_order
from tussock.jobs.importing.sdp_binding import opened_binding
from tussock.jobs.operations.deploy import derive_measures
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.variables import substituted_in_sql
from tussock.jobs.statements.deployment import DeployOptions

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "bakery_dbt"
SEEDS = {
    "raw_customers": "id bigint, full_name string",
    "raw_order_lines": "id bigint, order_id bigint, sku string, quantity bigint",
    "raw_orders": "id bigint, shop_id bigint, customer_id bigint, ordered_at timestamp, status string",
    "raw_products": "sku string, name string, kind string, price_cents bigint, changed_at timestamp",
    "raw_shops": "id bigint, name string, opened_on date",
}


@pytest.fixture(scope="module")
def imported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ImportReport:
    pipelines = tmp_path_factory.mktemp("import") / "pipelines"
    project = read_dbt_project(EXAMPLE / "target" / "manifest.json", DbtOptions())
    return import_project(project, pipelines, "tussock import dbt bakery/target/manifest.json", judge_project)


@pytest.fixture(scope="module")
def session(imported: ImportReport, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    pipeline = load_pipeline(imported.folder)
    with Session(str(tmp_path_factory.mktemp("store")), spark, runner="local", workers=1) as session:
        session.apply(pipeline.read_scripts(), DeployOptions(derived=derive_measures(pipeline)))
        session.flush()
        yield session


def spark_rows(spark: SparkSession) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of each model, from its compiled SQL. Names of relations are replaced as plain text."""
    nodes = json.loads((EXAMPLE / "target" / "manifest.json").read_text())["nodes"].values()
    names = {node["relation_name"]: node["alias"] for node in nodes if node["relation_name"]}
    for seed, columns in SEEDS.items():
        file = str(EXAMPLE / "seeds" / f"{seed}.csv")
        spark.read.csv(file, schema=columns, header=True).createOrReplaceTempView(seed)
    rows = {}
    order = [
        "stg_orders",
        "stg_order_lines",
        "stg_products",
        "order_totals",
        "daily_sales",
        "customers",
        "best_products",
    ]
    models = {node["name"]: node["compiled_code"] for node in nodes if node["resource_type"] == "model"}
    for name in order:
        sql = models[name]
        for relation, alias in names.items():
            sql = sql.replace(relation, alias)
        frame = spark.sql(sql)
        frame.createOrReplaceTempView(name)
        rows[name] = Counter(tuple(row) for row in frame.collect())
    return rows


def test_every_part_of_the_example_is_taken(imported: ImportReport) -> None:
    assert [(line.name, line.reason) for line in imported.refused] == []
    outcomes = {line.name: line.outcome for line in imported.lines}
    assert outcomes["daily_sales"] is ImportOutcome.INCREMENTAL
    assert outcomes["history.price_history"] is ImportOutcome.VIEW


def test_imported_views_equal_sparks_rows_of_the_compiled_models(session: Session, spark: SparkSession) -> None:
    for name, rows in spark_rows(spark).items():
        found = session.read(f"staging.{name}" if name.startswith("stg_") else name).to_pylist()
        assert Counter(tuple(_plain(v) for v in row.values()) for row in found) == Counter(
            tuple(_plain(v) for v in row) for row in rows.elements()
        ), name


def _plain(value: Any) -> Any:
    """A moment without its zone, which is UTC on both sides."""
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def test_a_snapshot_has_an_interval_per_version(session: Session) -> None:
    history = session.query(
        "SELECT sku, price_cents, dbt_valid_from, dbt_valid_to FROM history.price_history WHERE sku = 'DRI-1'"
    )
    rows = sorted(history.to_pylist(), key=lambda row: row["dbt_valid_from"])
    assert [row["price_cents"] for row in rows] == [300, 320]
    assert rows[0]["dbt_valid_to"] == rows[1]["dbt_valid_from"]
    assert rows[1]["dbt_valid_to"] is None


def test_the_key_of_a_snapshot_may_be_an_expression(spark: SparkSession, tmp_path: Path) -> None:
    manifest = json.loads((EXAMPLE / "target" / "manifest.json").read_text())
    snapshot = manifest["nodes"]["snapshot.bakery.price_history"]
    snapshot["config"]["unique_key"] = ["concat(sku, '-', lower(sku))", "`name`"]
    (tmp_path / "target").mkdir()
    (tmp_path / "seeds").symlink_to(EXAMPLE / "seeds")
    (tmp_path / "target" / "manifest.json").write_text(json.dumps(manifest))
    project = read_dbt_project(tmp_path / "target" / "manifest.json", DbtOptions())
    parts = [m for m in project.models if m.name.startswith("history.") or m.name == "raw.raw_products"]
    with Session(str(tmp_path / "store"), spark, runner="local", workers=1) as session:
        session.execute("CREATE SCHEMA raw; CREATE SCHEMA history")
        for model in models_in_order(parts):
            session.execute(substituted_in_sql(model.statement, {"data": str(tmp_path)}, "x"), base=tmp_path)
        session.flush()
        history = session.query("SELECT * FROM history.price_history WHERE sku = 'DRI-1'")
    assert "dbt_key_1" not in history.column_names
    rows = sorted(history.to_pylist(), key=lambda row: row["dbt_valid_from"])
    assert [row["price_cents"] for row in rows] == [300, 320]
    assert rows[0]["dbt_valid_to"] == rows[1]["dbt_valid_from"]
    text = f"{rows[0]['sku']}-{rows[0]['sku'].lower()}|{rows[0]['name']}|{rows[0]['changed_at']:%Y-%m-%d %H:%M:%S}"
    assert rows[0]["dbt_scd_id"] == md5(text.encode()).hexdigest()


def test_a_model_that_cannot_be_maintained_has_the_binders_reason(spark: SparkSession, tmp_path: Path) -> None:
    project = read_dbt_project(EXAMPLE / "target" / "manifest.json", DbtOptions())
    seeds = [m for m in project.models if m.kind == "seed"]
    shops = next(m for m in seeds if m.name == "raw.raw_shops")
    random = replace(
        shops, name="lucky", kind="model", reads=("raw.raw_shops",), statement="CREATE MATERIALIZED VIEW lucky AS "
        "SELECT id, rand() AS x FROM raw.raw_shops", script=project.models[-1].script,
    )  # fmt: skip
    unknown = replace(random, name="lost", statement="CREATE VIEW lost AS SELECT nothing FROM raw.raw_shops")
    reader = replace(random, name="reader", reads=("lucky",), statement="CREATE VIEW reader AS SELECT * FROM lucky")
    verdicts = judge_project(replace(project, models=(shops, random, unknown, reader), assertions=(), unit_tests=()))
    assert "rand()" in verdicts["lucky"].reason
    assert "`nothing`" in verdicts["lost"].reason
    assert verdicts["reader"].reason == "it reads lucky, which was not taken"
    assert verdicts["raw.raw_shops"].accepted


def test_columns_with_the_clock_are_left_out_on_request(spark: SparkSession) -> None:
    project = read_dbt_project(EXAMPLE / "target" / "manifest.json", DbtOptions())
    shops = next(m for m in project.models if m.name == "raw.raw_shops")
    head = "CREATE MATERIALIZED VIEW loaded (id, day, `the name`) AS\n"
    loaded = replace(
        shops, name="loaded", kind="model", reads=("raw.raw_shops",), script=project.models[-1].script,
        statement=f"{head}SELECT id, current_date(), name FROM raw.raw_shops",
    )  # fmt: skip
    reader = replace(
        loaded, name="reader", reads=("loaded",), statement="CREATE MATERIALIZED VIEW reader AS\nSELECT day FROM loaded"
    )
    with opened_binding(lambda: spark) as binding:
        changed = leave_out_clocks(replace(project, models=(shops, loaded, reader)), binding)
    _, model, late = changed.models
    assert model.statement == (
        "CREATE MATERIALIZED VIEW loaded AS\nSELECT id, `the name` FROM (\n"
        "SELECT id, current_date(), name FROM raw.raw_shops\n) AS `loaded` (id, day, `the name`)"
    )
    assert model.notes == ("without day: the clock of each run would change the rows",)
    assert late.refusal == "it reads day of loaded, which --leave-out-clock leaves out"
    assert judge_project(replace(changed, assertions=(), unit_tests=()))["loaded"].accepted


def test_a_second_import_finds_no_difference(imported: ImportReport, spark: SparkSession) -> None:
    command = "tussock import dbt bakery/target/manifest.json"
    assert import_project(imported.project, imported.folder.parent, command, judge_project, check=True).drift == ()


def test_a_seed_has_the_rows_that_dbt_loads(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "seed.csv").write_text(SEED)
    node = DbtNode("seed.shop.seed", "seed", "seed", "shop", "seed.csv")
    with Session(str(tmp_path / "store"), spark, workers=1) as session:
        session.execute(
            seed_model(node, "seed", tmp_path, "seed.csv", "spark").statement.replace("${data}", str(tmp_path))
        )
        session.execute("CREATE MATERIALIZED VIEW loaded AS SELECT * FROM seed")
        session.flush()
        rows = sorted(tuple(row.values()) for row in session.read("loaded").to_pylist())
    assert rows == SEED_ROWS
