"""Benchmark: imported dbt projects over generated rows: an epoch after a change of 1 %, beside a full run by Spark.

    python -m benchmarks imports projects.json --rows 1000000 [--only NAME …]

`projects.json` is the list that `scripts/survey_dbt_projects.py` reads. The benchmark only reads the projects.
Each source gets rows that fit its schema: keys by which the tables join, the texts to which the SQL compares a column,
and otherwise random values. `tussock import --try` then does the work (`jobs/importing/trial.py`): the first epoch
takes 99 % of the rows, the second one takes 1 %, `verify` compares each view with Spark's rows of the same SELECT, and
Spark computes every view in full in the same process. CPU seconds include all worker processes.
"""

import argparse
import json
import re
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from benchmarks.cpu import Usage, cpu_seconds_between, tree_usage
from benchmarks.import_rows import Tables, column_of
from scripts.survey_dbt_projects import import_over_fitted_sources
from scripts.survey_queries import compared_literals
from tussock.jobs.importing.judge import Verdicts, judge_project
from tussock.jobs.importing.project import ForeignProject, Script
from tussock.jobs.importing.trial import ProjectTrial, try_project
from tussock.jobs.spark.session import joined_spark, sql_session
from tussock.statestore.errors import TussockError


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark and print a table. Returns 1 if no project ran, or a view differs from Spark's rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks imports", description="Imported projects over rows.")
    parser.add_argument("projects", type=Path, help="list of compiled projects, as for scripts.survey_dbt_projects")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each table with foreign keys")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of the projects to run")
    chosen = parser.parse_args(arguments)
    measured: list[MeasuredProject] = []
    print("| project | views | rows | changed | first epoch | epoch s | Spark s | factor | epoch CPU s | Spark CPU s |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with joined_spark() as spark:
        for project in json.loads(chosen.projects.read_text()):
            name = project["repository"]
            if chosen.only and not any(word in name for word in chosen.only):
                continue
            try:
                measured.append(measure_project(project, chosen.rows, spark))
            except TussockError as err:
                print(f"{name}: {' '.join(str(err).split())[:400]}", flush=True)
                continue
            print(measured[-1].row, flush=True)
            for view in measured[-1].trial.views:
                if view.verdict != "equal":
                    print(f"  {view.name}: {view.verdict} {view.reason}", flush=True)
    if measured:
        print(f"mean factor: {statistics.mean(m.factor for m in measured):.1f} of seconds, ", end="")
        print(f"{statistics.mean(m.cpu_factor for m in measured):.1f} of CPU seconds; {len(measured)} projects")
    return 0 if measured and all(m.trial.all_equal for m in measured) else 1


@dataclass(frozen=True, slots=True)
class MeasuredProject:
    """A trial, with the CPU seconds of the second epoch and of Spark's full run."""

    name: str
    trial: ProjectTrial
    epoch_cpu_s: float
    spark_cpu_s: float

    @property
    def factor(self) -> float:
        return self.trial.spark_s / self.trial.epoch_s

    @property
    def cpu_factor(self) -> float:
        return self.spark_cpu_s / self.epoch_cpu_s

    @property
    def row(self) -> str:
        trial = self.trial
        equal = sum(view.verdict == "equal" for view in trial.views)
        facts = (
            self.name, f"{equal} of {len(trial.views)} equal", f"{trial.rows:,}", f"{trial.changed_rows:,}",
            f"{trial.first_s:.1f}", f"{trial.epoch_s:.2f}", f"{trial.spark_s:.2f}", f"{self.factor:.1f}",
            f"{self.epoch_cpu_s:.2f}", f"{self.spark_cpu_s:.2f}",
        )  # fmt: skip
        return f"| {' | '.join(facts)} |"


def measure_project(project: Mapping[str, str], rows: int, spark: SparkSession) -> MeasuredProject:
    """Import one project, and try it over generated rows."""
    folder = Path(tempfile.mkdtemp(prefix="tussock-imports-"))
    try:
        imported, _ = import_over_fitted_sources(Path(project["manifest"]), project["dialect"], folder, spark)
        verdicts = judge_project(imported)
        sample = folder / "sample"
        write_rows(imported, verdicts, sample, rows, spark)
        usages: dict[str, dict[int, Usage]] = {}

        def note_phase(line: str) -> None:
            usages[line.partition(":")[0]] = tree_usage()

        trial = try_project(imported, verdicts, sample, spark, note_phase)
        return MeasuredProject(
            project["repository"],
            trial,
            cpu_seconds_between(usages["second epoch"], usages["verify"]),
            cpu_seconds_between(usages["full run by Spark"], tree_usage()),
        )
    finally:
        shutil.rmtree(folder)


def write_rows(project: ForeignProject, verdicts: Verdicts, sample: Path, rows: int, spark: SparkSession) -> None:
    """Write a Parquet file with generated rows for each accepted source of a project."""
    schemas = dict[str, pa.Schema]()
    session = sql_session(spark, "UTC")
    for model in project.models:
        match = re.match(r"CREATE SOURCE [^(]*\((.*?)\)\s*USING", model.statement, re.DOTALL)
        if model.script is Script.SOURCES and verdicts[model.name].accepted and match is not None:
            schemas[model.name] = to_arrow_schema(session.createDataFrame([], match[1]).schema, timezone="UTC")
    tables = Tables(schemas, compared_literals(project), rows)
    for number, (table, schema) in enumerate(schemas.items()):
        chance = np.random.default_rng(number)
        columns = [column_of(tables, table, column, chance) for column in schema]
        (sample / table).mkdir(parents=True)
        pq.write_table(pa.table(columns, schema=schema), sample / table / "rows.parquet")
