"""A stale view in a real scheduler: several runs miss their deadlines, and one report is made. Takes minutes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.airflow_home import ROOT, AirflowHome, airflow_environment
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tests.support.jobs.driver.embedded import append
from tests.support.jobs.plan.catalogs import view
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.process import open_meta
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

DAG = "epoch_shop"
pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
TOML = """name = "shop"
store = "{folder}/store"
sql = ["v.sql"]
[schedule]
cron = "* * * * *"
start = {start}
[epoch]
runner = "auto"
[freshness]
v = "1s"
[alerts]
call = "pages_of_a_company.stale"
[notify.file]
notifier = "notifier.FileNotifier"
on = ["late"]
arguments = {{ file = "{folder}/noted" }}
"""
CALLED = "def stale(*facts):\n    with open({file!r}, 'a') as out:\n        out.write(' '.join(facts) + '\\n')\n"


def test_runs_that_miss_their_deadlines_say_once_that_a_view_is_too_old(tmp_path: Path) -> None:
    (tmp_path / "pipelines/shop").mkdir(parents=True)
    start = (datetime.now(UTC) - timedelta(minutes=2)).isoformat(timespec="seconds").replace("+00:00", "Z")
    (tmp_path / "pipelines/shop/pipeline.toml").write_text(TOML.format(folder=tmp_path, start=start))
    (code := tmp_path / "code").mkdir()
    (code / "pages_of_a_company.py").write_text(CALLED.format(file=str(tmp_path / "said")))
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"k": pa.array([1], pa.int32())}), tmp_path / "data/one.parquet")
    MetaStore.init(open_object_store(f"{tmp_path}/store"))
    meta = open_meta(f"{tmp_path}/store")
    fields = (Field("k", "int"),)
    append(meta, CreateSource("s", "parquet", fields, {"path": f"{tmp_path}/data"}), view("v", Scan("s", (0,), fields)))
    (done,) = advance_store(LocalRunner(), meta)
    meta.publish(done.epoch)
    (tmp_path / "data/two.parquet").write_bytes(
        b"no rows"
    )  # its source is held: the view stays as it is, run after run
    usual = airflow_environment(tmp_path)
    environment = {
        **usual,
        "TUSSOCK_PIPELINES": str(tmp_path / "pipelines"),
        "PYTHONPATH": f"{usual['PYTHONPATH']}:{code}:{ROOT / 'tests/support/notifiers'}",
    }
    home = AirflowHome(tmp_path, ROOT, environment)
    missed = "SELECT c.state FROM deadline d JOIN callback c ON c.id = d.callback_id WHERE d.missed"
    with home.up(DAG, PATIENCE_S):
        home.airflow("dags", "unpause", DAG)
        wait_for("two deadlines are missed", lambda: [state for (state,) in home.query(missed)].count("success") >= 2)
        home.airflow("dags", "pause", DAG)
    said = (tmp_path / "said").read_text().splitlines()
    assert len(said) == 1
    assert said[0].startswith("shop v view v should be at most 1 s old: readers see it as of ")
    (note,) = (tmp_path / "noted").read_text().splitlines()
    assert note.startswith("late: shop: view v is late: view v should be at most 1 s old: readers see it as of ")
    assert [file.name for file in tmp_path.glob("store/alerts/*")] == ["v.json"]
