"""The quality gate's record: what the suites found at one epoch, one small JSON object `quality/<epoch>.json` in the store.

It is what a publish goes by: the published epoch moves only to an epoch whose record passed, or, where the gate judges view by view, what
failed is held back. Light, because a publish needs only this:
neither Great Expectations nor Spark.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from tussock.jobs.gate.suite import Suite
from tussock.jobs.gate.text import expectation_text
from tussock.statestore.decoding import decoded
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

SAMPLE_KEYS = 10
"""Most failing rows that a report names."""


class GateVerdict(StrEnum):
    """What is known of the quality of a view, or of an epoch."""

    PASSED = "passed"  # all expectations hold
    FAILED = "failed"  # at least one does not
    NONE = "not checked"  # nobody has looked: there is no suite, or it was not run


class Failure(msgspec.Struct, frozen=True):
    """One expectation that did not hold: its type and arguments as text, what was seen instead, keys of up to SAMPLE_KEYS failing rows."""

    expectation: str
    observed: str
    keys: tuple[dict[str, str], ...] = ()


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one expectation looked at, as a number: what was observed, or how many rows missed it; None where it is no number.

    `earlier`: of an expectation that is compared with its own history, that of the runs before which readers saw, newest first.
    """

    expectation: str
    value: float | None = None
    earlier: tuple[float, ...] = ()


class ViewQuality(msgspec.Struct, frozen=True):
    """What one view's suite found: rows looked at, expectations evaluated, those that failed: `failures` keep the rows from readers."""

    view: str
    rows: int
    expectations: int
    failures: tuple[Failure, ...] = ()
    all_rows: bool = True  # False: only those changed since the epoch that was published then
    suite: str = ""  # digest of the suite's file
    warnings: tuple[Failure, ...] = ()  # of expectations that only report
    metrics: tuple[Metric, ...] = ()  # an expectation each; records of releases before have none
    maintained: int = 0  # expectations answered by what is kept of the view
    scanned: int = 0  # those for which all rows of a large view were read

    @property
    def verdict(self) -> GateVerdict:
        return GateVerdict.FAILED if self.failures else GateVerdict.PASSED

    def metric(self, expectation: str) -> Metric | None:
        """That of an expectation, by its text."""
        return next((metric for metric in self.metrics if metric.expectation == expectation), None)


class QualityRecord(msgspec.Struct, frozen=True):
    """The gate's outcome at one epoch."""

    epoch: int
    views: tuple[ViewQuality, ...]
    paused: tuple[
        str, ...
    ] = ()  # views with a suite that were not looked at: they are paused at rows that readers see already

    def view(self, name: str) -> ViewQuality | None:
        """What a view's suite found."""
        return next((view for view in self.views if view.view == name), None)

    @property
    def failed(self) -> tuple[str, ...]:
        """The views whose suites failed."""
        return tuple(view.view for view in self.views if view.failures)

    @property
    def passed(self) -> bool:
        return not self.failed

    @property
    def verdict(self) -> GateVerdict:
        return GateVerdict.PASSED if self.passed else GateVerdict.FAILED


class QualityGateError(InputError):
    """Rows of a committed epoch are not what a suite expects; the epoch stays unpublished."""

    def __init__(self, record: QualityRecord) -> None:
        super().__init__(record)
        self.record = record

    def __str__(self) -> str:
        lines = [
            f"epoch {self.record.epoch} did not pass the quality gate and is not published; readers still see the epoch before.",
            *(
                line
                for view in self.record.views
                for failure in view.failures
                for line in _failure_lines(view, failure)
            ),
            "Correct the rows with another epoch, or the suite, and run again.",
        ]
        return "\n".join(lines)


class HeldViewsError(InputError):
    """Suites failed, and their views are held back; everything else is published."""

    def __init__(self, record: QualityRecord) -> None:
        super().__init__(record)
        self.record = record

    def __str__(self) -> str:
        lines = [
            f"epoch {self.record.epoch}: the suites of {', '.join(self.record.failed)} failed. Readers go on seeing these views, and those "
            "over them, as they were; everything else is published.",
            *(
                line
                for view in self.record.views
                for failure in view.failures
                for line in _failure_lines(view, failure)
            ),
            "Correct the rows with another epoch, or the suite, and run again.",
        ]
        return "\n".join(lines)


