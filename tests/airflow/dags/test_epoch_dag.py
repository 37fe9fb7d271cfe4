"""The DAGs that pipelines/*/pipeline.toml make, without an Airflow database."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID

from tests.support.jobs.driver.embedded import new_store
from tussock.jobs.operations import folder as folder_entries
from tussock.jobs.settings.pipeline import Pipeline, UnknownPipelineError
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.meta.catalog import RelationKind

ROOT = Path(__file__).resolve().parents[3]
TASKS = ["inject_barrier", "run_actors", "commit_version", "validate_views", "publish_views"]
pytestmark = pytest.mark.airflow

SHOP = """
name = "shop"
description = "Orders"
store = "s3://bucket/shop"
sql = ["views.sql"]
time_zone = "Europe/Berlin"
"""
DAILY = '[schedule]\ncron = "@daily"\nstart = 2013-01-01\nend = 2013-12-31\ncatchup = true\n'


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, **pipelines: str) -> None:
    """Make these the pipelines that DAGs are made of."""
    for name, text in pipelines.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "pipeline.toml").write_text(text)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder))


def dags_of(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "epoch", **pipelines: str) -> ModuleType:
    """`dags/epoch.py`, or that of another kind, parsed over these pipelines."""
    write(folder, monkeypatch, **pipelines)
    return parsed(kind)


def parsed(kind: str) -> ModuleType:
    """The DAG file of a kind, parsed over the pipelines that TUSSOCK_PIPELINES names."""
    spec = importlib.util.spec_from_file_location(f"{kind}_dags", ROOT / f"dags/{kind}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tasks_whose_logs_one_reads_have_buttons_to_the_runs_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = dags_of(tmp_path, monkeypatch, shop=SHOP).epoch_shop
    buttons = {
        task.task_id: [link.name for link in task.operator_extra_links]
        for task in dag.tasks
        if task.operator_extra_links
    }
    assert buttons == {
        task_id: ["Epoch", "Quality report"] for task_id in ("run_actors", "validate_views", "publish_views")
    }


def test_every_pipeline_has_a_dag_of_sequential_tasks_that_ends_with_its_health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = dags_of(tmp_path, monkeypatch, shop=SHOP + DAILY, ship=SHOP.replace("shop", "ship"))
    for dag in (module.epoch_shop, module.epoch_ship):
        row = [task for task in dag.topological_sort() if task.task_id not in ("health", "owed_events")]
        assert [task.task_id for task in row] == TASKS
        last = ["health", "owed_events"] if dag is module.epoch_shop else ["health"]
        assert [sorted(task.downstream_task_ids) for task in row] == [*([t] for t in TASKS[1:]), last]
        assert dag.get_task("health").downstream_task_ids == set()
        assert dag.get_task("health").trigger_rule == "all_done", "it also reports a run that failed"
        assert {task.pool for task in dag.tasks} == {"default_pool"}, "an Airflow that was there before has no other"
        assert dag.max_active_runs == 1
        assert not any(task.depends_on_past for task in dag.tasks)


@pytest.mark.parametrize("kind", ["epoch", "deploy", "rebalance", "upkeep", "verify", "preview"])
def test_every_task_ends_after_the_pipelines_limit_but_for_one_that_waits_for_a_person(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = '[epoch]\nlimit = "90m"\n[deploy]\napprove = true\n[rebalance]\napprove = true\n'
    dags = dags_of(tmp_path, monkeypatch, kind, shop=SHOP + asked)
    limits = {task.task_id: task.execution_timeout for task in getattr(dags, f"{kind}_shop").tasks}
    assert limits.pop("approve", None) is None
    assert {*limits.values()} == {timedelta(minutes=90)}


def test_tasks_name_the_assets_of_the_sources_and_views_that_the_files_create(tmp_path: Path) -> None:
    from airflow.sdk import DAG
    from tussock_events import day_of
    from tussock_publishing import commit_version, publish_views

    from tussock.jobs.operations.files import created_in_files

    (tmp_path / "shop").mkdir()
    text = (
        "CREATE OR REPLACE MATERIALIZED VIEW a AS SELECT 'CREATE MATERIALIZED VIEW x;'; -- CREATE MATERIALIZED VIEW y\n"
    )
    text += (
        "create source if not exists `S` (id int) using csv options (path 'x'); "
        "CREATE SOURCE t USING parquet OPTIONS (path 'y');"
    )
    text += "create materialized view if not exists `B` as select 1; CREATE VIEW plain AS SELECT 1"
    (tmp_path / "shop/views.sql").write_text(text)
    pipeline = Pipeline("shop", tmp_path, "store", (tmp_path / "shop/views.sql",))
    assert created_in_files(pipeline, RelationKind.VIEW) == ("a", "b")
    assert created_in_files(pipeline, RelationKind.SOURCE) == ("s", "t")
    with DAG("d", schedule=None):
        committed, published = commit_version(pipeline), publish_views(pipeline)
    assert [outlet.name for outlet in committed.outlets] == ["shop.sources", "shop.s", "shop.t"]
    assert [inlet.uri for inlet in published.inlets] == ["tussock://shop/s", "tussock://shop/t"]
    assert [outlet.name for outlet in published.outlets] == ["shop.views", "shop.a", "shop.b"]
    berlin = replace(pipeline, time_zone="Europe/Berlin")
    night, noon = datetime(2013, 1, 1, 23, tzinfo=UTC), datetime(2013, 1, 2, 11, tzinfo=UTC)
    assert day_of(berlin, night, night + timedelta(days=1)) == "2013-01-02"
    assert day_of(berlin, noon, noon + timedelta(hours=1)) == "2013-01-02"
    assert day_of(pipeline, night, night + timedelta(days=1)) is None, "of two days"
    assert day_of(pipeline, None, None) is None


def test_the_state_of_a_scheduled_run_does_not_depend_on_its_last_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed = dags_of(tmp_path, monkeypatch, shop=SHOP + DAILY + '[publish]\nto = "tables"\n').epoch_shop.get_task(
        "owed_events"
    )
    assert owed.is_teardown
    assert not owed.on_failure_fail_dagrun
    assert owed.upstream_task_ids == {"publish_views"}
    assert [outlet.name for outlet in owed.outlets] == ["shop.sources", "shop.views", "shop.delta.tables"]


def test_a_run_that_has_announced_its_news_emits_no_event_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow emits an event for each asset that is an outlet of the task when it ends."""
    owed = dags_of(tmp_path, monkeypatch, shop=SHOP + DAILY).epoch_shop.get_task("owed_events")
    owed.outlets = [*owed.outlets, Asset(name="shop.a", uri="tussock://shop/a")]
    monkeypatch.setattr(sys.modules[type(owed).__module__], "has_announced", lambda context: True)
    owed.execute({"ti": SimpleNamespace(task=owed)})
    assert owed.outlets == []


