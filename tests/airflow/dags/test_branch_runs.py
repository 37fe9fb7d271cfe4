"""Runs of the epoch DAG on a branch: they advance the branch, and change nothing outside of it."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from tussock_airflow import AirflowFailException, AirflowSkipException
from tussock_operators import PARAMS, health, inject_barrier, run_actors
from tussock_publishing import commit_version, owed_events, publish_tables, publish_views, validate_views
from tussock_steps import open_pipeline_store, pipeline_of, read_definition

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.settings.pipeline import Pipeline
from tussock.statestore.meta.store import MetaStore

pytestmark = pytest.mark.airflow


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Pipeline, MetaStore]:
    """A pipeline with a sink and a suite, over a store with a table and a view, and its branch `b`, which is behind."""
    folder = tmp_path / "pipelines" / "shop"
    (folder / "quality").mkdir(parents=True)
    sql = "CREATE TABLE t (k int); CREATE MATERIALIZED VIEW v AS SELECT 1;"
    (folder / "views.sql").write_text(sql)
    (folder / "quality" / "v.json").write_text('{"expectations": []}')
    toml = f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[epoch]\nrunner = "auto"\n'
    toml += f'[publish]\nto = "{tmp_path}/tables"\n[quality]\ndocs = "{tmp_path}/docs"\n'
    (folder / "pipeline.toml").write_text(toml)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    epoch(meta)
    meta.open_branch("b")
    insert(meta, "t", (1, 1, 1))
    meta.publish(epoch(meta).epoch)
    return pipeline_of("shop"), meta


def run_task(task: Any, results: dict[str, Any], branch: str = "b") -> Any:
    """Execute a task of a manual run on a branch, and keep its result for the later tasks."""
    names = {"dag_id": "epoch_shop", "run_id": "r", "run_type": "manual", "start_date": datetime.now(UTC)}
    run = SimpleNamespace(**names, data_interval_start=None, data_interval_end=None)
    ti = SimpleNamespace(task=task, xcom_pull=lambda task_ids: results.get(task_ids))
    params = {**{name: param.value for name, param in PARAMS.items()}, "branch": branch}
    results[task.task_id] = task.execute({"params": params, "dag_run": run, "dag": run, "ti": ti, "outlet_events": {}})
    return results[task.task_id]


def test_a_run_on_a_branch_takes_the_parents_epochs_and_emits_and_publishes_nothing_else(
    shop: tuple[Pipeline, MetaStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, meta = shop
    before, results = meta.read_latest(), dict[str, Any]()
    tasks = [task(pipeline) for task in (inject_barrier, run_actors, commit_version, validate_views, publish_views)]
    for task in tasks:
        run_task(task, results)
        assert not [outlet for outlet in getattr(task, "outlets", ()) if isinstance(outlet, Asset)], "no event"
    sink = publish_tables(pipeline)
    with pytest.raises(AirflowSkipException, match="Branch b writes no tables"):
        run_task(sink, results)
    owed = owed_events(pipeline)
    monkeypatch.setattr("tussock_publishing.has_announced", lambda context: False)
    monkeypatch.setattr("tussock_publishing.wait_for_those_who_speak", lambda *_: None)
    run_task(owed, results)
    assert not owed.outlets
    branch = meta.branch("b")
    assert (branch.read_latest().epoch, branch.read_latest().published) == (before.epoch, before.epoch)
    assert rows(branch, "v") == rows(meta, "v") == [(1, 1)]
    assert meta.read_latest() == before, "the parent is as it was"
    assert not (tmp_path / "tables").exists()
    assert not (tmp_path / "docs").exists(), "Data Docs are those of the parent"
    last = health(pipeline)
    monkeypatch.setattr(type(last), "_failed_tasks", lambda self, context: [])
    assert run_task(last, results)["health"]


def test_an_error_of_a_run_on_a_branch_names_the_branch_in_its_commands(shop: tuple[Pipeline, MetaStore]) -> None:
    with pytest.raises(AirflowFailException, match=r"`tussock branch create c --pipeline shop`"):
        run_task(inject_barrier(shop[0]), {}, "c")
    assert open_pipeline_store("shop", "b").pipeline.branch == "b"


def test_a_run_of_an_environment_that_is_a_branch_works_on_the_branch(
    shop: tuple[Pipeline, MetaStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = shop[1]
    with (shop[0].folder / "pipeline.toml").open("a") as file:
        file.write('[env.prod]\n[env.dev]\nstore = "branch:prod"\n')
    monkeypatch.setenv("TUSSOCK_ENV", "dev")
    pipeline = read_definition("shop").pipeline
    assert pipeline is not None
    assert pipeline.publish == (), "the DAG has no task that writes tables"
    meta.open_branch("dev")
    insert(meta, "t", (2, 1, 1))
    meta.publish(epoch(meta).epoch)
    before, results = meta.read_latest(), dict[str, Any]()
    for made in (inject_barrier, run_actors, commit_version, validate_views, publish_views):
        task: Any = made(pipeline)
        run_task(task, results, branch="")
        assert not [outlet for outlet in getattr(task, "outlets", ()) if isinstance(outlet, Asset)], "no event"
    assert rows(meta.branch("dev"), "v") == rows(meta, "v") == [(1, 2)]
    assert meta.read_latest() == before, "the parent is as it was"
    assert not (tmp_path / "tables").exists()
    last = health(pipeline)
    monkeypatch.setattr(type(last), "_failed_tasks", lambda self, context: [])
    assert run_task(last, results, branch="")["health"]
    assert open_pipeline_store("shop").pipeline.title == "shop (dev, branch dev)"
