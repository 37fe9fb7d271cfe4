"""Which JVMs start from the archive of classes, and which one writes it. A JVM starts without one that does not fit."""

import os
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError

from tests.support.jobs.driver.embedded import append, new_store
from tests.support.jobs.plan.catalogs import table
from tests.support.jobs.spark import class_archive as shared
from tests.support.jobs.spark.class_archive import COMPLETE, LAUNCHER, made, starts_from
from tussock.jobs import cli
from tussock.jobs.shell import query_commands
from tussock.jobs.spark import session
from tussock.jobs.spark.class_archive import (
    BRIEF,
    CLAIM_S,
    MOST_ARCHIVES,
    QUIET,
    SERIAL,
    UNUSED_S,
    archive_name,
    archive_of_python,
    archive_of_user,
    submit_options,
)

_own_folders = shared._own_folders


def writes(new: Path) -> dict[str, str]:
    return {"SPARK_SUBMIT_OPTS": f'"-XX:ArchiveClassesAtExit={new}" {QUIET}', **LAUNCHER}


def new_of_user() -> Path:
    return archive_of_user().with_name(f"{archive_name()}.new")


def test_a_driver_starts_from_the_archive_with_the_options_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = made(archive_of_python())
    assert submit_options(writes=True) == starts_from(archive)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    assert submit_options()["SPARK_SUBMIT_OPTS"].endswith(" -XX:TieredStopAtLevel=1")


def test_options_of_the_user_win_over_those_of_a_brief_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=4")
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Dmine=1")
    assert submit_options(brief=True) == {
        "SPARK_SUBMIT_OPTS": f"{BRIEF} {SERIAL} -XX:TieredStopAtLevel=4",
        "SPARK_LAUNCHER_OPTS": "-Dmine=1",
    }
    assert submit_options() == {}


@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "_JAVA_OPTIONS", "PYSPARK_SUBMIT_ARGS", None])
def test_a_brief_jvm_gets_no_second_collector(variable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, "-XX:+UseZGC")
    options = submit_options(brief=True, more="" if variable else "-Xss4m -XX:+UseZGC")["SPARK_SUBMIT_OPTS"]
    assert options.split()[0] == BRIEF
    assert SERIAL not in options


