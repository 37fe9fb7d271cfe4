"""Gunicorn, multiprocessing, Airflow and notebooks fork: children go on with the session of their parent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import rows
from tests.support.jobs.forks import programs_lanes as shared
from tests.support.jobs.forks.programs import CHILDREN, PROGRAMS
from tussock.statestore.meta.store import MetaStore

meta = shared.meta

ROOT = Path(__file__).parents[4]


@pytest.mark.kill
@pytest.mark.timeout(240)
@pytest.mark.parametrize("program", [one.__name__ for one in PROGRAMS])
def test_children_of_a_program_read_and_write_under_their_own_names(
    program: str, meta: MetaStore, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.support.jobs.forks.programs", program, str(tmp_path / "store")]
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow"), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert sorted(one["key"] for one in found) == list(range(-1, CHILDREN + 1)), ran.stderr[-3000:]
    assert len({one["writer"] for one in found}) == 1 + CHILDREN, "a child has its own name, and the parent keeps its"
    assert len({one["pin"] for one in found}) == len(found)
    pins = {pin.name for pin in meta.all_pins()}
    assert pins == {one["pin"] for one in found}, "no child has removed a pin of another process"
    for n, one in enumerate(found):
        assert one["counted"] == len(one["keys"]) == n + 2
    assert {row[0] for row in rows(meta, "t")} == {*range(-1, CHILDREN + 1), 1000}
