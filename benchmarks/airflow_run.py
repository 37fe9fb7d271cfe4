"""Benchmark: CPU seconds of one Airflow run of the flights pipeline over a day's files (about 1,000 rows), by task.

    python -m benchmarks airflow --runs 5
    python -m benchmarks airflow --runs 5 --beside ../tussock-of-before

It starts a separate Airflow (scheduler, API server, DAG processor, triggerer) with home, store and files in a temporary
folder, and loads the first day. Then it triggers a run for each following day, in turns with `[epoch] runner = "spark"`
and "auto". With --beside, an Airflow of another checkout with its unchanged pipeline also takes turns. Each checkout
has its own store.

CPU seconds are read per process from /proc some twenty times a second, so a busy machine affects them little:

    a task              its process and all its descendants, including the JVM and its Python workers
    Airflow itself      scheduler, API server, DAG processor, triggerer and the tasks' supervisors, from trigger to end
                        of the run
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path

from benchmarks.cpu import Process, processes
from scripts.airflow_home import AirflowHome

ROOT = Path(__file__).resolve().parent.parent
DAG = "epoch_flights"
TASKS = (
    "inject_barrier",
    "run_actors",
    "commit_version",
    "validate_views",
    "publish_views",
    "publish_tables",
    "owed_events",
    "health",
)
AIRFLOW = "Airflow itself"
SECONDS = ("CPU s of tasks", "seconds on the clock")
FIRST_DAY = date(2013, 1, 1)
PATIENCE_S = 900.0
BUDGETS = {"spark": 15.0, "auto": 5.0}
_LOOK_S = 0.05
_OF_A_TASK = "airflow worker -- "  # title of a task's process; its supervisor's title continues with LocalExecutor


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark. Returns 0 even if a budget is missed, since other load on the machine is unknown here."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks airflow", description="Measure CPU seconds of an Airflow run, by task."
    )
    parser.add_argument("--runs", type=int, default=5, help="runs per side, in turns (default 5)")
    parser.add_argument("--beside", type=Path, help="another checkout to measure as well")
    parser.add_argument(
        "--sides", nargs="*", choices=sorted(BUDGETS), default=sorted(BUDGETS), help="runners of this checkout"
    )
    parser.add_argument("--scratch", type=Path, help="folder of homes and stores, kept; default: a temporary folder")
    chosen = parser.parse_args(arguments)
    sides = {runner: (ROOT, runner) for runner in chosen.sides}
    if chosen.beside is not None:
        sides = {str(chosen.beside): (chosen.beside.resolve(), None), **sides}
    with tempfile.TemporaryDirectory(prefix="tussock-airflow-run-") as folder:
        found = measure(chosen.scratch or Path(folder), sides, chosen.runs)
    print(table_of(found))
    for side, runs in found.items():
        if (budget := BUDGETS.get(side)) is not None:
            total = statistics.median(sum(run[task] for task in TASKS) for run in runs)
            print(f"{side}: {total:.1f} CPU s of tasks, budget {budget:g}: {'ok' if total <= budget else 'MISSED'}")
    return 0


Run = Mapping[str, float]
"""CPU seconds by task, CPU seconds of Airflow itself, and wall seconds."""


def measure(folder: Path, sides: Mapping[str, tuple[Path, str | None]], runs: int) -> dict[str, list[Run]]:
    """Measure `runs` runs of each side and print each. `sides`: (checkout, runner) by name."""
    found: dict[str, list[Run]] = {side: [] for side in sides}
    checkouts = list(dict.fromkeys(checkout for checkout, _ in sides.values()))
    days = iter(FIRST_DAY + timedelta(days=n) for n in range(1, 1 + runs * len(sides)))
    with ExitStack() as stack:
        airflows: dict[Path, Airflow] = {}
        for number, checkout in enumerate(checkouts):
            say(f"start Airflow of {checkout}")
            airflows[checkout] = stack.enter_context(
                running(folder / str(number), checkout, days=1 + runs * len(sides))
            )
            say("first day, which creates the views")
            airflows[checkout].run(FIRST_DAY)
        for _ in range(runs):
            for side, (checkout, runner) in sides.items():
                airflows[checkout].set_runner(runner)
                found[side].append(ran := airflows[checkout].run(next(days)))
                say(f"{side}: " + ", ".join(f"{what} {seconds:.1f}" for what, seconds in ran.items()))
    return found


def table_of(found: Mapping[str, Sequence[Run]]) -> str:
    """Medians (minimum-maximum): one row per task, one column per side."""
    lines = [f"{'CPU seconds: median (least-most)':36}" + "".join(f"{side[-24:]:>26}" for side in found)]
    for row in (*TASKS, SECONDS[0], AIRFLOW, SECONDS[1]):
        cells = []
        for runs in found.values():
            of_row = [sum(run[task] for task in TASKS) if row == SECONDS[0] else run[row] for run in runs]
            cells.append(f"{statistics.median(of_row):.1f} ({min(of_row):.1f}-{max(of_row):.1f})")
        lines.append(f"{row:36}" + "".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines)


@dataclass
class Airflow:
    """A running Airflow. `root`: the process that started it."""

    home: AirflowHome
    root: int

    def run(self, day: date) -> Run:
        """Trigger a run over one day, wait until it has published, and return its cost.

        Raises RuntimeError if it fails.
        """
        start, end = (f"{moment}T00:00:00Z" for moment in (day, day + timedelta(days=1)))
        with Watch(self.root) as watch:
            began = time.perf_counter()
            run_id = self.home.trigger(DAG, {"logical_date": None, "conf": {"start": start, "end": end}})
            while (state := self.state(run_id)) not in ("success", "failed"):
                if time.perf_counter() - began > PATIENCE_S:
                    raise RuntimeError(f"the run of {day} is still {state} after {PATIENCE_S:.0f} s")
                time.sleep(_LOOK_S)
            seconds = time.perf_counter() - began
        if state == "failed":
            raise RuntimeError(f"the run of {day} failed. See {self.home.folder / 'logs'}.")
        by_id = self.home.query(f"SELECT id, task_id FROM task_instance WHERE run_id = '{run_id}'")
        by_task = {task: watch.task(str(task_id).replace("-", "")) for task_id, task in by_id}
        return {**{task: by_task.get(task, 0.0) for task in TASKS}, AIRFLOW: watch.others(), SECONDS[1]: seconds}

    def set_runner(self, runner: str | None) -> None:
        """Set the runner of the next epochs; None: keep the runner of the checkout's pipeline."""
        set_runner(self.home.folder, runner)

    def state(self, run_id: str) -> str:
        """The state of a run in Airflow's terms."""
        ((state,),) = self.home.query(f"SELECT state FROM dag_run WHERE run_id = '{run_id}'")
        return state


