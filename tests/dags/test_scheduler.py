"""The flights DAG in a real scheduler: by backfill, by schedule, by hand, cleared, and held by a failing suite.

One Airflow of the test's own, on a store and files of its own. Minutes long, most of them JVM starts.
"""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.catalog.reader import open_table
from jobs.plan.definition import find
from jobs.session import Session
from jobs.settings.process import open_meta
from jobs.sources.taken import taken_files
from pipelines.flights import load
from statestore.meta.store import MetaStore

ROOT = Path(__file__).resolve().parents[2]
DAG = "epoch_flights"
PATIENCE_S = float(os.environ.get("TUSSOCK_TEST_PATIENCE_S", "900"))  # for one thing to happen; machines differ
pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Home:
    """An Airflow home, with the store and the pipelines its DAGs work on."""

    folder: Path
    env: dict[str, str]

    def command(self, *arguments: str) -> str:
        run = subprocess.run(arguments, cwd=ROOT, env=self.env, capture_output=True, text=True)
        assert run.returncode == 0, f"{' '.join(arguments)}:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
        return run.stdout

    def airflow(self, *arguments: str) -> str:
        return self.command(str(ROOT / "scripts/airflow.sh"), *arguments)

    def meta(self) -> MetaStore:
        return open_meta(str(self.folder / "store"))

    def query(self, sql: str) -> list[tuple[str, ...]]:
        with sqlite3.connect(f"file:{self.folder}/.airflow/airflow.db?mode=ro", uri=True, timeout=60) as database:
            return database.execute(sql).fetchall()

    def runs(self) -> dict[str, str]:
        """State by run: `<kind> <day of its interval>` for those of the schedule, `manual` for those by hand."""
        rows = self.query(f"SELECT run_type, data_interval_start, state FROM dag_run WHERE dag_id = '{DAG}'")
        return {kind if kind == "manual" else f"{kind} {start[:10]}": state for kind, start, state in rows}

    def taken_days(self) -> list[str]:
        """The days whose flights are committed."""
        meta = self.meta()
        version = meta.latest()
        (table,) = find(version.catalog, "flights").state_tables
        return sorted(Path(file.path).stem for file in taken_files(open_table(meta.objects, version, table)))

    def story(self) -> list[str]:
        """What happened to the store's epochs, in order: each was injected, committed, published. By the times of the store's files."""
        meta, store = self.meta(), self.folder / "store/meta"
        happened = [(file.stat().st_mtime_ns, "injected") for file in store.glob("barrier/*/*.json")]
        for number in range(1, meta.latest().id + 1):
            before, after = meta.version(number - 1), meta.version(number)
            what = "committed" if after.epoch > before.epoch else "published" if after.published > before.published else "other"
            happened.append(((store / f"version/{number:020}.json").stat().st_mtime_ns, what))
        return [what for _, what in sorted(happened)]

    def trigger(self, start: str, end: str) -> None:
        """A run by hand, as the trigger form starts one whose data interval is filled in."""
        (password,) = json.loads((self.folder / ".airflow/passwords.json").read_text()).values()
        token = self.post("auth/token", {"username": "admin", "password": password})["access_token"]
        interval = {"logical_date": None, "data_interval_start": start, "data_interval_end": end}
        self.post(f"api/v2/dags/{DAG}/dagRuns", interval, {"Authorization": f"Bearer {token}"})

    def post(self, path: str, body: dict[str, str | None], headers: dict[str, str] | None = None) -> dict[str, str]:
        headers = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(f"{self.env['AIRFLOW__API__BASE_URL']}/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            parsed: dict[str, str] = json.load(answer)
        return parsed

    def set_pipeline(self, old: str, new: str, file: str = "pipeline.toml") -> None:
        path = self.folder / "pipelines/flights" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


def wait_for(what: str, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE_S:.0f} s"
        time.sleep(2)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("airflow")
    shutil.copytree(ROOT / "pipelines", folder / "pipelines")
    port = free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")} | {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW_CONFIG": str(ROOT / "airflow.cfg"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{port}/execution/",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
        "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
        "TUSSOCK_PIPELINES": str(folder / "pipelines"),
        "FLIGHTS_STORE": str(folder / "store"),
        "FLIGHTS_DATA": str(folder / "data"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    made = Home(folder, env)
    load.load(folder / "data", days=5)
    made.set_pipeline("catchup = true", "catchup = false")
    made.set_pipeline("end = 2013-12-31", "end = 2013-01-04")
    made.command(sys.executable, "-m", "jobs.cli", "apply", "flights")
    with (folder / "up.log").open("w") as log:
        server = subprocess.Popen([str(ROOT / "scripts/airflow.sh"), "up"], cwd=ROOT, env=env, stdout=log, stderr=log)
    try:
        wait_for("the DAG is parsed", lambda: bool((folder / ".airflow/airflow.db").exists() and _parsed(made)))
        yield made
    finally:
        server.terminate()
        server.wait(60)


def _parsed(home: Home) -> bool:
    try:
        return bool(home.query(f"SELECT 1 FROM dag WHERE dag_id = '{DAG}'"))
    except sqlite3.OperationalError:  # the tables are being made
        return False


def test_backfill_schedule_trigger_clear_and_a_failing_suite(home: Home) -> None:
    home.airflow("dags", "unpause", DAG)

    # Three days at once, as Airflow starts backfills; each run ends with its own day committed.
    home.airflow("backfill", "create", "--dag-id", DAG, "--from-date", "2013-01-01", "--to-date", "2013-01-03")
    backfilled = {f"backfill 2013-01-0{day}": "success" for day in (1, 2, 3)}
    wait_for("three runs of a backfill", lambda: _ended(home, backfilled))
    assert home.runs() == backfilled
    assert home.taken_days() == ["2013-01-01", "2013-01-02", "2013-01-03"]
    version = home.meta().latest()
    assert version.published == version.epoch
    assert home.story() == ["injected", "committed", "published"] * 3, "each run has published before the next one begins"
    assert home.query("SELECT pool FROM slot_pool") == [("default_pool",)], "an Airflow that was there before has no other"

    # A finished run that is cleared takes in nothing and commits nothing.
    home.airflow("tasks", "clear", DAG, "--start-date", "2013-01-02", "--end-date", "2013-01-02", "--yes")
    wait_for("the cleared run starts", lambda: home.runs()["backfill 2013-01-02"] != "success")
    wait_for("the cleared run", lambda: _ended(home, backfilled))
    assert home.meta().latest() == version

    # The schedule goes on where the backfill ended, and ends at its end.
    home.set_pipeline("catchup = false", "catchup = true")
    scheduled = {**backfilled, "scheduled 2013-01-04": "success"}
    wait_for("the scheduled run", lambda: _ended(home, scheduled))
    assert home.runs() == scheduled
    assert home.taken_days()[-1] == "2013-01-04"

    # By hand, over a data interval from the form, with a suite that these rows do not meet: committed, not published.
    before = home.meta().latest()
    home.set_pipeline('"min_value": 1}', '"min_value": 100000}', "quality/manufacturer_delays.json")
    home.trigger("2013-01-05T00:00:00Z", "2013-01-06T00:00:00Z")
    wait_for("the run by hand", lambda: _ended(home, {**scheduled, "manual": "failed"}))
    held = home.meta().latest()
    assert home.taken_days()[-1] == "2013-01-05"
    assert held.epoch > before.epoch
    assert held.published == before.epoch
    log = next((home.folder / "logs").rglob("run_id=manual*/task_id=validate_views/*.log")).read_text()
    assert "expect_column_values_to_be_between(column='miles', min_value=100000" in log
    assert "failing rows: manufacturer=" in log
    assert "readers still see the epoch before" in log

    # The suite is corrected; the gate is asked again, and the held epoch is published without another commit.
    home.set_pipeline('"min_value": 100000}', '"min_value": 1}', "quality/manufacturer_delays.json")
    home.airflow("tasks", "clear", DAG, "--task-regex", "validate_views", "--downstream", "--only-failed", "--yes")
    wait_for("the held run", lambda: _ended(home, {**scheduled, "manual": "success"}))
    assert home.meta().latest().published == held.epoch
    assert home.meta().latest().epoch == held.epoch

    # Every view is an asset, and its events say what readers see.
    names = {name for (name,) in home.query("SELECT name FROM asset")}
    assert {"flights.carrier_delays", "flights.worst_routes"} <= names
    (extra,) = home.query(
        "SELECT e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id "
        "WHERE a.name = 'flights.worst_routes' ORDER BY e.id DESC LIMIT 1"
    )[0]
    told = json.loads(extra)
    assert (told["epoch"], told["rows"], told["quality"]) == (str(held.epoch), 10, "passed")

    # And a Delta table, which holds what readers see and has had one commit for each published epoch, however often tasks ran.
    assert "flights.worst_routes.table" in names
    with Session(str(home.folder / "store"), create=False) as session:
        for view in ("carrier_delays", "worst_routes"):
            table = DeltaTable(home.folder / ".tussock/flights/tables" / view)
            assert in_order(table.to_pyarrow_table()) == in_order(session.read(view))
            epochs = [commit["tussock.epoch"] for commit in table.history() if "tussock.epoch" in commit]
            assert epochs[0] == str(held.epoch)
            assert len(epochs) == len(set(epochs)) == 5


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=repr)


def _ended(home: Home, wanted: dict[str, str]) -> bool:
    """Whether all wanted runs are there and none is still going; fails at once when one ended otherwise."""
    runs = home.runs()
    if not wanted.keys() <= runs.keys() or not set(runs.values()) <= {"success", "failed"}:
        return False
    assert {name: runs[name] for name in wanted} == wanted, f"see the logs in {home.folder / 'logs'}"
    return True
