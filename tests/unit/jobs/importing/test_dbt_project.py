"""dbt's manifest as a project. The manifest of the example was written by dbt Core 1.10 with dbt-spark."""

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tussock.jobs.importing.dbt_project import DbtOptions, read_dbt_project
from tussock.jobs.importing.dbt_sources import spark_type
from tussock.jobs.importing.errors import ProjectError
from tussock.jobs.importing.names import relation_name, rename_relations
from tussock.jobs.importing.project import ForeignProject, Model, Severity, file_of

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "bakery_dbt" / "target" / "manifest.json"
ORDERS = "model.bakery.order_totals"

Change = Callable[[dict[str, Any]], None]
ReadChanged = Callable[..., ForeignProject]


@pytest.fixture
def read(tmp_path: Path) -> ReadChanged:
    """Read the example's manifest after a change."""

    def read_changed(change: Change = lambda manifest: None, options: DbtOptions | None = None) -> ForeignProject:
        manifest = json.loads(EXAMPLE.read_text())
        change(manifest)
        path = tmp_path / "target" / "manifest.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(manifest))
        if not (tmp_path / "seeds").exists():
            (tmp_path / "seeds").symlink_to(EXAMPLE.parents[1] / "seeds")
        return read_dbt_project(path, options or DbtOptions())

    return read_changed


def model_of(project: ForeignProject, name: str) -> Model:
    return next(model for model in project.models if model.name == name)


def test_the_example_is_taken_whole(read: ReadChanged) -> None:
    project = read()
    assert [m.name for m in project.models if m.refusal] == []
    assert [a.name for a in project.assertions if a.refusal] == []
    assert [t.name for t in project.unit_tests if t.refusal] == []
    assert model_of(project, "order_totals").key == ("order_id",)
    assert model_of(project, "order_totals").owner == "Sales team"
    assert model_of(project, "daily_sales").readers == ("dashboard morning_report (Shop managers)",)
    assert "ordered_at >" not in model_of(project, "order_totals").statement


def test_types_of_a_seed_come_from_its_values(read: ReadChanged) -> None:
    statements = [model.statement for model in read().models if model.kind == "seed"]
    assert all(re.search(r"\b(int|bigint|decimal\(\d+,\d+\)|timestamp)\b", text) for text in statements)


def test_an_ephemeral_model_is_part_of_its_readers(read: ReadChanged) -> None:
    project = read()
    assert "__dbt__cte__priced_lines" in model_of(project, "best_products").statement
    assert [(part.kind, part.name) for part in project.left_out] == [
        ("ephemeral model", "priced_lines"),
        ("exposure", "morning_report"),
    ]


def test_a_severity_of_warn_becomes_a_warning(read: ReadChanged) -> None:
    severities = {one.name: one.severity for one in read().assertions}
    assert severities["no_empty_order"] is Severity.WARNING
    assert severities["unique_order_totals_order_id"] is Severity.ERROR


