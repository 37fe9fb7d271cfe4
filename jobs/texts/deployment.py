"""A deployment as text: what `tussock plan` and `tussock apply` print."""

import re
from collections.abc import Iterator, Mapping

from tussock.jobs.statements.approval import ItemKind
from tussock.jobs.statements.deployment import Deployment, Step, StepAction
from tussock.statestore.meta.catalog import INTERNAL, shown_name

_SIGNS: Mapping[StepAction, str] = {
    StepAction.CREATE: "+",
    StepAction.CHANGE: "~",
    StepAction.FOLLOW: ">",
    StepAction.RESUME: "~",
    StepAction.RUN: "!",
    StepAction.DROP: "-",
    StepAction.GONE: "?",
    StepAction.WAIT: ".",
}
_INSERTS_VALUES = re.compile(r"\s*INSERT\s+INTO\s+[^\s(]+\s*(\([^()]*\)\s*)?VALUES\b", re.IGNORECASE)


def deployment_text(
    deployment: Deployment,
    pipeline: str,
    full: bool = False,
    run_lines: int | None = None,
    bill: str = "",
    command: str = "",
) -> str:
    """The steps that change something or need attention, then the outcome.

    Args:
        full: include the whole text of each statement that is new or runs, and the code of new functions. Changed
            statements show only their differences.
        run_lines: at most so many lines of each INSERT of VALUES that runs once.
        bill: the text of the bill, for the line before the outcome.
        command: makes the changes, without the program's name; empty: `apply` with the choices of the deployment.
    """
    shown = [s for s in deployment.steps if s.action is not StepAction.NONE or s.note]
    width = max((len(_step_subject(s)) for s in shown), default=0)
    lines = [line for step in shown for line in _step_lines(step, width, pipeline, full, run_lines)]
    unchanged = len(deployment.steps) - len(shown)
    if unchanged:
        lines.append(f"{unchanged} unchanged")
    return "\n".join([*lines, *([bill] if bill else []), _outcome_text(deployment, pipeline, command)])


def _step_subject(step: Step) -> str:
    """The subject of a step: `view daily`, or `assertion paid` for an internal view."""
    name = step.what.split()[-1]
    return shown_name(name) if name.startswith(INTERNAL) else step.what


def _step_lines(step: Step, width: int, pipeline: str, full: bool, run_lines: int | None) -> Iterator[str]:
    parts = [_step_subject(step).ljust(width), step.place, _describe_action(step, pipeline)]
    yield f"{_SIGNS.get(step.action, ' ')} {'  '.join(part for part in parts if part)}".rstrip()
    yield from (f"      {line}" for line in step.differences)
    if full and step.action in (StepAction.CREATE, StepAction.RUN):
        lines = step.text.splitlines()
        # Only rows are cut. Another statement may end with its condition, which an approval must show.
        is_of_rows = step.action is StepAction.RUN and _INSERTS_VALUES.match(step.text)
        shown = lines[: run_lines if is_of_rows else None]
        yield from (f"      {line}".rstrip() for line in shown)
        if len(shown) < len(lines):
            yield f"      … {len(lines) - len(shown):,} more lines, in the log of `plan`"
    yield from (f"      cost: {cost.title}: an epoch {cost.cost}" for cost in step.costs)
    if step.note:
        yield f"      note: {step.note}"


def _describe_action(step: Step, pipeline: str) -> str:
    match step.action:
        case StepAction.CREATE if step.rebuilt:
            return f"is new, {_describe_reads(step)}"
        case StepAction.CREATE:
            return "is new"
        case StepAction.CHANGE | StepAction.FOLLOW if step.rebuilt:
            why = "changes" if step.action is StepAction.CHANGE else "reads a changed relation"
            return f"{why}: rebuilt while readers see the old rows, {_describe_reads(step)}"
        case StepAction.RESUME:
            return f"resumes: rebuilt, {_describe_reads(step)}"
        case StepAction.CHANGE:
            return "changes but keeps its rows" if step.what.startswith("view ") else "changes"
        case StepAction.FOLLOW:
            return "reads a changed relation: keeps its state and processes the difference"
        case StepAction.RUN:
            return "runs once"
        case StepAction.DROP:
            return "is dropped"
        case StepAction.GONE:
            return f"is not in the files but stays; `tussock apply {pipeline} --prune` drops it"
        case StepAction.WAIT:
            return "waits, and so do all later steps"
        case _:
            return ""


def _describe_reads(step: Step) -> str:
    """The stored input of the step's first epoch. Its rows include old versions that compaction has not dropped yet."""
    rows = f" ({step.rows:,} rows of tables and views)" if step.rows else ""
    return f"reads about {_size_text(step.bytes)}{rows}" if step.rows or step.bytes else "reads no stored rows"


def _size_text(size: int) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size = round(size / 1000)
    return f"{size:,} {unit}"


def _outcome_text(deployment: Deployment, pipeline: str, command: str) -> str:
    if deployment.position is not None:
        return f"log entry {deployment.position}: takes effect with the next epoch, all of it or nothing"
    if deployment.pending:
        command = command or " ".join(["apply", pipeline, *_choice_options(deployment)])
        return f"digest {deployment.digest}\nnothing was changed; `tussock {command}` makes these changes"
    return "nothing to do: the store matches the files"


def _choice_options(deployment: Deployment) -> Iterator[str]:
    """The options of the command that decide the plan, so that `apply` makes the shown changes and no others."""
    for item in deployment.approval.items:
        if item.kind is ItemKind.SETTING and item.name.startswith("--"):
            if item.text == "yes":
                yield item.name
            elif item.text not in ("", "no"):
                yield from (f"{item.name} {value}" for value in item.text.split(", "))
