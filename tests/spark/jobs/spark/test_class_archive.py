"""Which JVMs start from the archive of classes, and which one writes it. A JVM starts without one that does not fit."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.spark import class_archive as shared
from tests.support.jobs.spark.class_archive import starts_from
from tussock.jobs.spark import class_loading, session
from tussock.jobs.spark.class_archive import QUIET, archive_of_user, submit_options
from tussock.jobs.spark.class_loading import load_classes
from tussock.jobs.spark.collected import collect_rows

_own_folders = shared._own_folders


@pytest.mark.spark
def test_the_queries_that_load_classes_run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    before, ran = spark.sql("SHOW TABLES").collect(), list[int]()
    monkeypatch.setattr(class_loading, "collect_rows", lambda frame: ran.append(collect_rows(frame).num_rows))
    load_classes(session.sql_session(spark, "UTC"))
    assert ran == [2, 2, 3]
    assert spark.sql("SHOW TABLES").collect() == before, "the relation belongs to another session"


@pytest.mark.spark
def test_a_jvm_that_the_archive_does_not_fit_starts_without_a_word() -> None:
    """The real JVM writes the magic number that marks a complete file, and is silent about every other file."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    claimed = submit_options(writes=True)["SPARK_SUBMIT_OPTS"].replace('"', "").removesuffix(QUIET).strip()
    said([claimed, *QUIET.split(), "-cp", str(jar), "py4j.GatewayServer", "--help"])
    archive = archive_of_user()
    assert submit_options(writes=True) == starts_from(archive)
    other = ["-cp", str(archive.parent), "-version"]
    plain = said(other)
    assert said([f"-XX:SharedArchiveFile={archive}", *other]) != plain, "made over other classes"
    assert said([f"-XX:SharedArchiveFile={archive}", *QUIET.split(), *other]) == plain


def said(options: Sequence[str]) -> str:
    run = subprocess.run(["java", *options], capture_output=True, text=True)
    return run.stdout + run.stderr
