"""Asset events in a real scheduler: of backfills, one with a failed and cleared last run, and of a cleared run.

The test has its own Airflow, whose small epochs run in its tasks. A modelled consumer starts empty and follows the
events alone. Its final rows must equal the rows of the files, added up in plain Python. Takes minutes.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.airflow_home import ROOT, AirflowHome, airflow_environment
from tests.support.dags.waiting import PATIENCE_S, wait_for
from tussock.jobs.session import Session

DAG = "epoch_shop"
pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200)]
DAY_0 = date(2026, 1, 1)
TOML = """name = "shop"
store = "{folder}/store"
data = "{folder}/data"
sql = ["views.sql"]
[schedule]
cron = "@daily"
start = 2026-01-01
end = 2026-01-20
[epoch]
runner = "auto"
[upkeep]
schedule = "none"
[quality]
docs = "{folder}/docs"
[publish]
to = "{folder}/tables"
relations = ["per_shop"]
"""
SQL = """
CREATE SOURCE orders (shop int, amount int) USING parquet OPTIONS (path '${data}/orders/{start:%Y-%m-%d}.parquet');
CREATE SOURCE countries (shop int, country string) USING csv OPTIONS (path '${data}/countries.csv');
CREATE MATERIALIZED VIEW per_shop AS SELECT shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY shop;
CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS shops FROM per_shop GROUP BY n;
CREATE MATERIALIZED VIEW home AS SELECT country, count(*) AS n FROM countries GROUP BY country;
"""
SUITE = {
    "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "min_value": 0}}]
}
VIEWS, SOURCES = {"shop.per_shop", "shop.sizes", "shop.home"}, {"shop.orders", "shop.countries"}
Order = tuple[int, int]


@dataclass(frozen=True)
class Event:
    """As Airflow's database has it."""

    asset: str
    task: str
    run: str
    extra: dict[str, Any]


