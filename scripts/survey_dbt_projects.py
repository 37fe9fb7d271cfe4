"""Import compiled dbt projects and count the models that are taken, with the reasons of the others.

    python -m scripts.survey_dbt_projects projects.json > docs/imported-projects.md

`projects.json` is a list of objects: `repository`, `revision`, `manifest` (a path) and `dialect` (empty for Spark's).
The code of the projects stays where it is. A source without rows at hand gets an empty Parquet file. Its columns are
those that the project declares or that its models name, with types that follow from the names.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tussock.jobs.importing.dbt_manifest import DbtManifest, read_manifest
from tussock.jobs.importing.dbt_project import DbtOptions, read_dbt_project
from tussock.jobs.importing.errors import ProjectError
from tussock.jobs.importing.imports import ImportOutcome, ReportLine, list_lines
from tussock.jobs.importing.judge import judge_project
from tussock.statestore.errors import TussockError

MODELS = ("table model", "incremental model", "view model", "snapshot")
_TYPES = (
    (r"(.*_)?(at|ts|timestamp|datetime|time)", pa.timestamp("us")),
    (r"(.*_)?(date|day|month)", pa.date32()),
    (r"(.*_)?(amount|price|cost|total|value|revenue|quantity|qty|count|rate|score|points|age|year|tax)", pa.float64()),
    (r"(is|has)_.*", pa.bool_()),
)  # fmt: skip
_KINDS = (
    (r"it reads \S+, which was not taken", "reads a model that was not taken"),
    (r"place of its rows is unknown", "a source without a place"),
    (r"only its incremental branch", "only the incremental branch is compiled"),
    (r"not compiled", "dbt could not compile it without a database"),
    (r"Python model", "a Python model"),
    (r"materialization", "a materialization of the project's own"),
    (r"double quotes|which is a name in", "names in double quotes, without --dialect"),
    (r"sqlglot cannot translate", "sqlglot cannot translate it"),
    (r"there is no relation", "a relation outside of the project"),
    (r"UNRESOLVED_ROUTINE|UNRESOLVED_COLUMN|PARSE_SYNTAX|DATATYPE_MISMATCH|INCOMPATIBLE", "SQL that Spark refuses"),
    (r"is not supported in a materialized view", "Tussock cannot maintain it"),
    (r"strategy 'check'|hard_deletes", "a snapshot that depends on the time of a run"),
    (r"current_(date|timestamp)|now\(\)|rand|uuid", "not deterministic"),
)


def main(listed: Path) -> None:
    """Print a page with a table of the projects and a list of the reasons."""
    rows, reasons, lost = [], Counter[str](), list[str]()
    for project in json.loads(listed.read_text()):
        name = f"{project['repository']} at {project['revision'][:12]}"
        try:
            lines = _import_lines(Path(project["manifest"]), project["dialect"])
        except TussockError as err:
            rows.append((name, project["dialect"] or "spark", 0, 0, 0, 0))
            lost.append(f"{name}: {' '.join(str(err).split())[:300]}")
            continue
        models = [line for line in lines if line.kind in MODELS]
        tests = [line for line in lines if line.kind.startswith(("test", "unit", "unique"))]
        refused = [line for line in models if line.outcome is ImportOutcome.NOT_TAKEN]
        reasons.update(_kind_of(line.reason) for line in refused)
        lost += [f"{name}: {line.name}: {line.reason[:300]}" for line in refused]
        taken_tests = sum(line.outcome is ImportOutcome.TEST for line in tests)
        rows.append(
            (name, project["dialect"] or "spark", len(models), len(models) - len(refused), len(tests), taken_tests)
        )
        print(rows[-1], file=sys.stderr, flush=True)
    total, taken = sum(row[2] for row in rows), sum(row[3] for row in rows)
    print(f"{len(rows)} projects, {total} models, {taken} taken.\n")
    print("| project | dialect | models | taken | tests | taken |\n|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    print("\n" + "\n".join(f"- {kind}: {count}" for kind, count in reasons.most_common()))
    listed.with_suffix(".reasons.txt").write_text("\n".join(lost))


def _import_lines(manifest: Path, dialect: str) -> list[ReportLine]:
    read = read_manifest(manifest)
    with TemporaryDirectory() as folder:
        columns = columns_of_sources(read, dialect or "spark")
        places = {}
        for source in read.sources.values():
            name = f"{source.source_name}.{source.name}"
            path = Path(folder, f"{name}.parquet")
            types = {column: _type_of(column) for column in columns.get(source.unique_id, {})} or {"id": pa.string()}
            pq.write_table(pa.schema(list(types.items())).empty_table(), path)
            places[name] = str(path)
        project = read_dbt_project(manifest, DbtOptions("survey", dialect, places))
        return list_lines(project, judge_project(project))


def columns_of_sources(manifest: DbtManifest, dialect: str) -> dict[str, dict[str, None]]:
    """The columns of each source: the declared ones, and the names in models that read the source."""
    columns = {
        source.unique_id: dict.fromkeys(column.lower() for column in source.columns)
        for source in manifest.sources.values()
    }
    by_name = {(source.identifier or source.name).lower(): source.unique_id for source in manifest.sources.values()}
    passes = dict(by_name)  # relations with all columns of a source: CTEs and models that select * from it
    for node in [*manifest.nodes_of("model", "snapshot", "test")] * 2:
        try:
            tree = sqlglot.parse_one(node.compiled_code or "select 1", read=dialect)
        except SqlglotError:
            continue
        for select in tree.find_all(exp.Select):
            for source, alone in _sources_of(select, passes):
                columns[source] |= dict.fromkeys(_named_columns(select, source, passes, alone))
            _note_pass(select, passes, node.identifier.lower() if select is tree else "")
    return columns


def _sources_of(select: exp.Select, passes: dict[str, str]) -> Iterator[tuple[str, bool]]:
    tables = [table for table in select.find_all(exp.Table) if table.find_ancestor(exp.Select) is select]
    read = {passes[table.name.lower()] for table in tables if table.name.lower() in passes}
    yield from ((source, len(tables) == 1) for source in sorted(read))


def _named_columns(select: exp.Select, source: str, passes: dict[str, str], alone: bool) -> Iterator[str]:
    aliases = {
        table.alias_or_name.lower()
        for table in select.find_all(exp.Table)
        if passes.get(table.name.lower()) == source and table.find_ancestor(exp.Select) is select
    }
    made = {projection.alias.lower() for projection in select.selects if projection.alias}
    for column in select.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is not select:
            continue
        name = column.name.lower()
        if column.table.lower() in aliases or (
            alone and not column.table and (name not in made or not _is_late(column))
        ):
            yield name


def _is_late(column: exp.Column) -> bool:
    """Whether a column is in a clause that may name an alias of the SELECT list."""
    return column.find_ancestor(exp.Group, exp.Order, exp.Having, exp.Qualify) is not None


def _note_pass(select: exp.Select, passes: dict[str, str], model: str) -> None:
    """Remember a CTE, or a model, that selects all columns of one source."""
    tables = [table for table in select.find_all(exp.Table) if table.find_ancestor(exp.Select) is select]
    if not select.is_star or len(tables) != 1 or (source := passes.get(tables[0].name.lower())) is None:
        return
    parent = select.parent
    if isinstance(parent, exp.CTE):
        passes[parent.alias.lower()] = source
    elif model:
        passes.setdefault(model, source)


def _type_of(column: str) -> pa.DataType:
    return next((type_ for pattern, type_ in _TYPES if re.fullmatch(pattern, column)), pa.string())


def _kind_of(reason: str) -> str:
    return next((kind for pattern, kind in _KINDS if re.search(pattern, reason)), "other")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except ProjectError as err:
        sys.exit(str(err))
