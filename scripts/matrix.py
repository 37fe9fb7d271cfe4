"""The tests that depend on a version, with older and newer releases of Python, Airflow and Spark.

python -m scripts.matrix                 run the oldest and the newest cell, and write docs/versions.md
python -m scripts.matrix all             run all cells
python -m scripts.matrix oldest --suite binding --suite quality

Each cell gets a virtual environment of its own in .matrix/, resolved from pyproject.toml with the cell's releases. The
page keeps the results of cells and suites that a run leaves out, with their commit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import yaml

ROOT = Path(__file__).parents[1]
RECORD, PAGE = ROOT / "docs" / "versions.json", ROOT / "docs" / "versions.md"
FUNCTIONS = ROOT / "docs" / "functions.yaml"
FOLDER = ROOT / ".matrix"
SHOWN = ("apache-airflow", "pyspark", "great-expectations", "deltalake", "pandas", "pyarrow", "duckdb")


@dataclass(frozen=True)
class Cell:
    """One combination of releases, as minor versions."""

    name: str
    python: str
    airflow: str
    spark: str


CELLS = (
    Cell("oldest", "3.11", "3.1", "4.0"),
    Cell("middle", "3.12", "3.2", "4.1"),
    Cell("newest", "3.13", "3.3", "4.2"),
    Cell("next", "3.13", "3.3", "4.3"),
)
_SCOPE = "tests/unit/plugins/test_quality_scope.py tests/spark/plugins/test_quality_scope.py"
SUITES: Mapping[str, tuple[str, ...]] = {
    "binding": ("tests/unit/jobs/sql tests/spark/jobs/sql", "tests/unit/jobs/spark tests/spark/jobs/spark"),
    "functions": (
        "tests/unit/functions tests/spark/functions",
        "tests/spark/end_to_end/test_computed_by_spark.py",
        "tests/spark/end_to_end/test_python_functions.py",
    ),
    "epochs": (
        "tests/unit/jobs/driver tests/spark/jobs/driver",
        "tests/spark/end_to_end/test_session.py",
        "tests/spark/end_to_end/test_time_travel.py",
    ),
    "verify": ("tests/unit/jobs/verify tests/spark/jobs/verify",),
    "quality": ("tests/unit/jobs/quality tests/spark/jobs/quality",),
    "publish": ("tests/unit/jobs/sinks",),
    # The first needs Great Expectations with Spark, and the others import it without; one process cannot do both.
    "DAGs": (
        "tests/unit/dags tests/airflow/dags",
        _SCOPE,
        f"tests/unit/plugins tests/airflow/plugins --ignore={_SCOPE.split()[0]}",
    ),
    "pages": ("tests/unit/pages tests/airflow/pages",),
}
ONE_PROCESS = ("DAGs", "pages")  # their conftest makes one Airflow home, which parallel workers would share
_TEXT = """\
# Check which versions work together

Tussock installs with Python 3.11 to 3.13, Airflow 3.1 to 3.3 and Spark 4.0 to 4.3. Every change is
tested with the exact set in `requirements.lock`, which `make wheel` writes to
`dist/constraints.txt`. The table shows the tests with other releases.

## Results by release

`make matrix` runs the tests that depend on a version and writes this table. A number counts the
tests that passed. "Lacks" counts the tests of a feature that the release does not have. The suites
grow, so a cell that ran at an older commit has fewer tests.

{table}

{cells}

## Features that a release lacks

Spark 4.0:

- The type `time` and {new_41} functions; [Functions](functions.md) shows the first release of each.
- Strings such as `'it''s'`. Write `'it\\'s'`, which every release reads the same way.
- `verify` of views that call Python functions. The views themselves work.
- The comparison of task attempts by checksum, which detects a task that is not deterministic.

Spark 4.0 and 4.1:

- Aggregates with `FILTER` over a window, and {new_42} functions.

Spark 4.3:

- Delta tables written by Spark. The default engine `deltalake` works.

Airflow 3.1:

- Deadlines of `[freshness]`. `tussock status` and the pages show stale views.
- The day on asset events of a schedule with `partitions`.

A statement that needs a missing feature is refused with its place in the text. The rest works. A
stored plan does not depend on the release of Spark that bound it.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cells and write the page. Returns 1 if a test failed or a cell has no Python."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [cell.name for cell in CELLS]
    parser.add_argument("cells", nargs="*", choices=[*names, "all", "page"], help="default: oldest newest")
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="repeatable; default: all")
    chosen = parser.parse_args(arguments)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    wanted = names if "all" in chosen.cells else chosen.cells or ["oldest", "newest"]
    failed = False
    for cell in (cell for cell in CELLS if cell.name in wanted):
        python = environment(cell)
        if python is None:
            failed = True
            continue
        found = record.setdefault(cell.name, {"suites": {}})
        found["packages"] = packages(python)
        for suite in chosen.suite or SUITES:
            began = time.monotonic()
            found["suites"][suite] = result = run(cell, python, suite)
            failed |= int(result["failed"]) > 0
            print(f"{cell.name} {suite}: {result} in {time.monotonic() - began:.0f} s", flush=True)
            RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(record, new_functions()))
    return int(failed)


