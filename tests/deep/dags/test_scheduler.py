"""The flights DAG in a real scheduler: by backfill, by schedule, by hand, cleared, and held by a failing suite.

The test has its own Airflow, store and files. It takes minutes, mostly for JVM starts.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipelines.flights import load
from scripts.airflow_home import AirflowHome
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tests.support.jobs.sinks.delta_readers import package_rows
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.reading.reader import open_table
from tussock.jobs.session import Session
from tussock.jobs.settings.process import open_meta
from tussock.jobs.sources.taken import taken_files
from tussock.statestore.meta.store import MetaStore

DAG = "epoch_flights"
pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Home(AirflowHome):
    """An Airflow home, with the store and the pipelines its DAGs work on."""

    def meta(self) -> MetaStore:
        return open_meta(str(self.folder / "store"))

    def runs(self) -> dict[str, str]:
        """State by run: `<kind> <day of its interval>` for scheduled runs, `manual` for manual ones."""
        rows = self.query(f"SELECT run_type, data_interval_start, state FROM dag_run WHERE dag_id = '{DAG}'")
        return {kind if kind == "manual" else f"{kind} {start[:10]}": state for kind, start, state in rows}

    def taken_days(self) -> list[str]:
        """The days whose flights are committed."""
        meta = self.meta()
        version = meta.read_latest()
        (table,) = find_relation(version.catalog, "flights").state_tables
        return sorted(Path(file.path).stem for file in taken_files(open_table(meta.objects, version, table)))

    def story(self) -> list[str]:
        """The events of the store's epochs in order (injected, committed, published), by the times of its files."""
        meta, store = self.meta(), self.folder / "store/meta"
        happened = [(file.stat().st_mtime_ns, "injected") for file in store.glob("barrier/*/*.json")]
        for number in range(1, meta.read_latest().id + 1):
            before, after = meta.read_version(number - 1), meta.read_version(number)
            what = (
                "committed"
                if after.epoch > before.epoch
                else "published"
                if after.published > before.published
                else "other"
            )
            happened.append(((store / f"version/{number:020}.json").stat().st_mtime_ns, what))
        return [what for _, what in sorted(happened)]

    def log_of(self, task: str) -> str:
        """The log of the manual run."""
        return next((self.folder / "logs").rglob(f"run_id=manual*/task_id={task}/*.log")).read_text()

    def set_pipeline(self, old: str, new: str, file: str = "pipeline.toml") -> None:
        path = self.folder / "pipelines/flights" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("airflow")
    made = Home.with_flights(folder, more={"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5"})
    load.load(folder / "data", days=5)
    made.set_pipeline("catchup = true", "catchup = false")
    made.set_pipeline("end = 2013-12-31", "end = 2013-01-04")
    made.python("-m", "tussock.jobs.cli", "apply", "flights")
    with made.up(DAG, PATIENCE_S):
        yield made


