"""An epoch's bytes depend on nothing but its input.

Random histories write the same bytes with every seed of Python's hashes, on each runner, and with tasks that run twice
over cells in other orders. DuckDB computes the expected rows of the views.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once.histories import IN_TWO_SCHEMAS, History, bind, without_inode_times
from tests.support.exactly_once.local_engine import UnkindShuffle
from tussock.jobs.driver import runner
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.statestore.objectstore import local

ROOT = Path(__file__).parents[3]
EPOCHS = 3
DEEP_EPOCHS = 12
HASH_SEEDS = 50


@pytest.fixture(scope="module")
def bounds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The statements over one schema, and over two that share names."""
    one, two = (bind(spark, tmp_path_factory.mktemp("histories"), names) for names in ({}, IN_TWO_SCHEMAS))
    return one, two


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_info_of_stat", without_inode_times)
    monkeypatch.setattr(runner, "WORTH_WORKERS_BYTES", 0)


def unkindly(seed: int) -> UnkindShuffle:
    unkind = UnkindShuffle(seed)
    unkind.policy = LocalRunner().policy
    return unkind


def in_another_process(bound: Path, store: Path, seed: int, epochs: int, units: int, hash_seed: int) -> list[str]:
    arguments = [str(bound), str(store), *map(str, (seed, epochs, units))]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.exactly_once.histories", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    names: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return names


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("schemas", [1, 2])
def test_a_history_writes_the_same_bytes_however_it_is_run(
    bounds: tuple[Path, Path], schemas: int, tmp_path: Path
) -> None:
    bound = bounds[schemas - 1]
    names = History(bound, tmp_path / "unkind", 2, 2, unkindly(1)).run(EPOCHS, judge=True)
    assert names == in_another_process(bound, tmp_path / "other", 2, EPOCHS, 2, hash_seed=17)
    assert names == History(bound, tmp_path / "workers", 2, 2, LocalRunner(workers=2)).run(EPOCHS)


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("units", [2, 5])
def test_fifty_seeds_of_hashes_and_both_runners(
    units: int, bounds: tuple[Path, Path], spark: SparkSession, tmp_path: Path
) -> None:
    for hash_seed in range(HASH_SEEDS):
        seed, bound = 100 + hash_seed, bounds[hash_seed % 2]
        names = History(bound, tmp_path / f"unkind-{seed}", seed, units, unkindly(seed)).run(DEEP_EPOCHS, judge=True)
        assert names == in_another_process(bound, tmp_path / f"other-{seed}", seed, DEEP_EPOCHS, units, hash_seed)
        if hash_seed % 10 == 0:
            workers = LocalRunner(workers=2)
            assert names == History(bound, tmp_path / f"workers-{seed}", seed, units, workers).run(DEEP_EPOCHS)
            assert names == History(bound, tmp_path / f"spark-{seed}", seed, units, SparkRunner(spark)).run(DEEP_EPOCHS)
