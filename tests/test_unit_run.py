"""`make unit` works before Java is installed: tests are collected without pyspark."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLLECT = """
import sys
import pytest

code = pytest.main(["--no-jvm", "--collect-only", "-q", "tests/jobs/plan", "tests/jobs/upkeep"])
assert code == 0, code
assert not {"pyspark", "py4j"} & {name.partition(".")[0] for name in sys.modules}
"""


def test_unit_tests_are_collected_without_pyspark() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "tests/jobs/plan/" in done.stdout
