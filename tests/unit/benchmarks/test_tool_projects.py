"""The sources and tables of projects, as two tools see them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from benchmarks.import_rows import Tables
from benchmarks.import_tools import split_rows
from benchmarks.tool_projects import DbtProject, SdpProject, read_tool_table
from tussock.jobs.importing.project import ForeignProject, Model, ProjectPlace, Script

PLACE = ProjectPlace("models/a.sql")


def node_of(kind: str, schema: str, name: str, materialized: str = "") -> dict[str, object]:
    custom = schema.removeprefix("shop").removeprefix("_") or None
    facts = {
        "unique_id": f"{kind}.p.{name}",
        "resource_type": kind,
        "package_name": "p",
        "name": name,
        "language": "sql",
    }
    facts |= {"schema": schema, "alias": name, "original_file_path": f"{name}.sql", "compiled_code": "SELECT 1"}
    return facts | {"config": {"materialized": materialized, "schema": custom}}


def dbt_project(folder: Path, *nodes: dict[str, object]) -> DbtProject:
    project = DbtProject(folder, folder, {"repository": "a/b", "tool": "dbt", "folder": str(folder)})
    (project.root / "target").mkdir(parents=True)
    version = "https://schemas.getdbt.com/dbt/manifest/v12.json"
    source = {"unique_id": "source.p.lake.orders", "resource_type": "source", "package_name": "p", "name": "orders"}
    source |= {"schema": "lake", "identifier": "orders", "source_name": "lake", "original_file_path": "sources.yml"}
    manifest = {
        "metadata": {"dbt_schema_version": version, "project_name": "p", "adapter_type": "spark"},
        "nodes": {str(node["unique_id"]): node for node in nodes},
        "sources": {"source.p.lake.orders": source},
    }
    (project.root / "target" / "manifest.json").write_text(json.dumps(manifest))
    return project


def test_tables_of_dbt_are_models_that_are_not_views(tmp_path: Path) -> None:
    project = dbt_project(
        tmp_path,
        node_of("seed", "shop", "raw"),
        node_of("model", "shop_marts", "totals", "table"),
        node_of("model", "shop", "days", "incremental"),
        node_of("model", "shop", "lines", "view"),
        node_of("test", "shop", "unique"),
    )
    sources, tables = project.list_tables(ForeignProject("dbt", "x", tmp_path, ()))
    assert sources == {"shop.raw": "raw", "lake.orders": "lake.orders"}
    assert tables == {"marts.totals": "shop_marts.db/totals", "days": "shop.db/days"}


def test_dbt_selects_models_by_their_names_and_not_by_their_aliases(tmp_path: Path) -> None:
    project = dbt_project(tmp_path, node_of("model", "shop", "orders", "table") | {"alias": "orders_global"})
    _, tables = project.list_tables(ForeignProject("dbt", "x", tmp_path, ()))
    assert tables == {"orders_global": "shop.db/orders_global"}
    assert project.select_models(tables) == ["+orders"]


def test_a_source_of_dbt_is_read_from_a_folder_of_the_benchmark(tmp_path: Path) -> None:
    statement = "CREATE SOURCE raw (`id` bigint, `price` decimal(10, 2)) USING csv OPTIONS (path 'raw.csv')"
    place, source = dbt_project(tmp_path).place_source(Model("raw", "seed", PLACE, statement, Script.SOURCES))
    assert place == tmp_path / "data" / "raw"
    columns = "(`id` bigint, `price` decimal(10, 2))"
    assert source.statement == f"CREATE SOURCE raw {columns} USING parquet OPTIONS (path '{place}')"


def test_a_source_of_a_declarative_pipeline_keeps_its_place(tmp_path: Path) -> None:
    project = SdpProject(tmp_path, tmp_path, {"repository": "a/b", "tool": "sdp", "folder": "", "spec": "p.yml"})
    statement = "CREATE SOURCE orders (id bigint) USING csv OPTIONS (path '${data}/data', header 'true')"
    model = Model("orders", "csv", PLACE, statement, Script.SOURCES)
    assert project.place_source(model) == (tmp_path / "project" / "data", model)


def test_tables_that_no_other_table_refers_to_have_all_rows() -> None:
    orders = pa.schema({"order_id": pa.string(), "price": pa.float64()})
    lines = pa.schema({"line_id": pa.string(), "order_id": pa.string()})
    assert Tables({"orders": orders}, {}, 1_000).size_of("orders") == 1_000
    both = Tables({"orders": orders, "lines": lines}, {}, 1_000)
    assert (both.size_of("orders"), both.size_of("lines")) == (20, 1_000)


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_one_row_of_a_hundred_comes_later(tmp_path: Path, file_format: str) -> None:
    sample, place, later = tmp_path / "sample", tmp_path / "place", tmp_path / "later"
    (sample / "orders").mkdir(parents=True)
    rows = pa.table({"id": range(1_000)})
    pq.write_table(rows, sample / "orders" / "rows.parquet")
    assert split_rows(sample, place, later, "orders", file_format) == (990, 10)
    first, second = (ds.dataset(f, format=file_format).to_table() for f in (place, later / "orders"))
    assert sorted(first["id"].to_pylist() + second["id"].to_pylist()) == rows["id"].to_pylist()
    names = {file.name for folder in (place, later / "orders") for file in folder.iterdir()}
    assert names == {f"first.{file_format}", f"later.{file_format}"}, "both files fit into one folder"


def test_the_newest_rows_come_later_and_no_row_of_the_first_run_is_as_new(tmp_path: Path) -> None:
    (tmp_path / "sample" / "orders").mkdir(parents=True)
    rows = pa.table({"at": [f"2026-01-{number * 7 % 28 + 1:02}" for number in range(1_000)]})
    pq.write_table(rows, tmp_path / "sample" / "orders" / "rows.parquet")
    folders = tmp_path / "place", tmp_path / "later"
    counts = split_rows(tmp_path / "sample", *folders, "orders", "parquet", "at")
    first, second = (ds.dataset(f, format="parquet").to_table() for f in (folders[0], folders[1] / "orders"))
    assert counts == (first.num_rows, second.num_rows)
    assert counts[1] > 0
    assert max(first["at"].to_pylist()) < min(second["at"].to_pylist())


def test_tables_of_dbt_are_parquet_files_or_the_newest_version_of_a_delta_table(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    (tmp_path / "plain").mkdir()
    pq.write_table(rows, tmp_path / "plain" / "part.parquet")
    assert read_tool_table(tmp_path / "plain") == rows
    write_deltalake(tmp_path / "delta", pa.table({"id": [7]}))
    write_deltalake(tmp_path / "delta", rows, mode="overwrite")  # the file of the first version stays
    assert read_tool_table(tmp_path / "delta")["id"].to_pylist() == [1, 2]


def test_a_project_with_delta_lake_starts_spark_with_it(tmp_path: Path) -> None:
    project = dbt_project(tmp_path)
    assert not any("delta" in word for word in project._spark_words())
    project.facts["delta"] = True
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in project._spark_words()
