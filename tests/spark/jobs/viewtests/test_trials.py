"""Tests of views run by `tussock test` and by pytest: the shipped pipelines pass, and each fault is told as it is."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.spark_types import SparkSession
from tussock import Session
from tussock.jobs import cli
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.viewtests.document import read_tests
from tussock.jobs.viewtests.pipeline_tests import ViewTests, pipeline_tests
from tussock.jobs.viewtests.trial import Trial, TrialVerdict, try_test

ROOT = Path(__file__).resolve().parents[4]
ZONE = 'time_zone = "Europe/Berlin"'
SQL = """
CREATE SOURCE orders (id bigint, at timestamp, item string, n int, tags array<string>)
USING parquet OPTIONS (path '/nowhere/*.parquet', on_error 'quarantine');
CREATE SOURCE clicks (id bigint, n int) USING parquet OPTIONS (path '/nowhere/*.parquet', retain 'none');
CREATE TABLE items (item string, price decimal(8,2) NOT NULL DEFAULT 1.50, PRIMARY KEY (item));
INSERT INTO items VALUES ('never', 1);
CREATE TABLE log (line string);
ALTER TABLE log ADD COLUMNS (level int);
CREATE VIEW lines AS SELECT item, n, price FROM orders JOIN items USING (item);
CREATE MATERIALIZED VIEW totals AS SELECT item, sum(n * price) AS total, avg(n) AS mean FROM lines GROUP BY item;
CREATE MATERIALIZED VIEW best AS SELECT item, total FROM totals ORDER BY total DESC, item LIMIT 1;
CREATE MATERIALIZED VIEW recent AS SELECT id, tags FROM orders WHERE at > now() - INTERVAL 1 DAY;
CREATE MATERIALIZED VIEW loud AS SELECT line, level FROM log WHERE level > 3;
CREATE MATERIALIZED VIEW hot AS SELECT max(n) AS n FROM clicks;
CREATE MATERIALIZED VIEW bad AS SELECT count(*) AS n FROM orders__rejects;
CREATE MATERIALIZED VIEW by_file AS SELECT _metadata.file_name AS file, max(_ingested_at) AS at, sum(n) AS n
  FROM orders WHERE _metadata.file_size IS NULL OR _metadata.file_size > 0 GROUP BY _metadata.file_name;
"""


def unexpected_spark() -> SparkSession:
    raise AssertionError("Spark was started")


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline whose statements are bound: later runs need no Spark."""
    folder = tmp_path_factory.mktemp("home") / "pipelines/shop"
    (folder / "tests").mkdir(parents=True)
    (folder / "views.sql").write_text(SQL)
    settings = ['name = "shop"', 'store = "store"', 'data = "data"', 'sql = ["${data}/rows.sql", "views.sql"]', ZONE]
    (folder / "pipeline.toml").write_text("\n".join(settings))
    with ViewTests(load_pipeline(folder)) as running:
        assert running.views == ("totals", "best", "recent", "loud", "hot", "bad", "by_file")
        assert running.started_spark
    return folder


def trial(shop: Path, text: str, name: str = "a.yaml") -> Trial:
    """Run the only test of a file, without Spark."""
    path = shop / "tests" / name
    path.write_text(text)
    (test,) = read_tests(path)
    path.unlink()
    running = ViewTests(load_pipeline(shop))
    found = try_test(test, running.catalog, running.time_zone, LocalRunner())
    assert not running.started_spark
    return found


def passed(shop: Path, text: str) -> None:
    found = trial(shop, text)
    assert found.verdict is TrialVerdict.PASSED, found.text


def told(shop: Path, text: str) -> str:
    found = trial(shop, text)
    assert found.verdict is TrialVerdict.ERROR, found.text
    return found.text


# --- the shipped pipelines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pipeline", "count"), [("flights", 10), ("tpch", 10), ("customers", 2), ("orders", 1)])
def test_the_tests_of_the_shipped_pipelines_pass(
    pipeline: str, count: int, spark: SparkSession, tmp_path: Path
) -> None:
    copied = shutil.copytree(ROOT / "pipelines" / pipeline, tmp_path / "pipelines" / pipeline)
    loaded = load_pipeline(copied)
    tests = pipeline_tests(loaded)
    assert len(tests) == count
    with ViewTests(loaded) as running:
        found = [running.run(test) for test in tests]
    assert [(t.test.name, t.text) for t in found if t.verdict is not TrialVerdict.PASSED] == []