def test_a_pipeline_with_tables_outside_of_the_store_publishes_to_them_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = '[publish]\nto = "tables"\nengine = "{}"\n'
    module = dags_of(
        tmp_path,
        monkeypatch,
        shop=SHOP + tables.format("deltalake"),
        ship=SHOP.replace("shop", "ship") + tables.format("spark"),
    )
    for dag, operator in ((module.epoch_shop, "PublishTablesHere"), (module.epoch_ship, "PublishTables")):
        tasks = list(dag.topological_sort())
        assert [task.task_id for task in tasks] == [*TASKS, "publish_tables", "health"]
        assert type(tasks[-2]).__name__ == operator


def test_each_sink_has_a_task_so_that_one_that_fails_holds_back_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks = '[[publish]]\nto = "a"\n[[publish]]\nname = "spark"\nto = "b"\nengine = "spark"\n'
    dag = dags_of(tmp_path, monkeypatch, shop=SHOP + sinks).epoch_shop
    here, on_spark = dag.get_task("publish_tables.delta"), dag.get_task("publish_tables.spark")
    assert (type(here).__name__, type(on_spark).__name__) == ("PublishTablesHere", "PublishTables")
    for task in (here, on_spark):
        assert (task.upstream_task_ids, task.downstream_task_ids) == ({"publish_views"}, {"health"})


