"""`make unit` works before Java is installed: tests are collected without pyspark, and none of them starts Java."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COLLECT = """
import sys
import pytest

code = pytest.main(["--no-jvm", "--collect-only", "-q", "tests/unit/jobs/plan", "tests/unit/jobs/upkeep"])
assert code == 0, code
assert not {"pyspark", "py4j"} & {name.partition(".")[0] for name in sys.modules}
"""


def test_unit_tests_are_collected_without_pyspark() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "tests/unit/jobs/plan/" in done.stdout


@pytest.mark.parametrize("data", [b"text", gzip.compress(b"packed")])
def test_names_of_tests_are_the_same_a_second_later(request: pytest.FixtureRequest, data: bytes) -> None:
    """Processes of one run collect at different times, and refuse to start if they disagree on a name."""
    assert request.node.callspec.id == ("text" if data == b"text" else f"{len(data)} bytes")


def test_java_does_not_start_in_a_test_without_a_mark() -> None:
    java = Path(os.environ["JAVA_HOME"]) / "bin/java"
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "::test_java_does_not_start_in_a_test_without_a_mark (call) starts Java without a mark" in done.stderr
