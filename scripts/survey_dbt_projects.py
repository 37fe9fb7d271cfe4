"""Import compiled dbt projects and count the models that are taken, with the reasons of the others.

    python -m scripts.survey_dbt_projects projects.json > projects.md

`projects.json` is a list of objects: `repository`, `revision`, `manifest` (a path), `dialect` (empty for Spark's) and
`adapter`. The program only reads the projects. A source without rows at hand gets an empty Parquet file, whose
columns `survey_sources.py` finds.

A model that is not taken is in one of two groups. In the first one, the model is no deterministic SQL of Spark: plain
Spark refuses its SELECT over every schema that was tried, or its rows depend on the time of dbt's run or on chance, or
it is Python. A model that reads such a model is in this group too. All others are refused by Tussock.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from scripts.survey_queries import query_of
from scripts.survey_sources import Analysis, SourceFit, declared_columns
from tussock.jobs.importing.dbt_manifest import read_manifest
from tussock.jobs.importing.dbt_project import DbtOptions, read_dbt_project
from tussock.jobs.importing.imports import ImportOutcome, ReportLine, list_lines
from tussock.jobs.importing.judge import judge_project
from tussock.jobs.importing.names import relation_text
from tussock.jobs.importing.project import ForeignProject, Model, Script, models_in_order
from tussock.jobs.logical.quoting import string_text
from tussock.jobs.spark.session import joined_spark, sql_session
from tussock.statestore.errors import TussockError

MODELS = ("table model", "incremental model", "view model", "materialized_view model", "streaming_table model",
          "external model", "snapshot")  # fmt: skip
_UNREAD = re.compile(r"it reads (\S+), which was not taken")
_NOT_SPARK = (
    (r"its rows depend on the time|strategy '|ends the intervals|needs its rows", "depends on the time of dbt's run"),
    (r"Python model", "a Python model"),
    (r"not compiled", "dbt cannot compile it without its database"),
    (r"only its incremental branch|reads its own rows", "its SQL reads its own earlier rows"),
    (r"materialization", "a materialization of the project's own"),
    (r"sqlglot cannot translate", "sqlglot cannot translate it"),
    (r"UNRESOLVED_ROUTINE|UNRESOLVABLE_TABLE_VALUED", "a function that Spark lacks"),
    (r"PARSE_SYNTAX|UNSUPPORTED_FEATURE|INVALID_SQL", "syntax that Spark lacks"),
    (r"DATATYPE_MISMATCH|INCOMPATIBLE|WRONG_NUM_ARGS|REQUIRES", "types or arguments that Spark refuses"),
    (r"UNRESOLVED_COLUMN|AMBIGUOUS", "a column that is in none of its inputs"),
    (r"TABLE_OR_VIEW_NOT_FOUND|there is no relation", "a table outside of the project"),
    (r"COLUMN_ALREADY_EXISTS", "two columns of one name"),
)


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The counts of one project. `not_spark` and `refused`: models by reason."""

    name: str
    adapter: str
    models: int
    taken: int
    not_spark: Mapping[str, str]
    refused: Mapping[str, str]
    tests: int
    taken_tests: int

    @property
    def row(self) -> str:
        facts = (self.name, self.adapter, self.models, self.taken, len(self.not_spark), len(self.refused))
        return f"| {' | '.join(map(str, (*facts, self.tests, self.taken_tests)))} |"


