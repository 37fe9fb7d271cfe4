"""Delta tables by Spark, in a process of its own: Delta's packages have to be there when the JVM starts."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.deep
def test_tables_by_either_engine_are_read_alike_by_spark_and_without_it_at_every_epoch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.jobs.sinks.delta_alone", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, cwd=Path(__file__).parents[3])
    if ran.returncode and "unresolved dependency: io.delta" in ran.stderr:
        pytest.skip("Delta's packages cannot be fetched here")
    assert ran.returncode == 0, ran.stderr[-4000:]
