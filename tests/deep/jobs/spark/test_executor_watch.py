"""If a cluster starts no executor, the driver gives up after its limit and names the cause."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.cluster import HOST, _daemon, _daemon_environment, _spark_class, _wait_for_line

DRIVER = """
import sys
from tussock.jobs.cli import TussockError
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.jobs.spark.session import build_spark

settings = {"spark.tussock.executors.wait": "8s", "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
spark = build_spark("alone", master=sys.argv[1], settings=settings)
for line in sys.stdin:
    try:
        with jvm_errors_as_ours():
            print(spark.range(100).count(), flush=True)
    except TussockError as err:
        print(type(err).__name__, err, flush=True)
"""


@pytest.mark.deep
@pytest.mark.cluster
def test_a_driver_that_loses_all_its_executors_names_them_and_gives_up(tmp_path: Path) -> None:
    environment = _daemon_environment()
    command = _spark_class("master.Master", "--host", HOST, "--port", "0", "--webui-port", "0")
    with _daemon("master", command, tmp_path, environment) as master:
        address = _wait_for_line(master, r"Starting Spark master at (spark://\S+)")
        place = (
            "--host",
            HOST,
            "--webui-port",
            "0",
            "--work-dir",
            str(tmp_path / "work"),
            "--cores",
            "1",
            "--memory",
            "600m",
        )
        with _daemon("worker", _spark_class("worker.Worker", *place, address), tmp_path, environment) as worker:
            _wait_for_line(worker, r"(Successfully registered with master)")
            driver = subprocess.Popen(
                [sys.executable, "-c", DRIVER, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert driver.stdin is not None
            assert driver.stdout is not None
            print("go", file=driver.stdin, flush=True)
            assert driver.stdout.readline() == "100\n"
        print("go", file=driver.stdin, flush=True)
        said = driver.stdout.readline()
        driver.stdin.close()
        assert driver.wait(60) == 0
    assert said.startswith("NoExecutorsError Spark had no executor for 8s, and its tasks waited. It lost 127.0.0.1:"), (
        said
    )
    assert f"the master is {address}" in said