def test_a_schedule_has_an_interval_per_day_of_the_pipelines_zone_up_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pendulum import DateTime

    from tests.support.airflow import stored_and_read

    dag = dags_of(tmp_path, monkeypatch, shop=SHOP + DAILY).epoch_shop
    read_back = stored_and_read(dag)  # as the scheduler sees it
    span = DateTime(2013, 12, 28, tzinfo=UTC), DateTime(2014, 2, 1, tzinfo=UTC)
    runs = [info.data_interval for info in read_back.iter_dagrun_infos_between(*span) if info.data_interval]
    assert [(run.start.isoformat(), run.end.isoformat()) for run in runs] == [
        (f"2013-12-{day}T23:00:00+00:00", f"2013-12-{day + 1}T23:00:00+00:00") for day in (28, 29, 30)
    ]
    assert read_back.timetable.serialize() == dag.timetable.serialize()
    assert read_back.catchup


def test_a_run_by_hand_after_the_schedules_end_still_has_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = dags_of(tmp_path, monkeypatch, shop=SHOP + DAILY).epoch_shop
    assert {task.end_date for task in dag.tasks} == {None}


def test_without_a_schedule_a_pipeline_runs_when_it_is_triggered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(dags_of(tmp_path, monkeypatch, shop=SHOP).epoch_shop.timetable).__name__ == "NullTimetable"


BROKEN = {
    "a misspelled key": ('stroe = "x"\n', "stroe: found an unknown key, expected 'store', the nearest known key"),
    "a variable without a value": (
        'data = "${NO_SUCH}/x"\n',
        "data: found ${NO_SUCH}, which is not set, expected a variable with a value",
    ),
    "no TOML": ("= 1\n", "the file: found an error of syntax"),
    "a value of an argument": (
        'airflow.default_args = {trigger_rule = "allways"}\n',
        "airflow: found a name or a setting that Airflow refuses (ValueError: The trigger_rule must be one of",
    ),
    "a long tag": (
        f'airflow.tags = ["{"x" * 101}"]\n',
        "airflow: found a name or a setting that Airflow refuses (ValueError: tag cannot be longer than 100",
    ),
    "a long name of a sink": (
        f'publish = {{to = "t", upkeep = "@daily", name = "{"x" * 240}"}}\n',
        "airflow: found a name or a setting that Airflow refuses (ValueError: The key has to be less than 250",
    ),
    "a long time span": (
        'epoch.limit = "999999999999d"\n',
        "epoch.limit: found string '999999999999d', expected a time span",
    ),
    "a moment before the year 1": (
        'schedule = {cron = "@daily", start = 0001-01-01}\n',
        "schedule.start: found date 0001-01-01, expected a moment of the years 1 to 9999 in UTC",
    ),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_pipeline_loses_its_own_dags_and_is_an_import_error_that_names_file_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    from tests.support.airflow import dag_bag

    write(tmp_path, monkeypatch, shop=SHOP, ship=SHOP.replace("shop", "ship") + text)
    bag = dag_bag(ROOT / "dags", "dags")
    assert sorted(bag.dags) == [
        "deploy_shop",
        "epoch_shop",
        "preview_shop",
        "rebalance_shop",
        "upkeep_shop",
        "verify_shop",
    ]
    (file, error), *others = bag.import_errors.items()
    assert (Path(file).name, others) == ("broken_pipelines.py", [])
    assert f"{tmp_path}/ship/pipeline.toml: {message}" in error
    assert "Until this is corrected, these pipelines have no DAGs. All others run normally." in error


def test_valid_pipelines_cause_no_import_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.airflow import dag_bag

    write(tmp_path, monkeypatch, shop=SHOP)
    assert dag_bag(ROOT / "dags", "dags").import_errors == {}


def test_a_missing_folder_of_pipelines_is_an_import_error_with_the_name_of_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.airflow import dag_bag

    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    bag = dag_bag(ROOT / "dags", "dags")
    (error,) = bag.import_errors.values()
    assert bag.dags == {}
    assert (
        f"The pipelines folder {tmp_path}/pipelines does not exist. Set the environment variable TUSSOCK_PIPELINES"
        in error
    )


def test_parsing_imports_neither_spark_nor_arrow_nor_great_expectations() -> None:
    code = """
        import sys
        sys.path[:0] = ["plugins", "dags"]
        import epoch
        assert epoch.epoch_flights.dag_id == "epoch_flights"
        print(sorted({"pyspark", "pyarrow", "great_expectations", "duckdb", "boto3"} & set(sys.modules)))
    """
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(line.strip() for line in code.splitlines())],
        cwd=ROOT,
        env={**os.environ, "TUSSOCK_PIPELINES": "pipelines"},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "[]", run.stderr


