"""Avro files, whose module is not in Spark's jars."""

from pathlib import Path

import pytest

from tests.support.with_packages import run_alone


@pytest.mark.deep
@pytest.mark.timeout(1300)
def test_a_view_over_avro_files_is_sparks_own_read_of_them(tmp_path: Path) -> None:
    run_alone("tests.support.jobs.sources.avro_alone", tmp_path, "org.apache.spark#spark-avro")
