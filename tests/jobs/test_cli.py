"""`tussock` on the command line: a first session, its help, and every kind of misuse."""

import argparse
import io
import os
import resource
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.jobs.driver.embedded import append, epoch, open_store
from tests.jobs.plan.catalogs import table
from tests.support.spark_types import SparkSession
from tussock.jobs import cli
from tussock.jobs.reading.read import PausedViewWarning

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = tuple(command.name for command in cli.COMMANDS)


@dataclass(frozen=True)
class Answer:
    """The output of one command."""

    code: int
    out: str
    err: str


Tussock = Callable[..., Answer]


@pytest.fixture
def tussock(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tussock:
    """Run a command in this process, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("TUSSOCK_STORE", "TUSSOCK_PIPELINES", "TUSSOCK_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        code = cli.main(arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Answer(code, said.out, said.err)

    return run


def write_pipeline(folder: Path, text: str = "", views: str = "") -> None:
    """A pipeline `days`: one Parquet source with a file per day, one view."""
    home = folder / "pipelines" / "days"
    home.mkdir(parents=True)
    (home / "pipeline.toml").write_text(
        text or 'name = "days"\nstore = "store"\ndata = "data"\nsql = ["views.sql"]\n[epoch]\nunits = 3\n'
    )
    (home / "views.sql").write_text(
        views
        or "CREATE SOURCE IF NOT EXISTS clicks (id int, "
        "who string) USING parquet OPTIONS (path '${data}/{start:%Y-%m-%d}.parquet');\n"
        "CREATE MATERIALIZED VIEW IF NOT EXISTS people AS SELECT who, count(*) AS clicks FROM clicks GROUP BY who;\n"
    )


def write_day(folder: Path, day: str, *people: str) -> None:
    (folder / "data").mkdir(exist_ok=True)
    rows = {"id": pa.array(range(len(people)), pa.int32()), "who": list(people)}
    pq.write_table(pa.table(rows), folder / "data" / f"{day}.parquet")


# --- as it is meant -----------------------------------------------------------------------------


def test_the_version_names_the_packages_as_they_name_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    import duckdb
    import pyarrow

    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "tussock"
    assert f"pyarrow {pyarrow.__version__}, duckdb {duckdb.__version__}, " in second


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


# --- help ---------------------------------------------------------------------------------------


def test_options_that_are_a_number_of_things_refuse_fewer_than_they_can_use() -> None:
    """`--last 0` printed that no epoch is committed. Stores check their settings, and numbers that are names."""
    checked_later = {"--units", "--vnodes", "--epoch", "--skip-entry", "--keep-epochs"}
    checked = 0
    for command in cli.COMMANDS:
        parser = argparse.ArgumentParser(command.name)
        command.arguments(parser)
        for action in parser._actions:
            if action.metavar == "N" and not checked_later.intersection(action.option_strings):
                assert callable(action.type), (command.name, action.option_strings)
                with pytest.raises(argparse.ArgumentTypeError, match=r"'-1' is not a number of \w+: expected [01] or"):
                    action.type("-1")
                checked += 1
    assert checked >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_description_and_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([*command.split(), "--help"])
    text = capsys.readouterr().out
    assert "examples:\n  tussock " in text
    assert text.split("\n\n")[1].endswith("."), "a sentence first"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("epohc",), "Did you mean 'epoch'?"),
        (("inspect", "epoch"), "Did you mean 'epochs'?"),
        (("show", "vews"), "Did you mean 'views'?"),
        (("read", "v", "--colums", "k"), "Did you mean '--columns'?"),
        (("inspect", "rows", "--tabel=t"), "usage: tussock inspect rows"),
        (("epoch", "days"), "Name the pipeline with --pipeline days"),
        (("query", "SELECT 1", "x" * 1000), "unrecognized arguments: xxx"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_likely_one(
    typed: tuple[str, ...],
    meant: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)
    write_pipeline(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        cli.main(typed)
    assert meant in capsys.readouterr().err


def test_a_command_alone_prints_the_next_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([])
    assert "COMMAND" in capsys.readouterr().err


# --- as it is not meant -------------------------------------------------------------------------


def failed(answer: Answer, *says: str, code: int = 1) -> None:
    """The command failed with one readable message and printed nothing else."""
    assert answer.code == code
    assert answer.err.startswith(("error: ", "lost: "))
    assert [part for part in says if part not in answer.err] == [], answer.err


def test_a_status_of_no_pipeline_names_the_folder(tussock: Tussock, tmp_path: Path) -> None:
    failed(tussock("status"), f"No store is given, and {tmp_path}/pipelines contains no pipeline. Pass --store URI")


def test_an_epoch_without_statements_names_the_commands_that_queue_them(tussock: Tussock, tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    assert tussock("init", "--pipeline", "days").code == 0
    by_files = "no input, no epoch yet: `tussock apply days` queues its statements\n"
    assert tussock("epoch", "--pipeline", "days").out == by_files
    by_hand = "no input, no epoch yet: `tussock query --store store` queues statements\n"
    assert tussock("epoch", "--store", "store").out == by_hand


def test_no_store_named(tussock: Tussock) -> None:
    failed(tussock("show"), "--store", "--pipeline", "TUSSOCK_STORE")


def test_a_missing_store(tussock: Tussock) -> None:
    for command in (("show",), ("epoch",), ("query", "SELECT 1"), ("inspect", "versions"), ("barrier", "show")):
        failed(tussock(*command, "--store", "nowhere"), "nowhere contains no store", "tussock init")


def test_a_pipeline_that_was_never_applied(tussock: Tussock, tmp_path: Path) -> None:
    text = 'name = "days"\nstore = "store"\nsql = ["views.sql"]\n[env.prod]\nstore = "prod"\n'
    write_pipeline(tmp_path, text)
    for command in (("show",), ("epoch",), ("read", "people"), ("inspect", "versions")):
        failed(tussock(*command, "--pipeline", "days"), "contains no store", "`tussock apply days`")
        failed(tussock(*command, "--pipeline", "days", "--env", "prod"), "`tussock apply days --env prod`")
    for name, line in {
        "days": tussock("status").out,
        "days --env prod": tussock("status", "--env", "prod").out,
    }.items():
        one = tussock("status", *name.split())
        assert one.code == 0
        assert "does not exist" in line
        assert "does not exist" in one.out
        assert f"`tussock apply {name}`" in one.out


def test_an_invalid_address(tussock: Tussock) -> None:
    failed(tussock("show", "--store", "s3://"), "s3://")
    failed(tussock("show", "--store", "gs://bucket/x"), "gs://bucket/x")


def test_init_of_an_existing_store(tussock: Tussock) -> None:
    assert tussock("init", "--store", "s").code == 0
    failed(tussock("init", "--store", "s"), "already contains a store", "Nothing was changed")


def test_settings_that_no_store_can_have(tussock: Tussock) -> None:
    failed(tussock("init", "--store", "s", "--vnodes", "100"), "100", "power of two")
    failed(tussock("init", "--store", "s", "--units", "0"), "0")
    failed(tussock("init", "--store", "s", "--time-zone", "Mars/Olympus"), "Mars/Olympus")
    assert tussock("init", "--store", "s").code == 0, "the failed calls left nothing"


def test_an_unknown_pipeline(tussock: Tussock, tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    failed(tussock("apply", "dais"), "unknown pipeline 'dais'", "contains days", "Did you mean 'days'?")
    failed(tussock("epoch", "--pipeline", "../days"), "unknown pipeline '../days'")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = days", ("pipeline.toml", "expected a valid TOML file")),
        ('name = "days"\nstore = "s"\nsql = ["a.sql"]\nshedule = "@daily"', ("pipeline.toml", "shedule")),
        ('name = "days"\nsql = ["a.sql"]', ("pipeline.toml", "store")),
        (
            'name = "days"\nstore = "s"\nsql = ["a.sql"]\n[epoch]\nunits = "two"',
            ("pipeline.toml", "epoch.units", "whole number"),
        ),
        ('name = "days"\nstore = "s"\nsql = ["gone.sql"]', ("pipeline.toml", "gone.sql")),
    ],
)
def test_an_invalid_pipeline_toml(text: str, says: tuple[str, ...], tussock: Tussock, tmp_path: Path) -> None:
    write_pipeline(tmp_path, text)
    failed(tussock("apply", "days"), *says)


@pytest.mark.parametrize(
    ("interval", "says"),
    [
        (("yesterday", "2013-01-02"), "yesterday to 2013-01-02"),
        (("2013-01-02", "2013-01-01"), "the end is not after the start"),
        (("2013-01-02", "2013-01-02"), "the end is not after the start"),
    ],
)
def test_a_nonsense_interval(interval: tuple[str, str], says: str, tussock: Tussock) -> None:
    tussock("init", "--store", "s")
    failed(tussock("epoch", "--store", "s", "--interval", *interval), says, "ISO 8601")


def test_a_nonsense_moment(tussock: Tussock) -> None:
    tussock("init", "--store", "s")
    failed(tussock("query", "--store", "s", "--at", "yesterday", "SELECT 1"), "yesterday", "ISO 8601")
    failed(tussock("query", "--store", "s", "--at", "2999-01-01", "SELECT 1"), "is in the future")


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


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow: every write fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more(tussock: Tussock) -> None:
    with full_disk():
        answer = tussock("init", "--store", "s")
    failed(answer, "s")
    assert tussock("init", "--store", "s").code == 0, "no partial store is left"


def test_a_store_in_a_place_that_cannot_be_a_directory(tussock: Tussock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file, not a directory")
    failed(tussock("init", "--store", "file/store"), "file/store")


def damage_files_of(home: Path) -> None:
    """Files that are not UTF-8, a folder in place of a file, and a file in place of a folder."""
    not_utf8 = "café".encode("latin-1")
    shop = home / "pipelines" / "shop"
    for path in (shop / "sources.sql", shop / "tests" / "daily_sales.yaml", home / "plan.json"):
        path.write_bytes(not_utf8)
    (home / "file").write_text("a file, not a directory")
    (home / "dags" / "tussock_pipelines.py").mkdir(parents=True)
    meta = open_store(home / "store", "maker")
    append(meta, table("t"))
    meta.publish(epoch(meta).epoch)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("plan shop", "sql: found sources.sql (byte 3 is not UTF-8), expected a text file in UTF-8"),
        ("test shop", "daily_sales.yaml cannot be read: byte 3 is not UTF-8. Expected a text in UTF-8"),
        ("apply shop --approved plan.json", "plan.json cannot be read: byte 3 is not UTF-8"),
        ("read t --store store --parquet file/rows.parquet", "file/rows.parquet cannot be written: "),
        ("explain --store store --svg file/plan.svg", "file/plan.svg cannot be written: Not a directory"),
        ("airflow-files dags", "dags/tussock_pipelines.py cannot be read: Is a directory"),
    ],
)
def test_a_path_that_cannot_be_read_or_written_is_named_with_the_reason(
    command: str, says: str, tussock: Tussock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tussock("new", "shop").code == 0
    assert tussock("init", "--store", "store").code == 0
    damage_files_of(tmp_path)
    monkeypatch.setattr("tussock.jobs.shell.airflow_files.find_spec", lambda _: True)
    failed(tussock(*command.split()), says)


def test_sql_whose_bytes_are_not_utf8_is_refused_before_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["query", "--store", "none", os.fsdecode(b"SELECT '\xff'")])
    assert "argument SQL: character 9 is a byte that is not UTF-8" in capsys.readouterr().err


def test_a_text_in_place_of_a_saved_plan_may_be_too_long_for_a_path(tussock: Tussock) -> None:
    assert tussock("new", "shop").code == 0
    failed(tussock("apply", "shop", "--approved", "plan " * 99), "is neither the digest of a plan nor a saved plan")


def test_a_new_pipeline_on_a_full_disk_leaves_nothing(tussock: Tussock, tmp_path: Path) -> None:
    with full_disk():
        failed(tussock("new", "shop"), "pipelines/shop cannot be written: File too large")
    assert [*(tmp_path / "pipelines").iterdir()] == []


def test_an_output_that_cannot_be_written_is_reported(
    tussock: Tussock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tussock("init", "--store", "s").code == 0
    for unbuffered in (False, True):
        with monkeypatch.context() as changed, Path("/dev/full").open("wb", buffering=0 if unbuffered else -1) as full:
            changed.setattr("sys.stdout", io.TextIOWrapper(full, write_through=unbuffered))
            assert cli.main(["show", "--store", "s"]) == 1
        assert "cannot be written: No space left on device. The output is incomplete" in capsys.readouterr().err


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_the_null_device_for_a_command_and_its_children(
    closed: str, tussock: Tussock, tmp_path: Path
) -> None:
    """A file that gets the number of a closed stream would receive the output of Java and of libraries."""
    assert tussock("init", "--store", "s").code == 0
    code = (
        "import os, subprocess, sys; from tussock.jobs import cli; from tussock.__main__ import main;"
        "cli.main = lambda: subprocess.run(['/bin/sh', '-c', 'echo to 1; echo to 2 >&2; cat']).returncode;"
        "opened = main(); file = os.open('file', os.O_CREAT); sys.exit(opened or file < 3)"
    )
    for command in (("-m", "tussock", "show", "--store", "s"), ("-m", "tussock", "query", "-"), ("-c", code)):
        script = f"{shlex.join([sys.executable, *command])} {closed}"
        ran = subprocess.run(
            ["/bin/sh", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TUSSOCK_STORE": "s"},
            input="",
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, "rror" in ran.stderr) == (0, False), (script, ran.stderr)


@pytest.mark.parametrize(("encoding", "unknown"), [("ascii", "…"), ("utf-8", "\udce9")])
def test_a_text_that_the_output_cannot_encode_is_reported_with_an_encoding_that_can(
    encoding: str, unknown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tussock.jobs.settings.process.open_meta", lambda _: print(f"store d{unknown}"))
    with monkeypatch.context() as changed, io.TextIOWrapper(io.BytesIO(), encoding=encoding) as output:
        changed.setattr("sys.stdout", output)
        assert cli.main(["show", "--store", "s"]) == 1
    said = capsys.readouterr().err
    assert f"encoding {encoding}, which has no {unknown!r}. Set " in said
    able, errors = said.partition("PYTHONIOENCODING=")[2].partition(",")[0].split(":")
    assert unknown.encode(able, errors)


def test_warnings_are_notes_without_a_place_in_the_code(
    tussock: Tussock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warned(_: object) -> None:
        for _ in range(2):
            warnings.warn(PausedViewWarning("v", 7), stacklevel=1)

    monkeypatch.setattr("tussock.jobs.settings.process.open_meta", warned)
    said = tussock("show", "--store", "s").err
    assert said.startswith("note: view 'v' has been paused since epoch 7")
    assert said.count("note: ") == 1


def test_an_unexpected_error_is_one_line_with_a_hint_for_details(
    tussock: Tussock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("the moon is out\nand so on")

    monkeypatch.setattr("tussock.jobs.settings.process.open_meta", broken)
    answer = tussock("show", "--store", "s")
    failed(answer, "RuntimeError: the moon is out", "TUSSOCK_DEBUG=1")
    assert answer.err.count("\n") == 1
    monkeypatch.setenv("TUSSOCK_DEBUG", "1")
    assert cli.main(["show", "--store", "s"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


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
