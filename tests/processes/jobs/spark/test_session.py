"""The Spark session of jobs and commands: its open ports and its output."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tussock.jobs.spark.session import _settings_of_a_new_application

ROOT = Path(__file__).resolve().parents[4]
pytestmark = [pytest.mark.spark, pytest.mark.kill]  # separate processes, each with a JVM

APPLICATION = """
import pathlib, sys
from tests.support.waiting import eventually
from tussock.jobs.spark.session import build_spark
spark = build_spark("probe")
frame = spark.range(3).mapInArrow(lambda batches: batches, "id long").repartition(2).sort("id")
assert [row.id for row in frame.collect()] == [0, 1, 2]
print("ready", spark.conf.get("spark.sql.ansi.enabled"), flush=True)
going_on = pathlib.Path(sys.argv[1])  # spark-submit passes no input on
eventually("the test has looked", lambda: not going_on.exists(), 300)
spark.stop()
"""


def environment() -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("SPARK_LOCAL_IP", "TUSSOCK_DEBUG")
    }  # a user has not set them
    return {**kept, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def listening_of(command: list[str], going_on: Path) -> tuple[set[str], str]:
    """The addresses that a Spark application listens on after a first job, and its output on standard error."""
    going_on.touch()
    with subprocess.Popen(
        [*command, str(going_on)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as application:
        assert application.stdout is not None
        said = application.stdout.readline()
        if said != "ready true\n":
            application.kill()
            pytest.fail(said + application.communicate()[1])
        root = psutil.Process(application.pid)
        places = [place for one in [root, *root.children(recursive=True)] for place in one.net_connections(kind="inet")]
        found = {place.laddr.ip.removeprefix("::ffff:") for place in places if place.status == psutil.CONN_LISTEN}
        going_on.unlink()
        _, errors = application.communicate(timeout=120)
    assert application.returncode == 0, errors
    return found, errors


@pytest.mark.parametrize("submitted", [True, False], ids=["spark-submit", "python"])
@pytest.mark.sampled(2)
def test_a_local_application_listens_only_on_the_loopback_interface(submitted: bool, tmp_path: Path) -> None:
    file = tmp_path / "application.py"
    file.write_text(APPLICATION)
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2,4]", str(file)]
    listening, errors = listening_of(submit if submitted else [sys.executable, str(file)], tmp_path / "going on")
    assert listening <= {"127.0.0.1", "::1"}
    if not submitted:
        assert errors == "", "a command prints nothing of its JVM"


def test_file_names_are_utf8_in_the_locale_c(tmp_path: Path) -> None:
    """Also the name of the working directory."""
    folder = tmp_path / "Übung"
    folder.mkdir()
    (folder / "größer.txt").write_text("one\n")
    code = (
        "import sys; from tussock.jobs.spark.session import build_spark;"
        "print([row.value for row in build_spark().read.text(sys.argv[1]).collect()])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder / "größer.txt")],
        cwd=folder,
        env=environment() | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "['one']\n", ran.stderr


def test_the_output_of_a_dying_jvm_is_passed_on() -> None:
    code = "from tussock.jobs.spark.session import build_spark; build_spark(settings={'spark.driver.memory': 'much'})"
    run = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert run.returncode != 0
    assert "much" in run.stderr


def test_a_pipelines_options_for_the_jvm_leave_its_log_as_quiet_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUSSOCK_DEBUG", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    options = "spark.driver.extraJavaOptions"
    quiet = _settings_of_a_new_application("local[1]", {})[options]
    assert quiet.startswith("-Dlog4j2.configurationFile=file:")
    assert _settings_of_a_new_application("local[1]", {options: "-Xss2m"})[options] == f"{quiet} -Xss2m"
