"""The causes of runs: `[schedule] every` and `assets`, and `[watch.SOURCE]`, as Airflow's scheduler evaluates them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pendulum import DateTime

from tests.airflow.dags.test_epoch_dag import ROOT, SHOP, parsed, write
from tests.support.airflow import dag_bag, stored_and_read

pytestmark = pytest.mark.airflow
SOURCES = "CREATE SOURCE orders (id int) USING csv OPTIONS (path 'x'); CREATE SOURCE prices (id int) USING csv;"
WATCH = """[watch.orders]
trigger = "airflow.providers.standard.triggers.file.FileDeleteTrigger"
arguments = { filepath = "/in/new", poke_interval = 1.0 }
"""


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    """A pipeline with two sources."""
    write(folder, monkeypatch, shop=SHOP + "[schedule]\n" + schedule)
    (folder / "shop/views.sql").write_text(SOURCES)


def scheduled(folder: Path, monkeypatch: pytest.MonkeyPatch, schedule: str) -> Any:
    """Its epoch DAG as the scheduler reads it."""
    written(folder, monkeypatch, schedule)
    return stored_and_read(parsed("epoch").epoch_shop)


def starts_a_run(dag: Any, *uris: str) -> bool:
    """Whether events of these assets start a run, by Airflow's own evaluation."""
    from airflow.assets.evaluation import AssetEvaluator
    from airflow.serialization.definitions.assets import SerializedAssetUniqueKey

    condition = dag.timetable.asset_condition
    keys = {asset.uri: key for key, asset in condition.iter_assets()}
    statuses = {keys.get(uri, SerializedAssetUniqueKey(uri, uri)): True for uri in uris}
    return bool(AssetEvaluator(session=None).run(condition, statuses))  # type: ignore[arg-type]


def run_times(dag: Any, start: datetime, count: int) -> list[datetime]:
    """The first runs that the timetable makes after a start."""
    from airflow.timetables.base import TimeRestriction

    restriction, last, times = TimeRestriction(DateTime.instance(start), None, catchup=True), None, []
    while len(times) < count and (
        info := dag.timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
    ):
        last = info.data_interval
        assert last.start == last.end, "such a run has no interval, and takes all waiting files"
        times.append(info.run_after)
    return times


def test_a_repetition_has_a_run_per_time_span_up_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    dag = scheduled(tmp_path, monkeypatch, 'every = "5m"\nstart = 2026-01-01T00:00:00Z\nend = 2026-01-01T00:10:00Z\n')
    assert run_times(dag, start, 9) == [start + timedelta(minutes=5 * n) for n in range(3)]
    assert not dag.catchup, "a missed run has nothing of its own to do"
    assert dag.has_task("owed_events"), "Airflow accepts a backfill of it"


@pytest.mark.parametrize("timed", ['cron = "@daily"\nstart = 2026-01-01', 'every = "5m"', ""])
def test_an_event_of_any_asset_starts_a_run_beside_the_scheduled_ones(
    timed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = scheduled(tmp_path, monkeypatch, timed + '\nassets = ["orders", "lake.customers"]\n')
    assert starts_a_run(dag, "tussock://shop/orders/arrival")
    assert starts_a_run(dag, "tussock://lake/customers"), "a view of another pipeline"
    assert not starts_a_run(dag, "tussock://shop/orders"), "the run itself emits this one"
    assert dag.timetable.periodic == bool(timed)


def test_all_assets_must_have_events_if_the_schedule_needs_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = scheduled(tmp_path, monkeypatch, 'assets = ["orders", "lake.customers.delta"]\nneeds = "all"\n')
    arrival, table = "tussock://shop/orders/arrival", "tussock://lake/customers/delta"
    assert not starts_a_run(dag, arrival)
    assert not starts_a_run(dag, table)
    assert starts_a_run(dag, arrival, table)


def test_the_assets_of_other_teams_are_named_by_their_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = scheduled(tmp_path, monkeypatch, 'assets = ["s3://lake/prices"]\n')
    assert [ref.uri for ref in dag.timetable.asset_condition.iter_asset_refs()] == ["s3://lake/prices"]


def test_a_watched_source_has_an_asset_with_the_trigger_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = scheduled(tmp_path, monkeypatch, 'assets = ["orders", "prices"]\n' + WATCH)
    watched = {asset.name: asset.watchers for _, asset in dag.timetable.asset_condition.iter_assets()}
    (watcher,) = watched.pop("shop.orders.messages")
    assert watched == {"shop.orders.arrival": [], "shop.prices.arrival": []}, "other DAGs emit these"
    assert starts_a_run(dag, "tussock://shop/orders/messages")
    assert watcher.name == "shop.orders"
    assert watcher.trigger["classpath"].endswith("FileDeleteTrigger")
    assert watcher.trigger["kwargs"]["filepath"] == "/in/new"


MISTAKES = {
    "a source that no file creates": (
        'assets = ["ordres"]',
        "schedule.assets: found 'ordres', expected a source that the SQL files create",
    ),
    "a trigger of no module": (
        'assets = ["orders"]\n' + WATCH.replace("standard.", "standart."),
        "watch.orders.trigger: found 'airflow.providers.standart",
    ),
    "a trigger that is not for events": (
        'assets = ["orders"]\n' + WATCH.replace("file.FileDeleteTrigger", "temporal.DateTimeTrigger"),
        "watch.orders.trigger: found 'DateTimeTrigger', expected a subclass of Airflow's BaseEventTrigger",
    ),
    "an argument that the trigger does not have": (
        'assets = ["orders"]\n' + WATCH.replace("filepath", "filpath"),
        "watch.orders.arguments: found TypeError",
    ),
}


@pytest.mark.parametrize(("schedule", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_an_import_error_of_this_pipeline_only(
    schedule: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch, schedule)
    write(tmp_path, monkeypatch, ship=SHOP.replace("shop", "ship"))
    bag = dag_bag(ROOT / "dags", "dags")
    assert "epoch_ship" in bag.dags
    assert "epoch_shop" not in bag.dags
    (error,) = bag.import_errors.values()
    assert message in error