def test_backfill_schedule_trigger_clear_and_a_failing_suite(home: Home) -> None:
    home.airflow("dags", "unpause", DAG)

    # Three days at once, as Airflow starts backfills; each run ends with its own day committed.
    home.airflow("backfill", "create", "--dag-id", DAG, "--from-date", "2013-01-01", "--to-date", "2013-01-03")
    backfilled = {f"backfill 2013-01-0{day}": "success" for day in (1, 2, 3)}
    wait_for("three runs of a backfill", lambda: _ended(home, backfilled))
    assert home.runs() == backfilled
    assert home.taken_days() == ["2013-01-01", "2013-01-02", "2013-01-03"]
    version = home.meta().read_latest()
    assert version.published == version.epoch
    assert home.story() == ["injected", "committed", "published"] * 3, (
        "each run has published before the next one begins"
    )
    assert home.query("SELECT pool FROM slot_pool") == [("default_pool",)], (
        "an Airflow that was there before has no other"
    )

    # A finished run that is cleared takes no files and commits nothing.
    home.airflow("tasks", "clear", DAG, "--start-date", "2013-01-02", "--end-date", "2013-01-02", "--yes")
    wait_for("the cleared run starts", lambda: home.runs()["backfill 2013-01-02"] != "success")
    wait_for("the cleared run", lambda: _ended(home, backfilled))
    assert home.meta().read_latest() == version

    # The schedule continues from the end of the backfill, and ends at the DAG's end date.
    home.set_pipeline("catchup = false", "catchup = true")
    scheduled = {**backfilled, "scheduled 2013-01-04": "success"}
    wait_for("the scheduled run", lambda: _ended(home, scheduled))
    assert home.runs() == scheduled
    assert home.taken_days()[-1] == "2013-01-04"

    # By hand, over a data interval from the form, with a suite that these rows fail: committed, not published.
    before = home.meta().read_latest()
    home.set_pipeline('"min_value": 1}', '"min_value": 100000}', "quality/manufacturer_delays.json")
    start, end = "2013-01-05T00:00:00Z", "2013-01-06T00:00:00Z"
    home.trigger(
        DAG, {"logical_date": start, "data_interval_start": start, "data_interval_end": end}
    )  # no date: Airflow drops the interval
    wait_for("the run by hand", lambda: _ended(home, {**scheduled, "manual": "failed"}))
    held = home.meta().read_latest()
    assert home.taken_days()[-1] == "2013-01-05"
    assert held.epoch > before.epoch
    assert held.published == before.epoch
    assert "Input of this run: the interval from 2013-01-05T00:00:00+00:00 to 2013-01-06T00:00:00+00:00" in home.log_of(
        "inject_barrier"
    )
    log = home.log_of("validate_views")
    assert "expect_column_values_to_be_between(column='miles', min_value=100000" in log
    assert "failing rows: manufacturer=" in log
    assert "readers still see the previous epoch" in log

    # The suite is corrected. The quality check runs again, and the held epoch is published without another commit.
    home.set_pipeline('"min_value": 100000}', '"min_value": 1}', "quality/manufacturer_delays.json")
    home.airflow("tasks", "clear", DAG, "--task-regex", "validate_views", "--downstream", "--only-failed", "--yes")
    wait_for("the held run", lambda: _ended(home, {**scheduled, "manual": "success"}))
    assert home.meta().read_latest().published == held.epoch
    assert home.meta().read_latest().epoch == held.epoch

    # Every view is an asset, and its events describe the published rows.
    names = {name for (name,) in home.query("SELECT name FROM asset")}
    assert {"flights.carrier_delays", "flights.worst_routes"} <= names
    (extra,) = home.query(
        "SELECT e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id "
        "WHERE a.name = 'flights.worst_routes' ORDER BY e.id DESC LIMIT 1"
    )[0]
    told = json.loads(extra)
    assert (told["epoch"], told["rows"], told["quality"]) == (str(held.epoch), 10, "passed")

    # A Delta table holds the published rows, with one commit per published epoch, however often the tasks ran.
    assert "flights.worst_routes.delta" in names
    with Session(str(home.folder / "store"), create=False) as session:
        for view in ("carrier_delays", "worst_routes"):
            table = DeltaTable(home.folder / "tables" / view)
            assert in_order(package_rows(table)) == in_order(session.read(view))
            epochs = [commit["tussock.epoch"] for commit in table.history() if "tussock.epoch" in commit]
            assert epochs[0] == str(held.epoch)
            assert len(epochs) == len(set(epochs)) == 5


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=repr)


def _ended(home: Home, wanted: dict[str, str]) -> bool:
    """Whether all expected runs exist and have ended; fails at once if one ended in another state."""
    runs = home.runs()
    if not wanted.keys() <= runs.keys() or not set(runs.values()) <= {"success", "failed"}:
        return False
    assert {name: runs[name] for name in wanted} == wanted, f"see the logs in {home.folder / 'logs'}"
    return True
