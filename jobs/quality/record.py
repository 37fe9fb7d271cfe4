"""The record of a quality check: the results of one epoch, as one JSON object `quality/<epoch>.json` in the store.

A publish depends on it: the published epoch only moves to an epoch whose record passed. If the check judges view by
view, failed views are held back instead. This module imports neither Great Expectations nor Spark, because every
publish loads it.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest

import msgspec

from tussock.jobs.settings.row_values import HINT, prints_rows
from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.open import REMOTE

SAMPLE_KEYS = 10
"""Maximum number of failing rows in a report."""

SUBJECT = "source "
"""The entry of a source in a quality record is named by this word and the source."""

CORRECT_ROWS = "Correct the rows with another epoch, or correct the suite, and run again."


USABLE_SUITE = "a usable suite"
"""The expectation of a suite that cannot be read or evaluated."""

NOT_APPLIED = "The store does not maintain it in this form. `tussock apply` does, from the next epoch on."
"""The text for an assertion that has changed since the last apply."""

_COUNT = re.compile(r"[\d,]+(?: of [\d,]+)? (?:wrong |distinct |failing )?(?:rows?|values|records)\b")


class QualityVerdict(StrEnum):
    """The quality verdict on a view or an epoch."""

    PASSED = "passed"  # all expectations hold
    FAILED = "failed"  # at least one does not
    NONE = "not checked"  # no suite exists, or it has not run


class JudgedBy(StrEnum):
    """How an expectation was judged."""

    MAINTAINED = "maintained"  # by hidden views; no row of the view was read
    SPARK = "Spark"  # by Spark, over all rows


class Failure(msgspec.Struct, frozen=True):
    """A failed expectation: its text, the observed value, and the keys of up to SAMPLE_KEYS failing rows."""

    expectation: str
    observed: str
    keys: tuple[dict[str, str], ...] = ()

    def without_values(self) -> "Failure":
        """Return the failure without values of rows: of the observed text, only a count stays."""
        if self.expectation == USABLE_SUITE or self.observed == NOT_APPLIED:
            return self
        count = _COUNT.match(self.observed)
        return Failure(self.expectation, count[0] if count else HINT)


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number that one expectation observed: its value, or its count of failing rows; None if it is not a number.

    Args:
        earlier: for an expectation with a history, the numbers of earlier published runs, newest first.
        place: how the expectation was judged.
        why: the reason why Spark judged it; empty otherwise.
    """

    expectation: str
    value: float | None = None
    earlier: tuple[float, ...] = ()
    place: str = ""
    why: str = ""


class ViewQuality(msgspec.Struct, frozen=True):
    """The result of one view's suite: rows read, expectations evaluated, failures that hold rows back, and warnings."""

    view: str
    rows: int
    expectations: int
    failures: tuple[Failure, ...] = ()
    suite: str = ""  # digest of the suite's file
    warnings: tuple[Failure, ...] = ()  # of expectations that only report
    metrics: tuple[Metric, ...] = ()  # one per expectation
    # Of an assertion, whose name is in `view`: the views and tables that it reads, which its failure holds back.
    holds: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def held_back(self) -> tuple[str, ...]:
        """The relations that a failure holds back."""
        return (self.view,) if self.holds is msgspec.UNSET else self.holds

    @property
    def verdict(self) -> QualityVerdict:
        return QualityVerdict.FAILED if self.failures else QualityVerdict.PASSED

    def metric(self, expectation: str) -> Metric | None:
        """Return the metric of an expectation, by its text."""
        return next((metric for metric in self.metrics if metric.expectation == expectation), None)


class QualityRecord(msgspec.Struct, frozen=True):
    """The quality check's result for one epoch."""

    epoch: int
    views: tuple[ViewQuality, ...]
    paused: tuple[
        str, ...
    ] = ()  # views with a suite that were skipped: they are paused, and readers already see their rows
    # The command that published this epoch without its checks. `views` then contains the failures of earlier checks.
    unchecked: str | msgspec.UnsetType = msgspec.UNSET
    arrival: str | msgspec.UnsetType = msgspec.UNSET  # digest of the rules on arrival; unset: there were none
    # The command that had published this epoch without its checks when they ran after all: `unchecked` of that time.
    published_by: str | msgspec.UnsetType = msgspec.UNSET
    # The failed entries of `views` whose rows at this epoch readers saw before the quality check judged them.
    seen: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def view(self, name: str) -> ViewQuality | None:
        """Return the result of a view's suite."""
        return next((view for view in self.views if view.view == name), None)

    @property
    def failed(self) -> tuple[str, ...]:
        """The views whose suites failed, and the assertions that failed."""
        return tuple(view.view for view in self.views if view.failures)

    @property
    def refused(self) -> frozenset[str]:
        """The relations that the failures hold back, if the quality check judges view by view."""
        return frozenset(name for view in self.views if view.failures for name in view.held_back)

    @property
    def passed(self) -> bool:
        return not self.failed

    @property
    def was_published(self) -> bool:
        """Whether all rows that failed were published before the quality check judged them, so that it refused none."""
        return not self.passed and set(self.failed) <= set(self.seen or ())

    @property
    def publisher(self) -> str:
        """How the epoch was published before its check, for a sentence: ` by tussock epoch --no-check`, or empty."""
        return f" by {self.published_by}" if self.published_by else ""

    @property
    def verdict(self) -> QualityVerdict:
        if self.unchecked and self.passed:
            return QualityVerdict.NONE
        return QualityVerdict.PASSED if self.passed else QualityVerdict.FAILED


