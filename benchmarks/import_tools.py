"""Benchmark: imported projects next to their own tool: dbt with dbt-spark, or `spark-pipelines run`.

    python -m benchmarks import-tools projects.json --tools /path/to/environment --rows 1000000 [--only NAME …]

`projects.json` is a list of objects: `repository`, `tool` (dbt or sdp), `folder`, and the other facts that
tool_projects.py lists. `--tools` is a Python environment with dbt-core 1.10, dbt-spark 1.10 and `pyspark[pipelines]`.
dbt reads the rows as external tables, in Spark's local mode with its session method.

Each run is a process that starts from nothing, so the start of Spark counts for the tool, and the start of Python for
both. The first runs take 99 % of the generated rows (import_rows.py). Then 1 % more rows arrive, and both run again.
After each, the rows of every table of the tool are compared with the rows of the view. `dbt run` runs no tests, so the
pipeline has no assertions.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.cpu import Spent
from benchmarks.tool_projects import DbtProject, Prepared, ProjectFacts, SdpProject, ToolProject

_SHARE = 100  # one of so many rows comes in the second run
_TOOLS = {"dbt": DbtProject, "sdp": SdpProject}


def prepare_project(project: ToolProject, rows: int) -> Prepared:
    """Generate the rows of a project, and deploy the pipeline over them.

    99 % of the rows of each source go to its place, the others to later/NAME.
    """
    from benchmarks.imports import write_rows
    from tussock.jobs.importing.imports import import_project
    from tussock.jobs.importing.judge import judge_project
    from tussock.jobs.importing.project import Script
    from tussock.jobs.spark.session import joined_spark

    sample, later = project.folder / "sample", project.folder / "later"
    with joined_spark() as spark:
        imported = replace(project.read(spark), assertions=(), unit_tests=())
        write_rows(imported, judge_project(imported), sample, rows, spark)
        counts, models, places = [0, 0], [], dict[str, str]()
        for model in imported.models:
            if model.script is Script.SOURCES and (sample / model.name).is_dir():
                place, model = project.place_source(model)
                places[model.name] = str(place)
                file_format = "csv" if "USING csv" in model.statement else "parquet"
                moment = project.facts.get("moments", {}).get(model.name, "")
                for share, count in enumerate(split_rows(sample, place, later, model.name, file_format, moment)):
                    counts[share] += count
            models.append(model)
        over_rows = replace(imported, name="imported", models=tuple(models))
        report = import_project(over_rows, project.folder / "pipelines", "a benchmark", judge_project)
        project.deploy()
    shutil.rmtree(sample, ignore_errors=True)  # no source got rows if the project only has constants
    lines = {line.name: line for line in report.lines}
    views = {name for name, line in lines.items() if str(line.outcome) == "incremental"}
    sources, tables = project.list_tables(over_rows)
    lost = {name: lines[name].reason if name in lines else "no relation" for name in tables if name not in views}
    known = {theirs: name for theirs, name in sources.items() if name in places}
    compared = {name: table for name, table in tables.items() if name in views}
    return Prepared(places, known, compared, sum(counts), counts[1], lost)


def split_rows(
    sample: Path, place: Path, later: Path, name: str, file_format: str, moment: str = ""
) -> tuple[int, int]:
    """Split the rows of a source, and return the numbers of rows of the first and of the second run.

    Args:
        moment: a column by whose values the later rows are the newest ones. Empty: every hundredth row comes later.
    """
    rows = pq.read_table(sample / name)
    is_late = np.arange(rows.num_rows) % _SHARE == _SHARE - 1
    if moment:
        values = pc.rank(rows[moment], tiebreaker="dense").to_numpy()
        is_late = values >= np.quantile(values, 1 - 1 / _SHARE)
    (later / name).mkdir(parents=True)
    place.mkdir(parents=True, exist_ok=True)
    for file, mask in ((place / "first", ~is_late), (later / name / "later", is_late)):
        part = rows.filter(pa.array(mask))
        if file_format == "csv":
            pyarrow.csv.write_csv(part, file.with_suffix(".csv"))
        else:
            pq.write_table(part, file.with_suffix(".parquet"))
    return int((~is_late).sum()), int(is_late.sum())


def have_equal_rows(ours: pa.Table, theirs: pa.Table) -> bool:
    """Whether two tables have the same columns and rows. Floats may differ by 1e-9 of their size."""
    if sorted(ours.column_names) != sorted(theirs.column_names) or ours.num_rows != theirs.num_rows:
        return False
    one, other = _comparable(ours), _comparable(theirs)
    return all(_columns_equal(one[name], other[name]) for name in one.column_names)


def _comparable(table: pa.Table) -> pa.Table:
    """The rows in one order: by texts, whole numbers and moments first, then by floats."""
    arrays = {}
    for name in sorted(table.column_names):
        column = table[name].combine_chunks()
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        elif pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        elif pa.types.is_nested(column.type):
            column = pa.array([None if value is None else repr(value) for value in column.to_pylist()])
        arrays[name] = column
    flat = pa.table(arrays)
    exact = [n for n in flat.column_names if not pa.types.is_floating(flat.schema.field(n).type)]
    return flat.sort_by([(n, "ascending") for n in (*exact, *sorted(set(flat.column_names) - set(exact)))])


def _columns_equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not one.is_null().equals(other.is_null()):
        return False
    if pa.types.is_floating(one.type) or pa.types.is_floating(other.type):
        first, second = (np.asarray(column.cast(pa.float64()).to_numpy()) for column in (one, other))
        return bool(np.allclose(first, second, rtol=1e-9, atol=1e-9, equal_nan=True))
    return bool(one.cast(other.type).equals(other))


@dataclass(frozen=True, slots=True)
class MeasuredProject:
    """The second runs of a project by both, and the views whose rows differ after a run."""

    repository: str
    prepared: Prepared
    epoch: Spent
    tool: Spent
    different: tuple[str, ...]

    @property
    def factors(self) -> tuple[float, float]:
        """The tool's seconds and CPU seconds, by those of the epoch."""
        return self.tool.seconds / self.epoch.seconds, self.tool.cpu_s / self.epoch.cpu_s

    @property
    def row(self) -> str:
        count = len(self.prepared.tables)
        costs = (
            *(self.epoch.seconds, self.tool.seconds, self.factors[0]),
            *(self.epoch.cpu_s, self.tool.cpu_s, self.factors[1]),
        )
        cells = (
            self.repository,
            f"{count - len(self.different)} of {count} equal",
            f"{self.prepared.rows:,}",
            f"{self.prepared.changed_rows:,}",
            *map("{:.1f}".format, costs),
        )
        return f"| {' | '.join(cells)} |"


