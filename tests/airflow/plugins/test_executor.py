"""The executor imports its tasks' libraries in advance: all of them, and all work in a fork."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINES = """
import os, signal, sys
import tussock_executor
tussock_executor.import_libraries()
there = set(sys.modules)

def task():
    signal.alarm(60)
    import tussock.jobs.reading.reader, tussock.jobs.driver.epoch, tussock.jobs.driver.publish
    import tussock.jobs.driver.runner, tussock.jobs.driver.summary
    import tussock.jobs.quality.epoch_check, tussock.jobs.operations.publish
    import tussock.jobs.sinks.delta_rs, tussock_operators, tussock_publishing
    print("imported:", *sorted(name for name in set(sys.modules) - there if not name.startswith("tussock")))
    import duckdb, numpy as np, pandas as pd, pyarrow as pa, pyarrow.compute as pc
    from deltalake import DeltaTable, write_deltalake
    rows = pa.table({"k": np.arange(1_000_000) % 7, "v": np.ones(1_000_000)})
    counted = rows.group_by("k").aggregate([("v", "sum")])  # Arrow's threads
    assert pc.sum(counted["v_sum"]).as_py() == duckdb.sql("SELECT sum(v) FROM rows").fetchall()[0][0] == 1_000_000
    assert (np.ones((300, 300)) @ np.ones((300, 300))).sum() == 300 ** 3  # those of the linear algebra
    assert rows.to_pandas().groupby("k").v.sum().sum() == 1_000_000
    write_deltalake(sys.argv[1], counted)
    merge = DeltaTable(sys.argv[1]).merge(counted, "t.k = s.k", source_alias="s", target_alias="t")
    merged = merge.when_matched_delete().execute()
    assert merged["num_target_rows_deleted"] == 7

for n in range(2):
    sys.argv[1] += str(n)
    if (pid := os.fork()) == 0:
        try:
            task()
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.airflow
def test_a_fork_has_every_library_of_a_task_and_each_works_there(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LINES, str(tmp_path / "table")], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert run.stdout.splitlines()[-1].strip() == "imported:", "libraries that tussock_executor.LIBRARIES lacks"
