"""The bakery of the examples as a project of dbt and as a declarative pipeline: imported, and deployed by Airflow.

Its schedule then runs it, checks the rows and publishes them. Takes minutes.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from scripts.airflow_home import ROOT, AirflowHome, airflow_environment
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tests.support.jobs.sinks.delta_readers import package_rows
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.process import open_meta
from tussock.statestore.meta.catalog import RelationKind

pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
PROJECTS = {"sdp": ("bakery_sdp", "spark-pipeline.yml"), "dbt": ("bakery_dbt", "target/manifest.json")}
SETTINGS = """
[schedule]
cron = "* * * * *"
start = 2026-01-01

[publish]
to = "{folder}/lake"
"""
CHECKED = ("inject_barrier", "run_actors", "commit_version", "validate_views", "publish_views")


@pytest.mark.parametrize("tool", PROJECTS)
def test_an_imported_project_is_deployed_scheduled_checked_and_published(tool: str, tmp_path: Path) -> None:
    example, file = PROJECTS[tool]
    shutil.copytree(ROOT / "examples" / example, tmp_path / "bakery")
    environment = {**airflow_environment(tmp_path), "TUSSOCK_PIPELINES": str(tmp_path / "pipelines")}
    (tmp_path / "pipelines").mkdir()
    command = [sys.executable, "-m", "tussock.jobs.cli", "import", tool, f"bakery/{file}", "--name", "bakery"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=PATIENCE_S)
    settings = tmp_path / "pipelines" / "bakery" / "pipeline.toml"
    settings.write_text(settings.read_text() + SETTINGS.format(folder=tmp_path))
    home = AirflowHome(tmp_path, ROOT, environment)
    with home.up("epoch_bakery", PATIENCE_S):
        home.airflow("dags", "unpause", "deploy_bakery")
        deployed = home.trigger("deploy_bakery", {"logical_date": None})
        wait_for("the deployment ends", lambda: state_of(home, deployed) == "success")
        home.airflow("dags", "unpause", "epoch_bakery")
        wait_for("a scheduled run ends", lambda: bool(ended_runs(home)))
        states = home.query(f"SELECT task_id, state FROM task_instance WHERE run_id = '{ended_runs(home)[0]}'")
        assert {task for task, state in states if state == "success"} >= set(CHECKED)
    store = open_meta(str(tmp_path / ".tussock" / "bakery" / "store"))
    live = store.read_latest().catalog.live_relations()
    views = [r.name for r in live if r.kind is RelationKind.VIEW and not r.is_internal]
    assert len(views) >= 5
    for name in views:
        stored = StoredRows(store).read(name)
        copy = package_rows(DeltaTable(str(tmp_path / "lake" / name)))
        assert sorted(map(repr, copy.select(stored.column_names).to_pylist())) == sorted(map(repr, stored.to_pylist()))


def state_of(home: AirflowHome, run: str) -> str:
    return str(home.query(f"SELECT state FROM dag_run WHERE run_id = '{run}'")[0][0])


def ended_runs(home: AirflowHome) -> list[str]:
    """The scheduled runs of epochs that have succeeded."""
    asked = "SELECT run_id FROM dag_run WHERE dag_id = 'epoch_bakery' AND run_type = 'scheduled' AND state = 'success'"
    return [str(run) for (run,) in home.query(asked)]
