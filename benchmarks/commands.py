"""Benchmark: CPU seconds of each command on the flights and on a new project, JVM and Python workers included.

    python -m benchmarks commands --runs 5
    python -m benchmarks commands --runs 5 --beside ../tussock-of-before

Each round runs the life of a project: `new`, `apply`, `epoch`, reads, a change of a SQL file, statements. With
--beside, each step runs in turns with the code of another checkout, which has its own project and store. Both sides use
this Python and its packages. The seconds include the time that a JVM takes to stop after its command has ended.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from benchmarks.airflow_run import set_runner
from benchmarks.cpu import Spent, spent

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 6.0  # of a command that starts a JVM
FIRST_DAY = date(2013, 1, 1)
CHANGED = 1_000  # planes that the UPDATE of the flights changes
_PLAN_PENDING = 2  # exit code of `tussock plan`
_OPTIONS_OF_JVM = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark. Returns 0 even if a budget is missed, since other load on the machine is unknown here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks commands", description="Measure CPU s of commands.")
    parser.add_argument("--runs", type=int, default=3, help="rounds per side, in turns (default 3)")
    parser.add_argument("--beside", type=Path, help="another checkout to measure as well")
    parser.add_argument("--projects", nargs="*", choices=PROJECTS, default=list(PROJECTS), help="default: all")
    parser.add_argument("--scratch", type=Path, help="folder of projects and stores, kept; default: a temporary folder")
    chosen = parser.parse_args(arguments)
    checkouts = [ROOT] if chosen.beside is None else [chosen.beside.resolve(), ROOT]
    with tempfile.TemporaryDirectory(prefix="tussock-commands-") as temporary:
        folder = (chosen.scratch or Path(temporary)).resolve()
        for name in chosen.projects:
            sides = [Side(checkout, folder / str(number) / name) for number, checkout in enumerate(checkouts)]
            measure(name, sides, chosen.runs)
            print(f"{name}\n{table_of(sides)}\n", flush=True)
    return 0


@dataclass
class Side:
    """A project in `folder` that runs with the code of `checkout`. `found`: the cost of each run, by step."""

    checkout: Path
    folder: Path
    found: dict[str, list[Spent]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of a user, without options of this shell for JVMs and with byte code."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TUSSOCK_", "FLIGHTS_"))}
        for name in (*_OPTIONS_OF_JVM, "PYTHONDONTWRITEBYTECODE"):
            kept.pop(name, None)
        return kept | {"PYTHONPATH": str(self.checkout)}

    def run(self, *arguments: str, codes: Sequence[int] = (0,)) -> Spent:
        """Run this Python in the project's folder. Raises RuntimeError for an unexpected exit code."""
        done = spent([sys.executable, *arguments], self.env, self.folder)
        if done.code not in codes:
            raise RuntimeError(f"{' '.join(arguments)}: exit code {done.code}\n{done.output[-3000:]}")
        return done


@dataclass(frozen=True)
class Step:
    """A step of a round.

    Args:
        name: row of the table.
        arguments: the command.
        before: prepares the step, unmeasured.
    """

    name: str
    arguments: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    before: Callable[[Side], object] = lambda _: None


def measure(project: str, sides: Sequence[Side], rounds: int) -> None:
    """Run the rounds of a project. Each step runs in turns on all sides."""
    begin, steps_of = PROJECTS[project]
    for side in sides:
        begin(side, rounds)
    for number in range(rounds):
        for step in steps_of(number):
            for side in sides:
                step.before(side)
                done = side.run("-m", "tussock", *step.arguments, codes=step.codes)
                side.found.setdefault(step.name, []).append(done)
                print(f"{side.checkout.name}: {step.name}: {done.cpu_s:.2f} CPU s", file=sys.stderr, flush=True)


def begin_flights(side: Side, rounds: int) -> None:
    """Copy the flights, load a day per round and the first one, and process that."""
    shutil.copytree(side.checkout / "pipelines", side.folder / "pipelines")
    data = side.folder / ".tussock/flights/data"
    side.run("-m", "pipelines.flights.load", "--out", str(data), "--days", str(rounds + 1))
    side.run("-m", "tussock", "apply", "flights")
    side.run("-m", "tussock", "epoch", "--pipeline", "flights", *_interval(0))


