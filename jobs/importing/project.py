"""A project of another tool, in the form that every `tussock import` makes of it.

    front end (dbt_project.py, …)  reads the project's files        -> ForeignProject
    judge.py                       binds each statement              -> Verdicts
    pipeline_files.py              writes the statements it accepted -> the files of a pipeline
    imports.py                     the order of these steps          -> ImportReport

A front end contains the rules of the other tool, and imports neither Spark nor stores. Names in a `ForeignProject` are
names of relations of the pipeline. A front end omits nothing silently: a node that it cannot take is a `Model` with
`refusal`, and anything else of the project is a `LeftOut`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from tussock.jobs.settings.exposures import Exposure


class Script(StrEnum):
    """The SQL file of the pipeline that contains a statement, in the order in which they are applied."""

    SOURCES = "sources.sql"
    VIEWS = "views.sql"


class Severity(StrEnum):
    """The effect of a failed test: readers keep the previous epoch, or it is only reported."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class ProjectPlace:
    """A place in the project's files. `line` 0: the whole file."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Model:
    """A relation of the project, created by one statement.

    Args:
        name: of the relation, unquoted.
        kind: the tool's words for it, such as `incremental model` or `seed`.
        statement: a CREATE without semicolon; empty if the model is refused.
        reads: the names of the project's relations that the statement reads.
        key: the columns that identify a row, if the project declares them.
        readers: reports and programs that read the relation, such as dbt's exposures.
        notes: sentences about differences that the user should know.
        refusal: why the front end cannot take the model, with the remedy; empty if it can.
    """

    name: str
    kind: str
    place: ProjectPlace
    statement: str
    script: Script = Script.VIEWS
    reads: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    description: str = ""
    tags: tuple[str, ...] = ()
    owner: str = ""
    readers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ProjectTest:
    """A test of the project's rows, as a SELECT of the wrong rows.

    Args:
        name: unique in the project; becomes the name of a file.
    """

    name: str
    kind: str
    place: ProjectPlace
    select: str
    reads: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR
    description: str = ""
    notes: tuple[str, ...] = ()
    refusal: str = ""


Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class UnitTest:
    """A test of one view with rows from the project.

    Args:
        rows: the rows of each relation that the view reads, by name. They contain values of JSON.
    """

    name: str
    place: ProjectPlace
    view: str
    rows: Mapping[str, Rows]
    expect: Rows
    description: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of the project that the pipeline does not contain, such as a hook or a metric.

    Args:
        has_rows: it defines datasets or rows, which the pipeline therefore lacks.
    """

    kind: str
    name: str
    place: ProjectPlace
    reason: str
    has_rows: bool = False


@dataclass(frozen=True, slots=True)
class ForeignProject:
    """A project.

    Args:
        tool: the word after `tussock import`, such as `dbt`.
        name: of the pipeline.
        root: the project's folder, the value of `${data}` in statements.
        inputs: the files from which this was read; `--watch` looks at them.
        models, assertions, unit_tests: in any order; names are unique.
        exposures: the reports and programs that read its models.
        notes: sentences about the whole project.
        outdated: sentences about inputs that are older than the files from which they were made; `--check` fails.
    """

    tool: str
    name: str
    root: Path
    inputs: tuple[Path, ...]
    description: str = ""
    models: tuple[Model, ...] = ()
    assertions: tuple[ProjectTest, ...] = ()
    unit_tests: tuple[UnitTest, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    notes: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()


ReadProject = Callable[[], ForeignProject]
"""Reads the project's files as they are now. `--watch` calls it again after each change."""


def file_of(assertion: ProjectTest) -> str:
    """The name of an assertion's file. Characters that no name has become `_`; long names end in a digest."""
    word = re.sub(r"[^a-z0-9_]+", "_", assertion.name.lower()).strip("_")
    if len(word) > 80:
        word = f"{word[:71]}_{sha256(assertion.name.encode()).hexdigest()[:8]}"
    return f"{word}.sql"


def name_apart(assertion: ProjectTest, files: set[str]) -> ProjectTest:
    """The assertion with a name whose file no other one has. Adds the file to `files`."""
    named, number = assertion, 1
    while file_of(named) in files:
        number += 1
        named = replace(assertion, name=f"{assertion.name}_{number}")
    files.add(file_of(named))
    return named


def models_in_order(models: Sequence[Model]) -> list[Model]:
    """The models, each after those that it reads; otherwise sources first, then by name.

    Models of a cycle come at the end, by name: no order lets them be created.
    """
    waiting = sorted(models, key=lambda model: (list(Script).index(model.script), model.name))
    ordered: list[Model] = []
    missing = {model.name for model in waiting}
    while waiting:
        ready = [model for model in waiting if not missing & (set(model.reads) - {model.name})]
        if not ready:
            return [*ordered, *waiting]
        ordered += ready
        missing -= {model.name for model in ready}
        waiting = [model for model in waiting if model.name in missing]
    return ordered
