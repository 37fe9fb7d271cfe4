"""Trouble in a real scheduler: a held source, a view that a run pauses and resumes, and a failing suite in both scopes.

The test has its own Airflow, whose small epochs run in its tasks. At each step, the rows that readers see must equal
the rows of the files, added up in plain Python. Takes minutes.
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
pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
DAY_0 = date(2026, 1, 1)
TOML = """name = "shop"
store = "{folder}/store"
data = "{folder}/data"
sql = ["views.sql"]
[schedule]
cron = "@daily"
start = 2026-01-01
end = 2026-01-01
catchup = true
partitions = true
[epoch]
runner = "auto"
on_error = "pause"
[quality]
docs = "{folder}/docs"
scope = "view"
[notify.file]
notifier = "notifier.FileNotifier"
arguments = {{ file = "{folder}/noted" }}
"""
SQL = """
CREATE SOURCE orders (shop int, amount int) USING parquet OPTIONS (path '${data}/orders/{start:%Y-%m-%d}.parquet');
CREATE SOURCE visits (shop int) USING parquet OPTIONS (path '${data}/visits/{start:%Y-%m-%d}.parquet');
CREATE MATERIALIZED VIEW per_shop AS SELECT shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY shop;
CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS shops FROM per_shop GROUP BY n;
CREATE MATERIALIZED VIEW doubled AS SELECT shop, amount + 2147483000 AS high FROM orders;
CREATE MATERIALIZED VIEW visitors AS SELECT shop, count(*) AS n FROM visits GROUP BY shop;
"""
SUITE = {
    "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "min_value": 0}}]
}
Order = tuple[int, int]


@dataclass(frozen=True)
class Shop(AirflowHome):
    """A home with one pipeline, and the rows of its files by day."""

    def write(self, day: int, orders: list[Order], visits: list[int]) -> None:
        name = f"{DAY_0 + timedelta(days=day)}.parquet"
        shops, amounts = zip(*orders, strict=True)
        pq.write_table(
            pa.table({"shop": pa.array(shops, pa.int32()), "amount": pa.array(amounts, pa.int32())}),
            self.data("orders") / name,
        )
        pq.write_table(pa.table({"shop": pa.array(visits, pa.int32())}), self.data("visits") / name)

    def data(self, source: str) -> Path:
        folder = self.folder / "data" / source
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def seen(self, view: str) -> "Counter[tuple[Any, ...]]":
        """The rows that readers see of a view."""
        with Session(str(self.folder / "store"), create=False) as session:
            return Counter(zip(*(c.to_pylist() for c in session.read(view).columns), strict=True))

    def run_day(self, day: int) -> dict[str, str]:
        """Run a day's interval to its end; return the state of each task."""
        start, end = (f"{DAY_0 + timedelta(days=d)}T00:00:00Z" for d in (day, day + 1))
        run = self.trigger(DAG, {"logical_date": None, "conf": {"start": start, "end": end}})
        return self.ended(run)

    def ended(self, run: str) -> dict[str, str]:
        wait_for(
            f"run {run}",
            lambda: self.query(f"SELECT state FROM dag_run WHERE run_id = '{run}'")[0][0] in ("success", "failed"),
        )
        return dict(
            self.query(f"SELECT task_id, state FROM task_instance WHERE run_id = '{run}'")  # type: ignore[arg-type]
        )

    def newest_run(self) -> str:
        return self.query(f"SELECT run_id FROM dag_run WHERE dag_id = '{DAG}' ORDER BY id DESC LIMIT 1")[0][0]

    def clear(self, run: str) -> dict[str, str]:
        """Clear a run from its first task on, and wait for its end."""
        body = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
        self.api(f"dags/{DAG}/clearTaskInstances", body)
        wait_for(
            "it runs again", lambda: self.query(f"SELECT state FROM dag_run WHERE run_id = '{run}'")[0][0] != "failed"
        )
        return self.ended(run)

    def log_of(self, task: str, run: str) -> str:
        found = sorted((self.folder / "logs").rglob(f"run_id={run}/task_id={task}/*.log"))
        return "\n".join(file.read_text() for file in found)

    def events(self, run: str) -> dict[str, tuple[str | None, dict[str, Any]]]:
        """The asset events of a run: by asset, its partition and its facts."""
        rows = self.query(
            "SELECT a.name, e.partition_key, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id "
            f"WHERE e.source_run_id = '{run}' AND e.source_task_id = 'publish_views'"
        )
        return {name.removeprefix("shop."): (key, json.loads(extra)) for name, key, extra in rows}

    def set_pipeline(self, old: str, new: str) -> None:
        path = self.folder / "pipelines/shop/pipeline.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("airflow")
    pipeline = folder / "pipelines/shop"
    (pipeline / "quality").mkdir(parents=True)
    (pipeline / "pipeline.toml").write_text(TOML.format(folder=folder))
    (pipeline / "views.sql").write_text(SQL)
    (pipeline / "quality/per_shop.json").write_text(json.dumps(SUITE))
    usual = airflow_environment(folder)
    more = {
        "TUSSOCK_PIPELINES": str(folder / "pipelines"),
        "PYTHONPATH": f"{usual['PYTHONPATH']}:{ROOT / 'tests/support/notifiers'}",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
    }
    made = Shop(folder, ROOT, {**usual, **more})
    made.write(0, [(1, 5), (2, 6)], [1])
    made.python("-m", "tussock.jobs.cli", "apply", "shop")
    with made.up(DAG, PATIENCE_S):
        made.airflow("dags", "unpause", DAG)
        yield made


