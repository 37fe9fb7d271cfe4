"""Ten days of a new user, by the scheduler: late, corrected and missing files, and everything else that goes wrong.

A bicycle hire writes its own pipeline from the README and the tutorial. Its store is in a bucket, its epochs run in
Airflow's tasks. The scheduler runs each day as the user extends `[schedule] end`. At the end of each day, every view
must equal its SELECT run by Spark over the files that count then. Takes about 15 minutes; TEN_DAYS_FROM=8 leaves out
the days before the eighth.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from scripts.airflow_home import ROOT, AirflowHome, airflow_environment
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tests.support.jobs.sinks.delta_readers import package_rows
from tests.support.local_spark import local_session
from tests.support.lossy_proxy import LossyProxy
from tests.support.s3_servers import BUCKET, moto_server
from tussock.jobs.session import Session

pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
DAG = "epoch_rides"
DAY_1 = date(2026, 3, 1)
FIRST_DAY = int(os.environ.get("TEN_DAYS_FROM", "1"))  # 1, 2, 3, 4, 7, 8 or 9: the days before it are left out
TOML = """name = "rides"
store = "s3://{bucket}/rides?region=us-east-1&endpoint={endpoint}&path_style=true"
data = "data"
sql = ["sources.sql", "tables.sql", "views.sql"]
[schedule]
cron = "@daily"
start = 2026-03-{day:02}
end = 2026-03-{day:02}
catchup = true
[epoch]
runner = "auto"
[arrival.weather]
expect_files = 1
severity = "warning"
[quality]
docs = "docs"
[deploy]
approve = true
[publish]
to = "tables"
[airflow]
retry_delay = "5s"
"""
SOURCES = {
    "trips": "id bigint, bike int, station string, started timestamp, minutes int, fare decimal(8,2)",
    "weather": "day date, rain double",
    "stations": "station string, district string, docks int",
    "repairs": "bike int, state string, at timestamp",
}
SOURCES_SQL = """
CREATE SOURCE IF NOT EXISTS trips ({trips}) USING csv
  OPTIONS (path '${{data}}/trips/{{start:%Y-%m-%d}}*.csv', header 'true');
CREATE SOURCE IF NOT EXISTS weather ({weather}) USING parquet
  OPTIONS (path '${{data}}/weather/{{start:%Y-%m-%d}}.parquet');
CREATE SOURCE IF NOT EXISTS stations ({stations}, PRIMARY KEY (station)) USING json
  OPTIONS (path '${{data}}/stations/{{night}}', changes 'snapshot', snapshot_done '_SUCCESS');
CREATE SOURCE IF NOT EXISTS repairs ({repairs}, PRIMARY KEY (bike)) USING json
  OPTIONS (path '${{data}}/repairs', changes 'upsert', sequence_by 'at');
