"""DAGs of an environment whose store is a branch of another one: deploy, epoch, upkeep and preview."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tussock_preview
from tussock_deploy import plan

from scripts.airflow_home import airflow_environment
from tests.airflow.dags.test_preview_dag import ROOT, TABLE, VIEW, write_pipeline
from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.unit.jobs.driver.test_following import follow
from tussock.jobs.compare.preview_record import read_previews
from tussock.jobs.session import Session
from tussock.jobs.settings.process import open_meta
from tussock.statestore.meta.store import MetaStore

pytestmark = pytest.mark.airflow
ENVIRONMENTS = '[env.prod]\n[env.dev]\nstore = "branch:prod"\n'


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetaStore:
    """The store of `prod`, with a table and a view; `dev` is chosen, and is a branch of it."""
    folder = write_pipeline(tmp_path, "")
    with (folder / "pipeline.toml").open("a") as file:
        file.write(ENVIRONMENTS)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("TUSSOCK_ENV", "dev")
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    insert(meta, "t", (1, 1, 1))
    meta.publish(epoch(meta).epoch)
    return meta


def run_step(made: Any, results: dict[str, Any], **params: Any) -> Any:
    """Run the function of a task, and keep its result for the later ones."""
    run = SimpleNamespace(dag_id="d", run_id="r")
    ti = SimpleNamespace(xcom_pull=lambda task_ids, key="return_value": results.get(task_ids))
    given = {"params": params, "dag_run": run, "ti": ti}
    function = made.operator.python_callable
    taken = {name: value for name, value in given.items() if name in function.__code__.co_varnames}
    results[made.operator.task_id] = function("shop", **taken)
    return results[made.operator.task_id]


def test_a_preview_tries_the_files_on_a_branch_of_the_parent(shop: MetaStore) -> None:
    pipeline, results = SimpleNamespace(name="shop"), dict[str, Any]()
    run_step(tussock_preview.begin_branch(pipeline), results, name="pr-1")  # type: ignore[arg-type]
    assert [branch.name for branch in shop.read_latest().branches] == ["pr-1"]
    follow(shop.branch("pr-1"))
    assert run_step(tussock_preview.check_branch(pipeline), results) == []  # type: ignore[arg-type]
    run_step(tussock_preview.compare_branch(pipeline), results)  # type: ignore[arg-type]
    run_step(tussock_preview.end_branch(pipeline), results)  # type: ignore[arg-type]
    assert shop.read_latest().branches == ()
    assert [preview.branch for preview in read_previews(shop.objects)] == ["pr-1"]


def test_the_deployment_plans_the_merge_of_the_environment_into_its_parent(
    shop: MetaStore, capsys: pytest.CaptureFixture[str]
) -> None:
    branch = shop.open_branch("dev")
    append(branch, view("more", counted(scan("t"), 2)))
    follow(branch)
    pipeline, results = SimpleNamespace(name="shop"), dict[str, Any]()
    run_step(plan(pipeline), results, merge="dev")  # type: ignore[arg-type]
    assert "+ view more  new, adopted from the branch" in capsys.readouterr().out


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_dags_of_an_environment_that_is_a_branch_run_in_airflow(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path, TABLE + VIEW)
    with (folder / "pipeline.toml").open("a") as file:
        file.write(f'{ENVIRONMENTS}[publish]\nto = "{tmp_path}/tables"\n')
    store = str(tmp_path / "store")
    with Session(store, runner="local", workers=1) as session:
        session.execute(TABLE + VIEW)
        session.execute("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
        session.flush()
        before = open_meta(store).read_latest()
        (folder / "v.sql").write_text(TABLE + VIEW.replace("FROM t", "FROM t WHERE k > 1"))
        env = {**airflow_environment(tmp_path / "home"), "TUSSOCK_PIPELINES": str(folder.parent), "TUSSOCK_ENV": "dev"}

        def run_dag(dag: str, conf: str = "{}") -> str:
            command = [str(ROOT / "scripts/airflow.sh"), "dags", "test", dag, "--conf", conf]
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
            return done.stdout

        assert "~ view v" in run_dag("deploy_shop")
        run_dag("epoch_shop")
        run_dag("upkeep_shop", '{"full": true}')
        assert "| `v` | 0 | 0 | 1 | 2 | `rows` 1 |" in run_dag("preview_shop")
        after = open_meta(store).read_latest()
        assert [branch.name for branch in after.branches] == ["dev"], "the branch of the preview has ended"
        assert (after.epoch, after.levels, after.catalog) == (before.epoch, before.levels, before.catalog)
        assert rows(open_meta(store).branch("dev"), "v") == [(1, 1), (2, 1)]
        assert sorted(row["rows"] for row in session.read("v").to_pylist()) == [1, 2]
        assert not (tmp_path / "tables").exists()
        run_dag("deploy_shop", '{"merge": "dev"}')
        assert sorted(row["rows"] for row in session.read("v").to_pylist()) == [1, 1]
        assert open_meta(store).read_latest().branches == ()
