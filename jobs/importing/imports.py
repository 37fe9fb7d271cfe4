"""Import a project: read, judge, write or compare; and the report of it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Event

from tussock.jobs.importing.judge import Judge, StatementVerdict, Verdicts
from tussock.jobs.importing.pipeline_files import (
    Drift,
    find_drift,
    missing_settings,
    refusal_of_test,
    texts_of,
    write_files,
)
from tussock.jobs.importing.project import (
    ForeignProject,
    Model,
    ProjectPlace,
    ReadProject,
    Script,
    file_of,
    models_in_order,
)
from tussock.jobs.sql.now import ELSEWHERE
from tussock.statestore.errors import InputError

_LEAVE_OUT = "--leave-out-clock"
_LOOK_S = 1.0  # between two looks at the project's files


class ImportOutcome(StrEnum):
    """The counterpart of a part of the project in the pipeline."""

    INCREMENTAL = "incremental"  # each epoch updates it at the cost of the changes
    VIEW = "view"  # a name for a query; materialized views that read it are incremental
    SOURCE = "source"
    TEST = "test"
    NOT_TAKEN = "not taken"
    NO_RELATION = "no relation"  # such as a hook, a metric or an inlined model


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One part of the project and its outcome. `reason` is empty if it was taken."""

    name: str
    kind: str
    place: ProjectPlace
    outcome: ImportOutcome
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportReport:
    """An import.

    Args:
        folder: of the pipeline.
        lines: models in the order of their inputs, then tests, then other parts.
        changed: the files that were written or removed; empty with `--check`.
        drift: the files that differ from the project; only with `--check`.
    """

    project: ForeignProject
    folder: Path
    lines: tuple[ReportLine, ...]
    notes: tuple[str, ...]
    changed: tuple[Path, ...] = ()
    drift: tuple[Drift, ...] = ()

    @property
    def refused(self) -> tuple[ReportLine, ...]:
        """The lines of models, tests and other parts that were not taken."""
        return tuple(line for line in self.lines if line.outcome is ImportOutcome.NOT_TAKEN)


def import_project(
    project: ForeignProject, pipelines: Path, command: str, judge: Judge, *, check: bool = False
) -> ImportReport:
    """Write the pipeline of a project, or compare it with the project.

    Args:
        pipelines: the folder of the pipelines.
        command: the command, for the first line of each file.
        check: write nothing, and report the files that differ.

    Raises: EditedFileError, UserFileError; nothing was written.
    """
    verdicts, folder = judge(project), pipelines / project.name
    texts = texts_of(project, verdicts, command, path_from(pipelines, project.root))
    drift = tuple(find_drift(folder, texts)) if check else ()
    drift += tuple(Drift(Path(project.inputs[0].name), sentence) for sentence in project.outdated) if check else ()
    changed = () if check else write_files(folder, texts)
    outdated = () if check else project.outdated
    notes = (*project.notes, *outdated, *_notes_of_clocks(verdicts, command), *missing_settings(folder, texts))
    return ImportReport(project, folder, tuple(list_lines(project, verdicts)), notes, changed, drift)


def _notes_of_clocks(verdicts: Verdicts, command: str) -> tuple[str, ...]:
    """A remedy if models are refused because the clock is in their rows."""
    refused = sum(ELSEWHERE in verdict.reason for verdict in verdicts.values())
    if not refused or _LEAVE_OUT in command:
        return ()
    rows = "rows of 1 model contain" if refused == 1 else f"rows of {refused} models contain"
    return (f"{rows} the clock of the run; {_LEAVE_OUT} imports them without such columns, and names the columns",)


def path_from(pipelines: Path, path: Path) -> str:
    """A path relative to the folder that contains `pipelines/`, so that each checkout generates equal files."""
    return Path(os.path.relpath(path.absolute(), pipelines.absolute().parent)).as_posix()


def watch_project(
    read: ReadProject,
    run: Callable[[ForeignProject], object],
    report_error: Callable[[InputError], None],
    stop: Event,
    given: Path,
) -> None:
    """Call `run` with the project, and again after each change of its files, until `stop` is set.

    An error is reported, and the next change tries again.

    Args:
        given: the path in the command, whose changes count until the project could be read.
    """
    before: tuple[tuple[str, int, int], ...] | None = None
    inputs: tuple[Path, ...] = (given,)
    while not stop.is_set():
        now = _stamps_of(inputs)
        if now != before:
            before = now
            try:
                project = read()
                if project.inputs != inputs:
                    inputs, before = project.inputs, _stamps_of(project.inputs)
                run(project)
            except InputError as err:
                report_error(err)
        stop.wait(_LOOK_S)


def _stamps_of(paths: tuple[Path, ...]) -> tuple[tuple[str, int, int], ...]:
    stamps = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            stamps.append((str(path), 0, -1))
        else:
            stamps.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(stamps)


def list_lines(project: ForeignProject, verdicts: Verdicts) -> list[ReportLine]:
    """The outcome of each part of a project: models in the order of their inputs, then tests, then other parts."""
    lines = [_model_line(model, verdicts[model.name]) for model in models_in_order(project.models)]
    for assertion in project.assertions:
        verdict = verdicts[file_of(assertion)]
        outcome = ImportOutcome.TEST if verdict.accepted else ImportOutcome.NOT_TAKEN
        lines.append(
            ReportLine(assertion.name, assertion.kind, assertion.place, outcome, verdict.reason, assertion.notes)
        )
    for test in project.unit_tests:
        reason = refusal_of_test(test, verdicts)
        outcome = ImportOutcome.NOT_TAKEN if reason else ImportOutcome.TEST
        lines.append(ReportLine(test.name, "unit test", test.place, outcome, reason))
    for part in project.left_out:
        outcome = ImportOutcome.NOT_TAKEN if part.has_rows else ImportOutcome.NO_RELATION
        lines.append(ReportLine(part.name, part.kind, part.place, outcome, part.reason))
    return lines


def _model_line(model: Model, verdict: StatementVerdict) -> ReportLine:
    if not verdict.accepted:
        outcome = ImportOutcome.NOT_TAKEN
    elif model.script is Script.SOURCES:
        outcome = ImportOutcome.SOURCE
    else:
        outcome = ImportOutcome.INCREMENTAL if verdict.stores else ImportOutcome.VIEW
    return ReportLine(model.name, model.kind, model.place, outcome, verdict.reason, (*model.notes, *verdict.costs))
