"""Compactors: complete runs, several at once, next to epochs, failing, stopped, and in Spark."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.statestore.hummock.living_store import living_store
from tests.support.waiting import eventually
from tussock.statestore.objectstore.local import LocalObjectStore

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.kill
def test_a_compactor_stops_on_request_and_leaves_the_store_whole(tmp_path: Path) -> None:
    store = living_store(LocalObjectStore(tmp_path / "store"))
    command = [
        sys.executable,
        "-m",
        "tussock.jobs.submitted",
        "compact",
        "--store",
        store.objects.uri,
        "--pause",
        "0.1",
    ]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
    eventually("it has compacted", lambda: store.meta.read_latest().levels[1:], 120)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    version = store.meta.read_latest()
    assert version.tasks == ()
    store.check(version, version.epoch)
