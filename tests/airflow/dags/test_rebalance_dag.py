"""The rebalance DAGs of pipelines/*/pipeline.toml without an Airflow database, their tasks, and real runs of one."""

import importlib.util
import random
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts.airflow_home import airflow_environment
from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.driver.runner import LocalRunner
from tussock.statestore.meta.store import MetaStore

ROOT = Path(__file__).resolve().parents[3]
SHOP = 'name = "shop"\nstore = "{}/store"\nsql = ["views.sql"]\n'
pytestmark = pytest.mark.airflow


def dag_of(folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> Any:
    """The DAG of `dags/rebalance.py`, parsed over one pipeline."""
    write(folder, more)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder / "pipelines"))
    spec = importlib.util.spec_from_file_location("rebalance_dags", ROOT / "dags/rebalance.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.rebalance_shop


def write(folder: Path, more: str = "") -> None:
    (folder / "pipelines/shop").mkdir(parents=True)
    (folder / "pipelines/shop/pipeline.toml").write_text(SHOP.format(folder) + more)


def store_in(folder: Path) -> MetaStore:
    """A store with some rows, of two units."""
    meta = new_store(folder / "store")
    append(meta, table("t"), view("by_g", counted(scan("t"), 1)))
    for _ in range(2):
        insert(meta, "t", *((random.randrange(900), k % 90, 0) for k in range(300)))
        epoch(meta, LocalRunner())
    return meta


class Pulled:
    """The XComs of the earlier tasks, as a task pulls them."""

    def __init__(self, **pushed: str) -> None:
        self.pushed = pushed

    def xcom_pull(self, task_ids: str, key: str) -> str | None:
        return self.pushed[key] if task_ids == "decide" else self.shown  # `shown`: if a person has approved

    shown: str | None = None


@pytest.mark.parametrize(
    ("more", "tasks"),
    [
        ("", ["measure", "decide", "move", "verify"]),
        ("[rebalance]\napprove = true\n", ["measure", "decide", "approve", "move", "verify"]),
    ],
)
def test_moves_are_decided_first_then_approved_if_the_pipeline_requires_it(
    more: str, tasks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = dag_of(tmp_path, monkeypatch, more)
    assert [task.task_id for task in dag.topological_sort()] == tasks
    assert (dag.schedule, dag.max_active_runs) == (None, 1)
    assert (dag.params["units"], dag.params["target"]) == (None, 1.25)
    if more:
        assert "xcom_pull(task_ids='decide', key='text')" in dag.get_task("approve").body, "it shows the moves"


def test_its_tasks_move_vnodes_read_that_back_and_have_nothing_to_do_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tussock_airflow import AirflowFailException, AirflowSkipException

    dag, meta = dag_of(tmp_path, monkeypatch), store_in(tmp_path)
    task = {name: dag.get_task(name).python_callable for name in ("measure", "decide", "move", "verify")}
    assert [share["vnodes"] for share in task["measure"]("shop")] == [128, 128]
    decided = task["decide"]("shop", params={"units": 3, "target": 1.25})
    assert "85 of 256 vnodes move, to 3 units" in decided["text"]
    assert meta.read_latest().mapping.id == 0
    ti = Pulled(**decided)
    with pytest.raises(AirflowFailException, match="mapping 1 was planned, but mapping 0 is in force"):
        task["verify"]("shop", ti=ti)
    moved = task["move"]("shop", ti=ti)
    assert task["move"]("shop", ti=ti) == moved, "a task that is tried again does nothing twice"
    assert [share["vnodes"] for share in task["verify"]("shop", ti=ti)] == [86, 85, 85]
    assert meta.read_latest().mapping.unit_count == 3
    with pytest.raises(AirflowSkipException, match="the vnodes are already distributed as requested"):
        task["decide"]("shop", params={"units": 3})
    with pytest.raises(AirflowSkipException, match="the target is 9"):
        task["decide"]("shop", params={"units": None, "target": 9})
    other = Pulled(**task["decide"]("shop", params={"units": 2}))
    other.shown = decided["digest"]
    with pytest.raises(AirflowFailException, match="was approved, but task decide has since made plan"):
        task["move"]("shop", ti=other)
    other.shown = other.pushed["digest"]
    with pytest.raises(AirflowFailException, match=f"the moves with digest {decided['digest']} were approved"):
        task["decide"]("shop", params={"units": 2, "approved": decided["digest"]})
    assert task["decide"]("shop", params={"units": 2, "approved": other.pushed["digest"]}) == other.pushed
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    text = toml.read_text()
    toml.write_text(text + "[epoch]\nunits = 5\n")  # the next epoch would take the move back
    with pytest.raises(AirflowFailException, match="sets units = 5"):
        task["move"]("shop", ti=other)
    toml.write_text(text)
    assert meta.read_latest().mapping.unit_count == 3
    late = Pulled(**task["decide"]("shop", params={"units": 2}))
    meta.rescale(5)
    with pytest.raises(AirflowFailException, match=r"mapping 2 lost: mapping 2.*Trigger the DAG again"):
        task["move"]("shop", ti=late)
    assert meta.read_latest().mapping.unit_count == 5


@pytest.mark.deep
def test_a_run_makes_the_moves_of_the_form(tmp_path: Path) -> None:
    write(tmp_path)
    meta = store_in(tmp_path)
    env = {**airflow_environment(tmp_path / "home"), "TUSSOCK_PIPELINES": str(tmp_path / "pipelines")}

    def run(conf: str) -> str:
        command = [str(ROOT / "scripts/airflow.sh"), "dags", "test", "rebalance_shop", "--conf", conf]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout + done.stderr

    assert "170 of 256 vnodes move, to 6 units" in run('{"units": 6}')
    assert meta.read_latest().mapping.unit_count == 6
    assert "nothing moves: the vnodes are already distributed as requested" in run('{"units": 6}')
    assert meta.read_latest().mapping.id == 1