def test_a_view_broken_on_purpose_fails_with_the_rows_that_differ(spark: SparkSession, tmp_path: Path) -> None:
    copied = shutil.copytree(ROOT / "pipelines/flights", tmp_path / "pipelines/flights")
    text = (copied / "views.sql").read_text()
    (copied / "views.sql").write_text(text.replace("count(*) - count(f.arr_delay)", "count(f.arr_delay)"))
    loaded = load_pipeline(copied)
    with ViewTests(loaded) as running:
        found = running.run(pipeline_tests(loaded)[0])
    assert found.verdict is TrialVerdict.FAILED
    lines = found.text.splitlines()
    assert lines[0] == "at the start (line 2), rows of carrier_delays:"
    assert [line[2] for line in lines[2:]] == ["-", "+", " ", "-", "+", " "]
    assert "not_arrived" in lines[1]
    assert {line.count("^") for line in (lines[4], lines[7])} == {1}, "one value differs in each row"


# --- steps ------------------------------------------------------------------------------------------------------------


def test_rows_of_a_source_may_have_hidden_columns(shop: Path) -> None:
    passed(
        shop,
        """
- name: a sum per file
  view: by_file
  rows:
    orders:
      - {id: 1, n: 3, _metadata: {file_name: a.csv, file_size: 10}, _ingested_at: 2026-01-01 08:00:00}
      - {id: 2, n: 4, _metadata: {file_name: a.csv}, _ingested_at: 2026-01-02 08:00:00}
      - {id: 3, n: 5, _metadata: {file_name: empty.csv, file_size: 0}}
      - {id: 4, n: 6}
  expect:
    - {file: a.csv, at: 2026-01-02 08:00:00, n: 7}
    - {file: null, at: null, n: 6}
  steps:
    - update: {orders: [{where: {_metadata.file_name: empty.csv}, set: {_metadata: {file_size: 1}}}]}
      changes: {insert: [{file: empty.csv, at: null, n: 5}]}
""",
    )
    told_of = told(
        shop,
        """
- name: no such field
  view: by_file
  rows: {orders: [{id: 1, _metadata: {name: a.csv}}]}
  expect: []
""",
    )
    assert "'_metadata.name'" in told_of
    assert "_metadata.file_name" in told_of


def test_rows_without_a_column_get_its_default_or_null_and_views_between_are_computed(shop: Path) -> None:
    passed(
        shop,
        """
- name: x
  view: best
  rows:
    items: [{item: a}, {item: b, price: 2}]
    orders: [{item: a, n: 2}, {item: b, n: 1}, {item: b}]
  expect: [{item: a, total: 3.00}]
  steps:
    - insert: {items: [{item: b, price: 4}]}   # replaces the row of its key
      changes: {delete: [{item: a, total: 3.00}], insert: [{item: b, total: 4.00}]}
    - delete: {orders: [{item: b, n: 1}]}
      update: {orders: [{where: {item: a}, set: {n: 5}}]}
      insert: {orders: [{item: a, n: 1}]}
      expect: [{item: a, total: 9.00}]
    - update: {items: [{where: {item: a}, set: {item: c}}]}   # a key moves
      expect: [{item: b, total: null}]
    - changes: {}
""",
    )


def test_a_view_with_rows_in_the_test_is_not_computed(shop: Path) -> None:
    passed(
        shop,
        """
- name: x
  view: best
  rows: {totals: [{item: a, total: 1}, {item: b, total: 2}]}
  expect: [{item: b, total: 2}]
""",
    )


def test_now_moves_rows_out_of_a_view_in_the_time_zone_of_the_pipeline(shop: Path) -> None:
    text = """
- name: x
  view: recent
  now: 2026-01-02 00:00:00
  rows: {orders: [{id: 1, at: 2026-01-01 00:30:00, tags: [a, null]}, {id: 2, at: 2025-12-31T23:15:00Z}]}
  expect: [{id: 1, tags: [a, null]}, {id: 2, tags: null}]
  steps:
    - now: 2026-01-01T23:20:00Z
      expect: [{id: 1}]
    - now: 2026-01-02T01:00:00
      expect: []
"""
    passed(shop, text)
    assert "found no value of now(), which recent reads" in told(shop, text.replace("  now: 2026-01-02 00:00:00\n", ""))
    assert "now() never goes back" in told(shop, text.replace("02T01:00:00", "01T01:00:00"))


