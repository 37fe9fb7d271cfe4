"""Benchmark: imported dbt projects beside dbt's own run with dbt-spark: both take a change of 1 % of their input.

    python -m benchmarks import-tools projects.json --dbt /path/to/environment --rows 1000000 [--only NAME …]

`projects.json` is a list of objects: `repository`, `folder` (the project of dbt, compiled or not) and optionally `vars`
(a text for `dbt --vars`). `--dbt` is a Python environment with dbt-core 1.10, dbt-spark 1.10 and the session method. A
copy of each project is compiled by that dbt, so both sides have one manifest. Sources and seeds become generated rows
(import_rows.py) in Parquet files. dbt reads them as external tables, in Spark's own local mode.

Every run is a process that starts from nothing, so the start of Spark counts for dbt, and the start of Python for both.
The first runs take 99 % of the rows. Then 1 % more rows arrive, and both run again. After each, the rows of every table
of dbt are compared with the rows of the view.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.cpu import Spent, spent
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.process import open_meta

_PATIENCE_S = 3600.0
_SHARE = 100  # one of so many rows comes in the second run
_TUSSOCK = (sys.executable, "-m", "tussock")
_TABLES = """\
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
for name, place in json.loads(sys.argv[1]).items():
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {name.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{place}'")
"""
_PROFILE = """\
{name}:
  target: spark
  outputs:
    spark: {{type: spark, method: session, schema: shop, host: none, threads: 2}}
"""


@dataclass(frozen=True, slots=True)
class DbtProject:
    """A copy of a project of dbt, in a folder in which both tools work.

    Args:
        environment: of dbt.
        variables: for `dbt --vars`; empty for none.
    """

    folder: Path
    environment: Path
    variables: str = ""

    @property
    def root(self) -> Path:
        return self.folder / "project"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def compile(self) -> None:
        """Compile the project to target/manifest.json."""
        name = re.search(r"^profile:\s*[\"']?([\w-]+)", (self.root / "dbt_project.yml").read_text(), re.MULTILINE)
        assert name is not None, "a project names its profile"
        (self.folder / "profiles.yml").write_text(_PROFILE.format(name=name[1]))
        self.run_dbt("compile", "--full-refresh")

    def run_dbt(self, *words: str) -> Spent:
        """Run a command of dbt in a process. Its catalog is a folder here."""
        words = (*words, *(("--vars", self.variables) if self.variables else ()))
        places = ("--project-dir", str(self.root), "--profiles-dir", str(self.folder))
        return self._run(self.environment / "bin" / "dbt", "--no-version-check", *words, *places)

    def create_tables(self, places: Mapping[str, str]) -> None:
        """Create the tables that dbt reads, by name, over the files in folders of `data`."""
        full = json.dumps({name: str(self.data / place) for name, place in places.items()})
        self._run(self.environment / "bin" / "python", "-c", _TABLES, full)

    def run_epoch(self) -> Spent:
        """Run an epoch of the imported pipeline."""
        return self._run(*_TUSSOCK, "epoch", "--pipeline", "imported")

    def deploy(self) -> None:
        """Deploy the imported pipeline."""
        self._run(*_TUSSOCK, "apply", "imported")

    def different_views(self, tables: Mapping[str, str]) -> list[str]:
        """The views whose rows differ from dbt's table. `tables`: the folder in the warehouse, by view."""
        stored = StoredRows(open_meta(str(self.folder / ".tussock" / "imported" / "store")))
        warehouse = self.folder / "spark-warehouse"
        return [
            view
            for view, table in tables.items()
            if not have_equal_rows(stored.read(view), ds.dataset(warehouse / table, format="parquet").to_table())
        ]

    def _run(self, *command: str | Path) -> Spent:
        own = command[0] == sys.executable
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable if own else str(self.environment / "bin" / "python"),
            "TUSSOCK_PIPELINES": str(self.folder / "pipelines"),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "PYSPARK_SUBMIT_ARGS": "--master local[2] --driver-memory 2g --conf spark.ui.enabled=false "
            "--conf spark.sql.session.timeZone=UTC --conf spark.sql.shuffle.partitions=4 pyspark-shell",
        }
        cost = spent([str(word) for word in command], environment, self.folder, _PATIENCE_S)
        if cost.code:
            raise RuntimeError(f"{' '.join(map(str, command))[:200]} failed:\n{cost.output[-3000:]}")
        return cost