def steps_of_flights(number: int) -> Iterator[Step]:
    """A round of the flights: reads, a new view, the files of a day on Spark, an UPDATE and its epoch without Spark."""
    of_flights = ("--pipeline", "flights")
    yield Step("status", ("status", "flights"))
    yield Step("read", ("read", *of_flights, "carrier_delays"))
    select = "SELECT origin, max(avg_dep_delay) AS worst FROM weather_delays GROUP BY origin"
    yield Step("query, a SELECT", ("query", *of_flights, select))
    yield Step("query --duckdb", ("query", *of_flights, "--duckdb", select))
    yield Step("check", ("check", "flights"))
    yield Step("plan, no change", ("plan", "flights"))
    view = (
        f"\nCREATE MATERIALIZED VIEW by_hour_{number} AS SELECT hour, count(*) AS flights, avg(dep_delay) AS delay "
        "FROM flights GROUP BY hour;\n"
    )
    yield Step("plan, a new view", ("plan", "flights"), (_PLAN_PENDING,), lambda side: _append(side, "views", view))
    yield Step("apply, a new view", ("apply", "flights"))
    epoch = ("epoch", *of_flights, *_interval(number + 1))
    yield Step("epoch, a day and a view, Spark", epoch, before=lambda side: set_runner(side.folder, "spark"))
    changed = f"tailnum IN (SELECT tailnum FROM planes ORDER BY tailnum LIMIT {CHANGED})"
    update = f"UPDATE planes SET seats = coalesce(seats, 0) + 1 WHERE {changed}"
    yield Step("query, an UPDATE of 1,000 rows", ("query", *of_flights, update))
    yield Step("epoch, the UPDATE, Spark", ("epoch", *of_flights))
    again = ("query", *of_flights, "UPDATE planes SET seats = seats - 1 WHERE seats > 150")
    yield Step("query, an UPDATE by a condition", again)
    yield Step("epoch, the UPDATE, auto", ("epoch", *of_flights), before=lambda side: set_runner(side.folder, "auto"))


def begin_new(side: Side, rounds: int) -> None:
    """Nothing: each round makes its own project."""


def steps_of_new(number: int) -> Iterator[Step]:
    """A round of a new project: from `new` to published rows, and a change of a view."""
    name = f"shop_{number}"
    yield Step("new", ("new", name))
    yield Step("apply, everything is new", ("apply", name))
    yield Step("epoch, CSV files, auto", ("epoch", "--pipeline", name))
    yield Step("status", ("status", name))
    yield Step("read", ("read", "--pipeline", name, "daily_sales"))
    yield Step("query, a SELECT", ("query", "--pipeline", name, "SELECT sum(revenue) AS revenue FROM daily_sales"))
    yield Step("check", ("check", name))
    yield Step("plan, no change", ("plan", name))

    def change(side: Side) -> None:
        views = side.folder / "pipelines" / name / "views.sql"
        views.write_text(views.read_text().replace("count(*) AS orders,", "count(*) AS orders, max(o.id) AS last,"))

    yield Step("plan, a changed view", ("plan", name), (_PLAN_PENDING,), change)
    yield Step("apply, a changed view", ("apply", name))
    yield Step("epoch, the changed view, auto", ("epoch", "--pipeline", name))


PROJECTS: Mapping[str, tuple[Callable[[Side, int], None], Callable[[int], Iterator[Step]]]] = {
    "flights": (begin_flights, steps_of_flights),
    "new project": (begin_new, steps_of_new),
}


def table_of(sides: Sequence[Side]) -> str:
    """Medians (minimum-maximum) of each step's CPU seconds: one row per step, one column per side."""
    lines = [f"{'CPU seconds: median (least-most)':36}" + "".join(f"{s.checkout.name[-24:]:>24}" for s in sides)]
    for name in sides[0].found:
        cells, jvm = [], any(run.jvms for run in sides[-1].found[name])
        for side in sides:
            of_step = [run.cpu_s for run in side.found[name]]
            cells.append(f"{statistics.median(of_step):.1f} ({min(of_step):.1f}-{max(of_step):.1f})")
        median = statistics.median(run.cpu_s for run in sides[-1].found[name])
        verdict = "" if not jvm else "  JVM" if median <= BUDGET_S else f"  JVM, MISSED: budget {BUDGET_S:g}"
        lines.append(f"{name:36}" + "".join(f"{cell:>24}" for cell in cells) + verdict)
    return "\n".join(lines)


def _interval(day: int) -> tuple[str, str, str]:
    return "--interval", *(f"{FIRST_DAY + timedelta(days=n)}" for n in (day, day + 1))


def _append(side: Side, file: str, text: str) -> None:
    with (side.folder / f"pipelines/flights/{file}.sql").open("a") as sql:
        sql.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