@pytest.mark.parametrize("kind", ["epoch", "upkeep", "deploy", "rebalance", "verify", "preview"])
def test_a_task_reads_only_its_own_pipeline_and_the_dag_processor_all(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    load = folder_entries.load_pipeline

    def counting(folder: Path, environment: str | None) -> Pipeline:
        read.append(folder.name)
        return load(folder, environment)

    monkeypatch.setattr(folder_entries, "load_pipeline", counting)
    write(tmp_path, monkeypatch, shop=SHOP, sales=SHOP.replace("shop", "sales"))
    for dag_id, wanted in (
        (None, ["sales", "shop"]),
        (f"{kind}_shop", ["shop"]),
        ("other_shop", []),
    ):
        read.clear()
        with monkeypatch.context() as context:
            if dag_id is not None:
                context.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, dag_id)
            built = sorted(dag.dag_id for dag in vars(parsed(kind)).values() if isinstance(dag, DAG))
        assert read == wanted
        assert built == [f"{kind}_{name}" for name in wanted]


def test_a_manual_run_between_two_days_of_a_backfill_does_not_hide_the_earlier_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tussock_turn
    from airflow.sdk.execution_time import task_runner

    def run_at(day: int, hour: int, run_type: str) -> SimpleNamespace:
        at = datetime(2013, 1, day, hour, tzinfo=UTC)
        return SimpleNamespace(dag_id="epoch_shop", run_id=f"{run_type}_{day}", run_type=run_type, logical_date=at)

    class Answers:
        """The API server, with these running runs."""

        def send(self, asked: Any) -> SimpleNamespace:
            before = [run for run in runs if run.logical_date < asked.logical_date]
            return SimpleNamespace(dag_run=before[-1] if before else None)

    runs = [run_at(5, 0, "backfill"), run_at(5, 12, "manual"), run_at(6, 0, "backfill")]
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Answers(), raising=False)
    ahead = [tussock_turn.run_ahead({"dag_run": run}, None) for run in runs]
    assert ahead == [None, None, "backfill_5"]


