"""`tussock` on the command line: a first session, its help, and every kind of misuse."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.end_to_end import cli as shared
from tests.support.end_to_end.cli import ROOT, Tussock, failed, write_pipeline
from tests.support.spark_types import SparkSession

tussock = shared.tussock


def write_day(folder: Path, day: str, *people: str) -> None:
    (folder / "data").mkdir(exist_ok=True)
    rows = {"id": pa.array(range(len(people)), pa.int32()), "who": list(people)}
    pq.write_table(pa.table(rows), folder / "data" / f"{day}.parquet")


@pytest.mark.spark
def test_the_lines_of_the_help_text_work_as_they_are_written(tussock: Tussock, spark: SparkSession) -> None:
    overview = subprocess.run(
        [sys.executable, "-m", "tussock.jobs.cli", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    lines = [line.strip() for line in overview.splitlines() if line.startswith("  tussock ")]
    assert len(lines) == 6
    answers = [tussock(*shlex.split(line)[1:]) for line in lines]
    assert [a.code for a in answers] == [0] * 6, answers
    assert [a.err for a in answers] == [""] * 6
    assert answers[-1].out.split() == ["v", "10"]


@pytest.mark.spark
def test_a_pipeline_from_apply_to_its_rows(tussock: Tussock, spark: SparkSession, tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    write_day(tmp_path, "2013-01-01", "ann", "bob", "ann")
    write_day(tmp_path, "2013-01-02", "bob")
    first = tussock("apply", "days")
    assert (first.code, first.out.count("is new")) == (0, 2)
    assert "log entry 0: takes effect with the next epoch" in first.out
    again = tussock("apply", "days")
    assert (again.code, again.out) == (0, "2 unchanged\nnothing to do: the store matches the files\n")

    one_day = tussock("epoch", "--pipeline", "days", "--interval", "2013-01-01", "2013-01-02")
    assert one_day.code == 0
    for step in (
        "starting Spark",
        "barrier ",
        "running 3 fragments in 2 levels",
        "sealed",
        "committed version",
        "published epoch",
    ):
        assert step in one_day.out
    assert "  people" in one_day.out
    first_epoch = next(
        line.split()[1].rstrip(":")
        for line in one_day.out.splitlines()
        if line.startswith("epoch ") and " version " in line
    )
    rows = tussock("query", "--pipeline", "days", "SELECT who, clicks FROM people ORDER BY who")
    assert rows.out == "who  clicks\nann       2\nbob       1\n"

    held = tussock("epoch", "--pipeline", "days", "--hold")
    assert "published" not in held.out
    assert tussock("query", "--pipeline", "days", "SELECT clicks FROM people WHERE who = 'bob'").out.split() == [
        "clicks",
        "1",
    ]
    epoch = next(line.split()[1].rstrip(":") for line in held.out.splitlines() if line.startswith("epoch "))
    at = tussock("query", "--pipeline", "days", "--epoch", epoch, "SELECT clicks FROM people WHERE who = 'bob'")
    assert at.out.split() == ["clicks", "2"]
    assert f"published epoch {epoch}" in tussock("epoch", "--pipeline", "days").out
    assert "no new input" in tussock("epoch", "--pipeline", "days").out

    assert "HashAgg keys=[c0] calls=[count(*)]" in tussock("explain", "--pipeline", "days", "people").out
    assert tussock("explain", "--pipeline", "days").out == tussock("explain", "--pipeline", "days", "people").out
    assert "people  view    who string, clicks bigint" in tussock("show", "--pipeline", "days").out
    assert tussock("inspect", "versions", "--pipeline", "days").out.count("\n") >= 5
    epochs = tussock("inspect", "epochs", "--pipeline", "days", "--rows").out
    assert [line.split()[0] for line in epochs.splitlines() if "relation" in line] == [first_epoch]
    assert (epochs.count("clicks  3 in  3 out"), epochs.count("people  2 in  2 out")) == (1, 1)
    sources = tussock("inspect", "sources", "--pipeline", "days").out.splitlines()
    assert sources[1].split()[:3] == ["clicks", "parquet", "2"]
    assert "sorted runs" in tussock("inspect", "levels", "--pipeline", "days").out
    assert "people" in tussock("inspect", "rows", "--pipeline", "days").out
    assert sorted(tussock("inspect", "rows", "--pipeline", "days", "people").out.split()) == [
        "2",
        "2",
        "ann",
        "bob",
        "clicks",
        "who",
    ]
    assert "rows#" in tussock("inspect", "ssts", "--pipeline", "days").out
    assert "no open barrier" in tussock("barrier", "show", "--pipeline", "days").out


@pytest.mark.spark
def test_sql_may_come_from_standard_input(
    tussock: Tussock, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.sql").write_text("-- nothing stored is read\nSELECT 1 + 1 AS two;\nSELECT NULL AS nothing;")
    tussock("init", "--store", "s")
    with (tmp_path / "script.sql").open() as script:
        monkeypatch.setattr(sys, "stdin", script)
        assert tussock("query", "--store", "s", "-").out == "two\n  2\nnothing\nNULL\n"


@pytest.mark.spark
@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_an_answer_of_spark_may_contain_bytes_that_are_no_text(
    form: list[str], tussock: Tussock, spark: SparkSession
) -> None:
    tussock("init", "--store", "s")
    sql = "SELECT CAST(X'ff61' AS string) AS one, array(CAST(X'ff61' AS string)) AS several"
    answer = tussock("query", "--store", "s", sql, *form)
    assert answer.code == 0, answer.err
    assert answer.out.count("xffa") == 2


@pytest.mark.spark
def test_an_epoch_that_is_not_committed(tussock: Tussock, spark: SparkSession) -> None:
    tussock("init", "--store", "s")
    failed(tussock("query", "--store", "s", "--epoch", "77", "SELECT 1"), "epoch 77 is not committed")


@pytest.mark.spark
def test_a_bad_statement_of_a_pipeline_is_named_with_its_file_and_place(
    tussock: Tussock, spark: SparkSession, tmp_path: Path
) -> None:
    write_pipeline(
        tmp_path,
        views="CREATE TABLE t (k int, PRIMARY KEY (k));\n\nCREATE MATERIALIZED VIEW v AS\n  SELECT nope FROM t;\n",
    )
    answer = tussock("apply", "days")
    failed(
        answer,
        "`nope` cannot be resolved",
        "line 4, column 10",
        "    SELECT nope FROM t",
        "^",
        f"in {tmp_path}",
        "views.sql",
    )
    assert "log entry" not in answer.out, "all of it or nothing"


@pytest.mark.spark
def test_explain_of_an_unknown_view_names_the_existing_ones(tussock: Tussock, spark: SparkSession) -> None:
    tussock("init", "--store", "s")
    tussock("query", "--store", "s", "CREATE TABLE t (k int, PRIMARY KEY (k))")
    failed(tussock("explain", "--store", "s", "v"), "'v'", "t")
    failed(tussock("inspect", "rows", "--store", "s", "v"), "no state table 'v'")
    failed(tussock("barrier", "abandon", "--store", "s"), "name a file to skip or re-pin")
    failed(tussock("barrier", "abandon", "--store", "s", "--drop", "v"), "'v'")


@pytest.mark.spark
@pytest.mark.deep
def test_a_real_process_keeps_sparks_log_out_of_the_way(tmp_path: Path) -> None:
    """Standard output has only the answer. Standard error has the error and one line of Spark's JVM."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TUSSOCK_")} | {"PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tussock.jobs.cli", *arguments, "--store", "s"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert run("init").returncode == 0
    answer = run("query", "SELECT 1 AS one; SELECT nope")
    assert answer.returncode == 1
    assert answer.stdout == "one\n  1\n"
    said = [line for line in answer.stderr.splitlines() if "jdk.incubator.vector" not in line]
    assert said[0].startswith("error: "), answer.stderr
    assert said[1:] == ["    SELECT nope", "           ^"]
