"""`tussock` on the command line: a first session, its help, and every kind of misuse."""

import argparse
import io
import os
import resource
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.end_to_end import cli as shared
from tests.support.end_to_end.cli import ROOT, Tussock, failed, write_pipeline
from tests.support.jobs.driver.embedded import append, epoch, open_store
from tests.support.jobs.plan.catalogs import table
from tussock.jobs import cli
from tussock.jobs.reading.read import PausedViewWarning

tussock = shared.tussock
COMMANDS = tuple(command.name for command in cli.COMMANDS)


# --- as it is meant -----------------------------------------------------------------------------


def test_the_version_names_the_packages_as_they_name_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    import duckdb
    import pyarrow

    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "tussock"
    assert f"pyarrow {pyarrow.__version__}, duckdb {duckdb.__version__}, " in second


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
    failed(tussock("show", "--store", "ftp://bucket/x"), "ftp://bucket/x")


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