@dataclass(frozen=True, slots=True)
class Prepared:
    """The facts of a project whose rows are generated and whose pipeline is written.

    Args:
        sources: the folder of each source or seed, by dbt's name of the relation.
        tables: the folder in Spark's warehouse of each table of dbt, by the view.
    """

    sources: Mapping[str, str]
    tables: Mapping[str, str]
    rows: int
    changed_rows: int


def prepare_project(project: DbtProject, rows: int) -> Prepared:
    """Generate the rows of a compiled project, and write the pipeline over them.

    Writes data/NAME with 99 % of the rows of each source, and later/NAME with the others.
    """
    from benchmarks.imports import write_rows
    from scripts.survey_dbt_projects import import_over_fitted_sources
    from tussock.jobs.importing.imports import import_project
    from tussock.jobs.importing.judge import judge_project
    from tussock.jobs.importing.names import relation_text
    from tussock.jobs.importing.project import Script
    from tussock.jobs.spark.session import joined_spark

    manifest = project.root / "target" / "manifest.json"
    sample, later = project.folder / "sample", project.folder / "later"
    with joined_spark() as spark:
        imported, _ = import_over_fitted_sources(manifest, "", project.folder, spark)
        verdicts = judge_project(imported)
        write_rows(imported, verdicts, sample, rows, spark)
        counts, models = [0, 0], []
        for model in imported.models:
            if model.script is Script.SOURCES and (sample / model.name).is_dir():
                for share, count in enumerate(_split_rows(sample, project.data, later, model.name)):
                    counts[share] += count
                columns = re.match(r"CREATE SOURCE [^(]*\((.*?)\)\s*USING", model.statement, re.DOTALL)
                assert columns is not None, "a source with rows has columns"
                head = f"CREATE SOURCE {relation_text(model.name)} ({columns[1]})"
                place = project.data / model.name
                model = replace(model, statement=f"{head} USING parquet OPTIONS (path '{place}')")
            models.append(model)
        over_rows = replace(imported, name="imported", models=tuple(models))
        report = import_project(over_rows, project.folder / "pipelines", "a benchmark", judge_project)
    views = [line.name for line in report.lines if str(line.outcome) == "incremental"]
    sources, tables = {}, {}
    for name, relation, is_table in _relations_of(manifest):
        if (project.data / name).is_dir():
            sources[relation] = name
        elif is_table and name in views:
            schema, _, table = relation.rpartition(".")
            tables[name] = f"{schema}.db/{table}"
    return Prepared(sources, tables, counts[0] + counts[1], counts[1])


def _split_rows(sample: Path, data: Path, later: Path, name: str) -> tuple[int, int]:
    """Split the rows of a source, and return the numbers of rows of the first and of the second run."""
    rows = pq.read_table(sample / name)
    is_late = np.arange(rows.num_rows) % _SHARE == _SHARE - 1
    for folder, mask in ((data, ~is_late), (later, is_late)):
        (folder / name).mkdir(parents=True)
        pq.write_table(rows.filter(pa.array(mask)), folder / name / f"{folder.name}.parquet")
    return int((~is_late).sum()), int(is_late.sum())


def _relations_of(manifest: Path) -> Iterator[tuple[str, str, bool]]:
    """The name in the pipeline, dbt's name, and whether it is a table, of each relation of a manifest."""
    from tussock.jobs.importing.names import relation_name

    facts = json.loads(manifest.read_text())
    for node in (*facts["nodes"].values(), *facts["sources"].values()):
        if node.get("relation_name") and node["resource_type"] in ("model", "seed", "source"):
            table = node.get("alias") or node["identifier"]
            schema = re.sub(r"^shop_?", "", node["schema"])
            kind = node["config"].get("materialized", "")
            yield relation_name(schema, table), f"{node['schema']}.{table}", kind in ("table", "incremental")


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


