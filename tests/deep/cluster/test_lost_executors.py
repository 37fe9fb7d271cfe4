"""Executors on two hosts are lost in the middle of an exchange: the stage runs again, and writes the same bytes."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.cluster import running_cluster
from tests.support.jobs.driver.embedded import NOW, after, append, epoch, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.driver.runner import LocalRunner
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.timeout(1500)]

HOSTS = ("127.0.0.1", "127.0.0.2")


def test_an_epoch_survives_the_loss_of_an_executor(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store", units=4)
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    insert(meta, "t", (0, 0, 0))
    epoch(meta)
    rng = random.Random(3)
    insert(meta, "t", *((rng.randrange(5000), rng.randrange(400), k) for k in range(3000)))
    expected = after(tmp_path / "store", tmp_path / "here", LocalRunner())
    there = tmp_path / "there"
    shutil.copytree(tmp_path / "store", there)
    markers = tmp_path / "markers"
    markers.mkdir()
    with running_cluster(tmp_path / "cluster", memory="512m", hosts=HOSTS) as cluster:
        python = cluster.environment()["PYSPARK_DRIVER_PYTHON"]
        script = str(Path(__file__).with_name("lose_executors.py"))
        done = subprocess.run(
            [python, script, str(there), str(markers), "1"],
            env=cluster.environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert (markers / "0").exists(), "no executor was killed"
    assert json.loads(done.stdout.splitlines()[-1])["ran"] == "on Spark, in one stage"
    assert MetaStore(open_object_store(str(there)), "reader", lambda: NOW).read_latest() == expected