@dataclass(frozen=True)
class Shop(AirflowHome):
    """A home with one pipeline."""

    def write(self, day: int, orders: list[Order]) -> Path:
        (folder := self.folder / "data/orders").mkdir(parents=True, exist_ok=True)
        shops, amounts = zip(*orders, strict=True)
        file = folder / f"{DAY_0 + timedelta(days=day)}.parquet"
        pq.write_table(pa.table({"shop": pa.array(shops, pa.int32()), "amount": pa.array(amounts, pa.int32())}), file)
        return file

    def backfill(self, first: int, last: int) -> dict[str, str]:
        """Run each of these days to its end; return the states by day."""
        ends = [str(DAY_0 + timedelta(days=day)) for day in (first, last)]
        running = "SELECT id FROM backfill WHERE completed_at IS NULL"  # Airflow allows one, and ends it later
        wait_for("the end of the backfill before", lambda: not self.query(running))
        while not self.created("--from-date", ends[0], "--to-date", ends[1]):
            pass
        wait_for("the backfill", lambda: len(self.states(first, last)) == last - first + 1)
        return self.ended(first, last)

    def created(self, *arguments: str) -> bool:
        """Create a backfill; return whether Airflow could.

        The command and the scheduler write into one SQLite file. At a lock, the command leaves a backfill without runs.
        """
        try:
            self.airflow("backfill", "create", "--dag-id", DAG, *arguments)
        except RuntimeError as err:
            if "database is locked" not in str(err):
                raise
            for (number,) in self.query("SELECT id FROM backfill WHERE completed_at IS NULL"):
                self.api(f"backfills/{number}/cancel", {}, "PUT")
            return False
        return True

    def states(self, first: int, last: int) -> dict[str, str]:
        rows = self.query(
            f"SELECT data_interval_start, state FROM dag_run WHERE dag_id = '{DAG}' AND run_type = 'backfill'"
        )
        wanted = {str(DAY_0 + timedelta(days=day)) for day in range(first, last + 1)}
        return {start[:10]: state for start, state in rows if start[:10] in wanted}

    def ended(self, first: int, last: int) -> dict[str, str]:
        wait_for("the runs", lambda: set(self.states(first, last).values()) <= {"success", "failed"})
        return self.states(first, last)

    def clear(self, day: int, *more: str) -> None:
        """Clear tasks of a day's run and wait for its end."""
        at = str(DAY_0 + timedelta(days=day))
        began = self.tries(day)
        self.airflow("tasks", "clear", DAG, "--start-date", at, "--end-date", at, "--yes", *more)
        wait_for("it runs again", lambda: self.tries(day) > began)
        self.ended(day, day)

    def tries(self, day: int) -> int:
        """The number of starts of publish_views in a day's run."""
        sql = (
            "SELECT sum(t.try_number) FROM task_instance t JOIN dag_run r ON r.run_id = t.run_id "
            f"WHERE t.dag_id = '{DAG}' "
        )
        sql += f"AND t.task_id = 'publish_views' AND r.data_interval_start LIKE '{DAY_0 + timedelta(days=day)}%'"
        return int(self.query(sql)[0][0] or 0)

    def events(self) -> list[Event]:
        """All, in order."""
        rows = self.query(
            "SELECT a.name, e.source_task_id, e.source_run_id, e.extra "
            "FROM asset_event e JOIN asset a ON a.id = e.asset_id ORDER BY e.id"
        )
        return [Event(asset, task, run, json.loads(extra)) for asset, task, run, extra in rows]

    def graph(self) -> set[tuple[str, str]]:
        """The lines that Airflow draws: asset to task, task to asset."""
        into = self.query(
            "SELECT a.name, r.task_id FROM task_inlet_asset_reference r JOIN asset a ON a.id = r.asset_id"
        )
        out = self.query(
            "SELECT r.task_id, a.name FROM task_outlet_asset_reference r JOIN asset a ON a.id = r.asset_id"
        )
        return {(str(a), str(b)) for a, b in (*into, *out)}

    def follow(self, view: str) -> "Counter[tuple[Any, ...]]":
        """The rows of a consumer that starts empty and follows the view's events."""
        rows: Counter[tuple[Any, ...]] = Counter()
        reached = None
        with Session(str(self.folder / "store"), create=False) as session:
            for event in self.events():
                if event.asset != f"shop.{view}":
                    continue
                epoch, since = int(event.extra["epoch"]), event.extra.get("since")
                if since is None:
                    rows = Counter(zip(*(c.to_pylist() for c in session.read(view, epoch=epoch).columns), strict=True))
                else:
                    assert since == reached, "each event continues from the end of the previous one"
                    for row in session.changes(view, int(since), epoch).to_pylist():
                        comes = row.pop("_change_type") in ("insert", "update_postimage")
                        values = tuple(value for name, value in row.items() if not name.startswith("_"))
                        rows[values] += 1 if comes else -1
                reached = event.extra["epoch"]
        return +rows


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("airflow")
    pipeline = folder / "pipelines/shop"
    (pipeline / "quality").mkdir(parents=True)
    (pipeline / "pipeline.toml").write_text(TOML.format(folder=folder))
    (pipeline / "views.sql").write_text(SQL)
    (pipeline / "quality/per_shop.json").write_text(json.dumps(SUITE))
    more = {"TUSSOCK_PIPELINES": str(folder / "pipelines"), "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5"}
    made = Shop(folder, ROOT, {**airflow_environment(folder), **more})
    made.write(0, [(1, 5), (2, 6)])
    (folder / "data/countries.csv").write_text("1,nl\n2,be\n3,nl\n")
    made.python("-m", "tussock.jobs.cli", "apply", "shop")
    with made.up(DAG, PATIENCE_S):
        yield made


def orders_of(day: int) -> list[Order]:
    return [(1 + day % 3, day), (2, 1)]


def per_shop(orders: list[Order]) -> "Counter[tuple[Any, ...]]":
    return Counter(
        {(shop, sum(s == shop for s, _ in orders), sum(a for s, a in orders if s == shop)): 1 for shop, _ in orders}
    )


