"""Rules in a real scheduler: a missing day, a reject limit and an assertion in SQL fail their runs and heal.

The test has its own Airflow, whose small epochs run in its tasks. Takes minutes.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.airflow_home import ROOT, airflow_environment
from tests.deep.dags.test_trouble_in_scheduler import DAG, Shop
from tests.support.dags.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.airflow, pytest.mark.deep, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
TOML = """name = "shop"
store = "{folder}/store"
data = "{folder}/data"
sql = ["views.sql"]
[schedule]
cron = "@daily"
start = 2026-01-01
end = 2026-01-01
catchup = true
[epoch]
runner = "auto"
[quality]
docs = "{folder}/docs"
[arrival.orders]
expect_files = 1
reject_limit = 0.2
"""
SQL = """
CREATE SOURCE orders (shop int, amount smallint)
USING parquet OPTIONS (path '${data}/orders/{start:%Y-%m-%d}.parquet', on_error 'quarantine');
CREATE MATERIALIZED VIEW per_shop AS SELECT shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY shop;
"""
ASSERTION = "SELECT shop, total FROM per_shop WHERE total < 0"
TOO_LARGE = 40_000  # for smallint


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("airflow")
    pipeline = folder / "pipelines/shop"
    (pipeline / "quality").mkdir(parents=True)
    (pipeline / "pipeline.toml").write_text(TOML.format(folder=folder))
    (pipeline / "views.sql").write_text(SQL)
    (pipeline / "quality/no_debts.sql").write_text(ASSERTION)
    made = Shop(folder, ROOT, {**airflow_environment(folder), "TUSSOCK_PIPELINES": str(folder / "pipelines")})
    write(made.data("orders"), 0, (1, 5), (2, 6))
    made.python("-m", "tussock.jobs.cli", "apply", "shop")
    with made.up(DAG, PATIENCE_S):
        made.airflow("dags", "unpause", DAG)
        yield made


def write(folder: Path, day: int, *orders: tuple[int, int]) -> None:
    shops, amounts = zip(*orders, strict=True)
    rows = pa.table({"shop": pa.array(shops, pa.int32()), "amount": pa.array(amounts, pa.int32())})
    pq.write_table(rows, folder / f"2026-01-{day + 1:02}.parquet")


def test_a_missing_day_too_many_rejects_and_wrong_rows_fail_their_runs(shop: Shop) -> None:
    tasks = (
        "inject_barrier",
        "run_actors",
        "commit_version",
        "validate_views",
        "publish_views",
        "owed_events",
        "health",
    )
    fine = dict.fromkeys(tasks, "success")
    wait_for("the scheduled run", lambda: bool(shop.query(f"SELECT 1 FROM dag_run WHERE dag_id = '{DAG}'")))
    assert shop.ended(shop.newest_run()) == fine
    first = shop.seen("per_shop")

    # A missing day: the run is red at its end, and green once the file is there.
    assert shop.run_day(1) == {**fine, "health": "failed"}
    missing = shop.newest_run()
    assert "source orders has 0 files for the interval from 2026-01-02 00:00" in shop.log_of("health", missing)
    write(shop.data("orders"), 1, (1, 1))
    assert shop.clear(missing) == fine
    second = shop.seen("per_shop")
    assert second != first

    # Too many rejects: nothing is published.
    write(shop.data("orders"), 2, (1, 1), (2, TOO_LARGE))
    states = shop.run_day(2)
    assert (states["validate_views"], states["publish_views"]) == ("failed", "upstream_failed")
    log = shop.log_of("validate_views", shop.newest_run())
    assert "source orders: reject_limit = 0.2: 1 of 2 records (50.0%) are unreadable" in log
    assert shop.seen("per_shop") == second
    write(shop.data("orders"), 2, (1, 1), (2, 2))
    assert shop.clear(shop.newest_run()) == fine

    # Wrong rows: the assertion shows them.
    third = shop.seen("per_shop")
    write(shop.data("orders"), 3, (2, -900))
    states = shop.run_day(3)
    assert (states["validate_views"], states["publish_views"]) == ("failed", "upstream_failed")
    assert "assertion no_debts.sql: 1 wrong row" in (log := shop.log_of("validate_views", shop.newest_run()))
    assert "failing rows: shop=2, total=" in log
    assert shop.seen("per_shop") == third