def test_thresholds_of_a_test_count_its_rows(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"]["test.bakery.unique_customers_customer_id.c5af1ff4b1"]["config"]["error_if"] = "> 10"

    by_name = {one.name: one for one in read(change).assertions if one.name.startswith("unique_customers")}
    assert by_name["unique_customers_customer_id"].select.endswith("WHERE failures > 10")
    assert by_name["unique_customers_customer_id__warn"].severity is Severity.WARNING
    assert "failures" not in by_name["unique_customers_customer_id__warn"].select


def test_a_unique_key_is_an_assertion_unless_a_test_has_it(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        del manifest["nodes"]["test.bakery.unique_order_totals_order_id.43cc207b9f"]

    assert not [one for one in read().assertions if one.kind == "unique_key"]
    (key,) = (one for one in read(change).assertions if one.kind == "unique_key")
    assert "GROUP BY order_id\nHAVING count(*) > 1" in key.select


def test_a_test_of_some_rows_does_not_check_the_unique_key(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        test = manifest["nodes"]["test.bakery.unique_order_totals_order_id.43cc207b9f"]
        test["config"]["where"] = "order_id > 5"

    assert [one.name for one in read(change).assertions if one.kind == "unique_key"] == ["order_totals__unique_key"]


def test_a_key_whose_rows_are_replaced_together_is_no_unique_key(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        del manifest["nodes"]["test.bakery.unique_order_totals_order_id.43cc207b9f"]
        manifest["nodes"][ORDERS]["config"]["incremental_strategy"] = "delete+insert"

    assert not [one for one in read(change).assertions if one.kind == "unique_key"]


def test_only_the_incremental_branch_is_refused_with_the_command(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        node = manifest["nodes"][ORDERS]
        node["compiled_code"] += "\n  and o.ordered_at > (select max(ordered_at) from bakery.order_totals)"

    refusal = model_of(read(change), "order_totals").refusal
    assert "only its incremental branch is compiled" in refusal
    assert "dbt compile --full-refresh" in refusal


def test_an_incremental_branch_without_this_is_found_by_its_text(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        node = manifest["nodes"][ORDERS]
        node["raw_code"] += "{% if is_incremental() %} and o.ordered_at > current_date() - 3 {% endif %}"
        node["compiled_code"] += " and o.ordered_at > current_date() - 3"

    assert "ordered_at > current_date() - 3" in model_of(read(change), "order_totals").refusal


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda node: node.update(language="python"), "Python model"),
        (lambda node: node.update(compiled_code=None), "not compiled"),
        (lambda node: node["config"].update(materialized="clustered_table"), "'clustered_table' is not dbt's own"),
    ],
)
def test_a_model_that_cannot_be_taken_has_its_reason(
    read: ReadChanged, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    assert words in model_of(read(lambda manifest: change(manifest["nodes"][ORDERS])), "order_totals").refusal


def test_hooks_and_queries_at_compile_time_are_listed(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        node = manifest["nodes"][ORDERS]
        node["config"]["post-hook"] = [{"sql": "grant select on {{ this }} to x", "transaction": True}]
        node["raw_code"] += "{% set days = run_query('select 1') %}"

    project = read(change)
    assert ("hook", "order_totals") in [(part.kind, part.name) for part in project.left_out]
    assert "run_query" in " ".join(model_of(project, "order_totals").notes)


@pytest.mark.parametrize(
    "text", ["{{ run_started_at }}", "{{ modules.datetime.datetime.now() }}", "{{ invocation_id }}"]
)
def test_a_moment_of_dbts_run_is_noted(read: ReadChanged, text: str) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"][ORDERS]["raw_code"] += f"-- {text}"

    assert "sets anew in each run" in " ".join(model_of(read(change), "order_totals").notes)
    assert "sets anew" not in " ".join(model_of(read(), "order_totals").notes)


@pytest.mark.parametrize("node", [ORDERS, "model.bakery.priced_lines"])
def test_a_branch_of_a_target_is_noted_also_in_an_inlined_model(read: ReadChanged, node: str) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"][node]["raw_code"] += " {% if target.name == 'dev' %} where false {% endif %}"

    name = "order_totals" if node == ORDERS else "best_products"
    assert "Compile with the --target of production" in " ".join(model_of(read(change), name).notes)
    assert "Compile with" not in " ".join(model_of(read(), name).notes)


def test_a_unit_test_cannot_give_rows_to_an_ephemeral_model(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        (test,) = manifest["unit_tests"].values()
        test["given"] = [{"input": "ref('priced_lines')", "rows": "select 1 as id", "format": "sql"}]

    (test,) = read(change).unit_tests
    assert test.refusal.startswith("its input ref('priced_lines') is an ephemeral model"), test.refusal


def test_a_short_name_of_two_sources_is_an_error(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        for group in ("raw", "old"):
            manifest["sources"][f"source.bakery.{group}.a"] = {
                "unique_id": f"source.bakery.{group}.a", "source_name": group, "name": "a", "schema": group,
                "original_file_path": "models/s.yml",
            }  # fmt: skip

    with pytest.raises(ProjectError, match=r"the name of 2 sources.*old\.a, raw\.a"):
        read(change, DbtOptions(sources={"a": "/x"}))


def test_unit_tests_of_two_models_may_share_a_name(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        (first, *_) = manifest["unit_tests"].values()
        other = next(n for n in manifest["nodes"].values() if n["name"] == "daily_sales")
        copied = {**first, "model": "daily_sales", "depends_on": {"nodes": [other["unique_id"]], "macros": []}}
        manifest["unit_tests"] = {"a": first, "b": copied}

    (name,) = (test["name"] for test in json.loads(EXAMPLE.read_text())["unit_tests"].values())
    assert [test.name for test in read(change).unit_tests] == [f"{name} of order_totals", f"{name} of daily_sales"]


def test_constraints_of_a_contract_are_assertions(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        node = manifest["nodes"][ORDERS]
        node["contract"] = {"enforced": True}
        node["columns"]["order_id"]["constraints"] = [{"type": "not_null"}, {"type": "primary_key"}]
        node["constraints"] = [{"type": "check", "name": "positive", "expression": "total >= 0", "columns": []}]

    selects = {a.name: a.select for a in read(change).assertions if a.kind.startswith("constraint")}
    assert selects == {
        "order_totals__not_null_order_id": "SELECT *\nFROM order_totals\nWHERE order_id IS NULL",
        "order_totals__positive": "SELECT *\nFROM order_totals\nWHERE NOT (total >= 0\n)",
    }


def test_the_freshness_of_a_source_is_listed(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        span = {"count": 12, "period": "hour"}
        manifest["sources"]["source.bakery.raw.a"] = {
            "unique_id": "source.bakery.raw.a",
            "source_name": "raw",
            "name": "a",
            "schema": "raw",
            "original_file_path": "models/s.yml",
            "meta": {"external_location": "seeds/raw_orders.csv"},
            "freshness": {"error_after": span, "warn_after": {}},
        }
        manifest["nodes"][ORDERS]["depends_on"]["nodes"].append("source.bakery.raw.a")

    assert [p.reason for p in read(change).left_out if p.kind == "source freshness"] == [
        "no check runs; limit the age of its readers under [freshness] in pipeline.toml (12 hour)"
    ]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"strategy": "check", "check_cols": "all"}, "strategy 'check'"),
        ({"hard_deletes": "invalidate"}, "hard_deletes"),
    ],
)
def test_a_snapshot_without_times_of_its_changes_is_refused(
    read: ReadChanged, config: dict[str, Any], words: str
) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"]["snapshot.bakery.price_history"]["config"].update(config)

    assert words in model_of(read(change), "history.price_history").refusal


def test_a_source_without_a_place_has_the_option_that_names_it(read: ReadChanged, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["sources"]["source.bakery.raw.shops"] = {
            "unique_id": "source.bakery.raw.shops", "source_name": "raw", "name": "shops", "identifier": "shops",
            "schema": "raw", "relation_name": "raw.shops", "original_file_path": "models/raw.yml",
            "columns": {"id": {"name": "id", "data_type": "integer"}},
        }  # fmt: skip
        node = manifest["nodes"]["model.bakery.daily_sales"]
        node["compiled_code"] = node["compiled_code"].replace("bakery_raw.raw_shops", "raw.shops")
        node["depends_on"]["nodes"].append("source.bakery.raw.shops")

    assert "--source raw.shops=PATH" in model_of(read(change), "raw.shops").refusal
    places = {"raw.shops": str(EXAMPLE.parents[1] / "seeds" / "raw_shops.csv")}
    shops = model_of(read(change, DbtOptions(sources=places)), "raw.shops")
    assert shops.statement.startswith("CREATE SOURCE raw.shops (\n    id int,\n    name string,")
    assert "join raw.shops s" in model_of(read(change, DbtOptions(sources=places)), "daily_sales").statement
    with pytest.raises(ProjectError, match=r"raw\.shops"):
        read(change, DbtOptions(sources={"raw.shop": "x"}))


@pytest.mark.parametrize("version", [10, 11, 12, 20])
def test_the_layouts_of_each_version_are_read(read: ReadChanged, version: int) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["metadata"]["dbt_schema_version"] = f"https://schemas.getdbt.com/dbt/manifest/v{version}.json"
        if version < 12:
            del manifest["unit_tests"], manifest["saved_queries"]

    assert model_of(read(change), "order_totals").statement


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["metadata"].update(dbt_schema_version="https://schemas.getdbt.com/dbt/manifest/v9.json"), "v9"),
        (lambda m: [node.pop("compiled_code", None) for node in m["nodes"].values()], "without compiled SQL"),
        (lambda m: m.pop("metadata"), "no manifest of dbt"),
    ],
)
def test_a_wrong_manifest_is_an_error_with_a_remedy(read: ReadChanged, change: Change, words: str) -> None:
    with pytest.raises(ProjectError, match=words) as caught:
        read(change)
    assert "dbt compile --full-refresh" in str(caught.value)


def test_a_missing_manifest_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="dbt compile --full-refresh"):
        read_dbt_project(tmp_path / "target" / "manifest.json", DbtOptions())


def test_double_quotes_of_other_databases_need_a_dialect(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["metadata"]["adapter_type"] = "duckdb"
        node = manifest["nodes"]["model.bakery.customers"]
        node["compiled_code"] = node["compiled_code"].replace("c.full_name,", 'c."full_name",', 1)

    assert "--dialect duckdb" in model_of(read(change), "customers").refusal
    customers = model_of(read(change, DbtOptions(dialect="duckdb")), "customers")
    assert "c.`full_name`" in customers.statement
    assert customers.notes[0].startswith("translated from duckdb by sqlglot")


def test_an_unknown_dialect_is_an_error(read: ReadChanged) -> None:
    with pytest.raises(ProjectError, match="duckdb"):
        read(options=DbtOptions(dialect="ducdb"))


@pytest.mark.parametrize(
    ("sql", "renamed"),
    [
        ('select * from "db"."main"."Orders" o', "select * from orders o"),
        ("select `db`.`main`.`orders`.id from db.main.orders", "select orders.id from orders"),
        ("select 'db.main.orders' -- db.main.orders\nfrom db . main . orders",
         "select 'db.main.orders' -- db.main.orders\nfrom orders"),
        ("select x.db.main.orders from t", "select x.db.main.orders from t"),
        ("with orders as (select 1 as id), b as (select id from db.main.orders) select * from b",
         "with orders as (select 1 as id), b as (select id from default.orders) select * from b"),
        ("with a as (select 1), `Orders` (id) as (select 2) select orders.id from `db`.main.orders, a",
         "with a as (select 1), `Orders` (id) as (select 2) select orders.id from default.orders, a"),
    ],
)  # fmt: skip
def test_only_names_of_relations_are_replaced(sql: str, renamed: str) -> None:
    assert rename_relations(sql, {("db", "main", "orders"): "orders"}).sql == renamed


def test_schemas_have_no_prefix_of_the_target(read: ReadChanged) -> None:
    names = {model.name for model in read().models}
    assert {"order_totals", "staging.stg_orders", "raw.raw_orders", "history.price_history"} <= names
    assert "from staging.stg_orders o" in model_of(read(), "order_totals").statement


def test_models_of_equal_names_in_two_schemas_are_two_relations(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        node = manifest["nodes"]["model.bakery.customers"]
        node.update(alias="daily_sales", schema="other", relation_name="other.daily_sales")

    assert {"daily_sales", "other.daily_sales"} <= {model.name for model in read(change).models}


def test_exposures_and_functions_are_listed(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        part = {"name": "to_cents", "original_file_path": "functions/to_cents.sql", "resource_type": "function"}
        manifest["functions"] = {"function.bakery.to_cents": part}

    listed = {part.kind: f"{part.name} ({part.place}): {part.reason}" for part in read(change).left_out}
    assert listed["exposure"] == (
        "morning_report (models/marts/marts.yml): it reads daily_sales: lineage events name it (exposures.toml)"
    )
    (exposure,) = read(change).exposures
    assert (exposure.name, exposure.reads, exposure.type, exposure.owner) == (
        *("morning_report", ("daily_sales",), "dashboard", "Shop managers"),
    )
    assert listed["function"].startswith("to_cents (functions/to_cents.sql): models that call it are not taken")


def test_rows_before_the_first_batch_of_a_model_have_a_note(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"][ORDERS]["config"] |= {"incremental_strategy": "microbatch", "begin": "2025-01-01"}

    assert "dbt builds its batches from 2025-01-01 on; this view also has the rows of earlier times" in (
        model_of(read(change), "order_totals").notes
    )


def test_columns_and_rows_that_a_merge_does_not_update_have_a_note(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        config = {"merge_update_columns": ["total"], "incremental_predicates": ["DBT_INTERNAL_DEST.day > '2026-01-01'"]}
        manifest["nodes"][ORDERS]["config"] |= config

    assert {note.partition(";")[0] for note in model_of(read(change), "order_totals").notes} >= {
        "dbt updates only some columns of a row that it merges again",
        "dbt merges only into rows that incremental_predicates select",
    }


def test_a_seed_whose_file_spark_ignores_is_refused(read: ReadChanged, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"]["seed.bakery.raw_shops"]["original_file_path"] = "_shops.csv"

    (tmp_path / "_shops.csv").write_text("id\n1\n")
    assert model_of(read(change), "raw.raw_shops").refusal.startswith("its file _shops.csv is hidden")


def test_a_macro_of_a_missing_package_is_null_in_the_manifest(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"][ORDERS]["depends_on"]["macros"] = [None, "macro.dbt.is_incremental"]

    assert read(change).models == read().models


def test_a_source_over_a_seed_is_one_relation(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["sources"]["source.bakery.raw.shops"] = {
            "unique_id": "source.bakery.raw.shops", "source_name": "raw", "name": "shops", "identifier": "raw_shops",
            "schema": "bakery_raw", "relation_name": "bakery_raw.raw_shops", "original_file_path": "models/raw.yml",
        }  # fmt: skip
        manifest["nodes"]["model.bakery.daily_sales"]["depends_on"]["nodes"].append("source.bakery.raw.shops")

    names = [model.name for model in read(change).models]
    assert names.count("raw.raw_shops") == 1
    assert len(names) == len(set(names))


def with_source(manifest: dict[str, Any], reader: str, **facts: object) -> None:
    """Add the source raw.customers, which a model reads."""
    manifest["sources"]["source.bakery.raw.customers"] = {
        "unique_id": "source.bakery.raw.customers", "source_name": "raw", "name": "customers",
        "identifier": "customers", "original_file_path": "models/raw.yml", **facts,
    }  # fmt: skip
    node = manifest["nodes"][reader]
    node["compiled_code"] = f"select * from {facts['relation_name']}"
    node["depends_on"]["nodes"].append("source.bakery.raw.customers")


@pytest.mark.parametrize(
    "facts",
    [
        {"database": "landing", "schema": "bakery", "relation_name": "landing.bakery.customers"},
        {"schema": "", "relation_name": "customers"},
    ],
)
def test_a_source_with_the_name_of_a_model_is_a_relation_of_its_own(
    read: ReadChanged, facts: dict[str, object]
) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"]["model.bakery.customers"]["database"] = "bakery"
        with_source(manifest, "model.bakery.daily_sales", **facts)

    project = read(change)
    assert model_of(project, "customers_source").kind == "source"
    assert model_of(project, "daily_sales").reads == ("customers_source",)


def test_a_source_in_a_schema_that_dbt_shortens_is_a_relation_of_its_own(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"]["model.bakery.stg_orders"] |= {"alias": "customers"}
        with_source(manifest, "model.bakery.daily_sales", schema="staging", relation_name="staging.customers")

    project = read(change)
    assert model_of(project, "staging.customers").kind == "view model"
    assert model_of(project, "daily_sales").reads == ("staging.customers_source",)


def test_a_model_that_ends_in_a_comment_hides_no_statement(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"][ORDERS]["compiled_code"] += "; -- by hour"

    statement = model_of(read(change), "order_totals").statement
    assert statement == model_of(read(), "order_totals").statement.rstrip()


def test_tests_of_one_name_are_all_taken(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        first = manifest["nodes"]["test.bakery.no_empty_order"]
        manifest["nodes"]["test.other.no_empty_order"] = first | {"unique_id": "test.other.no_empty_order"}
        manifest["nodes"][ORDERS]["contract"] = {"enforced": True}
        manifest["nodes"][ORDERS]["constraints"] = [
            {"type": "check", "expression": "total > 0"},
            {"type": "check", "expression": "total < 1000"},
        ]

    files = [file_of(one) for one in read(change).assertions]
    assert {"no_empty_order_2.sql", "order_totals__check.sql", "order_totals__check_2.sql"} <= set(files)
    assert len(files) == len(set(files))


def test_files_of_a_package_are_in_its_folder(read: ReadChanged, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"]["seed.bakery.raw_shops"]["package_name"] = "towns"
        manifest["nodes"]["model.bakery.customers"]["package_name"] = "towns"

    (tmp_path / "dbt_packages" / "towns" / "seeds").mkdir(parents=True)
    (tmp_path / "dbt_packages" / "towns" / "seeds" / "raw_shops.csv").write_text("town\nOslo\n")
    (tmp_path / "models" / "marts").mkdir(parents=True)
    (tmp_path / "models" / "marts" / "customers.sql").write_text("select 1")
    project = read(change)
    assert "town string" in model_of(project, "raw.raw_shops").statement
    assert "${data}/dbt_packages/towns/seeds/raw_shops.csv" in model_of(project, "raw.raw_shops").statement
    assert project.outdated == ()


def test_line_ends_of_windows_are_no_change_of_a_model(read: ReadChanged, tmp_path: Path) -> None:
    content = b"select 1\r\nfrom t\r\n"

    def change(manifest: dict[str, Any]) -> None:
        checksum = {"name": "sha256", "checksum": sha256(content.strip()).hexdigest()}
        manifest["nodes"]["model.bakery.customers"]["checksum"] = checksum

    (tmp_path / "models" / "marts").mkdir(parents=True)
    (tmp_path / "models" / "marts" / "customers.sql").write_bytes(content)
    assert read(change).outdated == ()


@pytest.mark.parametrize(
    ("given", "alias"),
    [("ref('customers', v=1)", "v1"), ("ref('bakery', 'customers', version='2')", "v2"), ("ref('customers')", "v2")],
)
def test_a_unit_test_gives_rows_to_a_version_of_a_model(read: ReadChanged, given: str, alias: str) -> None:
    def change(manifest: dict[str, Any]) -> None:
        nodes = manifest["nodes"]
        first = nodes.pop("model.bakery.customers") | {"latest_version": 2}
        for version in (1, 2):
            key = f"model.bakery.customers.v{version}"
            nodes[key] = first | {"unique_id": key, "version": version, "alias": f"v{version}"}
            nodes[key]["relation_name"] = f"bakery.v{version}"
        (test,) = manifest["unit_tests"].values()
        test["given"] = [{"input": given, "rows": [{"id": 1}], "format": "dict"}]

    (test,) = read(change).unit_tests
    assert list(test.rows) == [alias]


@pytest.mark.parametrize(
    "column", ['extract(year from "sold_at")', "extract(year from 'sold_at')", "trim(both ' ' from 'a')"]
)
def test_a_text_after_from_is_no_file(read: ReadChanged, column: str) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"][ORDERS]["compiled_code"] = f"select {column} as y from bakery.customers"

    assert column in model_of(read(change), "order_totals").statement


def test_a_header_that_does_not_run_is_listed(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"][ORDERS]["config"]["sql_header"] = "set time zone 'Europe/Oslo';"

    (header,) = (part for part in read(change).left_out if part.kind == "sql_header")
    assert header.reason == "does not run before the model: set time zone 'Europe/Oslo';"


def test_macros_of_a_project_with_a_name_like_an_adapter_are_read(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["metadata"]["project_name"] = "dbt_bakery"
        macro = {"name": "days", "package_name": "dbt_bakery", "macro_sql": "{{ run_query('select 1') }}"}
        manifest["macros"] = {"macro.dbt_bakery.days": macro}
        manifest["nodes"][ORDERS]["depends_on"]["macros"] = ["macro.dbt_bakery.days"]

    assert "the macro days queries the database" in " ".join(model_of(read(change), "order_totals").notes)


def test_a_model_whose_file_changed_after_the_compile_is_reported(read: ReadChanged, tmp_path: Path) -> None:
    assert read().outdated == ()
    (tmp_path / "models" / "marts").mkdir(parents=True)
    (tmp_path / "models" / "marts" / "customers.sql").write_text("select 1")
    assert read().outdated == (
        "models/marts/customers.sql changed after manifest.json was written: run `dbt compile --full-refresh`",
    )


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("VARCHAR(20)", "string"),
        ("character varying(255)", "string"),
        ("numeric(10, 2)", "decimal(10,2)"),
        ("timestamp without time zone", "timestamp"),
        ("INT64", "bigint"),
        ("array<int>", "array<int>"),
    ],
)
def test_types_of_projects_become_types_of_spark(declared: str, expected: str) -> None:
    assert spark_type(declared) == expected


def test_a_model_that_dbt_writes_to_a_file_is_a_view_with_a_note(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["nodes"][ORDERS]["config"]["materialized"] = "external"

    model = model_of(read(change), "order_totals")
    assert model.statement.startswith("CREATE MATERIALIZED VIEW order_totals AS")
    assert "[publish]" in model.notes[0]


def test_a_declared_place_may_be_above_the_project(read: ReadChanged, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["sources"]["source.bakery.raw.shops"] = {
            "unique_id": "source.bakery.raw.shops", "source_name": "raw", "name": "shops", "identifier": "shops",
            "schema": "raw", "original_file_path": "models/raw.yml",
            "meta": {"external_location": f"../{tmp_path.name}/seeds/raw_{{name}}.csv"},
        }  # fmt: skip
        manifest["nodes"]["model.bakery.daily_sales"]["depends_on"]["nodes"].append("source.bakery.raw.shops")

    assert "path '${data}/seeds/raw_shops.csv'" in model_of(read(change), "raw.shops").statement


def test_a_schema_named_default_is_the_default_schema_of_the_pipeline() -> None:
    assert relation_name("default", "Orders") == relation_name("", "orders") == "orders"
    assert relation_name("Sales-EU", "orders") == "sales_eu.orders"


@pytest.mark.parametrize(
    ("declared", "adapter", "expected"),
    [
        ("DECIMAL", "duckdb", "decimal(18,3)"),
        ("decimal", "postgres", "decimal(38,9)"),
        ("decimal", "databricks", "decimal(10,0)"),
        ("numeric", "snowflake", "decimal(38,0)"),
        ("float", "spark", "float"),
        ("float", "snowflake", "double"),
        ("timestamp_ntz", "databricks", "timestamp_ntz"),
        ("timestamp_ntz", "snowflake", "timestamp"),
    ],
)
def test_the_meaning_of_a_type_is_that_of_the_projects_database(declared: str, adapter: str, expected: str) -> None:
    assert spark_type(declared, adapter) == expected


def test_types_of_parquet_files_are_not_declared_anew(read: ReadChanged, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": pa.array([2**40])}), tmp_path / "customers.parquet")

    def change(manifest: dict[str, Any]) -> None:
        facts = {"schema": "raw", "relation_name": "raw.customers"}
        with_source(manifest, "model.bakery.daily_sales", columns={"id": {"name": "id", "data_type": "int"}}, **facts)

    options = DbtOptions(sources={"raw.customers": str(tmp_path / "customers.parquet")})
    assert "id bigint" in model_of(read(change, options), "raw.customers").statement


def test_a_table_with_a_contract_has_the_columns_in_the_order_of_the_contract(read: ReadChanged) -> None:
    def change(manifest: dict[str, Any]) -> None:
        for name in ("order_totals", "stg_orders"):
            node = manifest["nodes"][f"model.bakery.{name}"]
            node["contract"] = {"enforced": True}
            node["columns"] = {"total": {"name": "total"}, "order id": {"name": "order id"}}

    project = read(change)
    assert "AS\nSELECT total, `order id` FROM (\n" in model_of(project, "order_totals").statement
    assert model_of(project, "order_totals").statement.endswith("\n) AS model_subq")
    assert model_of(project, "staging.stg_orders").statement == model_of(read(), "staging.stg_orders").statement


def test_the_columns_of_a_folder_of_read_files_come_from_its_subfolders(read: ReadChanged, tmp_path: Path) -> None:
    (tmp_path / "landing" / "2026" / "01").mkdir(parents=True)
    (tmp_path / "landing" / "2026" / "01" / "a.csv").write_text("id,name\n1,Ann\n")

    def change(manifest: dict[str, Any]) -> None:
        folder = tmp_path / "landing"
        manifest["nodes"][ORDERS]["compiled_code"] = f"SELECT * FROM read_files('{folder}', format => 'csv')"

    statement = model_of(read(change), "order_totals_files").statement
    assert "(id bigint, name string)" in " ".join(statement.split()).replace("( ", "(").replace(" )", ")")
    assert "recursiveFileLookup 'true'" in statement


@pytest.mark.parametrize(
    ("call", "adapter", "columns"),
    [
        ("read_csv('{}', header = false)", "duckdb", "(column0 bigint, column1 string)"),
        (
            "read_csv('{}', header = 0, columns = {{'Id': 'INTEGER', 'name': 'VARCHAR'}})",
            "duckdb",
            "(`Id` int, name string)",
        ),
        ("read_csv('{}', header = false, names = ['id', 'name'])", "duckdb", "(id bigint, name string)"),
        ("read_files('{}', format => 'csv', header => false)", "databricks", "(_c0 bigint, _c1 string)"),
    ],
)
def test_columns_without_a_header_have_the_names_of_the_database(
    read: ReadChanged, tmp_path: Path, call: str, adapter: str, columns: str
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1,Ann\n2,Bob\n")

    def change(manifest: dict[str, Any]) -> None:
        manifest["metadata"]["adapter_type"] = adapter
        manifest["nodes"][ORDERS]["compiled_code"] = f"SELECT * FROM {call.format(file)}"

    statement = " ".join(model_of(read(change), "order_totals_files").statement.split())
    assert columns in statement.replace("( ", "(").replace(" )", ")")
    assert "header 'true'" not in statement
