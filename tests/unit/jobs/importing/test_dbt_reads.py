"""Reads of files in the SQL of dbt models: each becomes a source over these files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.jobs.importing.test_dbt_project import ORDERS, ReadChanged, model_of, read  # noqa: F401  a fixture
from tussock.jobs.importing.dbt_project import DbtOptions
from tussock.jobs.importing.dbt_reads import find_reads, read_of_place
from tussock.jobs.importing.names import rename_relations, tokens_in
from tussock.jobs.importing.project import ForeignProject
from tussock.jobs.importing.sdp_reads import UnsupportedReadError

FILES = "order_totals_files"


@pytest.mark.parametrize(
    ("sql", "format_name", "path"),
    [
        ("SELECT * FROM 'data/orders.csv'", "csv", "data/orders.csv"),
        ("SELECT * FROM a JOIN 'data/*.parquet' p USING (id)", "parquet", "data/*.parquet"),
        ("SELECT * FROM read_csv_auto('data/o.csv', header = true, auto_detect := true)", "csv", "data/o.csv"),
        ("SELECT * FROM read_json(['data/**/*.json'], format = 'array')", "json", "data/**/*.json"),
        (
            "SELECT * FROM read_parquet('s3://lake/a/*.parquet', union_by_name = true)",
            "parquet",
            "s3://lake/a/*.parquet",
        ),
        ("SELECT * FROM STREAM read_files('/v/orders', format => 'json')", "json", "/v/orders"),
        ("SELECT * FROM read_files('/v/orders')", "", "/v/orders"),
        ("SELECT * FROM STREAM(read_files('/v/orders', format => 'csv'))", "csv", "/v/orders"),
        ("SELECT * FROM parquet.`/lake/orders` AS o", "parquet", "/lake/orders"),
        ("SELECT * FROM delta_scan('/lake/orders')", "delta", "/lake/orders"),
    ],
)
def test_a_read_is_found_with_its_format_and_path(sql: str, format_name: str, path: str) -> None:
    (written,) = find_reads(sql)
    assert (written.read.format, written.read.path) == (format_name, path)
    rest = sql[: written.begin] + sql[written.end :]
    assert "(" not in rest.partition("USING")[0]
    assert "STREAM" not in rest


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'a.csv' AS name, text.value, csv FROM orders WHERE path = 'b.parquet'",
        "SELECT * FROM text.orders",
        "SELECT * FROM range(10), unnest(['a.csv'])",
    ],
)
def test_texts_and_names_of_columns_are_no_reads(sql: str) -> None:
    assert list(find_reads(sql)) == []


def test_options_of_duckdb_become_those_of_a_source() -> None:
    text = "read_csv('o.csv', delim=';', nullstr='-', columns={'id': 'INTEGER', 'price': 'DECIMAL(10, 2)'})"
    read_call = read_of_place(text)
    assert read_call is not None
    assert dict(read_call.options) == {"sep": ";", "nullValue": "-"}
    assert read_call.hints == "`id` INTEGER, `price` DECIMAL(10, 2)"


@pytest.mark.parametrize("text", ["read_csv('a.csv', filename = true)", "read_csv(['a.csv', 'b.csv'])", "read_csv(x)"])
def test_a_read_without_counterpart_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedReadError):
        read_of_place(text)


def with_sql(read: ReadChanged, sql: str, options: DbtOptions | None = None) -> ForeignProject:  # noqa: F811
    return read(lambda manifest: manifest["nodes"][ORDERS].update(compiled_code=sql, raw_code=sql), options)


def test_a_model_over_files_reads_a_source(read: ReadChanged, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "data" / "a.parquet")
    project = with_sql(read, "SELECT * FROM 'data/*.parquet' UNION ALL SELECT * FROM 'data/*.parquet'")
    model = model_of(project, "order_totals")
    assert (model.reads, model.refusal) == ((FILES,), "")
    assert model.statement.endswith(f"SELECT * FROM {FILES} UNION ALL SELECT * FROM {FILES}")
    assert "path '${data}/data/*.parquet'" in model_of(project, FILES).statement


def test_files_that_are_not_here_name_the_option(read: ReadChanged, tmp_path: Path) -> None:  # noqa: F811
    sql = "SELECT id FROM read_csv('/nowhere/*.csv', types = {'id': 'VARCHAR'})"
    assert f"--source {FILES}=PATH" in model_of(with_sql(read, sql), FILES).refusal
    (tmp_path / "here.csv").write_text("id,n\n1,2\n")
    given = DbtOptions(sources={FILES: str(tmp_path / "here.csv")})
    statement = model_of(with_sql(read, sql, given), FILES).statement
    assert "id string" in statement
    assert "n bigint" in statement


@pytest.mark.parametrize("rendered", ["'lake/{name}.parquet'", "read_csv_auto('lake/{name}.csv', sep = ';')"])
def test_a_source_by_its_place_is_renamed_in_compiled_sql(rendered: str) -> None:
    text = rendered.replace("{name}", "orders")
    sql = f"SELECT '{'lake/orders.parquet'}' AS x FROM {text} AS o"
    renamed = rename_relations(sql, {}, {tokens_in(text): "raw.orders"})
    assert renamed.sql == "SELECT 'lake/orders.parquet' AS x FROM raw.orders AS o"
    assert renamed.reads == ("raw.orders",)


@pytest.mark.parametrize("written", ["STREAM db.orders", "stream(db.orders)", "STREAM `db`.`orders`"])
def test_the_word_stream_before_a_relation_is_left_out(written: str) -> None:
    renamed = rename_relations(f"SELECT * FROM {written} WHERE id > 1", {("db", "orders"): "orders"})
    assert renamed.sql == "SELECT * FROM orders WHERE id > 1"


def test_a_source_with_options_in_its_place_is_read_with_them(read: ReadChanged, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "a.csv").write_text("id;n\n1;2\n")
    place = f"read_csv('{tmp_path}/a.csv', delim = ';')"
    source: dict[str, Any] = {
        "unique_id": "source.bakery.raw.deliveries",
        "source_name": "raw",
        "name": "deliveries",
        "schema": "raw",
        "original_file_path": "models/sources.yml",
        "relation_name": place,
        "meta": {"external_location": place},
    }

    def change(manifest: dict[str, Any]) -> None:
        manifest["sources"] = {source["unique_id"]: source}
        manifest["nodes"][ORDERS]["compiled_code"] = f"SELECT id FROM {place}"
        manifest["nodes"][ORDERS]["depends_on"]["nodes"] = [source["unique_id"]]

    project = read(change)
    source["meta"] = {"external_location": "lake/deliveries"}
    (tmp_path / "lake/deliveries/_delta_log").mkdir(parents=True)
    assert "USING delta" in model_of(read(change), "raw.deliveries").statement
    statement = model_of(project, "raw.deliveries").statement
    assert "sep ';'" in statement
    assert "n bigint" in statement
    assert model_of(project, "order_totals").statement.endswith("SELECT id FROM raw.deliveries")