"""
TABLES_SQL = """
CREATE TABLE IF NOT EXISTS tariffs (district string, share double, PRIMARY KEY (district));
INSERT INTO tariffs VALUES ('old town', 0.5), ('harbour', 0.25);
"""
TARIFFS = [("old town", 0.5), ("harbour", 0.25)]
VIEWS = {
    "daily": "SELECT CAST(started AS date) AS day, count(*) AS trips, sum(fare) AS revenue, avg(minutes) AS minutes"
    " FROM trips GROUP BY CAST(started AS date)",
    "districts": "SELECT s.district, count(*) AS trips, sum(t.fare) AS revenue, max(t.minutes) AS longest"
    " FROM trips t JOIN stations s ON t.station = s.station GROUP BY s.district",
    "rainy": "SELECT d.day, d.trips, w.rain FROM daily d LEFT JOIN weather w ON d.day = w.day",
    "best": "SELECT day, station, revenue FROM (SELECT day, station, revenue, row_number() OVER (PARTITION BY day"
    " ORDER BY revenue DESC, station) AS place FROM (SELECT CAST(started AS date) AS day, station, sum(fare) AS revenue"
    " FROM trips GROUP BY CAST(started AS date), station)) WHERE place <= 3",
    "recent": "SELECT station, count(*) AS trips FROM trips WHERE started >= now() - INTERVAL 3 DAYS GROUP BY station",
    "idle": "SELECT r.bike, r.state, r.at FROM repairs r WHERE r.state <> 'fine' AND NOT EXISTS"
    " (SELECT 1 FROM trips t WHERE t.bike = r.bike AND t.started > r.at)",
}
CHANGED_DISTRICTS = (
    "SELECT s.district, count(*) AS trips, sum(t.fare) AS revenue, round(sum(t.fare) * max(f.share), 2) AS owed"
    " FROM trips t JOIN stations s ON t.station = s.station LEFT JOIN tariffs f ON f.district = s.district"
    " GROUP BY s.district"
)
SUITE = {
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "revenue", "min_value": 0}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "day"}},
    ]
}
FINE = dict.fromkeys(
    (
        "inject_barrier",
        "run_actors",
        "commit_version",
        "validate_views",
        "publish_views",
        "owed_events",
        "publish_tables",
        "health",
    ),
    "success",
)


@dataclass
class Bucket(LossyProxy):
    """A way to the bucket that can be cut, and that reports requests."""

    is_down: bool = False
    refused: int = 0
    on_request: Any = None

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        """Forward a request, or close the connection during an outage."""
        if self.on_request is not None:
            self.on_request(request.command, request.path)
        if self.is_down:
            self.refused += 1
            request.close_connection = True
            return
        super().forward(request)


@dataclass(frozen=True)
class Rides(AirflowHome):
    """A home with one pipeline. `counted`: the files of each source that the views must show, in their order."""

    store: str = ""
    counted: dict[str, list[Path]] = field(default_factory=lambda: {name: [] for name in SOURCES})

    def data(self, name: str) -> Path:
        path = self.folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write_trips(self, day: int, *, part: str = "", seed: int = 0, fare: str | None = None) -> Path:
        """Write 40 trips of a day. `fare`: replaces the fare of the last trip."""
        random, moment = Random(f"{day} {part} {seed}"), DAY_1 + timedelta(days=day - 1)
        lines = ["id,bike,station,started,minutes,fare"]
        for n in range(40):
            cost = fare if fare and n == 39 else f"{random.randrange(100, 2000) / 100:.2f}"
            at = f"{moment} {random.randrange(24):02}:{random.randrange(60):02}:00"
            lines.append(
                f"{day * 1000 + n},{random.randrange(12)},{random.choice('ABCDE')},{at},{random.randrange(90)},{cost}"
            )
        path = self.data(f"trips/{moment}{part}.csv")
        path.write_text("\n".join(lines) + "\n")
        return path

    def write_weather(self, day: int) -> Path:
        moment = DAY_1 + timedelta(days=day - 1)
        path = self.data(f"weather/{moment}.parquet")
        pq.write_table(pa.table({"day": [moment], "rain": [day % 4 / 2]}), path)
        return path

    def write_stations(self, day: int, districts: dict[str, str]) -> Path:
        path = self.data(f"stations/{DAY_1 + timedelta(days=day - 1)}/all.json")
        rows = [{"station": s, "district": d, "docks": 10} for s, d in districts.items()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (path.parent / "_SUCCESS").touch()
        return path

    def write_repairs(self, day: int, states: dict[int, str]) -> Path:
        moment = DAY_1 + timedelta(days=day - 1)
        path = self.data(f"repairs/{moment}.json")
        rows = [{"bike": bike, "state": state, "at": f"{moment} 12:00:00"} for bike, state in states.items()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def write_day(self, day: int) -> None:
        """Write a usual day, and count its files."""
        self.counted["trips"].append(self.write_trips(day))
        self.counted["weather"].append(self.write_weather(day))
        self.counted["stations"] = [
            self.write_stations(day, {"A": "old town", "B": "harbour", "C": "harbour" if day % 2 else "hill"})
        ]
        self.counted["repairs"].append(
            self.write_repairs(day, {day % 12: "flat tyre", (day + 5) % 12: "fine", 12 + day % 4: "lost"})
        )

    def tussock(self, *arguments: str) -> str:
        return self.python("-m", "tussock", *arguments)

    def set_file(self, name: str, old: str, new: str) -> None:
        path = self.folder / "pipelines/rides" / name
        assert old in path.read_text(), (name, old)
        path.write_text(path.read_text().replace(old, new))

    def run_of(self, day: int, kind: str = "scheduled") -> str:
        """The newest run of a day's interval, or an empty text."""
        runs = self.query(
            f"SELECT run_id FROM dag_run WHERE dag_id = '{DAG}' AND run_type = '{kind}'"
            f" AND data_interval_start LIKE '{DAY_1 + timedelta(days=day - 1)}%' ORDER BY id DESC"
        )
        return runs[0][0] if runs else ""

    def schedule(self, day: int) -> dict[str, str]:
        """Let the scheduler run until a day; the states of that day's tasks."""
        self.extend(day)
        wait_for(f"the run of day {day}", lambda: self.run_of(day))
        return self.ended(self.run_of(day))

    def extend(self, day: int) -> None:
        """Extend the schedule to a day."""
        text = (self.folder / "pipelines/rides/pipeline.toml").read_text()
        self.set_file("pipeline.toml", re.findall("end = .*", text)[0], f"end = {DAY_1 + timedelta(days=day - 1)}")

    def is_extended(self, day: int) -> bool:
        """Whether Airflow has read that the schedule ends with a day."""
        end = DAY_1 + timedelta(days=day - 1)
        asked = f"SELECT data LIKE '%{end}%' FROM serialized_dag WHERE dag_id = '{DAG}' ORDER BY last_updated DESC"
        return bool(self.query(asked)[0][0])

    def begun(self, run: str) -> dict[str, str]:
        """The tasks of a run that have a state, which is its value."""
        asked = f"SELECT task_id, state FROM task_instance WHERE run_id = '{run}' AND state IS NOT NULL"
        return dict(self.query(asked))  # type: ignore[arg-type]

    def status(self) -> str:
        """The output of `tussock status`, for any exit code."""
        command = [str(ROOT / ".venv/bin/python"), "-m", "tussock", "status", "rides"]
        return subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True).stdout

    def ended(self, run: str) -> dict[str, str]:
        """Wait for a run's end; the states of its tasks."""
        state = f"SELECT state FROM dag_run WHERE run_id = '{run}'"
        wait_for(f"the end of {run}", lambda: self.query(state)[0][0] in ("success", "failed"))
        return dict(
            self.query(f"SELECT task_id, state FROM task_instance WHERE run_id = '{run}'")  # type: ignore[arg-type]
        )

    def clear(self, run: str) -> dict[str, str]:
        """Clear a run from its first task on, and wait for its end."""
        ended = "SELECT end_date FROM dag_run WHERE run_id = '" + run + "'"
        before = self.query(ended)
        body = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
        self.api(f"dags/{DAG}/clearTaskInstances", body)
        wait_for("it runs again", lambda: self.query(ended) != before)
        return self.ended(run)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with moto_server() as upstream, Bucket(upstream) as way:
        yield way


