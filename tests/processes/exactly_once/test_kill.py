"""The epoch job killed with SIGKILL at each of its steps and started again.

Each kill costs a separate driver, so the quick run takes few steps; the deep run takes all.
"""

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once import workload
from tests.support.exactly_once.fixtures import CHILD_TIMEOUT_S, Case
from tests.support.exactly_once.kill import assert_undisturbed
from tests.support.exactly_once.points import Fault, marker

QUICK = ("flush ends",)  # all is sealed and nothing committed
TRAIN = (  # later epochs of the train
    ("flush ends", 3),
    ("before put_if_absent meta/barrier", 1),
    ("after put_if_absent meta/version", 1),
    ("after put_if_absent meta/barrier", 2),
    ("after put_if_absent meta/manifest", 1),
    ("before put_if_absent meta/version", 2),
)
DEEP = (
    "after put_if_absent meta/version",
    "before put_if_absent meta/barrier",
    "after put_if_absent meta/barrier",
    *(f"level {level} begins" for level in range(workload.LEVELS)),
    "flush begins",
    "after put_if_absent meta/manifest",
    *(f"level {level} ends" for level in range(workload.LEVELS)),
    "before put_if_absent meta/manifest",
    "before put_if_absent meta/version",
)


def some_of(quick: Sequence[Any], deep: Sequence[Any]) -> list[Any]:
    """Cases of a test: of the quick run, and deep ones."""
    return [
        pytest.param(*([c] if isinstance(c, str) else c), marks=[] if c in quick else [pytest.mark.deep])
        for c in (*quick, *deep)
    ]


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.parametrize("point", some_of(QUICK, DEEP))
def test_a_killed_epoch_started_again_ends_as_if_undisturbed(
    point: str,
    case: Case,
    store: Path,
    spark: SparkSession,
    start_job: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
) -> None:
    child = start_job(Fault(point, "kill driver"))
    _, errors = child.communicate(timeout=CHILD_TIMEOUT_S)
    assert marker(tmp_path / "fault.json").exists(), f"the run did not come to {point!r}: {errors[-2000:]}"
    assert child.returncode == -signal.SIGKILL, errors[-2000:]
    workload.resume(spark, store)
    assert_undisturbed(case, store)


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.parametrize(("point", "skip"), some_of((), TRAIN))
def test_a_train_killed_and_started_again_ends_as_if_its_epochs_had_run_one_by_one(
    point: str,
    skip: int,
    case: Case,
    store: Path,
    spark: SparkSession,
    start_job: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
) -> None:
    child = start_job(Fault(point, "kill driver", skip=skip))
    _, errors = child.communicate(timeout=CHILD_TIMEOUT_S)
    assert marker(tmp_path / "fault.json").exists(), f"the run did not come to {point!r} so often: {errors[-2000:]}"
    assert child.returncode == -signal.SIGKILL, errors[-2000:]
    workload.resume(spark, store)
    assert_undisturbed(case, store)


@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.parametrize(
    "point", some_of(("level 1 begins",), ("flush ends", *(f"level {n} ends" for n in range(workload.LEVELS))))
)
@pytest.mark.parametrize("action", ["kill worker", pytest.param("raise", marks=pytest.mark.deep)])
def test_a_worker_that_dies_is_replaced_and_changes_nothing(
    point: str, action: str, case: Case, store: Path, start_job: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    child = start_job(Fault(point, action))
    _, errors = child.communicate(timeout=CHILD_TIMEOUT_S)
    assert marker(tmp_path / "fault.json").exists(), errors[-2000:]
    assert child.returncode == 0, errors[-2000:]
    assert_undisturbed(case, store)