class MissingRecordError(InputError):
    """The gate was not asked about an epoch."""

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.epoch = epoch

    def __str__(self) -> str:
        return f"epoch {self.epoch} has no quality record, so it is not published: run validate_views (jobs/submitted/quality.py) on it first."


def record_name(epoch: int) -> str:
    """The object that holds an epoch's QualityRecord."""
    return f"quality/{epoch}.json"


def write_record(objects: ObjectStore, record: QualityRecord) -> None:
    """Keep a record. A later one replaces it: suites may be corrected and run again."""
    objects.put(record_name(record.epoch), msgspec.json.encode(record))


def read_record(objects: ObjectStore, epoch: int) -> QualityRecord | None:
    """The record of `epoch`; None where the gate was not asked."""
    try:
        return decoded(objects.get(record_name(epoch)), QualityRecord)
    except ObjectNotFoundError:
        return None


def require_judged(objects: ObjectStore, epoch: int) -> QualityRecord:
    """The record of `epoch`. Raises MissingRecordError."""
    if (record := read_record(objects, epoch)) is None:
        raise MissingRecordError(epoch)
    return record


def require_passed(objects: ObjectStore, epoch: int) -> QualityRecord:
    """The record of `epoch`, which passed. Raises QualityGateError, MissingRecordError."""
    if not (record := require_judged(objects, epoch)).passed:
        raise QualityGateError(record)
    return record


def judged(objects: ObjectStore, epoch: int, suites: Sequence[Suite]) -> QualityRecord | None:
    """The record of `epoch`, if these very suites made it: running them again would find the same. None: they have to be run."""
    if (record := read_record(objects, epoch)) is None:
        return None
    digests = {view.view: view.suite for view in record.views}
    wanted = {suite.view: suite.digest for suite in suites if suite.view not in record.paused}
    return record if digests == wanted else None


def stays_published(version: HummockVersion, relation: Relation, epoch: int) -> bool:
    """Whether a view is paused, at rows that its readers see: then nothing of it is new to them at `epoch`.

    Where epochs between the one that they see and the pause changed it, nobody has judged those rows yet, or they failed.
    """
    if relation.paused is None or not relation.paused_at(epoch):
        return False
    seen = published_sight(version).epoch_of(relation.name)
    return not any(seen < before < relation.paused for before in version.epochs)


def passed_before(record: QualityRecord | None, suite: Suite) -> bool:
    """Whether all of the view's rows met all of this very suite's rules on rows at the epoch of `record`."""
    view = None if record is None else record.view(suite.view)
    if view is None or view.suite != suite.digest:
        return False
    by_row = {expectation_text(item["type"], item.get("kwargs", {})) for item in suite.by_row.items}
    failed = [failure.expectation for failure in (*view.failures, *view.warnings)]
    return (
        not failed if not view.metrics else by_row.isdisjoint(failed)
    )  # a release before called expectations otherwise


def record_lines(record: QualityRecord) -> Iterator[str]:
    """What was looked at, a line a view, for a log."""
    for view in record.views:
        rows = "rows" if view.all_rows else "changed rows"
        warned = f", {len(view.warnings)} of them only to be reported" if view.warnings else ""
        failed = len(view.failures) + len(view.warnings)
        yield f"{view.view}: {view.expectations} expectations over {view.rows} {rows}, {failed} failed{warned}"
        if view.maintained:
            yield f"  {view.maintained} of them answered by what epochs keep of the view, no row read"
        if view.scanned:
            yield f"  {view.scanned} of them read all rows"
        yield from (line for warning in view.warnings for line in _failure_lines(view, warning))
    yield from (f"{name}: paused, not looked at" for name in record.paused)


def _failure_lines(view: ViewQuality, failure: Failure) -> Iterator[str]:
    yield f"  view {view.view!r}: {failure.expectation}: found {failure.observed}"
    if failure.keys:
        yield "    failing rows: " + "; ".join(
            ", ".join(f"{name}={value}" for name, value in key.items()) for key in failure.keys
        )