@pytest.fixture
def rides(tmp_path: Path, bucket: Bucket) -> Rides:
    pipeline = tmp_path / "pipelines/rides"
    (pipeline / "quality").mkdir(parents=True)
    (pipeline / "pipeline.toml").write_text(TOML.format(day=FIRST_DAY, bucket=BUCKET, endpoint=bucket.endpoint))
    (pipeline / "sources.sql").write_text(SOURCES_SQL.format(**SOURCES))
    (pipeline / "tables.sql").write_text(TABLES_SQL)
    views = (f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS\n{query};\n" for name, query in VIEWS.items())
    (pipeline / "views.sql").write_text("".join(views))
    (pipeline / "quality/daily.json").write_text(json.dumps(SUITE))
    usual = airflow_environment(tmp_path)
    more = {"TUSSOCK_PIPELINES": str(tmp_path / "pipelines"), "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "2"}
    store = f"s3://{BUCKET}/rides?region=us-east-1&endpoint={bucket.endpoint}&path_style=true"
    return Rides(tmp_path, ROOT, {**usual, **more}, store)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = local_session()
    yield session
    session.stop()


def compare(rides: Rides, spark: SparkSession, day: int, views: dict[str, str]) -> None:
    """Compare every view, and its published table, with Spark's rows over the files that count."""
    for name, columns in SOURCES.items():
        files = [str(path) for path in rides.counted[name]]
        kind = {"trips": "csv", "weather": "parquet"}.get(name, "json")
        options = {"header": "true"} if kind == "csv" else {}
        spark.read.schema(columns).options(**options).format(kind).load(files).createOrReplaceTempView(name)
    newest = "SELECT bike, max_by(state, at) AS state, max(at) AS at FROM repairs GROUP BY bike"
    spark.createDataFrame(spark.sql(newest).collect(), SOURCES["repairs"]).createOrReplaceTempView("repairs")
    spark.createDataFrame(TARIFFS, "district string, share double").createOrReplaceTempView("tariffs")
    with Session(rides.store, create=False) as session:
        for name, query in views.items():
            asked = spark.sql(query.replace("now()", f"timestamp'{DAY_1 + timedelta(days=day)} 00:00:00'"))
            asked.createOrReplaceTempView(name)
            expected = Counter(tuple(row) for row in asked.collect())
            assert rows_of(session.read(name)) == expected, f"{name} on day {day}"
            assert rows_of(package_rows(DeltaTable(rides.folder / "tables" / name))) == expected, f"table {name}"


def rows_of(table: pa.Table) -> "Counter[tuple[Any, ...]]":
    def plain(value: object) -> object:
        return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value

    return Counter(tuple(map(plain, row)) for row in zip(*(c.to_pylist() for c in table.columns), strict=True))


def test_every_view_equals_spark_at_the_end_of_each_of_ten_days(
    rides: Rides, bucket: Bucket, spark: SparkSession
) -> None:
    rides.write_day(FIRST_DAY)
    rides.tussock("apply", "rides")
    with rides.up(DAG, PATIENCE_S):
        rides.airflow("dags", "unpause", DAG)
        rides.airflow("dags", "unpause", "deploy_rides")
        assert rides.schedule(FIRST_DAY) == FINE
        compare(rides, spark, FIRST_DAY, VIEWS)
        days: dict[int, Callable[[], None]] = {
            2: lambda: a_late_file_is_taken_by_its_own_run(rides),
            3: lambda: a_missing_file_warns_and_a_later_one_is_taken(rides),
            4: lambda: a_corrected_file_is_restated_from_the_form(rides),
            7: lambda: a_restatement_within_a_backfill_keeps_the_moment(rides),
            8: lambda: an_outage_ends_within_the_retries(rides, bucket),
            9: lambda: a_failing_suite_after_a_kill_holds_back_until_the_file_is_corrected(rides, bucket, spark),
        }
        for day, happens in days.items():
            if day > FIRST_DAY:
                began = time.monotonic()
                happens()
                compare(rides, spark, day, VIEWS)
                print(f"day {day}: {time.monotonic() - began:.0f} s", flush=True)
        saved = objects(bucket)
        views = {**VIEWS, "districts": CHANGED_DISTRICTS}
        rides.set_file("views.sql", VIEWS["districts"], CHANGED_DISTRICTS)
        a_changed_view_waits_for_a_person(rides)
        rides.write_day(10)
        assert rides.schedule(10) == FINE
        compare(rides, spark, 10, views)
        a_restored_copy_continues(rides, bucket, saved)
        compare(rides, spark, 10, views)


def a_late_file_is_taken_by_its_own_run(rides: Rides) -> None:
    rides.write_day(2)
    late = rides.write_trips(1, part="-late")
    assert rides.schedule(2) == FINE
    assert rides.clear(rides.run_of(1)) == FINE
    rides.counted["trips"].append(late)


def a_missing_file_warns_and_a_later_one_is_taken(rides: Rides) -> None:
    rides.write_day(3)
    missing = rides.data("weather/2026-03-03.parquet")
    kept = missing.read_bytes()
    missing.unlink()
    assert rides.schedule(3) == FINE
    lacks = "has 0 files for the interval from 2026-03-03 00:00"
    assert lacks in " ".join(rides.status().split())
    missing.write_bytes(kept)
    assert rides.clear(rides.run_of(3)) == FINE
    assert lacks not in " ".join(rides.status().split())


def a_corrected_file_is_restated_from_the_form(rides: Rides) -> None:
    rides.write_day(4)
    assert rides.schedule(4) == FINE
    file = rides.write_trips(2, seed=1)
    run = rides.trigger(DAG, {"logical_date": None, "conf": {"restate": "trips", "file": str(file)}})
    assert rides.ended(run) == FINE


def a_restatement_within_a_backfill_keeps_the_moment(rides: Rides) -> None:
    for day in (5, 6, 7):
        rides.write_day(day)
    file = rides.write_trips(max(3, FIRST_DAY), seed=1)
    rides.set_file("pipeline.toml", "catchup = true", "catchup = false")
    rides.extend(7)  # Airflow makes no run after the end
    wait_for("Airflow reads the new end", lambda: rides.is_extended(7))
    # Once only: an attempt that fails deletes its runs, and Airflow's scheduler ends if it has already seen them.
    rides.airflow("backfill", "create", "--dag-id", DAG, "--from-date", "2026-03-05", "--to-date", "2026-03-07")
    wait_for("the last day of the backfill", lambda: rides.run_of(7, "backfill"))
    wait_for("the second day of the backfill", lambda: "run_actors" in rides.begun(rides.run_of(6, "backfill")))
    run = rides.trigger(DAG, {"logical_date": None, "conf": {"restate": "trips", "file": str(file)}})
    for day in (5, 6, 7):
        assert rides.ended(rides.run_of(day, "backfill")) == FINE
    assert rides.ended(run) == FINE
    assert "all is well" in rides.status()


def an_outage_ends_within_the_retries(rides: Rides, bucket: Bucket) -> None:
    rides.write_day(8)
    bucket.is_down = True
    rides.set_file("pipeline.toml", "catchup = false", "catchup = true")
    rides.extend(8)
    wait_for("a run meets the outage", lambda: "up_for_retry" in rides.begun(rides.run_of(8)).values())
    bucket.is_down = False
    assert rides.ended(rides.run_of(8)) == FINE


def a_killed_task_is_repeated(rides: Rides, bucket: Bucket) -> None:
    rides.write_day(9)
    killed: list[int] = []

    def kill(method: str, path: str) -> None:
        run = "" if killed or method != "PUT" else rides.run_of(9)
        asked = f"SELECT pid FROM task_instance WHERE run_id = '{run}' AND task_id = 'run_actors' AND state = 'running'"
        for (pid,) in rides.query(asked) if run else ():
            killed.append(int(pid))
            os.kill(int(pid), signal.SIGKILL)

    bucket.on_request = kill
    assert rides.schedule(9) == FINE
    bucket.on_request = None
    assert killed
    assert rides.query(f"SELECT max(try_number) FROM task_instance WHERE run_id = '{rides.run_of(9)}'") == [(2,)]


def a_failing_suite_after_a_kill_holds_back_until_the_file_is_corrected(
    rides: Rides, bucket: Bucket, spark: SparkSession
) -> None:
    a_killed_task_is_repeated(rides, bucket)
    right = rides.data("trips/2026-03-09-evening.csv")
    rides.write_trips(9, part="-evening", fare="-500000.00")
    states = rides.clear(rides.run_of(9))
    assert (states["validate_views"], states["publish_views"], states["health"]) == (
        "failed",
        "upstream_failed",
        "failed",
    )
    compare(rides, spark, 9, VIEWS)
    assert "is not published, because suites failed:" in rides.status()
    rides.write_trips(9, part="-evening")
    rides.counted["trips"].append(right)
    run = rides.trigger(DAG, {"logical_date": None, "conf": {"restate": "trips", "file": str(right)}})
    assert rides.ended(run) == FINE
    assert "all is well" in rides.status()


def a_changed_view_waits_for_a_person(rides: Rides) -> None:
    run = rides.trigger("deploy_rides", {"logical_date": None})
    asking = (
        "SELECT h.body FROM hitl_detail h JOIN task_instance t ON t.id = h.ti_id WHERE t.state = 'awaiting_input'"
        f" AND h.responded_at IS NULL AND t.run_id = '{run}'"
    )
    plans: list[str] = []

    def is_answered() -> bool:
        if found := rides.query(asking):
            plans.append(found[0][0])
            answer = f"dags/deploy_rides/dagRuns/{run}/taskInstances/approve/-1/hitlDetails"
            rides.api(answer, {"chosen_options": ["Approve"]}, "PATCH")
        return rides.query(f"SELECT state FROM dag_run WHERE run_id = '{run}'")[0][0] in ("success", "failed")

    wait_for("a person approves the plan", is_answered)
    assert "~ view districts" in plans[0]
    assert rides.ended(run) == {"plan": "success", "approve": "success", "apply": "success"}


def a_restored_copy_continues(rides: Rides, bucket: Bucket, saved: dict[str, bytes]) -> None:
    rides.airflow("dags", "pause", DAG)
    client = client_of(bucket)
    for key in objects(bucket):
        client.delete_object(Bucket=BUCKET, Key=key)
    for key, content in saved.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=content)
    assert "which this store lacks: it was restored or created" in " ".join(rides.status().split())
    assert "the table was replaced" in rides.tussock("publish", "rides")
    rides.airflow("dags", "unpause", DAG)
    a_changed_view_waits_for_a_person(rides)
    assert rides.clear(rides.run_of(10)) == FINE
    assert "all is well" in rides.status()


def client_of(bucket: Bucket) -> Any:
    return boto3.client("s3", endpoint_url=bucket.upstream, region_name="us-east-1")


def objects(bucket: Bucket) -> dict[str, bytes]:
    """The content of each object of the store."""
    client = client_of(bucket)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="rides/")
    keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
    return {key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}
