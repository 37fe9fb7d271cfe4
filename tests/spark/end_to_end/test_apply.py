"""`tussock apply`: a pipeline's scripts, applied repeatedly. Statements that change rows run once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs import cli
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

TABLES = """CREATE TABLE IF NOT EXISTS shops (id int, name string, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW IF NOT EXISTS names AS SELECT name, count(*) AS n FROM shops GROUP BY name;
"""
ROWS = """INSERT INTO shops VALUES (1, 'north'), (2, 'south');
UPDATE shops SET name = upper(name) WHERE id = 2;
"""

Apply = Callable[..., list[str]]


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
def apply(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> Apply:
    """Apply the pipeline and return the steps, such as `+ table shops`, with their outcome."""
    monkeypatch.chdir(folder.parents[1])
    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)

    def run(*options: str, command: str = "apply", expected: int = 0) -> list[str]:
        capsys.readouterr()
        code = cli.main([command, "town", *options])
        said = capsys.readouterr()
        assert code == expected, said.err
        lines = [line for line in said.out.splitlines() if not line.startswith((" ", "created", "starting", "digest"))]
        return [" ".join(line.split("  ")[0].split(":")[0].split()) for line in lines]

    return run


def rows(folder: Path, spark: SparkSession) -> dict[int, str]:
    """The table's rows after the log is processed."""
    with Session(str(folder.parents[1] / "store"), spark, create=False, runner=here(spark)) as session:
        session.flush()
        return {r["id"]: r["name"] for r in session.query("SELECT * FROM shops").to_pylist()}


def change(folder: Path, spark: SparkSession, sql: str) -> None:
    with Session(str(folder.parents[1] / "store"), spark, create=False, runner=here(spark)) as session:
        session.execute(sql)


NOTHING = "nothing to do"


def test_a_second_apply_has_nothing_to_do_before_an_epoch_and_after_it(
    apply: Apply, folder: Path, spark: SparkSession
) -> None:
    first = apply()
    assert first == [
        "+ table shops",
        "+ view names",
        "! INSERT INTO shops VALUES (1, 'north'), (2, 'south')",
        "! UPDATE shops SET name = upper(name) WHERE id = 2",
        "log entry 0",
    ]
    for _ in range(2):
        assert apply() == ["4 unchanged", NOTHING]
        assert rows(folder, spark) == {1: "north", 2: "SOUTH"}
        change(folder, spark, "UPDATE shops SET name = 'moved' WHERE id = 1")
        assert apply() == ["4 unchanged", NOTHING]
        assert rows(folder, spark) == {1: "moved", 2: "SOUTH"}, "an apply must not undo later changes"
        change(folder, spark, "UPDATE shops SET name = 'north' WHERE id = 1")


def test_an_altered_table_still_matches_its_create_statement(apply: Apply, folder: Path, spark: SparkSession) -> None:
    apply()
    altered = "ALTER TABLE shops ADD COLUMN floor int DEFAULT 7;\nCOMMENT ON TABLE shops IS 'of the town';\n"
    (folder / "tables.sql").write_text(TABLES + altered)
    assert apply() == [
        "! ALTER TABLE shops ADD COLUMN floor int DEFAULT 7",
        "! COMMENT ON TABLE shops IS 'of the town'",
        "4 unchanged",
        "log entry 1",
    ]
    for _ in range(2):
        assert apply() == ["6 unchanged", NOTHING]
        assert rows(folder, spark) == {1: "north", 2: "SOUTH"}
    (folder / "tables.sql").write_text(TABLES.replace("name string,", "name string, floor int DEFAULT 7,"))
    assert apply() == ["4 unchanged", NOTHING], "what creates the table as it is now is the same too"


def test_blanks_comments_and_other_statements_around_it_make_no_new_statement(
    apply: Apply, folder: Path, spark: SparkSession
) -> None:
    apply()
    (folder / "rows.sql").write_text(
        "-- rows of the town\nUPDATE shops SET name = trim(name);\n" + ROWS.replace(", (2", ",\n  (2 /* south */")
    )
    assert apply() == ["! UPDATE shops SET name = trim(name)", "4 unchanged", "log entry 1"]


def test_a_statement_whose_text_changed_is_another_and_runs(apply: Apply, folder: Path, spark: SparkSession) -> None:
    apply()
    (folder / "rows.sql").write_text(ROWS.replace("(1, 'north')", "(1, 'far north'), (3, 'east')"))
    assert apply()[-2:] == ["3 unchanged", "log entry 1"]
    assert rows(folder, spark) == {1: "far north", 2: "south", 3: "east"}


def test_equal_statements_run_as_often_as_they_are_listed(apply: Apply, folder: Path, spark: SparkSession) -> None:
    (folder / "rows.sql").write_text(
        "INSERT INTO shops VALUES (1, '');\n" + "UPDATE shops SET name = name || 'x' WHERE id = 1;\n" * 2
    )
    apply()
    (folder / "tables.sql").write_text(TABLES + "UPDATE shops SET name = name || 'x' WHERE id = 1;\n")
    assert apply()[-2:] == ["5 unchanged", "log entry 1"]
    assert rows(folder, spark) == {1: "xxx"}


def test_a_table_that_was_dropped_and_created_again_gets_its_rows_again(
    apply: Apply, folder: Path, spark: SparkSession
) -> None:
    apply()
    rows(folder, spark)
    change(folder, spark, "DROP TABLE shops CASCADE")
    assert apply()[-1] == "log entry 2"
    assert rows(folder, spark) == {1: "north", 2: "SOUTH"}


def test_one_mistake_in_the_last_file_leaves_the_store_as_it_was(
    apply: Apply, folder: Path, spark: SparkSession
) -> None:
    (folder / "rows.sql").write_text(ROWS + "CREATE MATERIALIZED VIEW wrong AS SELECT nothing FROM shops")
    assert cli.main(["apply", "town"]) == 1
    with Session(str(folder.parents[1] / "store"), spark, create=False, runner=here(spark)) as session:
        assert session.meta.log_end() == 0
    (folder / "rows.sql").write_text(ROWS)
    assert apply()[-1] == "log entry 0"
    assert rows(folder, spark) == {1: "north", 2: "SOUTH"}


def test_statements_of_one_apply_see_each_other_and_wait_only_for_views(
    apply: Apply, folder: Path, spark: SparkSession
) -> None:
    copied = (
        "CREATE TABLE loud (name string);\nINSERT INTO loud SELECT upper(name) FROM shops;\n"
        "CREATE MATERIALIZED VIEW named AS SELECT name FROM loud;\n"
    )
    (folder / "rows.sql").write_text(ROWS + copied)
    assert apply()[-4:] == [
        "+ table loud",
        "! INSERT INTO loud SELECT upper(name) FROM shops",
        "+ view named",
        "log entry 0",
    ]
    of_view = "INSERT INTO loud SELECT concat(name, '!') FROM named;\nCREATE VIEW late AS SELECT * FROM loud;\n"
    (folder / "rows.sql").write_text(ROWS + copied + of_view)
    assert apply() == [
        ". INSERT INTO loud SELECT concat(name, '!') FROM named",
        "7 unchanged",
        "nothing was changed; `tussock apply town` makes these changes",
    ]
    rows(folder, spark)
    assert apply()[-4:] == [
        "! INSERT INTO loud SELECT concat(name, '!') FROM named",
        "+ plain view late",
        "7 unchanged",
        "log entry 1",
    ]
    assert apply()[-1] == NOTHING
    with Session(str(folder.parents[1] / "store"), spark, create=False, runner=here(spark)) as session:
        session.flush()
        found = sorted(session.query("SELECT * FROM late")["name"].to_pylist())
        assert found == ["NORTH", "NORTH!", "SOUTH", "SOUTH!"]


def test_a_transaction_has_no_place_in_the_files(
    apply: Apply, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.sql").write_text(ROWS + "BEGIN;\nDELETE FROM shops;\nCOMMIT")
    assert cli.main(["apply", "town"]) == 1
    assert "the files of a pipeline are applied as one transaction; remove BEGIN" in capsys.readouterr().err


def test_a_table_that_a_select_made_needs_no_rows_again(apply: Apply, folder: Path, spark: SparkSession) -> None:
    (folder / "tables.sql").write_text(TABLES.split(";")[0])
    apply()
    rows(folder, spark)
    (folder / "tables.sql").write_text(TABLES.split(";")[0] + ";\nINSERT INTO shops VALUES (5, 'west')")
    (folder / "rows.sql").write_text(
        ROWS + "CREATE TABLE copied AS SELECT name FROM shops;\nCREATE VIEW late AS SELECT * FROM copied"
    )
    assert "+ table copied" in apply()
    rows(folder, spark)
    (folder / "tables.sql").write_text(TABLES.split(";")[0] + ";\nINSERT INTO shops VALUES (6, 'up')")
    assert apply() == ["! INSERT INTO shops VALUES (6, 'up')", "5 unchanged", "log entry 2"]


def test_rows_of_a_table_without_a_key_are_distinguished_within_one_apply(
    apply: Apply, folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.sql").write_text("CREATE TABLE hits (n int);\n" + "INSERT INTO hits VALUES (1), (2);\n" * 3)
    apply()
    with Session(str(folder.parents[1] / "store"), spark, create=False, runner=here(spark)) as session:
        session.flush()
        assert sorted(session.read("hits")["n"].to_pylist()) == [1, 1, 1, 2, 2, 2]
    assert apply()[-1] == NOTHING
    (folder / "rows.sql").write_text((folder / "rows.sql").read_text() + "SELECT count(*) FROM hits;")
    assert cli.main(["plan", "town"]) == 0
    assert "note: has no effect in a pipeline's file" in capsys.readouterr().out


def test_a_changed_view_is_replaced_and_a_changed_table_is_refused(
    apply: Apply, folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.sql").write_text(
        ROWS
        + "CREATE MATERIALIZED VIEW long_names AS SELECT name FROM names WHERE n > 0;\nCREATE VIEW v AS SELECT 1 AS a"
    )
    apply()
    rows(folder, spark)
    (folder / "tables.sql").write_text(TABLES.replace("count(*) AS n", "max(id) AS n"))
    assert apply(command="apply")[:2] == ["~ view names", "> view long_names"]
    rows(folder, spark)
    with Session(str(folder.parents[1] / "store"), spark, create=False, runner=here(spark)) as session:
        assert sorted(tuple(r.values()) for r in session.read("names").to_pylist()) == [("SOUTH", 2), ("north", 1)]
    (folder / "rows.sql").write_text(ROWS)
    assert sorted(apply()) == ["4 unchanged", "? plain view v", "? view long_names", NOTHING]
    assert sorted(apply("--prune")) == ["- plain view v", "- view long_names", "4 unchanged", "log entry 2"]
    (folder / "tables.sql").write_text(TABLES.replace("id int", "id bigint"))
    assert cli.main(["apply", "town"]) == 1
    assert "column 'id': int in the store, bigint in the statement" in capsys.readouterr().err


def test_the_case_of_letters_matters_only_within_strings(
    apply: Apply, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = TABLES.replace("name string,", "name string DEFAULT 'a',")
    (folder / "tables.sql").write_text(declared)
    apply()
    (folder / "tables.sql").write_text(declared.replace("name string DEFAULT", "NAME String default"))
    assert apply() == ["4 unchanged", NOTHING]
    (folder / "tables.sql").write_text(declared.replace("'a'", "'A'"))
    assert cli.main(["apply", "town"]) == 1
    assert "'A' in the statement" in capsys.readouterr().err


def test_a_view_that_is_being_built_is_left_alone_and_its_former_text_gives_the_build_up(
    apply: Apply, folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    apply()
    rows(folder, spark)
    store = str(folder.parents[1] / "store")
    (folder / "tables.sql").write_text(TABLES.replace("count(*) AS n", "max(id) AS n"))
    apply()
    with Session(store, spark, create=False, runner=here(spark)) as session:
        session.flush(max_epoch_bytes=1)
        (state,) = session.meta.read_latest().catalog.builds
        before = session.read("names")
    assert cli.main(["plan", "town"]) == 0, "everything matches the files, or is being built"
    assert f"being built since epoch {state.began}" in capsys.readouterr().out
    assert apply()[-1] == NOTHING
    (folder / "tables.sql").write_text(TABLES)
    assert apply()[0] == "~ view names"
    with Session(store, spark, create=False, runner=here(spark)) as session:
        session.flush()
        assert not session.meta.read_latest().catalog.builds
        assert session.read("names").equals(before)


def test_a_plan_has_a_special_exit_code_and_writes_nothing(apply: Apply, folder: Path) -> None:
    assert apply(command="plan", expected=2)[-1] == "nothing was changed; `tussock apply town` makes these changes"
    store = folder.parents[1] / "store"
    assert not store.exists()
    apply()
    before = sorted(store.rglob("*"))
    assert apply(command="plan") == ["4 unchanged", NOTHING]
    (folder / "rows.sql").write_text(ROWS + "INSERT INTO shops VALUES (3, 'east'); DELETE FROM shops WHERE id = 1")
    assert apply(command="plan", expected=2)[:3] == [
        "! INSERT INTO shops VALUES (3, 'east')",
        "! DELETE FROM shops WHERE id = 1",
        "4 unchanged",
    ]
    assert sorted(store.rglob("*")) == before
