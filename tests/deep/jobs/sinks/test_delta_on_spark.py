"""Delta tables written by Spark, whose jars do not include Delta."""

from pathlib import Path

import pytest

from tests.support.with_packages import run_alone


@pytest.mark.deep
@pytest.mark.timeout(1300)
def test_tables_by_either_engine_are_read_alike_by_spark_and_without_it_at_every_epoch(tmp_path: Path) -> None:
    run_alone("tests.support.jobs.sinks.delta_alone", tmp_path, "io.delta")


@pytest.mark.deep
@pytest.mark.timeout(1300)
def test_tables_with_deletion_vectors_are_read_alike_while_spark_compacts_them(tmp_path: Path) -> None:
    run_alone("tests.support.jobs.sinks.located_alone", tmp_path, "io.delta")
