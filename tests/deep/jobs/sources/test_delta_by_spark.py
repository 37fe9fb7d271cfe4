"""Delta tables that Spark writes; its jars do not include Delta."""

from pathlib import Path

import pytest

from tests.support.with_packages import run_alone


@pytest.mark.deep
@pytest.mark.timeout(1300)
def test_views_over_tables_that_spark_writes_equal_spark_at_every_version(tmp_path: Path) -> None:
    run_alone("tests.support.jobs.sources.delta_alone", tmp_path, "io.delta#delta-spark_4.2_2.13")
