"""The template store and its undisturbed second epoch, made once."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once import workload
from tests.support.exactly_once.points import FAULT_FILE, Fault, plan_fault
from tussock.statestore.meta.version import HummockVersion

ROOT = Path(__file__).resolve().parents[3]
CHILD_TIMEOUT_S = 400


@dataclass(frozen=True)
class Case:
    """The common start and the expected end of disturbed runs."""

    template: Path
    data: Path
    undisturbed: HummockVersion
    rows: dict[str, pa.Table]  # by Spark
    pipeline: Path


@pytest.fixture(scope="session")
def case(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    root = tmp_path_factory.mktemp("exactly_once")
    template, data, undisturbed = root / "template", root / "data", root / "undisturbed"
    workload.prepare(spark, template, data)
    shutil.copytree(template, undisturbed)
    workload.resume(spark, undisturbed)
    pipeline = root / "pipelines" / "once"
    pipeline.mkdir(parents=True)
    (pipeline / "pipeline.toml").write_text(
        'name = "once"\nstore = "${TUSSOCK_TEST_STORE}"\nsql = ["views.sql"]\n'
        f"[epoch]\nmax_bytes = {workload.MAX_EPOCH_BYTES}\n[spark]\n"
        # Options for a quick start.
        '"spark.driver.memory" = "1g"\n'
        '"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"\n'
        '"spark.python.daemon.module" = "tests.support.exactly_once.daemon"\n'
    )
    return Case(template, data, workload.open_meta(undisturbed).read_latest(), workload.truth(spark, data), pipeline)


@pytest.fixture
def store(case: Case, tmp_path: Path) -> Path:
    """A copy of the template."""
    return Path(shutil.copytree(case.template, tmp_path / "store"))


@pytest.fixture
def start_job(case: Case, store: Path, tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start the epoch job on `store` as a separate process with a fault. None outlives its test."""
    started: list[subprocess.Popen[str]] = []

    def start(fault: Fault | None = None) -> "subprocess.Popen[str]":
        file = tmp_path / "fault.json"
        if fault is not None or not file.exists():
            plan_fault(file, fault)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TUSSOCK_TEST_STORE": str(store),
            FAULT_FILE: str(file),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "-m", "tests.support.exactly_once.child", "--pipeline", str(case.pipeline)]
        started.append(
            subprocess.Popen(
                command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
