"""Import public declarative pipelines and count the datasets that are taken, with the reasons of the others.

    python -m scripts.survey_sdp_projects projects.json > projects.md

`projects.json` is a list of objects: `repository`, `revision`, `folder` (a checkout of its files), `name` (what the
page calls it) and optionally `spec` (its spark-pipeline.yml), `catalog`, `schema` and `files` (patterns, with `?` for
a blank). Without `spec` and `files`, the files that define datasets are taken. The code of the projects stays where it
is; their Python files run here, so read them first.

Most of these projects read tables and volumes of Databricks, whose rows are not public. Each such source gets one row,
or an empty table. A column that Spark does not find is added to a source that may have it, and the project is imported
again. So the reasons that remain are the datasets' own, and not those of a wrong guess.
"""

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from scripts.survey_sources import required_type, type_of_name
from tussock.jobs.importing.imports import ImportOutcome, ReportLine, list_lines
from tussock.jobs.importing.judge import judge_project
from tussock.jobs.importing.project import ForeignProject, Model
from tussock.jobs.importing.sdp_binding import opened_binding
from tussock.jobs.importing.sdp_project import SourcePlace, read_sdp_project
from tussock.jobs.importing.sdp_spec import SdpSpec, read_spec
from tussock.statestore.errors import TussockError

DATASETS = ("materialized view", "streaming table", "temporary view")
_DEFINES = re.compile(
    r"import dlt\b|from dlt\b|pyspark import pipelines|pyspark\.pipelines|(STREAMING|LIVE)\s+(TABLE|VIEW)|"
    r"MATERIALIZED\s+VIEW|CHANGES\s+INTO",
    re.IGNORECASE,
)
_SETTING = re.compile(r"conf\.get\(\s*[\"']([\w.]+)[\"']\s*\)|\$\{([\w.]+)\}")
_COLUMN = re.compile(
    r"name `([^`]+(?:`\.`[^`]+)*)` cannot be resolved|No such struct field `([^`]+)`|"
    r"Attribute `([^`]+)` is not supported|'(\w+)' is no column of|Cannot resolve column name \"(\w+)\" among"
)
_USING = re.compile(r"USING column `([^`]+)` cannot be resolved on the (?:left|right) side.*?columns: \[([^\]]*)\]")
_TYPE = re.compile(
    r"requires the \(?\"([A-Z]+)[^)]*?\)? type, however \"([^\"]+)\" has the type|"
    r"Cannot resolve \"([^\"]+)\" due to data type mismatch: the binary operator requires the input type \(?\"([A-Z]+)"
)
_MOST_IMPORTS = 150  # of one project, with more columns in its sources each time
_VALUES = {"timestamp": "2026-01-01 00:00:00", "date": "2026-01-01", "double": "1.5", "boolean": "true", "string": "x"}
_VALUES |= {"bigint": "1", "binary": "x"}
_NESTED = {"array<string>": ["x"], "map<string,string>": {"x": "x"}}  # in JSON
#: Reasons of datasets that are no deterministic query of Spark, or that Spark refuses over the guessed columns.
_NOT_SPARK = (
    (r"rand|uuid|monotonically|dropDuplicates of some columns", "its rows depend on chance"),
    (r"current_(date|timestamp)|now\(\)|input_file_name|clock", "its rows depend on the time of the run"),
    (r"column of Auto Loader", "a column of Auto Loader"),
    (r"UDF|Python function|InPandas|PythonUDF|python_udf|pandas_udf", "a Python function on rows"),
    (r"ModuleNotFoundError|ImportError", "a Python package that is not here"),
    (r"dbutils|Databricks has it", "dbutils of Databricks"),
    (r"UNRESOLVED_ROUTINE|[Cc]annot resolve routine|UNRESOLVABLE_TABLE", "a function that Spark lacks"),
    (r"PARSE_SYNTAX|[Ss]yntax error", "syntax that Spark lacks"),
    (r"when it runs again, it makes another query", "its rows depend on chance or on the time of the run"),
    (r"NameError|ValueError|TypeError|AttributeError|NOT_ITERABLE|KeyError|FIELD_DATA_TYPE", "an error in its Python"),
    (
        r"UNRESOLVED_(COLUMN|FIELD|USING)|CANNOT_RESOLVE_STAR|is no column of|ATTRIBUTE_NOT_SUPPORTED|"
        r"No such struct field|AMBIGUOUS_REFERENCE",
        "columns that its sources may have",
    ),
    (r"DATATYPE_MISMATCH|INCOMPATIBLE|INVALID_EXTRACT", "types that its sources may have"),
    (r"REQUIRES_SINGLE_PART|TABLE_OR_VIEW_NOT_FOUND", "a table outside of the project"),
    (r"it contains a credential", "a credential in its text"),
)  # fmt: skip


