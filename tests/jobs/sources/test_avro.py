"""Avro, in a process of its own: its module has to be there when the JVM starts."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.deep
def test_a_view_over_avro_files_is_sparks_own_read_of_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.jobs.sources.avro_alone", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=Path(__file__).parents[3])
    if ran.returncode and "unresolved dependency: org.apache.spark#spark-avro" in ran.stderr:
        pytest.skip("Spark's Avro module cannot be fetched here")
    assert ran.returncode == 0, ran.stderr[-4000:]