def measure_project(facts: Mapping[str, str], environment: Path, rows: int) -> tuple[str, float, float, bool]:
    """Run one project by both. Returns a row of the table, the factors in seconds and CPU, and whether all is equal."""
    folder = Path(tempfile.mkdtemp(prefix="tussock-import-tools-"))
    try:
        project = DbtProject(folder, environment, facts.get("vars", ""))
        shutil.copytree(facts["folder"], project.root, ignore=shutil.ignore_patterns("target", "logs", ".git"))
        project.compile()
        words = (str(folder), str(environment), str(rows))
        done = subprocess.run(
            (sys.executable, "-m", "benchmarks", "import-tools", "--prepare", *words),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{facts['repository']} was not prepared:\n{done.stderr[-3000:]}")
        prepared = Prepared(**json.loads(done.stdout.splitlines()[-1]))
        project.create_tables(prepared.sources)
        project.deploy()
        models = ("--select", *(table.rpartition("/")[2] for table in prepared.tables.values()))
        upstream = (models[0], *(f"+{name}" for name in models[1:]))
        different = list[str]()
        for run in range(2):
            if run:
                for file in (folder / "later").rglob("*.parquet"):
                    file.rename(project.data / file.parent.name / file.name)
            theirs = project.run_dbt("run", *upstream)
            ours = project.run_epoch()
            different += project.different_views(prepared.tables)
        count = len(prepared.tables)
        equal = f"{count - len(set(different))} of {count} equal"
        factors = theirs.seconds / ours.seconds, theirs.cpu_s / ours.cpu_s
        costs = (ours.seconds, theirs.seconds, factors[0], ours.cpu_s, theirs.cpu_s, factors[1])
        cells = (
            facts["repository"],
            equal,
            f"{prepared.rows:,}",
            f"{prepared.changed_rows:,}",
            *map("{:.1f}".format, costs),
        )
        if different:
            print(f"{facts['repository']}: {', '.join(sorted(set(different)))} differ", file=sys.stderr)
        return f"| {' | '.join(cells)} |", *factors, not different
    finally:
        shutil.rmtree(folder)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark and print a table. Returns 1 if no project ran, or a view differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks import-tools", description="Imports beside dbt-spark.")
    parser.add_argument("projects", type=Path, nargs="?", help="list of projects of dbt")
    parser.add_argument("--dbt", type=Path, help="Python environment with dbt-spark and its session method")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each table with foreign keys")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of the projects to run")
    parser.add_argument("--prepare", nargs=3, metavar=("FOLDER", "DBT", "ROWS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.prepare:
        folder, environment, rows = chosen.prepare
        prepared = prepare_project(DbtProject(Path(folder), Path(environment)), int(rows))
        names = ("sources", "tables", "rows", "changed_rows")
        print(json.dumps({name: getattr(prepared, name) for name in names}))
        return 0
    print("| project | views | rows | changed | epoch s | dbt s | factor | epoch CPU s | dbt CPU s | factor |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    factors = list[tuple[float, float]]()
    all_equal = True
    for project in json.loads(chosen.projects.read_text()):
        if chosen.only and not any(word in project["repository"] for word in chosen.only):
            continue
        try:
            row, in_seconds, in_cpu, equal = measure_project(project, chosen.dbt.absolute(), chosen.rows)
        except RuntimeError as err:
            print(f"{project['repository']}: {err}", file=sys.stderr, flush=True)
            continue
        print(row, flush=True)
        factors.append((in_seconds, in_cpu))
        all_equal &= equal
    if factors:
        means = [statistics.mean(column) for column in zip(*factors, strict=True)]
        print(f"mean factor: {means[0]:.1f} of seconds, {means[1]:.1f} of CPU seconds; {len(factors)} projects")
    return 0 if factors and all_equal else 1