def measure_project(facts: ProjectFacts, environment: Path, rows: int) -> MeasuredProject:
    """Run one project by both, before and after 1 % more rows."""
    folder = Path(tempfile.mkdtemp(prefix="tussock-import-tools-"))
    try:
        project = _TOOLS[facts["tool"]](folder, environment, facts)
        project.copy()
        project.compile()
        _note(facts, "compiled")
        words = (str(folder), str(environment), json.dumps(facts), str(rows))
        done = subprocess.run(
            (sys.executable, "-m", "benchmarks", "import-tools", "--prepare", *words),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{facts['repository']} was not prepared:\n{done.stderr[-3000:]}")
        prepared = Prepared(**json.loads(done.stdout.splitlines()[-1]))
        _note(facts, f"{prepared.rows:,} rows for {', '.join(prepared.tables)}")
        for name, reason in prepared.left_out.items():
            _note(facts, f"{name} is not compared: {reason}")
        if not prepared.tables:
            reason = "none was taken" if prepared.left_out else "every model is a view, so its run stores no rows"
            raise RuntimeError(f"there is no table to compare: {reason}")
        if not prepared.rows:
            raise RuntimeError("there are no rows to change: the project reads no source")
        different = set[str]()
        for run in range(2):
            if run:
                for file in (folder / "later").glob("*/*"):
                    shutil.move(file, Path(prepared.places[file.parent.name]) / file.name)
            tool, epoch = project.run_tool(prepared, is_first=run == 0), project.run_epoch()
            for name, ours, theirs in project.read_both(prepared.tables):
                if not have_equal_rows(ours, theirs):
                    different.add(name)
                    _note(facts, f"{name} differs: {ours.num_rows:,} rows, and {theirs.num_rows:,} of the tool")
            _note(facts, f"run {run + 1}: tool {tool.seconds:.1f} s, epoch {epoch.seconds:.1f} s")
        return MeasuredProject(facts["repository"], prepared, epoch, tool, tuple(sorted(different)))
    finally:
        shutil.rmtree(folder)


def _note(facts: ProjectFacts, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {facts['repository']}: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark and print a table. Returns 1 if no project ran, or a view differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks import-tools", description="Imports next to tools.")
    parser.add_argument("projects", type=Path, nargs="?", help="list of projects")
    parser.add_argument("--tools", type=Path, help="Python environment with dbt-spark and pyspark[pipelines]")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each table with foreign keys")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of the projects to run")
    parser.add_argument("--prepare", nargs=4, metavar=("FOLDER", "TOOLS", "FACTS", "ROWS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.prepare:
        folder, environment, text, rows = chosen.prepare
        facts: ProjectFacts = json.loads(text)
        project = _TOOLS[facts["tool"]](Path(folder), Path(environment), facts)
        print(json.dumps(asdict(prepare_project(project, int(rows)))))
        return 0
    print("| project | views | rows | changed | epoch s | tool s | factor | epoch CPU s | tool CPU s | factor |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    measured = list[MeasuredProject]()
    for facts in json.loads(chosen.projects.read_text()):
        if chosen.only and not any(word in facts["repository"] for word in chosen.only):
            continue
        try:
            measured.append(measure_project(facts, chosen.tools.absolute(), chosen.rows))
        except RuntimeError as err:
            _note(facts, str(err))
            continue
        print(measured[-1].row, flush=True)
    if measured:
        means = [statistics.mean(column) for column in zip(*(one.factors for one in measured), strict=True)]
        print(f"mean factor: {means[0]:.1f} of seconds, {means[1]:.1f} of CPU seconds; {len(measured)} projects")
    return 0 if measured and not any(one.different for one in measured) else 1