def set_runner(folder: Path, runner: str | None) -> None:
    """Set the runner of the flights in `folder`; None: leave it."""
    if runner is None:
        return
    toml = folder / "pipelines/flights/pipeline.toml"
    lines = [line for line in toml.read_text().splitlines() if not line.startswith("runner = ")]
    lines.insert(lines.index("[epoch]") + 1, f'runner = "{runner}"')
    toml.write_text("\n".join(lines) + "\n")


@contextmanager
def running(folder: Path, checkout: Path, days: int) -> Iterator[Airflow]:
    """Run Airflow of a checkout with a home in `folder`.

    The flights of `days` days are loaded and applied, the DAG unpaused.
    """
    home = AirflowHome.with_flights(folder, checkout)
    toml = folder / "pipelines/flights/pipeline.toml"
    toml.write_text(toml.read_text().replace("catchup = true", "catchup = false"))
    home.python("-m", "pipelines.flights.load", "--out", str(folder / "data"), "--days", str(days))
    home.python("-m", "tussock.jobs.cli", "apply", "flights")
    with home.up(DAG, PATIENCE_S) as server:
        home.airflow("dags", "unpause", DAG)
        yield Airflow(home, server.pid)


@dataclass
class Watch:
    """CPU seconds of the processes below `root` during the context.

    A process that ends between two samples counts up to the last sample, or in full if its parent waited for it.
    """

    root: int
    first: dict[tuple[int, int], Process] = field(default_factory=dict)
    last: dict[tuple[int, int], Process] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self._look()
        self.first = dict(self.last)
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join()
        self._look()

    def task(self, instance: str) -> float:
        """CPU seconds of a task instance's processes and their descendants, over all its attempts."""
        roots = [p for p in self.last.values() if p.title.replace("-", "").endswith(instance) and _is_task(p)]
        return sum(max(one.all_s, sum(p.own_s for p in self._below(one))) for one in roots)

    def others(self) -> float:
        """CPU seconds of all processes that do not belong to a task."""
        of_tasks = {p.key for one in self.last.values() if _is_task(one) for p in self._below(one)}
        return sum(self._spent(p) for p in self.last.values() if p.key not in of_tasks)

    def _spent(self, process: Process) -> float:
        before = self.first.get(process.key)
        return process.own_s - (0.0 if before is None else before.own_s)

    def _below(self, root: Process) -> list[Process]:
        """A process and its descendants, including ended ones."""
        found, waiting = [], [root]
        while waiting:
            parent = waiting.pop()
            found.append(parent)
            waiting += [p for p in self.last.values() if p.parent == parent.pid and p.started >= parent.started]
        return found

    def _look_on(self) -> None:
        while not self.ended.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        now = {p.pid: p for p in processes()}
        known = {key[0] for key in self.last}
        for process in now.values():
            above: Process | None = process
            while above is not None and above.pid != self.root and above.pid not in known:
                above = now.get(above.parent)
            if above is not None and (process.key in self.last or above is not process or process.pid == self.root):
                if (
                    before := self.last.get(process.key)
                ) is not None:  # keeps the parent of a process whose parent ended, and the title of a process that ends
                    process = replace(process, parent=before.parent, title=process.title or before.title)
                self.last[process.key] = process


def _is_task(process: Process) -> bool:
    return process.title.startswith(_OF_A_TASK) and "LocalExecutor" not in process.title


def say(line: str) -> None:
    """Print a step immediately."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