def test_columns_that_an_alter_adds_exist(shop: Path) -> None:
    passed(
        shop,
        "- {name: x, view: loud, rows: {log: [{line: a, level: 4}, {line: b, level: 1}]}, expect: [{level: 4}]}",
    )


def test_files_are_read_as_the_source_reads_them_with_their_rejects(shop: Path) -> None:
    nulls = {"at": pa.nulls(2, pa.timestamp("us", "UTC")), "tags": pa.nulls(2, pa.list_(pa.string()))}
    ids = {"id": pa.array([1, 2], pa.int64()), "item": ["a", "a"], "n": pa.array([1, 2], pa.int32())}
    rows = pa.table(ids | nulls)
    pq.write_table(rows, shop / "tests/one.parquet")
    pq.write_table(rows.slice(0, 1), shop / "tests/two.parquet")
    passed(
        shop,
        """
- name: x
  view: totals
  rows: {items: [{item: a, price: 1}]}
  files: {orders: [one.parquet]}
  expect: [{item: a, total: 3}]
  steps:
    - files: {orders: [two.parquet]}
      expect: [{item: a, total: 4}]
""",
    )
    passed(
        shop,
        "- {name: x, view: bad, rows: {orders__rejects: [{file: f, position: 1}]}, expect: [{n: 1}]}",
    )
    assert "no.parquet' (No such file or directory)" in told(
        shop, "- {name: x, view: totals, files: {orders: [no.parquet]}, expect: []}"
    )


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("view: totls, expect: []", "line 1, column 19: found the view 'totls', expected a materialized view"),
        ("view: totls, expect: []", "Did you mean 'totals'?"),
        ("view: lines, expect: []", "found the view 'lines', expected a materialized view of the pipeline"),
        ("view: totals, rows: {oders: []}, expect: []", "found rows for 'oders', which totals does not read"),
        ("view: totals, rows: {oders: []}, expect: []", "Did you mean 'orders'?"),
        ("view: totals, rows: {log: []}, expect: []", "expected one of orders, items, lines"),
        ("view: totals, rows: {lines: []}, expect: []", "rows for the plain view 'lines'"),
        ("view: totals, rows: {orders: [{itm: a}]}, expect: []", "Did you mean 'item'?"),
        ("view: totals, expect: [{totl: a}]", "Did you mean 'total'?"),
        ("view: totals, steps: [{delete: {orders: [{id: 1}]}}], expect: []", "found values that no row has"),
        ("view: totals, steps: [{update: {orders: [{where: {}, set: {nn: 1}}]}}], expect: []", "the column 'nn'"),
        ("view: hot, rows: {clicks: [{n: 1}]}, steps: [{delete: {clicks: [{n: 1}]}}], expect: [{n: 1}]", "append-only"),
        ("view: totals, rows: {items: [{price: 1}]}, expect: []", "NULL"),
        ("view: totals, files: {items: {a: b}}, expect: []", "found files for the table 'items'"),
        ("view: totals, files: {orders: {a: b}}, rows: {orders: []}, expect: []", "both files and rows for 'orders'"),
    ],
)
def test_a_fault_of_a_test_names_its_place_and_the_nearest_name(shop: Path, text: str, message: str) -> None:
    assert message in told(shop, f"- {{name: x, {text}}}")


# --- the command and pytest -------------------------------------------------------------------------------------------

TWO = """
- {name: good, view: totals, expect: []}
- {name: wrong, view: totals, rows: {items: [{item: a}], orders: [{item: a, n: 3}]}, expect: [{item: a, total: 4.6}]}
"""
DIFFERENCE = """\
  at the start (line 3), rows of totals:
      item  total
    - a      4.60    expected, line 3
    + a      4.50    found
             ^^^^
"""


