"""`tussock apply`: a pipeline's scripts, again and again; what changes rows runs once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import cli
from jobs.session import Session

pytestmark = pytest.mark.spark

TABLES = """CREATE TABLE IF NOT EXISTS shops (id int, name string, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW IF NOT EXISTS names AS SELECT name, count(*) AS n FROM shops GROUP BY name;
"""
ROWS = """INSERT INTO shops VALUES (1, 'north'), (2, 'south');
UPDATE shops SET name = upper(name) WHERE id = 2;
"""

Apply = Callable[[], list[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The SQL files of a pipeline: tables, then rows."""
    home = tmp_path / "pipelines" / "town"
    home.mkdir(parents=True)
    (home / "pipeline.toml").write_text('name = "town"\nstore = "store"\nsql = ["tables.sql", "rows.sql"]\n')
    (home / "tables.sql").write_text(TABLES)
    (home / "rows.sql").write_text(ROWS)
    return home


@pytest.fixture
def apply(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Apply:
    """Applies the pipeline and answers with what it said of each statement."""
    monkeypatch.chdir(folder.parents[1])
    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)

    def run() -> list[str]:
        capsys.readouterr()
        code = cli.main(["apply", "town"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return [line.strip() for line in said.out.splitlines() if line.startswith("  ")]

    return run


def rows(folder: Path, spark: SparkSession) -> dict[int, str]:
    """What the table holds once everything is taken."""
    with Session(str(folder.parents[1] / "store"), spark, create=False) as session:
        session.flush()
        return {r["id"]: r["name"] for r in session.query("SELECT * FROM shops").to_pylist()}


def change(folder: Path, spark: SparkSession, sql: str) -> None:
    with Session(str(folder.parents[1] / "store"), spark, create=False) as session:
        session.execute(sql)


def test_a_second_apply_has_nothing_to_do_before_an_epoch_and_after_it(apply: Apply, folder: Path, spark: SparkSession) -> None:
    first = apply()
    assert [line.split(":")[0] for line in first] == [f"log entry {n}" for n in range(4)]
    assert [line.endswith("runs once") for line in first] == [False, False, True, True]
    for _ in range(2):
        assert [line.split(":")[0] for line in apply()] == ["nothing to do"] * 4
        assert rows(folder, spark) == {1: "north", 2: "SOUTH"}
        change(folder, spark, "UPDATE shops SET name = 'moved' WHERE id = 1")
        assert [line.split(":")[0] for line in apply()] == ["nothing to do"] * 4
        assert rows(folder, spark) == {1: "moved", 2: "SOUTH"}, "an apply must not bring back what was changed since"
        change(folder, spark, "UPDATE shops SET name = 'north' WHERE id = 1")


def test_a_table_that_is_altered_stays_the_one_that_its_create_made(apply: Apply, folder: Path, spark: SparkSession) -> None:
    apply()
    altered = "ALTER TABLE shops ADD COLUMN floor int DEFAULT 7;\nCOMMENT ON TABLE shops IS 'of the town';\n"
    (folder / "tables.sql").write_text(TABLES + altered)
    nothing = ["nothing to do"]
    assert [line.split(":")[0] for line in apply()] == [*nothing * 2, "log entry 4", "log entry 5", *nothing * 2]
    for _ in range(2):
        assert [line.split(":")[0] for line in apply()] == nothing * 6
        assert rows(folder, spark) == {1: "north", 2: "SOUTH"}
    (folder / "tables.sql").write_text(TABLES.replace("name string,", "name string, floor int DEFAULT 7,"))
    assert [line.split(":")[0] for line in apply()] == nothing * 4, "what creates the table as it is now is the same too"


def test_blanks_comments_and_other_statements_around_it_make_no_new_statement(apply: Apply, folder: Path, spark: SparkSession) -> None:
    apply()
    (folder / "rows.sql").write_text(
        "-- rows of the town\nUPDATE shops SET name = trim(name);\n" + ROWS.replace(", (2", ",\n  (2 /* south */")
    )
    assert [line.split(":")[0] for line in apply()][2:] == ["log entry 4", "nothing to do", "nothing to do"]


def test_a_statement_whose_text_changed_is_another_and_runs(apply: Apply, folder: Path, spark: SparkSession) -> None:
    apply()
    (folder / "rows.sql").write_text(ROWS.replace("(1, 'north')", "(1, 'far north'), (3, 'east')"))
    assert [line.split(":")[0] for line in apply()][2:] == ["log entry 4", "nothing to do"]
    assert rows(folder, spark) == {1: "far north", 2: "south", 3: "east"}


def test_equal_statements_run_as_often_as_they_stand_there(apply: Apply, folder: Path, spark: SparkSession) -> None:
    (folder / "rows.sql").write_text("INSERT INTO shops VALUES (1, '');\n" + "UPDATE shops SET name = name || 'x' WHERE id = 1;\n" * 2)
    apply()
    (folder / "tables.sql").write_text(TABLES + "UPDATE shops SET name = name || 'x' WHERE id = 1;\n")
    assert [line.split(":")[0] for line in apply()] == [*["nothing to do"] * 5, "log entry 5"]
    assert rows(folder, spark) == {1: "xxx"}


def test_a_table_that_was_dropped_and_created_again_gets_its_rows_anew(apply: Apply, folder: Path, spark: SparkSession) -> None:
    apply()
    rows(folder, spark)
    change(folder, spark, "DROP TABLE shops CASCADE")
    assert [line.split(":")[0] for line in apply()] == [f"log entry {n}" for n in range(5, 9)]
    assert rows(folder, spark) == {1: "north", 2: "SOUTH"}


def test_an_apply_that_was_cut_off_goes_on_behind_its_last_statement(
    apply: Apply, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "rows.sql").write_text(ROWS + "INSERT INTO nowhere VALUES (1)")
    assert cli.main(["apply", "town"]) == 1
    (folder / "rows.sql").write_text(ROWS + "INSERT INTO shops VALUES (3, 'east')")
    assert [line.split(":")[0] for line in apply()] == [*["nothing to do"] * 4, "log entry 4"]
    assert rows(folder, spark) == {1: "north", 2: "SOUTH", 3: "east"}


def test_a_definition_that_changed_stops_apply_with_the_difference(apply: Apply, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply()
    (folder / "tables.sql").write_text(TABLES.replace("count(*) AS n", "max(id) AS n"))
    assert cli.main(["apply", "town"]) == 1
    said = capsys.readouterr().err
    for part in (
        "a view 'names' exists already",
        "column 'n': bigint there, int here",
        "- SELECT name, count(*)",
        "+ SELECT name, max(id)",
    ):
        assert part in said
    assert "DROP MATERIALIZED VIEW names)" in said
