"""Assertions: files `<name>.sql` in the quality folder. Each is a SELECT that returns the rows that are wrong.

    -- severity: warning
    SELECT o.id, o.shop FROM orders o LEFT JOIN shops s ON o.shop = s.shop WHERE s.shop IS NULL

`tussock apply` creates a hidden view per assertion, which epochs maintain at the cost of their changes. So the quality
check reads only the wrong rows. The severity is "error" (the default) or "warning", as for expectations.

If the quality check judges view by view, a failed assertion holds back the views and tables that its SELECT reads.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import dropwhile
from pathlib import Path

import msgspec
import pyarrow as pa

from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA
from tussock.jobs.quality.record import NOT_APPLIED, SAMPLE_KEYS, Failure, ViewQuality, stays_published
from tussock.jobs.quality.suite import BLOCKS, REPORTS, QualitySuiteError
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.settings.pipeline import Pipeline
from tussock.statestore.meta.catalog import INTERNAL, Relation, RelationKind
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.months import shown_values
from tussock.statestore.objectstore.base import ObjectStore

_HEADER = re.compile(r"--[ \t]*(?P<name>\w+)[ \t]*:[ \t]*(?P<value>.*?)[ \t]*$")
RESUME = "Correct the row or the SELECT; then `tussock apply --resume "


@dataclass(frozen=True, slots=True)
class Assertion:
    """One file.

    `name` is the file's name. `view` is the name of the hidden view, which contains a digest of the SELECT. So a view
    of this name is the assertion in its current form.
    """

    file: Path
    select: str
    severity: str

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def digest(self) -> str:
        """A digest of the text and the severity."""
        return hashlib.sha256(f"{self.severity}\n{self.select}".encode()).hexdigest()

    @property
    def view(self) -> str:
        digest = hashlib.sha256(f"{self.name}\n{_without_header(self.select)}".encode()).hexdigest()
        return f"{INTERNAL}{re.sub(r'[^a-z0-9_]', '_', self.file.stem.lower())[:43]}_assertion_{digest[:32]}"


def read_assertions(pipeline: Pipeline) -> list[Assertion]:
    """Read the assertions of a pipeline. Raises QualitySuiteError for an invalid header; PipelineError."""
    return [
        Assertion(path, text.strip().rstrip("; \n\t"), _severity(path, text))
        for path, text in pipeline.read_assertions()
    ]


def _severity(file: Path, text: str) -> str:
    """Return the severity in the comments before the SELECT."""
    severity = "error"
    for line in text.strip().splitlines():
        if not line.startswith("--"):
            break
        if (header := _HEADER.match(line)) is None:
            continue
        name, value = header["name"], header["value"]
        if name != "severity":
            if get_close_matches(name.lower(), ["severity"]):
                raise QualitySuiteError(str(file), f"the header {name!r}", "'severity'")
            continue
        if value not in BLOCKS | REPORTS:
            raise QualitySuiteError(str(file), f"severity {value!r}", '"error" or "warning"')
        severity = value
    return severity


def _without_header(select: str) -> str:
    """Return the text after the comments before the SELECT: a new severity needs no other view."""
    return "".join(dropwhile(lambda line: line.startswith("--"), select.splitlines(keepends=True)))


def assertion_statements(assertions: Sequence[Assertion]) -> Iterator[tuple[Path, str]]:
    """Yield the statements that create the hidden views, each with its file. Hidden views have the default schema."""
    for one in assertions:
        yield one.file, f"CREATE MATERIALIZED VIEW {DEFAULT_SCHEMA}.{quote_name(one.view)} AS\n{one.select}"


def judge_assertions(
    objects: ObjectStore,
    version: HummockVersion,
    relations: Mapping[str, Relation],
    assertions: Sequence[Assertion],
    epoch: int,
) -> tuple[list[ViewQuality], list[str]]:
    """Return the results of assertions at `epoch`, and the names of those whose rows readers' views did not change.

    An assertion that the store does not maintain yet is reported and holds nothing back. One whose SELECT raised, so
    that a run paused its view, does not hold: its wrong rows are unknown from then on.

    Args:
        relations: the relations of the catalog at `epoch`, by name.

    Cost: reads the wrong rows.
    """
    judgements: list[ViewQuality] = []
    paused: list[str] = []
    for one in assertions:
        view = relations.get(one.view)
        if view is None:
            warned = (Failure(one.name, NOT_APPLIED),)
            judgements.append(ViewQuality(one.name, 0, 1, suite="", warnings=warned, holds=()))
        elif view.paused_for and view.paused_at(epoch):
            what = f"cannot be evaluated: {view.paused_for.rstrip('.')}. {RESUME}{view.name}` evaluates it again."
            judgements.append(_found_wrong(one, relations, view, 0, what))
        elif stays_published(version, view, epoch):
            paused.append(one.name)
        else:
            judgements.append(_judged(objects, version, relations, one, view, epoch))
    return judgements, paused


def _judged(
    objects: ObjectStore,
    version: HummockVersion,
    relations: Mapping[str, Relation],
    one: Assertion,
    view: Relation,
    epoch: int,
) -> ViewQuality:
    wrong, sample = 0, list[dict[str, str]]()
    for part in scan_relation(objects, version, view, epoch):
        wrong += part.num_rows
        if len(sample) < SAMPLE_KEYS:
            sample += _shown(part.slice(0, SAMPLE_KEYS - len(sample)))
    if not wrong:
        return ViewQuality(one.name, 0, 1, suite=one.digest, holds=_inputs(relations, view))
    return _found_wrong(one, relations, view, wrong, f"{wrong:,} wrong row{'s' * (wrong != 1)}", tuple(sample))


def _found_wrong(
    one: Assertion,
    relations: Mapping[str, Relation],
    view: Relation,
    rows: int,
    observed: str,
    sample: tuple[dict[str, str], ...] = (),
) -> ViewQuality:
    """Return the result of an assertion that does not hold; by its severity it fails or warns."""
    failure = (Failure(one.name, observed, sample),)
    result = ViewQuality(one.name, rows, 1, suite=one.digest, holds=_inputs(relations, view))
    if one.severity in REPORTS:
        return msgspec.structs.replace(result, warnings=failure)
    return msgspec.structs.replace(result, failures=failure)


def _inputs(relations: Mapping[str, Relation], view: Relation) -> tuple[str, ...]:
    """Return the views and tables that an assertion's SELECT reads."""
    names = {r.id: r.name for r in relations.values() if r.kind in (RelationKind.VIEW, RelationKind.TABLE)}
    return tuple(names[id_] for id_ in view.depends_on if id_ in names)


def _shown(rows: pa.Table) -> list[dict[str, str]]:
    names, columns = rows.column_names, [shown_values(column) for column in rows.columns]
    return [{name: str(value) for name, value in zip(names, row, strict=True)} for row in zip(*columns, strict=True)]