def test_the_command_prints_the_differences_and_the_views_without_a_test(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(shop.parent))
    assert cli.main(["test", "shop"]) == 1
    assert "run `tussock test shop --make totals`" in capsys.readouterr().err
    (shop / "tests/totals.yaml").write_text(TWO)
    try:
        assert cli.main(["test", "shop", "--junit", str(tmp_path / "report.xml")]) == 1
        said = capsys.readouterr().out
        assert DIFFERENCE in said
        assert "views without a test: best, recent, loud, hot, bad, by_file\n" in said
        assert f"not read, because it does not exist: {shop.parent.parent}/data/rows.sql\n" in said
        assert "1 passed, 1 failed in " in said
        (suite,) = ET.parse(tmp_path / "report.xml").getroot()
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
        (failure,) = suite.iter("failure")
        assert DIFFERENCE.strip() in (failure.text or "")
        assert cli.main(["test", "shop", "-k", "GOOD"]) == 0
        assert "1 passed in " in capsys.readouterr().out
        assert cli.main(["test", "shop", "-k", "gone"]) == 1
        assert "no test of 'shop' has 'gone'" in capsys.readouterr().err
    finally:
        (shop / "tests/totals.yaml").unlink()


def test_pytest_collects_the_tests_of_views_without_importing_the_engine_before(shop: Path) -> None:
    (shop / "tests/totals.yaml").write_text(TWO)
    script = (
        "import sys, pytest, tussock.jobs.shell.pytest_views as p\n"
        "assert not {'pyarrow', 'yaml', 'duckdb'} & set(sys.modules), 'each run of pytest would pay for the engine'\n"
        "sys.exit(pytest.main(['-p', p.__name__, '-p', 'no:cacheprovider', sys.argv[1]]))"
    )
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, str(shop / "tests")], capture_output=True, text=True, env=environment
        )
    finally:
        (shop / "tests/totals.yaml").unlink()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "\n  + a      4.50    found\n" in done.stdout
    assert "Traceback" not in done.stdout
    assert "runtest" not in done.stdout


def test_a_first_test_has_rows_that_join_and_passes(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    home = shop.parent.parent
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(shop.parent))
    (home / "files").mkdir()
    tables = [pa.field("at", pa.timestamp("us", "UTC")), pa.field("tags", pa.list_(pa.string()))]
    rows = {"id": pa.array(range(50), pa.int64()), "item": [f"item {i % 7}" for i in range(50)]}
    rows |= {field.name: pa.nulls(50, field.type) for field in tables}
    pq.write_table(pa.table({**rows, "n": pa.array(range(50), pa.int32())}), home / "files/a.parquet")
    with Session(str(home / "store"), spark, time_zone="Europe/Berlin") as session:
        session.execute(SQL.replace("/nowhere", str(home / "files")))
        session.execute("INSERT INTO items VALUES ('item 0', 2), ('item 1', 3), ('item 2', 4), ('item 9', 9)")
        session.flush()
    assert cli.main(["test", "shop", "--make", "totals"]) == 0
    made = shop / "tests/totals.yaml"
    try:
        assert capsys.readouterr().out == f"wrote {made}\n"
        (test,) = read_tests(made)
        totals = {"item 0": 0, "item 1": 3, "item 2": 8}  # the rows with id 0, 1, 2
        assert test.steps[0].expect is not None
        found = {row.values["item"].text: float(row.values["total"].text or "nan") for row in test.steps[0].expect}
        assert found == totals
        assert cli.main(["test", "shop"]) == 0
        assert cli.main(["test", "shop", "--make", "totals"]) == 1
        assert "exists and was not changed" in capsys.readouterr().err
    finally:
        made.unlink()


# --- the cache of bound statements ------------------------------------------------------------------------------------


def test_only_changed_statements_and_their_readers_are_bound_again(
    shop: Path, tmp_path: Path, spark: SparkSession
) -> None:
    home = shutil.copytree(shop.parent.parent, tmp_path / "home")
    folder, kept = home / "pipelines/shop", home / ".tussock/shop/tests.json"

    def bound() -> bool:
        with ViewTests(load_pipeline(folder)) as running:
            assert running.views
            return running.started_spark

    assert not bound()
    before = json.loads(kept.read_bytes())["statements"]
    text = (folder / "views.sql").read_text()
    (folder / "views.sql").write_text(text.replace("sum(n * price)", "sum(n + price)"))
    assert bound()
    after = json.loads(kept.read_bytes())["statements"]
    assert len(before.keys() - after.keys()) == 2, "totals, and best, which reads it"
    assert not bound()
    kept.write_bytes(b"{damaged")
    assert bound(), "a damaged cache is replaced"
    assert not bound()
