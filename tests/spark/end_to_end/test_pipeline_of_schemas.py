"""A pipeline whose schemas share names, through each command that names a relation.

The rows of the relations named `orders` differ, so a command that mixes them up has another result.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.support.jobs.sinks.delta_readers import package_rows
from tussock.jobs import cli

pytestmark = pytest.mark.spark

SETTINGS = """\
name = "shop"
store = "store"
data = "data"
sql = ["all.sql"]
[quality]
[freshness]
"b.orders" = "1h"
[[publish]]
kind = "delta"
name = "lake"
to = "lake"
[[publish]]
kind = "parquet"
name = "files"
to = "files"
relations = ["a.orders", "orders"]
"""
SQL = """\
CREATE SCHEMA a;
CREATE SCHEMA b;
CREATE SOURCE raw (id bigint, price bigint) USING csv OPTIONS (path '${data}/raw', header 'true');
CREATE SOURCE a.raw (id bigint, price bigint, at bigint, PRIMARY KEY (id)) USING csv
  OPTIONS (path '${data}/a_raw', header 'true', changes 'upsert', sequence_by 'at');
CREATE SOURCE b.raw (id bigint, price bigint, at bigint) USING csv OPTIONS (path '${data}/b_raw', header 'true');
CREATE MATERIALIZED VIEW orders AS SELECT id, price FROM raw;
CREATE MATERIALIZED VIEW a.orders AS SELECT id, price FROM a.raw;
USE b;
CREATE FLOW follow AS AUTO CDC INTO orders FROM raw KEYS (id) SEQUENCE BY at COLUMNS (id, price) STORED AS SCD TYPE 2;
CREATE MATERIALIZED VIEW totals AS
SELECT count(*) AS n, sum(b.orders.price) AS price FROM orders WHERE __END_AT IS NULL;
USE default;
CREATE MATERIALIZED VIEW totals AS
SELECT count(*) AS n, sum(orders.price) + max(o.price) AS price FROM orders JOIN a.orders o ON o.id = orders.id;
"""
FILES = {
    "raw": "id,price\n1,10\n2,20\n",
    "a_raw": "id,price,at\n1,100,1\n2,200,1\n1,101,2\n",
    "b_raw": "id,price,at\n1,1000,1\n1,1001,2\n3,3000,1\n",
}
TESTS = """\
- name: only the rows of a
  view: a.orders
  rows:
    a.raw: [{id: 1, price: 5, at: 1}]
  steps:
    - update: {a.raw: [{where: {id: 1}, set: {price: 6}}]}
      expect: [{id: 1, price: 6}]
- name: both
  view: totals
  rows:
    orders: [{id: 1, price: 1}, {id: 1, price: 2}]
    a.orders: [{id: 1, price: 10}]
  expect: [{n: 2, price: 13}]