class QualityCheckError(InputError, hides_row_values=True):
    """Rows of a committed epoch violate a suite; the epoch is not published.

    `published`: the epoch that readers see. It can be this one, if it was published before the quality check judged it.
    """

    record: QualityRecord
    published: int = 0

    def __str__(self) -> str:
        record = self.record
        first = f"epoch {record.epoch} did not pass the quality check"
        if record.was_published:
            first += f", but was published{record.publisher} before this check."
        elif self.published > record.epoch:
            first += f" and was not published; readers see epoch {self.published}."
        else:
            first += " and is not published; readers still see the previous epoch."
        return "\n".join([first, *failure_lines(record), *remedies(record.views)])


class HeldViewsError(InputError, hides_row_values=True):
    """Suites failed and their views are held back; everything else is published."""

    record: QualityRecord

    def __str__(self) -> str:
        record = self.record
        failed = [view for view in record.views if view.failures]
        seen = [view for view in failed if view.view in (record.seen or ())]
        unseen_views = [view for view in failed if view not in seen]
        lines = []
        if unseen_views:
            views = dict.fromkeys(name for view in unseen_views for name in view.held_back)
            kept_rows = f"the previous rows of {', '.join(views)} and of the views that read them; everything else"
            outcome = (
                f"Readers keep seeing {kept_rows} is published." if views else "It reads no view, so all is published."
            )
            lines.append(f"epoch {record.epoch}: {_named(unseen_views)} failed. {outcome}")
        if seen:
            lines.append(
                f"epoch {record.epoch}: {_named(seen)} failed. Their rows are not held back, because they were "
                f"published{record.publisher} before this check."
            )
        return "\n".join([*lines, *failure_lines(record), *remedies(record.views)])


def _named(failed: Sequence[ViewQuality]) -> str:
    """Name what failed: `the suites of orders, shops and assertion paid.sql`."""
    suites = [view.view for view in failed if view.holds is msgspec.UNSET]
    others = [subject_of(view.view) for view in failed if view.holds is not msgspec.UNSET]
    return " and ".join([*([f"the suites of {', '.join(suites)}"] if suites else []), *others])


def subject_of(name: str) -> str:
    """Return the subject of a result that is not about one view: `assertion paid.sql`, `source orders`."""
    return name if is_source(name) else f"assertion {name}"


class MissingRecordError(InputError, hides_row_values=True):
    """The quality check has not run on an epoch."""

    epoch: int

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} has no quality record, so it was not published. Run validate_views "
            "(`python -m tussock.jobs.submitted quality`) on it first."
        )


def record_name(epoch: int) -> str:
    """Return the name of the object with an epoch's QualityRecord."""
    return f"quality/{epoch}.json"


def write_record(objects: ObjectStore, record: QualityRecord) -> None:
    """Store a record. It replaces an earlier one of its epoch, because corrected suites may run again."""
    objects.put(record_name(record.epoch), msgspec.json.encode(record))


def read_record(objects: ObjectStore, epoch: int) -> QualityRecord | None:
    """Return the record of `epoch`; None if the quality check has not run."""
    try:
        return decode_json(objects.get(record_name(epoch)), QualityRecord)
    except ObjectNotFoundError:
        return None


def require_judged(objects: ObjectStore, epoch: int) -> QualityRecord:
    """Return the record of `epoch`. Raises MissingRecordError."""
    if (record := read_record(objects, epoch)) is None or record.unchecked:
        raise MissingRecordError(epoch)
    return record


def after_publish(record: QualityRecord, before: QualityRecord | None, version: HummockVersion) -> QualityRecord:
    """Return a new record with the facts of an earlier publish of its epoch.

    Args:
        before: the earlier record of the epoch.
        version: as of the check. A later published epoch alone shows nothing: readers may have skipped this one.
    """
    by = msgspec.UNSET if before is None else before.unchecked or before.published_by
    if version.published != record.epoch and not by:
        return record
    sight = published_sight(version)
    seen = tuple(
        view.view
        for view in record.views
        if view.failures and all(sight.epoch_of(name) >= record.epoch for name in view.held_back)
    )
    return msgspec.structs.replace(record, published_by=by, seen=seen or msgspec.UNSET)


