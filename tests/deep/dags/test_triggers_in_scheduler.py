"""Runs that other events start, in a real scheduler with its triggerer.

A marker file starts a run of the first pipeline through `[watch.SOURCE]`. The changed view starts the second pipeline.
A DAG of another team starts the first pipeline through the asset of its source. Nothing starts a run without input.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.airflow_home import ROOT, AirflowHome, airflow_environment
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tussock.jobs.session import Session

pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(3600)]
TOML = """name = "{name}"
store = "{folder}/{name}_store"
data = "{folder}/{name}"
sql = ["views.sql"]
[schedule]
{schedule}
[epoch]
runner = "auto"
[upkeep]
schedule = "none"
"""
WATCH = """[watch.orders]
trigger = "airflow.providers.standard.triggers.file.FileDeleteTrigger"
arguments = {{ filepath = "{folder}/arrived", poke_interval = 0.5 }}
"""
ORDERS = """
CREATE SOURCE orders (shop int, amount int) USING csv OPTIONS (path '${data}/*.csv');
CREATE MATERIALIZED VIEW totals AS SELECT shop, sum(amount) AS total FROM orders GROUP BY shop;
"""
OTHER_TEAM = """from airflow.sdk import DAG, Asset, task
with DAG("extract", schedule=None):
    @task(outlets=[Asset(name="shop.orders.arrival", uri="tussock://shop/orders/arrival")])
    def load(): ...
    load()
"""


@dataclass(frozen=True)
class Pair(AirflowHome):
    """A home with two pipelines, where events of the first one start the second."""

    def runs(self, dag: str) -> list[str]:
        """The states of the runs of a DAG that events of assets have started."""
        sql = f"SELECT state FROM dag_run WHERE dag_id = '{dag}' AND run_type = 'asset_triggered'"
        return [state for (state,) in self.query(sql)]

    def totals(self, pipeline: str) -> list[int]:
        with Session(str(self.folder / f"{pipeline}_store"), create=False) as session:
            return sorted(session.read("totals")["total"].to_pylist())


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    more = {
        "TUSSOCK_PIPELINES": str(tmp_path / "pipelines"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    }
    made = Pair(tmp_path, ROOT, {**airflow_environment(tmp_path), **more})
    (tmp_path / "dags").mkdir()
    for file in (ROOT / "dags").glob("epoch.py"):
        (tmp_path / "dags" / file.name).write_text(file.read_text())
    (tmp_path / "dags/extract.py").write_text(OTHER_TEAM)
    for name, schedule in (("shop", 'assets = ["orders"]\n' + WATCH), ("report", 'assets = ["shop.totals"]\n')):
        (folder := tmp_path / "pipelines" / name).mkdir(parents=True)
        text = TOML.format(name=name, folder=tmp_path, schedule=schedule.format(folder=tmp_path))
        (folder / "pipeline.toml").write_text(text)
        (folder / "views.sql").write_text(ORDERS)
        (tmp_path / name).mkdir()
        made.python("-m", "tussock.jobs.cli", "apply", name)
    with made.up("epoch_report", PATIENCE_S):
        yield made


def test_files_views_and_other_dags_start_runs(pair: Pair) -> None:
    (pair.folder / "shop/a.csv").write_text("1,5\n2,6\n")
    (pair.folder / "report/a.csv").write_text("7,8\n")
    (pair.folder / "arrived").touch()
    wait_for("the run that the file started", lambda: pair.runs("epoch_shop") == ["success"])
    assert pair.totals("shop") == [5, 6]
    wait_for("the run that the view started", lambda: pair.runs("epoch_report") == ["success"])
    assert pair.totals("report") == [8]

    (pair.folder / "shop/b.csv").write_text("1,10\n")
    pair.trigger("extract", {"logical_date": None})
    wait_for("the run that the other DAG started", lambda: pair.runs("epoch_shop") == ["success"] * 2)
    assert pair.totals("shop") == [6, 15]
    wait_for("the second run of the report", lambda: pair.runs("epoch_report") == ["success"] * 2)

    pair.trigger("extract", {"logical_date": None})
    wait_for("a run without input", lambda: pair.runs("epoch_shop") == ["success"] * 3)
    assert len(pair.runs("epoch_report")) == 2, "a run that changes no view starts nothing"