def per_shop(*days: list[Order]) -> "Counter[tuple[int, ...]]":
    orders = [order for day in days for order in day]
    return Counter(
        {(shop, sum(s == shop for s, _ in orders), sum(a for s, a in orders if s == shop)): 1 for shop, _ in orders}
    )


def sizes(*days: list[Order]) -> "Counter[tuple[int, ...]]":
    return Counter(dict.fromkeys(Counter(n for _, n, _ in per_shop(*days)).items(), 1))


def doubled(*days: list[Order]) -> "Counter[tuple[int, ...]]":
    return Counter((shop, amount + 2147483000) for day in days for shop, amount in day)


def visitors(*days: list[int]) -> "Counter[tuple[int, ...]]":
    return Counter(dict.fromkeys(Counter(shop for day in days for shop in day).items(), 1))


def test_everything_else_continues_despite_a_held_source_a_paused_view_and_failing_suites_of_both_scopes(
    shop: Shop,
) -> None:
    orders: list[list[Order]] = [[(1, 5), (2, 6)]]
    visits = [[1]]
    fine = dict.fromkeys(
        ("inject_barrier", "run_actors", "commit_version", "validate_views", "publish_views", "owed_events", "health"),
        "success",
    )

    wait_for("the scheduled run", lambda: bool(shop.query(f"SELECT 1 FROM dag_run WHERE dag_id = '{DAG}'")))
    assert shop.ended(shop.newest_run()) == fine
    events = shop.events(shop.newest_run())
    assert {name: key for name, (key, _) in events.items()} == dict.fromkeys(
        ("per_shop", "sizes", "doubled", "visitors"), "2026-01-01"
    )
    assert {name: said["quality"] for name, (_, said) in events.items()} == {
        "per_shop": "passed",
        "sizes": "not checked",
        "doubled": "not checked",
        "visitors": "not checked",
    }
    assert shop.seen("per_shop") == per_shop(*orders)

    # A held source: its file waits, all else is published, and the run is not green.
    shop.write(1, [(1, 7)], [1, 2])
    whole = (shop.data("visits") / "2026-01-02.parquet").read_bytes()
    (shop.data("visits") / "2026-01-02.parquet").write_bytes(whole[:30])
    assert shop.run_day(1) == {**fine, "health": "failed"}
    orders.append([(1, 7)])
    trouble = shop.newest_run()
    assert "source 'visits' is held" in shop.log_of("health", trouble)
    assert (shop.seen("visitors"), shop.seen("per_shop")) == (visitors(*visits), per_shop(*orders))
    (shop.data("visits") / "2026-01-02.parquet").write_bytes(whole)
    assert shop.clear(trouble) == fine
    visits.append([1, 2])
    assert (shop.seen("visitors"), shop.seen("per_shop")) == (visitors(*visits), per_shop(*orders))

    # A row that a view cannot process: the run pauses the view and publishes all else; later runs are green.
    before = list(orders)
    shop.write(2, [(3, 1000)], [3])
    assert shop.run_day(2) == {**fine, "health": "failed"}
    orders.append([(3, 1000)])
    visits.append([3])
    assert "view 'doubled' is paused" in (log := shop.log_of("health", shop.newest_run()))
    assert "tussock apply shop --resume doubled" in log
    assert "2026-01-03.parquet" in log
    assert (shop.seen("doubled"), shop.seen("per_shop"), shop.seen("visitors")) == (
        doubled(*before),
        per_shop(*orders),
        visitors(*visits),
    )
    shop.write(3, [(2, 1)], [2])
    assert shop.run_day(3) == fine
    orders.append([(2, 1)])
    visits.append([2])
    assert (shop.seen("doubled"), shop.seen("per_shop")) == (doubled(*before), per_shop(*orders))
    views = shop.folder / "pipelines/shop/views.sql"
    views.write_text(
        views.read_text().replace("amount + 2147483000 AS high", "CAST(amount AS bigint) + 2147483000 AS high")
    )
    shop.python("-m", "tussock.jobs.cli", "apply", "shop", "--resume", "doubled")
    shop.write(4, [(2, 2)], [4])
    assert shop.run_day(4) == fine
    orders.append([(2, 2)])
    visits.append([4])
    assert shop.seen("doubled") == doubled(*orders)

    # A failing suite with scope view: that view and its reader keep their rows, the others are published.
    passed = list(orders)
    shop.write(5, [(9, -1)], [5])
    assert shop.run_day(5) == {**fine, "health": "failed"}
    orders.append([(9, -1)])
    visits.append([5])
    run = shop.newest_run()
    assert "the suites of per_shop failed" in shop.log_of("health", run)
    assert (shop.seen("per_shop"), shop.seen("sizes")) == (per_shop(*passed), sizes(*passed))
    assert (shop.seen("doubled"), shop.seen("visitors")) == (doubled(*orders), visitors(*visits))
    assert set(shop.events(run)) == {"doubled", "visitors"}
    shop.write(6, [(9, 11)], [6])  # the total is above 0 again
    assert shop.run_day(6) == fine
    orders.append([(9, 11)])
    visits.append([6])
    assert (shop.seen("per_shop"), shop.seen("sizes")) == (per_shop(*orders), sizes(*orders))
    key, said = shop.events(shop.newest_run())["per_shop"]
    assert (key, said["changed_rows"]) == ("2026-01-07", 1 + 2), "of both epochs"

    # With the pipeline as its scope, it holds everything back.
    shop.set_pipeline('scope = "view"', 'scope = "pipeline"')
    passed = list(orders)
    shop.write(7, [(10, -1)], [7])
    states = shop.run_day(7)
    assert (states["validate_views"], states["publish_views"]) == ("failed", "upstream_failed")
    assert states["health"] == "failed", "or the last task would make the run green"
    log = shop.log_of("health", shop.newest_run())
    assert "is not published, because suites failed" in log
    assert (shop.seen("per_shop"), shop.seen("doubled"), shop.seen("visitors")) == (
        per_shop(*passed),
        doubled(*passed),
        visitors(*visits),
    )
    # One message per trouble, from the task that reports it.
    notes = [note.partition(": shop: ")[::2] for note in (shop.folder / "noted").read_text().splitlines()]
    assert [(event, text.partition(":")[0]) for event, text in notes] == [
        ("held", "health held"),
        ("paused", "health paused"),
        ("held", "health held"),
        ("failed", "validate_views failed"),
    ]
    assert "source 'visits' is held" in notes[0][1]
    assert "tussock apply shop --resume doubled" in notes[1][1]
