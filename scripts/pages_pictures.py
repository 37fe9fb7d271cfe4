"""Pictures of Tussock's pages, of an Airflow that runs here on days of real flights: docs/pictures/*.png.

    python scripts/pages_pictures.py --days 4

Makes an Airflow home in a temporary folder, loads and applies the flights, has the scheduler run the first days, logs in as a person does,
and looks at each page with Debian's chromium (apt-get install chromium). Takes some minutes.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jobs.settings.process import open_meta  # noqa: E402
from pipelines.flights.load import FIRST_DAY  # noqa: E402
from scripts.airflow_home import AirflowHome  # noqa: E402
from scripts.browser import Browser, browser  # noqa: E402

PATIENCE_S = 900.0
DAG = "epoch_flights"


def log_in(page: Browser, base: str, password: str, user: str = "admin") -> None:
    """As a person does: Airflow sends whoever has no cookie to its login form."""
    page.go(f"{base}/", "document.querySelector('input[name=username]')")
    for name, value in (("username", user), ("password", password)):
        page.value(f"document.querySelector('input[name={name}]').focus()")
        page.ask("Input.insertText", text=value)
    page.value("document.querySelector('button[type=submit]').click()")
    page.wait("!location.pathname.includes('/auth/') && document.body.innerText.includes('Assets')")


def run_days(home: AirflowHome, days: int) -> str:
    """All runs of the schedule, which catches up by itself; the last one's id. Raises RuntimeError where one fails."""
    home.airflow("dags", "unpause", DAG)
    deadline = time.monotonic() + PATIENCE_S
    while len(done := home.query(f"SELECT run_id, state FROM dag_run WHERE dag_id = '{DAG}' AND state IN ('success', 'failed')")) < days:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{days} runs have not ended after {PATIENCE_S:.0f} s: {done}")
        time.sleep(1)
    if failed := [run for run, state in done if state == "failed"]:
        raise RuntimeError(f"{failed} failed: see {home.folder}/logs")
    return max(run for run, _ in done)


def take(page: Browser, base: str, run: str, epoch: int, out: Path) -> None:
    """Each page once; those in `dark` also by a dark theme."""
    dag, tussock = f"/dags/{DAG}", "/plugin/tussock/tussock"
    addresses: Mapping[str, tuple[str, int]] = {
        "overview": (f"{tussock}/pipelines", 480),
        "views": (f"{dag}/plugin/tussock-dag", 900),
        "graph": (f"{tussock}{dag}/graph", 620),
        "relation": (f"{tussock}{dag}/relations/worst_routes", 1000),
        "epochs": (f"{tussock}{dag}/epochs", 560),
        "epoch": (f"{tussock}{dag}/epochs/{epoch}", 1000),
        "run": (f"{dag}/runs/{run}/plugin/tussock-run", 900),
        "quality": (f"{tussock}{dag}/quality", 520),
        "expectations": (f"{tussock}{dag}/quality/carrier_delays", 760),
        "actions": (f"{tussock}{dag}/actions", 620),
        "action": (f"{tussock}/dags/upkeep_flights/actions/upkeep", 720),
    }
    for name, (address, height) in addresses.items():
        page.size(1440, height)
        page.go(f"{base}{address}", "document.querySelector('iframe')?.contentDocument?.querySelector('h1')")
        time.sleep(0.5)  # Airflow draws its own frame
        page.picture(out / f"{name}.png")
    for name in ("views", "graph"):
        page.value("localStorage.setItem('theme', 'dark')")
        address, height = addresses[name]
        page.size(1440, height)
        page.go(f"{base}{address}", "document.querySelector('iframe')?.contentDocument?.querySelector('h1')")
        time.sleep(0.5)
        page.picture(out / f"{name}-dark.png")
    page.value("localStorage.removeItem('theme')")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of docs/pages.md.")
    parser.add_argument("--days", type=int, default=4, help="days of flights (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures", help="folder (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tussock-pictures-", ignore_cleanup_errors=True) as folder:
        home = AirflowHome.with_flights(Path(folder))
        toml = home.folder / "pipelines/flights/pipeline.toml"
        text = toml.read_text().replace("[epoch]", '[epoch]\nrunner = "auto"').replace(".airflow/data_docs/flights", f"{folder}/docs")
        toml.write_text(text.replace("end = 2013-12-31", f"end = {FIRST_DAY + timedelta(days=given.days - 1)}"))
        home.python("pipelines/flights/load.py", "--out", home.env["FLIGHTS_DATA"], "--days", str(given.days + 2))
        home.python("-m", "jobs.cli", "apply", "flights")
        with home.up(DAG, PATIENCE_S), browser() as page:
            run = run_days(home, given.days)
            (password,) = json.loads((home.folder / ".airflow/passwords.json").read_text()).values()
            base = home.env["AIRFLOW__API__BASE_URL"]
            page.size(1280, 800)
            log_in(page, base, password)
            take(page, base, run, open_meta(home.env["FLIGHTS_STORE"]).latest().epoch, given.out)


if __name__ == "__main__":
    main()
