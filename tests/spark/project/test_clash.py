"""Tussock beside a team's own packages that have the names of its rooms.

Airflow puts a team's dags and plugins folders on `sys.path`, and such folders often have a `jobs` or a `settings`.
Neither side may hide the other.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from tests.support.clash import THEIRS, write_packages
from tests.support.package import ROOT
from tests.support.spark_types import SparkSession

SESSION = """
import pyarrow as pa

import tussock

with tussock.Session("store", create=False, runner="local") as session:
    session.insert("orders", pa.table({"id": [3], "shop": [8], "amount": [2.5]}))
    session.flush()
    print(sorted(session.read("sales").to_pylist(), key=str))
"""


def test_a_session_runs_if_a_teams_packages_are_first_on_the_path(tmp_path: Path, spark: SparkSession) -> None:
    from tussock import Session

    with Session(str(tmp_path / "store"), spark) as session:
        session.execute("CREATE TABLE orders (id bigint, shop int, amount double, PRIMARY KEY (id))")
        session.execute("CREATE MATERIALIZED VIEW sales AS SELECT shop, sum(amount) AS total FROM orders GROUP BY shop")
        session.insert("orders", pa.table({"id": [1, 2], "shop": [7, 7], "amount": [10.0, 5.0]}))
    write_packages(tmp_path / "team")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "team"), str(ROOT), str(ROOT / "plugins")])}
    command = [sys.executable, "-c", f"{THEIRS}{SESSION}"]
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[{'shop': 7, 'total': 15.0}, {'shop': 8, 'total': 2.5}]"
