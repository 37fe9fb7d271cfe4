"""Latency of Airflow's pages while epochs are committed: `python -m benchmarks pages`.

Ten clients request the pages of a pipeline of 200 views and 10,000 epochs as fast as they are answered, and another
process commits and publishes an epoch per second. The server is Airflow's own app in uvicorn, with its login and
database. Prints p50, p95 and the maximum of each page, and the largest age of the facts that a page showed.
"""

import argparse
import http.client
import multiprocessing
import re
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BUDGET_S = 1.0  # p95 over all pages
NAME = "large"
PATIENCE_S = 600.0


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark. Returns 0 even if the budget is missed, since other load on the machine is unknown here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks pages", description="Measure the pages under load.")
    parser.add_argument("--views", type=int, default=200, help="default 200")
    parser.add_argument("--epochs", type=int, default=10_000, help="default 10,000")
    parser.add_argument("--clients", type=int, default=10, help="default 10")
    parser.add_argument("--seconds", type=float, default=30.0, help="of load, default 30")
    given = parser.parse_args(arguments)
    memory = Path("/dev/shm")  # the store is many small files
    folder = Path(tempfile.mkdtemp(prefix="tussock-pages-", dir=memory if memory.is_dir() else None))
    spawn = multiprocessing.get_context("spawn")  # the server, the writer and the clients share no interpreter
    stop = spawn.Event()
    try:
        made, ready = spawn.Queue(), spawn.Queue()
        writer = spawn.Process(target=_write, args=(folder, given.views, given.epochs, made, stop))
        writer.start()
        epochs: list[int] = made.get(timeout=PATIENCE_S)
        server = spawn.Process(target=_serve, args=(folder, ready))
        server.start()
        port, token = ready.get(timeout=PATIENCE_S)
        found = spawn.Queue()
        load = spawn.Process(target=_load, args=(port, token, epochs, given.clients, given.seconds, found))
        load.start()
        asked: list[PageAnswer] = found.get(timeout=PATIENCE_S + given.seconds)
        stop.set()
        commits = made.get(timeout=PATIENCE_S)
        for process in (load, writer):
            process.join(30)
        server.terminate()
        server.join(30)
    finally:
        stop.set()
        for process in multiprocessing.active_children():
            process.terminate()
        shutil.rmtree(folder, ignore_errors=True)
    _report(asked, given.seconds, commits)
    return 0


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """One answered request. `age_s`: of the facts, as the page shows it."""

    page: str
    seconds: float
    status: int
    age_s: float


def _report(asked: Sequence[PageAnswer], seconds: float, commits: float) -> None:
    pages: dict[str, list[PageAnswer]] = {}
    for one in asked:
        pages.setdefault(one.page, []).append(one)
    print(f"{'page':34} {'requests':>8} {'p50 s':>7} {'p95 s':>7} {'max s':>7} {'oldest facts s':>15}")
    for page, found in (*pages.items(), ("all", list(asked))):
        times = sorted(one.seconds for one in found)
        p95 = times[min(len(times) - 1, int(len(times) * 0.95))]
        age = max(one.age_s for one in found)
        print(f"{page:34} {len(times):8} {statistics.median(times):7.3f} {p95:7.3f} {times[-1]:7.3f} {age:15.1f}")
    wrong = [one for one in asked if one.status != 200]
    print(f"{len(asked) / seconds:.0f} pages and {commits:.1f} commits per second; other answers: {len(wrong)}")
    print(f"budget: p95 of all pages at most {BUDGET_S} s: {'ok' if p95 <= BUDGET_S else 'MISSED'}")


def _write(folder: Path, views: int, epochs: int, made: "multiprocessing.Queue[object]", stop: threading.Event) -> None:
    """Make the store, put its epochs, and then commit one per second until `stop`; put their number at the end."""
    from tests.deep.pages.test_size import KEPT, next_epoch
    from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
    from tests.support.jobs.plan.catalogs import counted, scan, table, view

    pipeline = folder / "pipelines" / NAME
    pipeline.mkdir(parents=True)
    (pipeline / "pipeline.toml").write_text(
        f'name = "{NAME}"\nstore = "{folder}/store"\nsql = ["views.sql"]\n[quality]\ndocs = "{folder}/docs"\n'
    )
    meta = new_store(folder / "store")
    names = [f"view_{number}" for number in range(views)]
    append(meta, table("t"), *(view(name, counted(scan("t"), 1)) for name in names))
    insert(meta, "t", (1, 1, 1))
    found = [epoch(meta).epoch]
    while len(found) < epochs:
        found.append(next_epoch(meta, names, len(found)))
        if len(found) % KEPT == 0:
            meta.raise_floor(found[-KEPT // 2])
    made.put(found)
    commits, began = 0, time.monotonic()
    while not stop.wait(max(0.0, began + commits + 1 - time.monotonic())):
        next_epoch(meta, names, len(found) + commits)
        commits += 1
    made.put(commits / (time.monotonic() - began))


def _serve(folder: Path, ready: "multiprocessing.Queue[object]") -> None:
    """Run Airflow's app with the pages on a free port; put the port and an admin's token."""
    import os

    os.environ["TUSSOCK_PIPELINES"] = str(folder / "pipelines")
    import socket

    import uvicorn

    from tests.support.pages import serving

    app = serving._app()
    token = str(serving.Visitor(app, "admin").cookies["_token"])
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    ready.put((listening.getsockname()[1], token))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


def _load(
    port: int, token: str, epochs: Sequence[int], clients: int, seconds: float, found: "multiprocessing.Queue[object]"
) -> None:
    """Request the pages with `clients` threads for some seconds, and put the answers."""
    dag, middle = f"/tussock/dags/epoch_{NAME}", epochs[len(epochs) // 2]
    pages = {
        "overview": "/tussock/pipelines",
        "views": dag,
        "views, page 3": f"{dag}?page=3",
        "graph": f"{dag}/graph",
        "relation": f"{dag}/relations/view_7",
        "epochs": f"{dag}/epochs",
        "epochs, in the middle": f"{dag}/epochs?before={middle}",
        "epoch": f"{dag}/epochs/{middle}",
        "quality": f"{dag}/quality",
        "quality of a view": f"{dag}/quality/view_7",
    }
    asked: list[PageAnswer] = []
    _ask(port, token, "warm", pages["views"])  # the first request imports the pages
    until = time.monotonic() + seconds

    def client(number: int) -> None:
        turn = number
        while time.monotonic() < until:
            name, path = list(pages.items())[turn % len(pages)]
            asked.append(_ask(port, token, name, path))
            turn += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.put(asked)


def _ask(port: int, token: str, name: str, path: str) -> PageAnswer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began = time.monotonic()
    connection.request("GET", path, headers={"Cookie": f"_token={token}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    took = time.monotonic() - began
    connection.close()
    age = re.search(r'data-age="([\d.]+)"', text)
    return PageAnswer(name, took, answer.status, float(age[1]) if age is not None else 0.0)
