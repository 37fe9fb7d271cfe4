"""The preview DAGs, without an Airflow database, and a real run of one with Spark."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tussock_preview
from airflow.sdk.exceptions import TaskDeferred
from tussock_airflow import AirflowFailException

from scripts.airflow_home import airflow_environment
from tests.airflow.dags.test_epoch_dag import parsed
from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.compare.preview_record import read_previews
from tussock.jobs.session import Session
from tussock.jobs.settings.process import open_meta

ROOT = Path(__file__).resolve().parents[3]
TABLE = "CREATE TABLE IF NOT EXISTS t (k int, n int, PRIMARY KEY (k));\n"
VIEW = "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT n, count(*) AS rows FROM t GROUP BY n;\n"
pytestmark = pytest.mark.airflow


def write_pipeline(root: Path, sql: str) -> Path:
    folder = root / "pipelines" / "shop"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.toml").write_text('name = "shop"\nstore = "store"\nsql = ["v.sql"]\n[epoch]\nrunner = "auto"\n')
    (folder / "v.sql").write_text(sql)
    return folder


def test_a_preview_has_its_steps_in_order_and_ends_its_branch_in_any_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pipeline(tmp_path, "")
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    dag = parsed("preview").preview_shop
    names = [task.task_id for task in dag.topological_sort()]
    assert names == ["branch", "apply", "follow", "check", "diff", "report", "end"]
    assert dag.get_task("end").is_teardown
    assert (dag.schedule, dag.max_active_runs) == (None, 1)


def test_a_preview_waits_for_as_many_epochs_of_the_parent_as_the_form_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pipeline(tmp_path, "")
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    epoch(meta)
    task = parsed("preview").preview_shop.get_task("follow")
    begun = {"branch": "b", "commit": "", "folder": ""}
    ti = SimpleNamespace(task=task, xcom_pull=lambda task_ids: begun)
    run = SimpleNamespace(dag_id="preview_shop", run_id="r", run_type="manual", start_date=datetime.now(UTC))
    run.data_interval_start = run.data_interval_end = None
    meta.open_branch("b")
    context: dict[str, Any] = {"params": {"epochs": 1, "hours": 1}, "dag_run": run, "ti": ti}
    with pytest.raises(TaskDeferred):
        task.execute(context)
    insert(meta, "t", (1, 1, 1))
    epoch(meta)
    task.resume(context)
    assert rows(meta.branch("b"), "v") == [(1, 1)]
    run.start_date = datetime(2000, 1, 1, tzinfo=UTC)
    with pytest.raises(AirflowFailException, match="has taken 1 of 2 epochs"):
        task.execute({**context, "params": {"epochs": 2, "hours": 1}})


def test_a_run_whose_checks_failed_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"diff": "text", "check": [{"name": "tests of views", "passed": False, "lines": []}]}
    ti = SimpleNamespace(xcom_pull=lambda task_ids: results[task_ids])
    report = tussock_preview.report_preview().operator.python_callable
    with pytest.raises(AirflowFailException, match="tests of views"):
        report(ti=ti)
    results["check"] = []
    report(ti=ti)


@pytest.mark.deep
@pytest.mark.spark
def test_a_preview_of_a_git_revision_shows_what_it_changes_and_leaves_the_store_alone(tmp_path: Path) -> None:
    write_pipeline(tmp_path, TABLE + VIEW)
    with Session(str(tmp_path / "store"), runner="local", workers=1) as session:
        session.execute(TABLE + VIEW)
        session.execute("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
        session.flush()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "pipelines"], ["commit", "-qm", "first"], ["checkout", "-qb", "change"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    write_pipeline(tmp_path, TABLE + VIEW.replace("FROM t", "FROM t WHERE k > 1"))
    for words in (["commit", "-qam", "change"], ["checkout", "-q", "-"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    env = {**airflow_environment(tmp_path / "home"), "TUSSOCK_PIPELINES": str(tmp_path / "pipelines")}
    before = open_meta(str(tmp_path / "store")).read_latest()
    command = [str(ROOT / "scripts/airflow.sh"), "dags", "test", "preview_shop", "--conf", '{"revision": "change"}']
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "| `v` | 0 | 0 | 1 | 2 | `rows` 1 |" in done.stdout
    meta = open_meta(str(tmp_path / "store"))
    (preview,) = read_previews(meta.objects)
    (difference,) = [one for one in preview.difference.views if one.differs]
    assert (difference.name, difference.changed, difference.rows) == ("v", 1, 1)
    after = meta.read_latest()
    assert not after.branches, "its branch has ended"
    assert (after.epoch, after.levels, after.catalog) == (before.epoch, before.levels, before.catalog)
