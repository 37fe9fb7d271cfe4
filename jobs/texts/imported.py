"""The report of `tussock import` as text and as JSON."""

import json
from collections import Counter
from collections.abc import Iterator

from tussock.jobs.importing.imports import ImportOutcome, ImportReport, ReportLine

_SIGNS = {ImportOutcome.NOT_TAKEN: "!", ImportOutcome.NO_RELATION: "."}


def import_text(report: ImportReport) -> str:
    """One line per part of the project with the reasons of refused ones, then the numbers and the files."""
    width = max((len(line.name) for line in report.lines), default=0)
    outcome_width = max((len(line.outcome) for line in report.lines), default=0)
    lines = [text for line in report.lines for text in _line_text(line, width, outcome_width)]
    lines += [f"note: {note}" for note in report.notes]
    lines += ["", _counts_text(report)]
    if report.drift:
        lines.append(f"{report.folder} differs from the project:")
        for drift in report.drift:
            lines.append(f"  {drift.path}: {drift.finding}")
            lines += [f"      {line}" for line in drift.lines]
    return "\n".join(lines)


def _line_text(line: ReportLine, width: int, outcome_width: int) -> Iterator[str]:
    sign = _SIGNS.get(line.outcome, " ")
    yield f"{sign} {line.outcome:<{outcome_width}}  {line.name:<{width}}  {line.kind}, {line.place}"
    if line.reason:
        yield f"      {line.reason}"
    yield from (f"      note: {note}" for note in line.notes)


def _counts_text(report: ImportReport) -> str:
    counts = Counter(line.outcome for line in report.lines)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in ImportOutcome if counts[outcome])


def import_json(report: ImportReport) -> str:
    """The report as one JSON object."""
    lines = [
        {
            "name": line.name,
            "kind": line.kind,
            "file": line.place.file,
            "line": line.place.line or None,
            "outcome": str(line.outcome),
            "reason": line.reason,
            "notes": list(line.notes),
        }
        for line in report.lines
    ]
    drift = [{"file": str(d.path), "finding": d.finding, "lines": list(d.lines)} for d in report.drift]
    facts = {
        "pipeline": report.project.name,
        "folder": str(report.folder),
        "parts": lines,
        "notes": list(report.notes),
        "changed": [str(path) for path in report.changed],
        "drift": drift,
    }
    return json.dumps(facts, indent=2, ensure_ascii=False)