def environment(cell: Cell) -> Path | None:
    """Make the cell's virtual environment, or bring it up to date. None, with a message, without its Python."""
    folder, uv = FOLDER / cell.name, Path(sys.executable).with_name("uv")
    python = folder / "bin" / "python"
    if not python.exists():
        made = subprocess.run(
            [uv, "venv", "--quiet", "--no-python-downloads", "--python", cell.python, folder], check=False
        )
        if made.returncode:
            print(f"cell {cell.name} was skipped: install Python {cell.python}, then run it again", file=sys.stderr)
            return None
    releases = (f"apache-airflow=={cell.airflow}.*", f"pyspark=={cell.spark}.*")
    groups = ("--group", "dev", "--group", "demo")
    command = [
        str(uv),
        "pip",
        "install",
        "--quiet",
        "--python",
        str(python),
        *releases,
        "--editable",
        ".[all]",
        *groups,
    ]
    subprocess.run(command, check=True, cwd=ROOT)
    return python


def packages(python: Path) -> dict[str, str]:
    """The versions of the packages in SHOWN, and of Python."""
    code = f"import json, platform; from importlib.metadata import version as v; n = {SHOWN!r}"
    code += "; print(json.dumps({'python': platform.python_version()} | {p: v(p) for p in n}))"
    found: dict[str, str] = json.loads(subprocess.run([python, "-c", code], check=True, capture_output=True).stdout)
    return found


def run(cell: Cell, python: Path, suite: str) -> dict[str, int | str]:
    """Run one suite, each of its entries (a path and options) in a separate process, and count its tests."""
    counts: Counter[str] = Counter()
    for path in SUITES[suite]:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *path.split()]
            command += [] if suite in ONE_PROCESS else ["-n", "2", "--dist", "loadfile"]
            command += ["-m", "not (deep or kill or cluster)", f"--junitxml={report}"]
            path_of = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                command, check=False, cwd=ROOT, env=os.environ | {"PATH": path_of}, capture_output=True
            )
            if done.returncode and (not report.exists() or done.returncode > 1):
                counts["failed"] += 1
            if report.exists():
                counts += counted(report)
            if done.returncode:
                (FOLDER / f"{cell.name}.{suite}.log").write_bytes(done.stdout + done.stderr)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, cwd=ROOT, capture_output=True, text=True)
    made = {"commit": head.stdout.strip(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    return {**{kind: counts[kind] for kind in ("passed", "failed", "lacks")}, **made}


def counted(report: Path) -> Counter[str]:
    """The tests of a JUnit report: passed, failed, and tests of a feature that the release lacks."""
    counts: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
        elif skipped is None:
            counts["passed"] += 1
        elif "needs " in (skipped.get("message") or ""):
            counts["lacks"] += 1
    return counts


def new_functions() -> dict[str, int]:
    """The number of functions by the release of Spark that brought them."""
    groups = yaml.safe_load(FUNCTIONS.read_text())
    rows = (row for group in groups.values() for row in group.values())
    return dict(Counter(row["since"] for row in rows if "since" in row))


def page(record: Mapping[str, dict[str, dict[str, dict[str, int | str]]]], new: Mapping[str, int]) -> str:
    """The text of docs/versions.md."""
    cells = [cell for cell in CELLS if cell.name in record]
    heads = [f"{cell.name}: Python {cell.python}, Airflow {cell.airflow}, Spark {cell.spark}" for cell in cells]
    lines = ["| tests | " + " | ".join(cell.name for cell in cells) + " |", "|---|" + "---|" * len(cells)]
    lines += [f"| {s} | " + " | ".join(_shown(record[c.name]["suites"].get(s)) for c in cells) + " |" for s in SUITES]
    about = []
    for cell, head in zip(cells, heads, strict=True):
        found = record[cell.name]
        commits = sorted({str(one["commit"]) for one in found["suites"].values()})
        versions = [f"{name} {version}" for name, version in found["packages"].items() if name != "python"]
        text = f"Commits: {', '.join(commits)}. Packages: {', '.join(versions)}."
        about += [f"- **{head}**.", *_wrapped(text)]
    return _TEXT.format(table="\n".join(lines), cells="\n".join(about), new_41=new["4.1"], new_42=new["4.2"])


def _shown(result: Mapping[str, int | str] | None) -> str:
    if result is None:
        return "not run"
    failed = f", {result['failed']} failed" if result["failed"] else ""
    lacks = f", lacks {result['lacks']}" if result["lacks"] else ""
    return f"{result['passed']}{failed}{lacks}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 96, initial_indent="  ", subsequent_indent="  ")


if __name__ == "__main__":
    sys.exit(main())
