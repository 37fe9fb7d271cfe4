"""Take the pictures of Tussock's pages in docs/pictures/*.png, from a local Airflow with days of real flights.

    python scripts/pages_pictures.py                  after 30 days
    python scripts/pages_pictures.py --views 200      the same with 200 views: docs/pictures/*-200.png

It creates an Airflow home in a temporary folder, loads the flights and applies the pipeline. It processes the first
days directly, and the scheduler runs the last ones. Then it logs in through the login form and opens each page in
Debian's chromium (apt-get install chromium). This takes some minutes.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pipelines.flights.load import FIRST_DAY  # noqa: E402
from scripts.airflow_home import AirflowHome  # noqa: E402
from scripts.browser import Browser, browser  # noqa: E402
from tussock.jobs.settings.process import open_meta  # noqa: E402

PATIENCE_S = 3600.0
DAG = "epoch_flights"
BY_AIRFLOW = 3  # days that the scheduler runs; the days before them are processed directly, which is faster
ALIKE = ("quality", "verified", "actions")  # these look the same for any number of views
FRONT = {"x": 364, "y": 228, "width": 1060, "height": 632, "scale": 0.8}  # the part of the views page for README.md
OWN_VIEWS = 5  # views of the unchanged pipeline
CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL", "AS", "F9", "YV", "HA", "OO")
OF_A_CARRIER = (
    "{c}_by_origin AS SELECT origin, count(*) AS flights, avg(dep_delay) AS dep_delay FROM flights WHERE "
    "carrier = '{C}' GROUP BY origin",
    "{c}_by_dest AS SELECT dest, count(arr_delay) AS arrivals, avg(arr_delay) AS delay FROM flights WHERE "
    "carrier = '{C}' GROUP BY dest",
    "{c}_worst_dests AS SELECT dest, arrivals, delay FROM {c}_by_dest ORDER BY delay DESC, dest LIMIT 5",
    "{c}_by_hour AS SELECT hour, count(*) AS flights, avg(dep_delay) AS dep_delay FROM flights WHERE "
    "carrier = '{C}' GROUP BY hour",
    "{c}_busy_hours AS SELECT hour, flights FROM {c}_by_hour ORDER BY flights DESC, hour LIMIT 3",
    "{c}_by_day AS SELECT month, day, count(*) AS flights FROM flights WHERE carrier = '{C}' GROUP BY month, day",
    "{c}_by_plane AS SELECT tailnum, count(*) AS flights, sum(distance) AS miles FROM flights WHERE "
    "carrier = '{C}' GROUP BY tailnum",
    "{c}_makers AS SELECT p.manufacturer, count(*) AS planes, sum(v.miles) AS miles FROM {c}_by_plane v JOIN planes p "
    "ON v.tailnum = p.tailnum GROUP BY p.manufacturer",
    "{c}_airports AS SELECT v.dest, a.name, v.arrivals FROM {c}_by_dest v JOIN airports a ON v.dest = a.faa",
    "{c}_not_arrived AS SELECT month, day, flight, origin, dest FROM flights WHERE carrier = '{C}' AND "
    "arr_delay IS NULL",
    "{c}_lost_days AS SELECT month, day, count(*) AS flights FROM {c}_not_arrived GROUP BY month, day",
    "{c}_total AS SELECT count(*) AS flights, sum(distance) AS miles, max(arr_delay) AS worst_arr_delay "
    "FROM flights WHERE carrier = '{C}'",
)


def more_views(count: int) -> str:
    """SQL of `count` more views: the same dozen for each carrier, and some read others."""
    views = [view.format(c=f"c{carrier}".lower(), C=carrier) for carrier in CARRIERS for view in OF_A_CARRIER]
    views += [
        f"flights_to_{n} AS SELECT dest, count(*) AS flights FROM flights WHERE hour >= {n} GROUP BY dest"
        for n in range(24)
    ]
    if count > len(views):
        raise SystemExit(f"--views is at most {OWN_VIEWS + len(views)}")
    return "\n".join(f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view};" for view in views[:count])


RENAME = """
(() => {
  const names = %s, page = document.querySelector('iframe').contentDocument;
  const texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) for (const [from, to] of names) {
    texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
  }
})()
"""


def log_in(page: Browser, base: str, password: str, user: str = "admin") -> None:
    """Log in through Airflow's login form, to which Airflow redirects requests without a cookie."""
    page.go(f"{base}/", "document.querySelector('input[name=username]')")
    for name, value in (("username", user), ("password", password)):
        page.value(f"document.querySelector('input[name={name}]').focus()")
        page.ask("Input.insertText", text=value)
    page.value("document.querySelector('button[type=submit]').click()")
    page.wait("!location.pathname.includes('/auth/') && document.body.innerText.includes('Assets')")


TAKE_IN = """
import sys
from datetime import datetime, timedelta
from tussock_steps import open_pipeline_store
from tussock.jobs.operations.epochs import interval_between, run_pipeline_epochs, input_request_of
from tussock.jobs.operations.publish import publish_checked_epoch
from tussock.jobs.operations.quality import check_here
from tussock.jobs.operations.runners import Where
from tussock.statestore.progress import no_progress
for start in map(datetime.fromisoformat, sys.argv[1:]):
    at = open_pipeline_store("flights")
    interval = interval_between(at, (start, start + timedelta(days=1)))
    request = input_request_of(at, interval, run={"command": "pages_pictures.py"})
    epoch = run_pipeline_epochs(at, request, Where.HERE, no_progress).epoch
    check_here(at, epoch)
    publish_checked_epoch(at, epoch)
"""


