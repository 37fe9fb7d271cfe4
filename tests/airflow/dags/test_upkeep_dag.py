"""The upkeep DAGs of pipelines/*/pipeline.toml without an Airflow database, and a real run of one."""

import importlib.util
import os
import subprocess
import sys
from datetime import UTC
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from scripts.airflow_home import airflow_environment
from tests.support.statestore.hummock.living_store import living_store, named_by
from tussock.statestore.meta.errors import NotInitialisedError
from tussock.statestore.objectstore.local import LocalObjectStore

ROOT = Path(__file__).resolve().parents[3]
TASKS = ["raise_floor", "compact", "vacuum"]
SHOP = 'name = "shop"\nstore = "s3://bucket/shop"\nsql = ["views.sql"]\ntime_zone = "Europe/Berlin"\n'
pytestmark = pytest.mark.airflow


def dags_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **pipelines: str) -> ModuleType:
    """`dags/upkeep.py`, parsed over these pipelines."""
    for name, text in pipelines.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "pipeline.toml").write_text(text)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder))
    spec = importlib.util.spec_from_file_location("upkeep_dags", ROOT / "dags/upkeep.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_pipeline_has_an_upkeep_dag_of_three_tasks_that_take_no_slot_of_its_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = dags_of(tmp_path, monkeypatch, shop=SHOP, ship=SHOP.replace("shop", "ship"))
    for dag in (module.upkeep_shop, module.upkeep_ship):
        assert [task.task_id for task in dag.topological_sort()] == TASKS
        assert [sorted(task.downstream_task_ids) for task in dag.topological_sort()] == [["compact"], ["vacuum"], []]
        assert {task.pool for task in dag.tasks} == {"default_pool"}
        assert (dag.max_active_runs, dag.catchup) == (1, False)


def test_an_error_of_a_task_names_a_command_that_works_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tussock_upkeep
    from tussock_airflow import AirflowFailException

    def vanished(name: str) -> None:
        raise NotInitialisedError(f"s3://bucket/{name}")

    dag = dags_of(tmp_path, monkeypatch, shop=SHOP).upkeep_shop
    monkeypatch.setattr(tussock_upkeep, "open_pipeline_store", vanished)
    works = "create a store with `tussock init --pipeline shop`"
    for task in ("raise_floor", "vacuum"):
        with pytest.raises(AirflowFailException, match=works):
            dag.get_task(task).python_callable("shop")
    with pytest.raises(AirflowFailException, match=works):
        dag.get_task("compact").execute({"params": {"full": False}})


def test_upkeep_also_tidies_tables_outside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = dags_of(tmp_path, monkeypatch, shop=SHOP + '[publish]\nto = "tables"\n').upkeep_shop
    assert {task.task_id for task in dag.tasks} == {*TASKS, "tidy_tables"}
    assert not dag.get_task("tidy_tables").upstream_task_ids


def test_each_sink_is_tidied_by_its_own_task_or_on_its_own_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks = "".join(f'[[publish]]\nname = "{name}"\nto = "{name}"\n' for name in ("lake", "few", "late"))
    module = dags_of(tmp_path, monkeypatch, shop=SHOP + sinks + 'upkeep = "@daily"\n')
    tasks = {task.task_id for task in module.upkeep_shop.tasks}
    assert tasks == {*TASKS, "tidy_tables.lake", "tidy_tables.few"}
    (own,) = vars(module)["upkeep_shop.late"].tasks
    assert (own.task_id, own.op_args) == ("tidy_tables", ("shop", "late"))


def test_upkeep_runs_in_the_pipelines_time_zone_and_does_not_catch_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pendulum import DateTime

    from tests.support.airflow import stored_and_read

    dag = dags_of(tmp_path, monkeypatch, shop=SHOP + '[upkeep]\nschedule = "30 4 * * *"\n').upkeep_shop
    read_back = stored_and_read(dag)  # as the scheduler sees it
    span = DateTime(2013, 7, 1, tzinfo=UTC), DateTime(2013, 7, 3, tzinfo=UTC)
    assert [info.run_after.isoformat() for info in read_back.iter_dagrun_infos_between(*span)] == [
        "2013-07-01T02:30:00+00:00",
        "2013-07-02T02:30:00+00:00",
    ]
    assert not read_back.catchup


def test_upkeep_is_hourly_by_default_and_can_be_manual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = dags_of(
        tmp_path, monkeypatch, shop=SHOP, ship=SHOP.replace("shop", "ship") + '[upkeep]\nschedule = "none"\n'
    )
    assert module.upkeep_shop.timetable.summary == "0 * * * *"
    assert type(module.upkeep_ship.timetable).__name__ == "NullTimetable"


def test_parsing_imports_neither_spark_nor_arrow(tmp_path: Path) -> None:
    code = """
        import sys
        sys.path[:0] = ["plugins", "dags"]
        import upkeep
        assert upkeep.upkeep_flights.dag_id == "upkeep_flights"
        print(sorted({"pyspark", "pyarrow", "great_expectations", "duckdb", "boto3"} & set(sys.modules)))
    """
    lines = "\n".join(line.strip() for line in code.splitlines())
    env = {**os.environ, "TUSSOCK_PIPELINES": "pipelines"}
    run = subprocess.run([sys.executable, "-c", lines], cwd=ROOT, env=env, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


@pytest.mark.parametrize(
    ("full", "due", "arguments"),
    [
        (False, (), None),
        (False, ("4 runs of L0 into level 7",), ["--spark"]),
        (True, (), ["--spark", "--full"]),
    ],
)
def test_compact_starts_spark_only_if_something_is_due(
    full: bool, due: tuple[str, ...], arguments: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tussock.jobs.operations import compaction

    submitted: list[list[str]] = []
    task = dags_of(tmp_path, monkeypatch, shop=SHOP).upkeep_shop.get_task("compact")
    monkeypatch.setattr("tussock_upkeep.open_pipeline_store", lambda name: None)
    monkeypatch.setattr(compaction, "due_picks", lambda at: tuple(SimpleNamespace(reason=reason) for reason in due))
    monkeypatch.setattr(type(task), "submit", lambda self, context, given: submitted.append(given))
    context: dict[str, Any] = {"params": {"full": full}}
    task.execute(context)
    assert submitted == ([] if arguments is None else [arguments])


@pytest.mark.deep
@pytest.mark.spark
def test_a_run_expires_old_epochs_merges_ssts_and_removes_objects(tmp_path: Path) -> None:
    """`airflow dags test` in a separate home: spark-submit, the code's archive, workers, the store."""
    store = living_store(LocalObjectStore(tmp_path / "store"), epochs=6)
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    upkeep = '[upkeep]\nkeep = "0s"\nkeep_epochs = 2\n[spark]\n"spark.driver.memory" = "1g"\n'
    (folder / "pipeline.toml").write_text(f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["a.sql"]\n{upkeep}')
    env = {**airflow_environment(tmp_path / "home"), "TUSSOCK_PIPELINES": str(tmp_path / "pipelines")}
    command = [str(ROOT / "scripts/airflow.sh"), "dags", "test", "upkeep_shop"]
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]
    version = store.meta.read_latest()
    assert len(version.epochs) == 2
    assert version.levels[0] == ()
    assert store.data() == named_by(version)
    for epoch in version.epochs:
        store.check(version, epoch)