def find_current_record(
    objects: ObjectStore, epoch: int, digests_now: Mapping[str, str], arrival: str
) -> QualityRecord | None:
    """Return the record of `epoch` if the current suites, assertions and rules made it; None if they must run.

    Args:
        digests_now: digests of suites and assertions, by view or assertion.
        arrival: the digest of the rules on arrival; empty: there are none.
    """
    if (record := read_record(objects, epoch)) is None or record.unchecked or (record.arrival or "") != arrival:
        return None
    digest_by_view = {view.view: view.suite for view in record.views if not is_source(view.view)}
    return record if digest_by_view == {k: v for k, v in digests_now.items() if k not in record.paused} else None


def stays_published(version: HummockVersion, relation: Relation, epoch: int) -> bool:
    """Return whether a view is paused at rows that readers already see, so that `epoch` changes nothing for them.

    False if it changed between the epoch that readers see and the pause: those rows failed or were not judged.
    """
    if relation.paused is None or not relation.paused_at(epoch):
        return False
    seen = published_sight(version).epoch_of(relation.name)
    return not any(seen < before < relation.paused for before in version.epochs)


def is_source(name: str) -> bool:
    """Return whether an entry of a record is about the arrival of a source's files."""
    return name.startswith(SUBJECT)


def remedies(results: Iterable[ViewQuality]) -> Iterator[str]:
    """The next steps after failures: for suites and assertions together, and for each source whose files failed."""
    failed = [result for result in results if result.failures]
    if any(not is_source(result.view) for result in failed):
        yield CORRECT_ROWS
    yield from (_source_remedy(result) for result in failed if is_source(result.view))


def _source_remedy(result: ViewQuality) -> str:
    source = result.view.removeprefix(SUBJECT)
    rule = f"[arrival.{source}] in pipeline.toml, and run again."
    item = next((key["file"] for one in result.failures for key in one.keys if "file" in key), "")
    if item and not item.startswith(("/", *REMOTE)):  # a topic or a Delta table: its changes are further input
        return f"Correct the rows with another epoch, or change {rule}"
    return (
        f"Correct the file, and run `tussock restate {source} --file {shlex.quote(item or 'FILE')}`. Or change {rule}"
    )


def record_lines(record: QualityRecord, before: QualityRecord | None = None) -> Iterator[str]:
    """Describe the results for a log, one line per view.

    Args:
        before: an earlier record. The failing rows of a warning are left out if this record has the same.
    """
    for view in record.views:
        if view.holds is not msgspec.UNSET:
            if is_source(view.view):
                yield f"{view.view}: {view.rows:,} new row{'s' * (view.rows != 1)}"
            else:
                yield f"{view.view}: {view.rows:,} wrong row{'s' * (view.rows != 1)}"
            yield from _warning_lines(view, before)
            continue
        warned = f", {len(view.warnings)} of them only reported" if view.warnings else ""
        failed = len(view.failures) + len(view.warnings)
        expectations = f"{view.expectations} expectation{'s' * (view.expectations != 1)}"
        rows = f"{view.rows:,} row{'s' * (view.rows != 1)}"
        yield f"{view.view}: {expectations} over {rows}, {failed} failed{warned}"
        for metric in view.metrics:
            if metric.place == JudgedBy.SPARK:
                yield f"  on Spark: {metric.expectation}: {metric.why}"
        yield from _warning_lines(view, before)
    yield from (f"{name}: paused, skipped" for name in record.paused)


def failure_lines(record: QualityRecord) -> Iterator[str]:
    """Describe the failures that hold rows back, with failing rows."""
    for view in record.views:
        yield from _failure_lines(view, view.failures)


def _warning_lines(view: ViewQuality, before: QualityRecord | None) -> Iterator[str]:
    """As `_failure_lines`, for warnings. Rows that `before` contains too are named by its epoch."""
    earlier = None if before is None else before.view(view.view)
    if before is None or earlier is None:
        yield from _failure_lines(view, view.warnings)
        return
    rows = {one.expectation: one.keys for one in earlier.warnings}
    for warning in view.warnings:
        yield _failure_line(view, warning)
        if warning.keys and rows.get(warning.expectation) == warning.keys:
            yield f"    failing rows: those of epoch {before.epoch}"
        else:
            yield from _failing_rows(warning)


def _failure_lines(view: ViewQuality, failures: Sequence[Failure]) -> Iterator[str]:
    """One line per failure. Failures in succession with the same rows list them once."""
    if not prints_rows():
        failures = [failure.without_values() for failure in failures]
    for failure, below in zip_longest(failures, failures[1:]):
        yield _failure_line(view, failure)
        if below is None or below.keys != failure.keys:
            yield from _failing_rows(failure)


def _failure_line(view: ViewQuality, failure: Failure) -> str:
    if view.holds is not msgspec.UNSET:
        what = f"{view.view}:" if is_source(view.view) else "assertion"
        return f"  {what} {failure.expectation}: {failure.observed}"
    return f"  view {view.view!r}: {failure.expectation}: found {failure.observed}"


def _failing_rows(failure: Failure) -> Iterator[str]:
    if failure.keys:
        yield "    failing rows: " + "; ".join(
            ", ".join(f"{name}={value}" for name, value in key.items()) for key in failure.keys
        )