def test_a_backfill_emits_its_events_once_at_its_end_even_if_its_last_run_fails(shop: Shop) -> None:
    rows: dict[int, list[Order]] = {0: [(1, 5), (2, 6)]}
    for day in range(1, 5):
        shop.write(day, orders_of(day))
        rows[day] = orders_of(day)
    shop.airflow("dags", "unpause", DAG)

    # Five days: each source and view has one event for all of them.
    assert set(shop.backfill(0, 4).values()) == {"success"}
    told = shop.events()
    assert Counter(e.asset for e in told) == dict.fromkeys((*VIEWS, *SOURCES, "shop.per_shop.delta"), 1)
    assert {e.run for e in told} == {"backfill__2026-01-06T00:00:00+00:00"}, (
        "the run over the last day, named after its end"
    )
    taken = {e.asset: e.extra for e in told if e.asset in SOURCES}
    files = [shop.folder / f"data/orders/{DAY_0 + timedelta(days=day)}.parquet" for day in rows]
    orders = taken["shop.orders"]
    assert (orders["files"], orders["bytes"], orders["rows"]) == (5, sum(f.stat().st_size for f in files), 10)
    assert "interval" not in orders, "of five runs"
    assert (taken["shop.countries"]["files"], taken["shop.countries"]["rows"]) == (1, 3)
    assert {e.task for e in told if e.asset in SOURCES} == {"commit_version"}
    assert shop.follow("per_shop") == per_shop([o for day in rows.values() for o in day])
    states = shop.query(f"SELECT DISTINCT state FROM task_instance WHERE dag_id = '{DAG}'")
    assert states == [("success",)], "a healthy run is green, and skips no task"

    # A run that is cleared as a whole has nothing to tell.
    shop.clear(2)
    assert shop.events() == told

    # Four more; the last fails its suite. Its event covers the others' rows too. Sources have events at each commit.
    for day in range(5, 9):
        rows[day] = orders_of(day) if day < 8 else [(9, -1)]
        shop.write(day, rows[day])
    states = shop.backfill(5, 8)
    assert [states[str(DAY_0 + timedelta(days=day))] for day in range(5, 9)] == ["success"] * 3 + ["failed"]
    more = shop.events()[len(told) :]
    assert Counter(e.asset for e in more) == dict.fromkeys((*VIEWS, "shop.orders", "shop.per_shop.delta"), 1)
    assert {e.task for e in more if e.asset not in SOURCES} == {"owed_events"}
    (orders,) = (e.extra for e in more if e.asset == "shop.orders")
    assert (orders["files"], orders["rows"]) == (4, 7)
    assert orders["since"] == taken["shop.orders"]["epoch"]
    assert shop.follow("per_shop") == per_shop([o for day, of in rows.items() if day < 8 for o in of])

    # The suite is corrected and the failed run is cleared: its events cover its own rows.
    suite = shop.folder / "pipelines/shop/quality/per_shop.json"
    suite.write_text(suite.read_text().replace('"min_value": 0', '"min_value": -5'))
    shop.clear(8, "--only-failed", "--task-regex", "validate_views", "--downstream")
    assert set(shop.ended(8, 8).values()) == {"success"}
    last = shop.events()[len(told) + len(more) :]
    assert Counter(e.asset for e in last) == dict.fromkeys((*VIEWS, "shop.per_shop.delta"), 1)
    assert {e.task for e in last} == {"publish_views", "publish_tables"}
    assert shop.follow("per_shop") == per_shop([o for day in rows.values() for o in day])
    assert shop.follow("home") == Counter({("nl", 2): 1, ("be", 1): 1})

    # A manual run between backfills: its events cover its own rows and carry its interval.
    shop.write(9, [(1, 1)])
    day_9 = [f"{DAY_0 + timedelta(days=day)}T00:00:00Z" for day in (9, 10)]
    shop.trigger(DAG, {"logical_date": None, "conf": {"start": day_9[0], "end": day_9[1]}})
    wait_for(
        "its event",
        lambda: (
            shop.events()[-1].asset in (VIEWS | {"shop.per_shop.delta"}) and shop.events()[-1].run.startswith("manual")
        ),
    )
    (taken_in,) = (e.extra for e in shop.events() if e.asset == "shop.orders" and e.run.startswith("manual"))
    assert taken_in["interval"] == ["2026-01-10T00:00:00+00:00", "2026-01-11T00:00:00+00:00"]

    # Airflow draws edges from sources to publish_views to views, and no DAG is scheduled on them.
    drawn = shop.graph()
    assert {(source, "publish_views") for source in SOURCES} | {("publish_views", view) for view in VIEWS} <= drawn
    assert {("commit_version", source) for source in SOURCES} <= drawn
    assert shop.query("SELECT count(*) FROM dag_schedule_asset_reference")[0][0] == 0