def main(listed: Path) -> None:
    """Print a table of the projects, and lists of the reasons. Details go to `projects.reasons.txt`."""
    surveyed: list[Surveyed] = []
    details = list[str]()
    with joined_spark() as spark:
        for project in json.loads(listed.read_text()):
            try:
                counts = survey_project(project, spark)
            except TussockError as err:
                details.append(f"{project['repository']}: {err}")
                continue
            surveyed.append(counts)
            for group, reasons in (("not Spark", counts.not_spark), ("refused", counts.refused)):
                details += (f"{project['repository']}: {group}: {name}: {reason}" for name, reason in reasons.items())
            print(counts.row, file=sys.stderr, flush=True)
            listed.with_suffix(".reasons.txt").write_text("\n".join(details))
    taken, refused = sum(p.taken for p in surveyed), sum(len(p.refused) for p in surveyed)
    models = sum(p.models for p in surveyed)
    print(f"{len(surveyed)} projects, {models} models, {taken} taken, {models - taken - refused} not deterministic SQL")
    print(f"of Spark, {refused} refused: {taken / max(1, taken + refused):.1%} of the others are taken.\n")
    for group in ("not_spark", "refused"):
        kinds = Counter(_kind_of(reason) for p in surveyed for reason in getattr(p, group).values())
        print(f"{group}:\n" + "".join(f"| {kind} | {count} |\n" for kind, count in kinds.most_common()))
    print("| project | adapter | models | taken | not Spark | refused | tests | taken |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(p.row for p in surveyed))


def survey_project(project: Mapping[str, str], spark: SparkSession) -> Surveyed:
    """Import one project over sources that its models fit, and group the models that are not taken."""
    with TemporaryDirectory() as folder:
        manifest, dialect = Path(project["manifest"]), project["dialect"]
        imported, analyses = import_over_fitted_sources(manifest, dialect, Path(folder), spark)
        lines = list_lines(imported, judge_project(imported))
    models = [line for line in lines if line.kind in MODELS]
    tests = [line for line in lines if line.kind.startswith(("test", "unit", "unique"))]
    not_spark, refused = _group_refusals(models, imported, analyses)
    return Surveyed(
        f"{project['repository']} at {project['revision'][:12]}",
        project["adapter"],
        len(models),
        len(models) - len(not_spark) - len(refused),
        not_spark,
        refused,
        len(tests),
        sum(line.outcome is ImportOutcome.TEST for line in tests),
    )


def import_over_fitted_sources(
    path: Path, dialect: str, folder: Path, spark: SparkSession
) -> tuple[ForeignProject, Mapping[str, Analysis]]:
    """Read a project whose sources without rows get an empty Parquet file each, and Spark's analysis of its models."""
    manifest = read_manifest(path)
    project = read_dbt_project(path, DbtOptions("survey", dialect))
    sql = sql_session(spark, "UTC")
    declared = declared_columns(manifest, path.parent / "catalog.json")
    sources = {f"{source.source_name}.{source.name}": source.unique_id for source in manifest.sources.values()}
    columns = dict[str, dict[str, str]]()
    for model in project.models:
        if model.script is Script.SOURCES and model.refusal:
            full_name = re.search(r"--source (\S+)=PATH", model.refusal)
            known = sources.get(full_name[1], "") if full_name is not None else ""  # files in a model's SQL have none
            columns[model.name] = dict(declared.get(known, {}))
    fit = SourceFit(sql, models_in_order(project.models), columns, _known_columns(project))
    fit.fit()
    models = tuple(
        _over_empty_file(model, fit.schemas[model.name], folder, sql) if model.name in columns else model
        for model in project.models
    )
    return replace(project, models=models), fit.analyses


def _over_empty_file(source: Model, types: Mapping[str, str], folder: Path, sql: SparkSession) -> Model:
    """A source over a Parquet file without rows."""
    place = folder / f"of-{source.name}.parquet"  # a name that begins with _ would be hidden
    columns = ", ".join(f"`{column}` {type_}" for column, type_ in (types or {"id": "string"}).items())
    schema = to_arrow_schema(sql.createDataFrame([], columns).schema, timezone="UTC")
    pq.write_table(schema.empty_table(), place)
    options = f"USING parquet OPTIONS (path {string_text(str(place))})"
    return replace(source, statement=f"CREATE SOURCE {relation_text(source.name)} ({columns}) {options}", refusal="")


def _known_columns(project: ForeignProject) -> dict[str, str]:
    """The columns of seeds and of sources with rows, as in their CREATE SOURCE statements."""
    columns = dict[str, str]()
    for model in project.models:
        if (match := re.match(r"CREATE SOURCE [^(]*\((.*?)\)\s*USING", model.statement, re.DOTALL)) is not None:
            columns[model.name] = match[1]
    return columns


def _group_refusals(
    lines: list[ReportLine], project: ForeignProject, analyses: Mapping[str, Analysis]
) -> tuple[dict[str, str], dict[str, str]]:
    """Two groups with reasons: models that are no deterministic SQL of Spark, and models that Tussock refuses."""
    models = {model.name: model for model in project.models}
    reasons = {line.name: line.reason for line in lines if line.outcome is ImportOutcome.NOT_TAKEN}
    not_spark, refused = dict[str, str](), dict[str, str]()
    for line in lines:  # in the order of their inputs
        if (reason := reasons.get(line.name)) is None:
            continue
        own = _own_objection(models[line.name], analyses)
        if own:
            not_spark[line.name] = own
        elif (read := _UNREAD.search(reason)) is not None:
            ours = read[1] in refused
            (refused if ours else not_spark)[line.name] = "reads a model of this group"
        else:
            refused[line.name] = reason
    return not_spark, refused


def _own_objection(model: Model, analyses: Mapping[str, Analysis]) -> str:
    """Why a model is no deterministic SQL of Spark; empty if it is."""
    if model.refusal or query_of(model) is None:
        return model.refusal
    analysis = analyses.get(model.name, Analysis())
    if analysis.error and "TABLE_OR_VIEW_NOT_FOUND" not in analysis.error:
        return analysis.error
    return "" if analysis.deterministic else "its rows depend on the time of the run or on chance"


def _kind_of(reason: str) -> str:
    return next((kind for pattern, kind in _NOT_SPARK if re.search(pattern, reason)), reason[:100])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