@dataclass(slots=True)
class Guess:
    """A source whose files are not public: its format and columns."""

    format: str
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A project, with its report and the sources that were guessed."""

    name: str
    lines: tuple[ReportLine, ...]
    guesses: Mapping[str, Guess]

    @property
    def datasets(self) -> list[ReportLine]:
        return [line for line in self.lines if line.kind in DATASETS]

    def refused(self, of_spark: bool) -> list[ReportLine]:
        """The datasets that are not taken: deterministic queries of Spark, or others."""
        lost = {line.name: line for line in self.datasets if line.outcome is ImportOutcome.NOT_TAKEN}
        other = set[str]()
        for line in lost.values():  # in the order of their inputs
            read = re.search(r"it reads (\S+), which was not taken", line.reason)
            if read[1] in other if read is not None else _kind_of(line.reason) is not None:
                other.add(line.name)
        return [line for line in lost.values() if (line.name not in other) == of_spark]


def main(listed: Path) -> None:
    """Print a table of the projects, and a list of the reasons. Each reason goes to `projects.reasons.txt`."""
    surveyed, details = list[Surveyed](), list[str]()
    spark = SparkSession.builder.getOrCreate()
    for project in json.loads(listed.read_text()):
        try:
            lines, guesses = survey_project(project, spark)
        except TussockError as err:
            details.append(f"{project['name']}: {err}")
            continue
        one = Surveyed(f"{project['name']} at {project['revision'][:7]}", tuple(lines), guesses)
        surveyed.append(one)
        details += [
            f"{one.name}: {line.kind} {line.name} ({line.place}): {line.reason}" for line in lines if line.reason
        ]
        listed.with_suffix(".reasons.txt").write_text("\n".join(details))
        print(_row(one), file=sys.stderr, flush=True)
    total, lost = sum(len(p.datasets) for p in surveyed), [line for p in surveyed for line in p.refused(of_spark=True)]
    others = [line for p in surveyed for line in p.refused(of_spark=False)]
    taken = total - len(lost) - len(others)
    print(f"{len(surveyed)} projects, {total} datasets, {taken} taken, {len(others)} no deterministic SQL of Spark,")
    print(f"{len(lost)} refused: {taken / max(1, taken + len(lost)):.1%} of the others are taken.\n")
    for lines in (others, lost):
        kinds = Counter(_kind_of(line.reason) or line.reason[:100] for line in lines)
        print("".join(f"| {kind} | {count} |\n" for kind, count in kinds.most_common()))
    print("| project | datasets | taken | not Spark | refused | other parts |\n|---|---|---|---|---|---|")
    print("\n".join(map(_row, surveyed)))


def _row(one: Surveyed) -> str:
    other, lost = len(one.refused(of_spark=False)), len(one.refused(of_spark=True))
    parts = sum(line.outcome is ImportOutcome.NO_RELATION for line in one.lines)
    facts = (one.name, len(one.datasets), len(one.datasets) - other - lost, other, lost, parts)
    return f"| {' | '.join(map(str, facts))} |"


def survey_project(project: Mapping[str, str], spark: SparkSession) -> tuple[list[ReportLine], Mapping[str, Guess]]:
    """Import a project until no guess about its sources helps."""
    guesses, tried = dict[str, Guess](), set[tuple[str, str]]()
    spec = _spec_of(project)
    for turn in count(1):
        with TemporaryDirectory() as folder:
            places = {name: _write_source(spark, Path(folder, name), guess) for name, guess in guesses.items()}
            with opened_binding(lambda: spark) as binding:
                imported = read_sdp_project(spec, "survey", places, binding)
            reasons = {model.name: model.refusal for model in imported.models}
            is_last = turn == _MOST_IMPORTS  # a number, so that a busy machine finds the same columns
            if not is_last and _improve(guesses, imported, reasons, tried):
                continue
            lines = list_lines(imported, judge_project(imported))
        if is_last or not _improve(guesses, imported, {line.name: line.reason for line in lines}, tried):
            break
    return lines, guesses


def _spec_of(project: Mapping[str, str]) -> SdpSpec:
    root = Path(project["folder"]).resolve()
    if "spec" in project:
        return read_spec(root / project["spec"])
    files = [path for ending in ("sql", "py") for path in root.rglob(f"*.{ending}")]
    named = [path for pattern in project.get("files", "").split() for path in root.glob(pattern)]
    taken = tuple(sorted(named or [path for path in files if _DEFINES.search(path.read_text(errors="replace"))]))
    keys = {a or b for path in taken for a, b in _SETTING.findall(path.read_text(errors="replace"))}
    settings = {key: _VALUES["date"] if "date" in key else re.sub(r"\W", "_", key) for key in keys}
    return SdpSpec(project["name"], root, project.get("catalog"), project.get("schema"), settings, taken, taken)


def _improve(
    guesses: dict[str, Guess], project: ForeignProject, reasons: Mapping[str, str], tried: set[tuple[str, str]]
) -> bool:
    """Add sources and columns for which the reasons ask. Returns whether there were any."""
    changed, models = False, {model.name: model for model in project.models}
    for name, reason in reasons.items():
        if (source := re.search(r"--source (\S+)=PATH", reason)) is not None and source[1] not in guesses:
            kind = models[source[1]].kind.partition(" ")[0]
            guesses[source[1]] = Guess("parquet" if kind == "table" else kind)
            changed = True
        elif name in models and " is not allowed at " in reason and name not in guesses:
            guesses[name] = Guess(models[name].kind.partition(" ")[0])
            changed = True
        elif name in models and (using := _USING.search(reason)) is not None:
            side = set(re.findall(r"`([^`]+)`", using[2].lower()))
            origins = [s for s in _origins(project, name, guesses) if (s, using[1].lower()) not in tried]
            near = [s for s in origins if side.issuperset(guesses[s].columns or {"id"})]
            for origin in (near or origins)[:1]:
                tried.add((origin, using[1].lower()))
                guesses[origin].columns.setdefault(using[1].lower(), type_of_name(using[1]))
                changed = True
        elif name in models and (typed := _TYPE.search(reason)) is not None:
            kind, words = required_type(typed[1] or typed[4]), typed[2] or typed[3]
            for origin in _origins(project, name, guesses):
                for column in set(re.findall(r"\w+", words.lower())) & guesses[origin].columns.keys():
                    if kind and (origin, f"{column} {kind}") not in tried:
                        tried.add((origin, f"{column} {kind}"))
                        guesses[origin].columns[column] = kind
                        changed = True
        elif name in models and (missing := _COLUMN.search(reason)) is not None:
            *parents, column = next(filter(None, missing.groups())).split("`.`")
            origins = [s for s in _origins(project, name, guesses) if (s, column.lower()) not in tried]
            if (
                parents
                and not origins
                and (nested := _nest(guesses, _origins(project, name, guesses), parents[-1], column))
            ):
                changed = nested
            named = _names_at(project.root, models[name]) if len(origins) == 1 else []
            for further in (column, *named) if origins else ():
                tried.add((origins[0], further.lower()))
                guesses[origins[0]].columns.setdefault(further.lower(), type_of_name(further))
                changed = True
    return changed


def _nest(guesses: Mapping[str, Guess], origins: Iterator[str], parent: str, field: str) -> bool:
    """Give the nearest source without a structure of this name one with the field. Returns whether there was any."""
    for origin in origins:
        columns = guesses[origin].columns
        before = re.fullmatch(r"struct<(.*)>", columns.get(parent.lower(), "struct<>"))
        if before is not None and f"{field}:" not in before[1]:
            fields = ",".join(filter(None, (before[1], f"{field}:{type_of_name(field)}")))
            columns[parent.lower()] = f"struct<{fields}>"
            return True
    return False


def _names_at(root: Path, model: Model) -> list[str]:
    """Columns that the function of a Python file names by `col`, so that not each one needs another import."""
    if not model.place.file.endswith(".py"):
        return []
    lines = (root / model.place.file).read_text(errors="replace").splitlines()[model.place.line :]
    end = next((i for i, line in enumerate(lines) if i > 2 and line.startswith("@")), len(lines))
    return re.findall(r"\bcol\(\s*[\"'](\w+)[\"']", "\n".join(lines[:end]))


def _origins(project: ForeignProject, name: str, guesses: Mapping[str, Guess]) -> Iterator[str]:
    """The guessed sources that a dataset reads, itself or through others; the nearest first."""
    reads = {model.name: model.reads for model in project.models}
    waiting, seen = [name], set[str]()
    while waiting:
        read = waiting.pop(0)
        if read not in seen:
            seen.add(read)
            if read in guesses:
                yield read
            waiting += reads.get(read, ())


def _write_source(spark: SparkSession, place: Path, guess: Guess) -> SourcePlace:
    columns = guess.columns or {"id": "string"}
    place.mkdir(parents=True)
    rows = [_value_of(kind) for kind in columns.values()]
    if guess.format == "csv":
        with (place / "1.csv").open("w", newline="") as file:
            csv.writer(file).writerows([list(columns), rows])
    elif guess.format == "json":
        (place / "1.json").write_text(json.dumps(dict(zip(columns, rows, strict=True))))
    else:
        text = ", ".join(f"`{column}` {kind}" for column, kind in columns.items())
        table = to_arrow_schema(spark.createDataFrame([], text).schema, timezone="UTC").empty_table()
        if guess.format == "delta":
            write_deltalake(str(place), table)
        else:
            pq.write_table(table, place / "1.parquet")
    return SourcePlace(str(place))


def _value_of(kind: str) -> object:
    """A value of a type, as in a file of JSON."""
    if (fields := re.fullmatch(r"struct<(.*)>", kind)) is not None:
        return {name: _value_of(type_) for name, _, type_ in (f.partition(":") for f in fields[1].split(","))}
    return _NESTED.get(kind, _VALUES.get(kind, "x"))


def _kind_of(reason: str) -> str | None:
    return next((kind for pattern, kind in _NOT_SPARK if re.search(pattern, reason)), None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
