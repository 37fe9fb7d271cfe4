"""Which JVMs start from the archive of classes. A JVM starts without an archive that does not fit."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tussock.jobs.spark import class_archive
from tussock.jobs.spark.class_archive import QUIET, archive_file, submit_options


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file at the path of this Python's archive."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a Python"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    archive_file().parent.mkdir(parents=True)
    archive_file().write_bytes(b"no archive")
    return archive_file()


def test_a_driver_starts_from_the_archive_with_the_options_that_were_given(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submit_options() == {"SPARK_SUBMIT_OPTS": f'"-XX:SharedArchiveFile={archive}" {class_archive.QUIET}'}
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    assert submit_options()["SPARK_SUBMIT_OPTS"].endswith(" -XX:TieredStopAtLevel=1")


@pytest.mark.parametrize("given", ["-XX:SharedArchiveFile=/of/mine.jsa", "-XX:ArchiveClassesAtExit=/of/mine.jsa"])
def test_an_archive_that_the_user_names_stays(archive: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", given)
    assert submit_options() == {}


def test_without_an_archive_nothing_is_set(archive: Path) -> None:
    archive.unlink()
    assert submit_options() == {}


@pytest.mark.spark
def test_a_jvm_that_the_archive_does_not_fit_starts_without_a_word(archive: Path) -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    archive.unlink()
    subprocess.run(
        ["java", f"-XX:ArchiveClassesAtExit={archive}", "-cp", str(jar), "py4j.GatewayServer", "--help"],
        capture_output=True,
    )
    plain = said("-cp", str(archive.parent))
    assert said(f"-XX:SharedArchiveFile={archive}", "-cp", str(archive.parent)) != plain, "made over other classes"
    assert said(f"-XX:SharedArchiveFile={archive}", *QUIET.split(), "-cp", str(archive.parent)) == plain


def said(*options: str) -> str:
    run = subprocess.run(["java", *options, "-version"], capture_output=True, text=True, check=True)
    return run.stdout + run.stderr
