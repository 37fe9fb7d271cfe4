"""Rows and helpers of test_class_archive.py, which is in several lanes."""

import sys
from pathlib import Path

import pytest

from tussock.jobs.spark import class_archive
from tussock.jobs.spark.class_archive import BRIEF, QUIET

LAUNCHER = {"SPARK_LAUNCHER_OPTS": BRIEF}
COMPLETE = class_archive._MAGIC + b"classes"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python and a user without archives."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a Python"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    for name in (
        "SPARK_SUBMIT_OPTS",
        "SPARK_LAUNCHER_OPTS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "_JAVA_OPTIONS",
        "PYSPARK_SUBMIT_ARGS",
        *class_archive._CLASS_PATHS,
    ):
        monkeypatch.delenv(name, raising=False)


def made(archive: Path, content: bytes = COMPLETE) -> Path:
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(content)
    return archive


def starts_from(archive: Path) -> dict[str, str]:
    return {"SPARK_SUBMIT_OPTS": f'"-XX:SharedArchiveFile={archive}" {QUIET}', **LAUNCHER}