"""


def suite(name: str, most: int) -> str:
    rule = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "price", "max_value": most}, "meta": {}}
    return json.dumps({"name": name, "meta": {"key": ["id"]}, "expectations": [rule]})


Run = Callable[..., str]


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> Run:
    """Run a command in the folder of a deployed pipeline after its first epoch. Returns what it prints."""
    home = tmp_path / "pipelines" / "shop"
    for folder in (home / "quality", home / "tests", *(tmp_path / "data" / name for name in FILES)):
        folder.mkdir(parents=True)
    (home / "pipeline.toml").write_text(SETTINGS)
    (home / "all.sql").write_text(SQL)
    (home / "tests" / "orders.yaml").write_text(TESTS)
    (home / "quality" / "orders.json").write_text(suite("orders", 20))
    (home / "quality" / "a.orders.json").write_text(suite("a.orders", 200))
    (home / "quality" / "dear.sql").write_text("-- severity: error\nSELECT * FROM b.orders WHERE price > 5000")
    for name, text in FILES.items():
        (tmp_path / "data" / name / "1.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        ended = cli.main(list(words))
        said = capsys.readouterr()
        assert ended == code, said.out + said.err
        return said.out + said.err

    run("apply", "shop")
    run("epoch", "--pipeline", "shop")
    return run


def rows(run: Run, name: str, *options: str) -> list[tuple[object, ...]]:
    answer = run("read", name, "--pipeline", "shop", "--json", *options)
    return sorted(tuple(json.loads(line).values())[:2] for line in answer.splitlines() if line.startswith("{"))


FIRST = {
    "orders": [(1, 10), (2, 20)],
    "a.orders": [(1, 101), (2, 200)],
    "b.orders": [(1, 1000), (1, 1001), (3, 3000)],
    "totals": [(2, 230)],
    "b.totals": [(2, 4001)],
}


def test_each_command_means_the_relation_of_the_schema(run: Run, tmp_path: Path) -> None:
    assert {name: rows(run, name) for name in FIRST} == FIRST
    run("check", "shop")
    run("test", "shop")
    assert "different" not in run("verify", "--pipeline", "shop").replace("0 different", "")
    run("publish", "shop")
    for name in FIRST:
        table = package_rows(DeltaTable(str(tmp_path / "lake" / name))).to_pylist()
        assert sorted(tuple(row.values())[:2] for row in table) == FIRST[name], name
    assert rows(run, "a.orders", "--published", "files") == FIRST["a.orders"]
    folders = sorted(path.name for path in (tmp_path / "files").iterdir() if path.name[0] not in "._")
    assert folders == ["a.orders", "orders"]

    run("branch", "create", "shop", "try")
    (tmp_path / "data" / "a_raw" / "2.csv").write_text("id,price,at\n2,20,3\n")
    run("epoch", "--pipeline", "shop")
    changed = FIRST | {"a.orders": [(1, 101), (2, 20)], "totals": [(2, 131)]}
    assert {name: rows(run, name) for name in FIRST} == changed
    assert rows(run, "a.orders", "--branch", "try") == FIRST["a.orders"]
    compared = json.loads(run("diff", "shop", "--json", "--from", epochs(run)[0], code=1).splitlines()[0])
    kinds = ("missing", "added", "changed")
    assert {view["name"] for view in compared["views"] if any(view[kind] for kind in kinds)} == {
        "a.orders",
        "a.raw",
        "totals",
    }


def epochs(run: Run) -> list[str]:
    listed = run("inspect", "epochs", "--pipeline", "shop")
    return [word for word in listed.split() if len(word) == 18 and word.isdigit()]


def test_undo_and_restate_change_one_schema(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data" / "b_raw" / "2.csv").write_text("id,price,at\n3,9000,2\n")
    assert "dear" in run("epoch", "--pipeline", "shop", code=1)
    assert rows(run, "b.orders") == FIRST["b.orders"]  # readers keep the previous epoch
    (tmp_path / "data" / "b_raw" / "2.csv").write_text("id,price,at\n3,4000,2\n")
    run("restate", "b.raw", "--pipeline", "shop", "--all")
    restated = FIRST | {"b.orders": [*FIRST["b.orders"], (3, 4000)], "b.totals": [(2, 5001)]}
    assert {name: rows(run, name) for name in FIRST} == restated
    (tmp_path / "data" / "raw" / "1.csv").write_text("id,price\n1,11\n2,20\n")
    run("restate", "raw", "--pipeline", "shop", "--file", "data/raw/1.csv")
    again = restated | {"orders": [(1, 11), (2, 20)], "totals": [(2, 231)]}
    assert {name: rows(run, name) for name in FIRST} == again
    run("undo", "shop", "--to", epochs(run)[0], "--input", "taken")
    assert {name: rows(run, name) for name in FIRST} == FIRST
    newest = max((tmp_path / "files" / "orders").glob("*.parquet"))
    assert pq.read_table(newest).sort_by("id").to_pylist() == [{"id": 1, "price": 10}, {"id": 2, "price": 20}]


def test_the_schema_of_a_pipeline_holds_in_files_assertions_tests_and_queries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    home = tmp_path / "pipelines" / "shop"
    for folder in (home / "quality", home / "tests", tmp_path / "data" / "raw"):
        folder.mkdir(parents=True)
    (home / "pipeline.toml").write_text(
        'name = "shop"\nstore = "store"\ndata = "data"\nschema = "silver"\nsql = ["all.sql"]\n[quality]\n'
    )
    (home / "all.sql").write_text(
        "CREATE SOURCE raw (id bigint, price bigint) USING csv OPTIONS (path '${data}/raw', header 'true');\n"
        "CREATE MATERIALIZED VIEW orders AS SELECT id, price FROM raw;\nUSE default;\n"
        "CREATE MATERIALIZED VIEW totals AS SELECT sum(price) AS price FROM silver.orders;\n"
    )
    (home / "quality" / "dear.sql").write_text("SELECT * FROM orders WHERE price > 5000")
    (home / "tests" / "orders.yaml").write_text(
        "- name: one\n  view: silver.orders\n  rows:\n    silver.raw: [{id: 1, price: 5}]\n"
        "  expect: [{id: 1, price: 5}]\n"
    )
    (tmp_path / "data" / "raw" / "1.csv").write_text(FILES["raw"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)

    def said(*words: str) -> str:
        capsys.readouterr()
        assert cli.main(list(words)) == 0
        return capsys.readouterr().out

    said("apply", "shop")
    said("epoch", "--pipeline", "shop")
    assert "nothing to do" in said("apply", "shop") or "unchanged" in said("plan", "shop")
    said("check", "shop")
    said("test", "shop")
    assert "20" in said("query", "SELECT * FROM orders", "--pipeline", "shop"), "a plain SELECT, without Spark"
    assert "30" in said("query", "SELECT max(price) + 10 AS x FROM orders", "--pipeline", "shop")
    assert "30" in said("query", "SELECT price FROM default.totals", "--pipeline", "shop")
    assert "silver.orders" in said("status", "--pipeline", "shop")
