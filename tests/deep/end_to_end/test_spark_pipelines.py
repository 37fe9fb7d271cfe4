"""An imported declarative pipeline and `spark-pipelines run` over the same project and files."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep
ROOT = Path(__file__).resolve().parents[3]


def test_views_equal_the_tables_of_spark_pipelines_after_each_delivery() -> None:
    pytest.importorskip("grpc")  # of Spark Connect, in which spark-pipelines runs
    command = [sys.executable, "-m", "benchmarks", "declarative", "--orders", "500"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "views that differ: none" in ended.stdout