def take_in(home: AirflowHome, days: int) -> None:
    """Process the first days: one published epoch each. The first one creates the views and needs Spark."""
    moments = [f"{FIRST_DAY + timedelta(days=day)}T00:00:00+00:00" for day in range(days)]
    home.python("-m", "tussock.jobs.cli", "epoch", "--pipeline", "flights", "--interval", *moments[:2])
    home.python("-c", TAKE_IN, *moments[1:])


def run_days(home: AirflowHome, days: int) -> str:
    """Wait for all scheduled runs, which catch up automatically.

    Return the last run's id; raise RuntimeError if one fails.
    """
    home.airflow("dags", "unpause", DAG)
    deadline = time.monotonic() + PATIENCE_S
    while (
        len(
            done := home.query(
                f"SELECT run_id, state FROM dag_run WHERE dag_id = '{DAG}' AND state IN ('success', 'failed')"
            )
        )
        < days
    ):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{days} runs did not end within {PATIENCE_S:.0f} s: {done}")
        time.sleep(1)
    if failed := [run for run, state in done if state == "failed"]:
        raise RuntimeError(f"Runs failed: {failed}. See {home.folder}/logs.")
    return max(run for run, _ in done)


def take(page: Browser, base: str, run: str, epoch: int, out: Path, mark: str, names: Mapping[str, str]) -> None:
    """Save each page, and two of them also with the dark theme, as `<page><mark>.png`.

    Args:
        names: texts to replace in the pages, such as the name of this machine.
    """
    rename = RENAME % json.dumps([*names.items()])
    dag, tussock = f"/dags/{DAG}", "/plugin/tussock/tussock"
    addresses: Mapping[str, tuple[str, int]] = {
        "overview": (f"{tussock}/pipelines", 480),
        "views": (f"{dag}/plugin/tussock-dag", 1180),
        "graph": (f"{tussock}{dag}/graph", 620),
        "relation": (f"{tussock}{dag}/relations/worst_routes", 1000),
        "epochs": (f"{tussock}{dag}/epochs", 560),
        "epoch": (f"{tussock}{dag}/epochs/{epoch}", 1120),
        "run": (f"{dag}/runs/{run}/plugin/tussock-run", 900),
        "quality": (f"{tussock}{dag}/quality", 520),
        "expectations": (f"{tussock}{dag}/quality/carrier_delays", 760),
        "verified": (f"{tussock}{dag}/verified", 560),
        "actions": (f"{tussock}{dag}/actions", 620),
        "action": (f"{tussock}/dags/upkeep_flights/actions/upkeep", 720),
    }
    inside = "document.querySelector('iframe')?.contentDocument"
    there = f"{inside}?.querySelector('h1') && !/loading/i.test({inside}.body.innerText)"
    for name, (address, height) in addresses.items():
        if mark and name in ALIKE:
            continue
        page.size(1440, height)
        page.go(f"{base}{address}", there)
        time.sleep(0.5)  # Airflow is still drawing its frame
        page.value(rename)
        page.picture(out / f"{name}{mark}.png")
        if name == "views" and not mark:
            page.picture(out / "front.png", FRONT)
    for name in ("views", "graph"):
        page.value("localStorage.setItem('theme', 'dark')")
        address, height = addresses[name]
        page.size(1440, height)
        page.go(f"{base}{address}", there)
        time.sleep(0.5)
        page.value(rename)
        page.picture(out / f"{name}-dark{mark}.png")
    page.value("localStorage.removeItem('theme')")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of docs/pages.md.")
    parser.add_argument("--days", type=int, default=30, help="days of flights (default: %(default)s)")
    parser.add_argument("--views", type=int, help="number of views (default: the pipeline's)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures", help="folder (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tussock-pictures-", ignore_cleanup_errors=True) as folder:
        home = AirflowHome.with_flights(Path(folder))
        toml = home.folder / "pipelines/flights/pipeline.toml"
        text = toml.read_text().replace(".airflow/data_docs/flights", f"{folder}/docs")
        if given.views is not None:
            with (toml.parent / "views.sql").open("a") as file:
                file.write(more_views(given.views - OWN_VIEWS))
        first, last = (FIRST_DAY + timedelta(days=given.days - before) for before in (BY_AIRFLOW, 1))
        toml.write_text(
            text.replace("end = 2013-12-31", f"end = {last}").replace("start = 2013-01-01", f"start = {first}")
        )
        home.python("pipelines/flights/load.py", "--out", home.env["FLIGHTS_DATA"], "--days", str(given.days + 2))
        home.python("-m", "tussock.jobs.cli", "apply", "flights")
        take_in(home, given.days - BY_AIRFLOW)
        if given.views is None:  # many views would take very long, and their page looks the same
            home.python("-m", "tussock.jobs.cli", "verify", "--pipeline", "flights")
        with home.up(DAG, PATIENCE_S), browser() as page:
            run = run_days(home, BY_AIRFLOW)
            home.python("-m", "tussock.jobs.cli", "compact", "--pipeline", "flights")  # else each picture has its note
            (password,) = json.loads((home.folder / ".airflow/passwords.json").read_text()).values()
            base = home.env["AIRFLOW__API__BASE_URL"]
            page.size(1280, 800)
            log_in(page, base, password)
            mark = "" if given.views is None else f"-{given.views}"
            names = {folder: "/srv/tussock", socket.gethostname(): "worker-1"}
            take(page, base, run, open_meta(home.env["FLIGHTS_STORE"]).read_latest().epoch, given.out, mark, names)


if __name__ == "__main__":
    main()