@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"])
@pytest.mark.parametrize(
    "given", ["-XX:SharedArchiveFile=/of/mine.jsa", "-XX:ArchiveClassesAtExit=/of/mine.jsa", "-Xshare:off"]
)
def test_the_users_choice_of_an_archive_stays(variable: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made(archive_of_python())
    monkeypatch.setenv(variable, given)
    assert submit_options(writes=True) == {}


def test_one_jvm_writes_the_archive_of_the_user_and_the_next_starts_from_it() -> None:
    assert submit_options() == {}, "jobs that Airflow submits write none"
    assert submit_options(writes=True) == writes(new_of_user())
    assert submit_options(writes=True) == {}, "another JVM writes it"
    new_of_user().write_bytes(bytes(8) + COMPLETE)
    assert submit_options(writes=True) == {}, "its header is missing"
    made(new_of_user())
    assert submit_options() == {}, "no JVM has started from it, and a submitted job has no second try"
    assert submit_options(writes=True) == submit_options() == starts_from(archive_of_user())
    assert not new_of_user().exists()


def test_a_claim_of_a_jvm_that_was_killed_ends_after_a_day() -> None:
    assert submit_options(writes=True) == writes(new_of_user())
    os.utime(new_of_user(), (0.0, time.time() - CLAIM_S - 60))
    assert submit_options(writes=True) == writes(new_of_user())
    assert submit_options(writes=True) == {}


def test_another_java_and_other_jars_have_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(spark))
    (tmp_path / "java/bin").mkdir(parents=True)
    (tmp_path / "java/bin/java").touch()
    (tmp_path / "java/release").write_text('JAVA_VERSION="17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    names = [archive_name()]
    (tmp_path / "java/release").write_text('JAVA_VERSION="17.0.16"')
    names.append(archive_name())
    os.utime(spark / "jars", (0, 1_700_000_000))
    names.append(archive_name())
    assert names[-1] == archive_name()
    assert len(set(names)) == 3


def of_other_javas(count: int, ending: str = "jsa") -> list[Path]:
    return [made(archive_of_user().with_name(f"spark-{n}.{ending}")) for n in range(count)]


def grow_old(file: Path, age_s: float) -> None:
    os.utime(file, (0.0, time.time() - age_s))


@pytest.mark.parametrize("start", ["claims", "renames", "uses"])
def test_each_start_of_a_jvm_removes_unused_archives_and_the_files_of_killed_writers(start: str) -> None:
    old, recent = of_other_javas(2)
    left, claimed = of_other_javas(2, "jsa.new")
    grow_old(old, UNUSED_S + 60)
    grow_old(left, CLAIM_S + 60)
    if start != "claims":
        made(new_of_user() if start == "renames" else archive_of_user())
    assert submit_options(writes=True)
    assert [file.exists() for file in (old, recent, left, claimed)] == [False, True, False, True]


def test_a_user_keeps_the_archives_that_were_used_last() -> None:
    archives = of_other_javas(MOST_ARCHIVES + 3)
    for n, archive in enumerate(archives):
        grow_old(archive, 3600.0 * n)
    grow_old(made(archive_of_user()), 3600.0 * (MOST_ARCHIVES + 5))
    assert submit_options(writes=True) == starts_from(archive_of_user())
    assert [file.exists() for file in archives] == [n < MOST_ARCHIVES - 1 for n in range(len(archives))]


def test_a_submitted_job_removes_nothing() -> None:
    (old,) = of_other_javas(1)
    grow_old(old, UNUSED_S + 60)
    made(archive_of_user())
    assert submit_options() == starts_from(archive_of_user())
    assert old.exists()


def test_an_archive_that_another_process_removes_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, old = of_other_javas(2)
    grow_old(gone, UNUSED_S + 60)
    grow_old(old, UNUSED_S + 60)
    made(archive_of_user())
    listed = Path.stat

    def stat(self: Path, **options: bool) -> os.stat_result:
        if self == gone:
            gone.unlink(missing_ok=True)
        return listed(self, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert submit_options(writes=True) == starts_from(archive_of_user())
    assert not old.exists()


@pytest.mark.parametrize("call", ["utime", "fsync", "replace", "unlink"])
def test_an_archive_in_a_folder_of_another_user_is_used(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    archive = made(archive_of_user())
    old = made(archive.with_name("spark-0.jsa"))
    os.utime(old, (0.0, time.time() - UNUSED_S - 60))
    made(new_of_user())
    monkeypatch.setattr(os if call in ("utime", "fsync") else Path, call, refuses)
    assert submit_options(writes=True) == starts_from(archive)


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR"])
def test_a_jvm_with_a_folder_on_its_class_path_writes_no_archive(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/etc/conf")
    assert submit_options(writes=True) == {}


def test_without_a_cache_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    assert submit_options(writes=True) == {}


def test_a_java_that_refuses_the_options_starts_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def launch(conf: SparkConf, popen_kwargs: dict[str, int]) -> str:
        seen.append(os.environ.get("SPARK_SUBMIT_OPTS", ""))
        if seen[-1]:
            raise PySparkRuntimeError("it exited")
        return "a gateway"

    monkeypatch.setattr(session, "launch_gateway", launch)
    archive = made(archive_of_user())
    assert session._start_gateway({}, brief=False) == ("a gateway", False)
    assert [bool(options) for options in seen] == [True, False]
    assert "SPARK_SUBMIT_OPTS" not in os.environ
    assert not archive.exists(), "jobs of spark-submit would crash on it for ever"


def test_an_archive_stays_if_the_jvm_does_not_start_without_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(conf: SparkConf, popen_kwargs: dict[str, int]) -> str:
        raise PySparkRuntimeError("it exited")

    monkeypatch.setattr(session, "launch_gateway", launch)
    archive = made(archive_of_user())
    with pytest.raises(PySparkRuntimeError):
        session._start_gateway({}, brief=False)
    assert archive.exists(), "the reason is another one"


@pytest.mark.parametrize("name", ["written", "found"])
def test_the_jvm_that_writes_an_archive_loads_what_queries_need(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "found":
        made(archive_of_user())
    monkeypatch.setattr(session, "launch_gateway", lambda conf, popen_kwargs: "a gateway")
    assert session._start_gateway({}, brief=True) == ("a gateway", name == "written")


@pytest.mark.parametrize(
    ("command", "little", "brief"), [("query", -1, False), ("query", 0, True), ("explain", -1, True)]
)
def test_only_a_query_of_a_large_store_has_a_jvm_that_optimises(
    command: str, little: int, brief: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Mock(side_effect=PySparkRuntimeError("enough"))
    monkeypatch.setattr(session, "_start_gateway", launched)
    for name in ("_gateway", "_active_spark_context"):
        monkeypatch.setattr(SparkContext, name, None)
    monkeypatch.setattr(query_commands, "_LITTLE_BYTES", little)
    append(new_store(tmp_path / "store"), table("t"))
    cli.main([command, "--store", str(tmp_path / "store"), "SELECT k, count(*) AS n FROM t GROUP BY k"])
    assert launched.call_args.args[1] is brief