def test_a_task_without_a_dag_logs_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline.toml was changed, or its folder deleted, while a run was under way."""
    write(tmp_path, monkeypatch, shop=SHOP + "[epoch]\nunits = 0\n")
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, "epoch_shop")
    with pytest.raises(PipelineError, match=r"shop/pipeline.toml: epoch.units: found integer 0, expected"):
        parsed("epoch")
    for gone in ("epoch_ship", "epoch_../shop"):
        monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, gone)
        with pytest.raises(UnknownPipelineError, match=r"unknown pipeline .* contains shop"):
            parsed("epoch")


@pytest.mark.parametrize("task_id", ["validate_views", "publish_views"])
def test_a_task_after_one_that_was_marked_as_succeeded_names_what_to_clear(
    task_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tussock_airflow import AirflowFailException

    write(tmp_path, monkeypatch, shop=SHOP.replace("s3://bucket/shop", f"{tmp_path}/store"))
    new_store(tmp_path / "store")
    task = parsed("epoch").epoch_shop.get_task(task_id)
    marked = {"ti": SimpleNamespace(xcom_pull=lambda task_ids: None), "params": {}}
    with pytest.raises(AirflowFailException, match=r"commit_version has returned no epoch.* Clear it"):
        task.execute(marked)


DAY = (datetime(2013, 1, 5, tzinfo=UTC), datetime(2013, 1, 6, tzinfo=UTC))
MONTH = (datetime(2013, 2, 1, tzinfo=UTC), datetime(2013, 3, 1, tzinfo=UTC))
NOBODYS = (datetime(2013, 1, 5, tzinfo=UTC), datetime(2013, 1, 5, tzinfo=UTC))
IN_PARAMS = {"start": "2013-02-01T00:00:00Z", "end": "2013-03-01T00:00:00+00:00"}


def context(run_type: str, own: tuple[datetime | None, datetime | None] = DAY, **params: str | None) -> dict[str, Any]:
    return {
        "params": params,
        "dag_run": SimpleNamespace(run_type=run_type, data_interval_start=own[0], data_interval_end=own[1]),
    }


def test_a_run_uses_the_interval_of_its_params_or_its_own_or_all_waiting_files() -> None:
    from tussock_tasks import run_interval

    for run_type in ("scheduled", "backfill"):
        assert run_interval(context(run_type)) == DAY
        assert run_interval(context(run_type, **IN_PARAMS)) == MONTH
        assert run_interval(context(run_type, (None, None))) is None
    for run_type in ("manual", "operator_triggered", "asset_triggered"):
        assert run_interval(context(run_type, NOBODYS)) is None
        assert run_interval(context(run_type, NOBODYS, **IN_PARAMS)) == MONTH
        assert run_interval(context(run_type, DAY)) == DAY, "a person entered it in the trigger form"
        assert run_interval(context(run_type, MONTH, **IN_PARAMS)) == MONTH


def test_a_run_by_hand_whose_params_and_data_interval_differ_fails_for_good() -> None:
    from tussock_airflow import AirflowFailException
    from tussock_tasks import run_interval

    with pytest.raises(
        AirflowFailException,
        match=r"params set the interval from 2013-02-01.* interval of this manual run is .*2013-01-05",
    ):
        run_interval(context("manual", DAY, **IN_PARAMS))


@pytest.mark.parametrize("catchup", [True, False])
def test_runs_pass_over_intervals_only_if_the_scheduler_left_them_out_or_a_user_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catchup: bool
) -> None:
    from tussock_operators import _input_request
    from tussock_steps import open_pipeline_store

    from tussock.jobs.settings.process import create_store

    text = (SHOP + DAILY).replace("s3://bucket/shop", f"{tmp_path}/store").replace("true", str(catchup).lower())
    write(tmp_path / "pipelines", monkeypatch, shop=text)
    create_store(f"{tmp_path}/store", vnode_count=4, units=1, time_zone="Europe/Berlin")
    store, first = open_pipeline_store("shop"), datetime(2012, 12, 31, 23, tzinfo=UTC).timestamp() * 1_000_000
    for run_type in ("scheduled", "backfill", "manual"):
        run = context(run_type)
        run["dag_run"].dag_id, run["dag_run"].run_id = "epoch_shop", "r"
        request = _input_request(store, run)
        assert (request.moment, request.run, request.pace.first) == (None, {"dag": "epoch_shop", "run": "r"}, first)
        assert request.pace.may_pass_over(1) is (run_type == "scheduled" and not catchup)
        run["params"]["moment"] = "2013-01-06T00:00:00+01:00"
        assert _input_request(store, run).moment == datetime(2013, 1, 5, 23, tzinfo=UTC).timestamp() * 1_000_000


def test_airflow_gives_a_manual_run_an_interval_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pendulum import DateTime

    from tests.support.airflow import stored_and_read

    module = dags_of(tmp_path, monkeypatch, shop=SHOP + DAILY, ship=SHOP.replace("shop", "ship"))
    for dag in (module.epoch_shop, module.epoch_ship):
        read_back = stored_and_read(dag)
        made_up = read_back.timetable.infer_manual_data_interval(run_after=DateTime(2013, 6, 1, 12, tzinfo=UTC))
        assert made_up.start == made_up.end


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("2013-01-01T00:00:00Z", None, "set both ends of the interval, or neither"),
        ("2013-01-02T00:00:00Z", "2013-01-01T00:00:00Z", "the end must be after the start"),
        ("2013-01-01T00:00:00", "2013-01-02T00:00:00", "has no time zone. Write, for example, 2013-01-01T00:00:00Z"),
    ],
)
def test_params_that_are_no_interval_fail_the_run_for_good(start: str, end: str | None, message: str) -> None:
    from tussock_airflow import AirflowFailException
    from tussock_tasks import run_interval

    with pytest.raises(AirflowFailException, match=message):
        run_interval(context("manual", start=start, end=end))
