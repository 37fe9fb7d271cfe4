"""Results of quality checks per epoch, view and expectation, with failed rows and links to pages of the Data Docs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.quality.index import RESULTS, SuiteResult
from tussock.jobs.quality.record import (
    Failure,
    JudgedBy,
    Metric,
    QualityRecord,
    QualityVerdict,
    ViewQuality,
    is_source,
    record_name,
)
from tussock.jobs.quality.suite import read_suite
from tussock.jobs.quality.text import expectation_text
from tussock.jobs.settings.tables import QualitySettings
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import InputError
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore

# Bytes read from the newest-first list of the Data Docs; older entries are only in the Data Docs' own index.
_MOST_BYTES = 8 << 20
_PARALLEL = 8  # HEAD requests at a time


class CheckFacts(msgspec.Struct, frozen=True):
    """The result of one view's suite, of an assertion, or of a source's arrival, at one epoch. `view` names it."""

    epoch: int
    at: datetime
    view: str
    verdict: QualityVerdict
    rows: int  # checked
    expectations: int
    failures: tuple[Failure, ...]
    warnings: tuple[Failure, ...]
    pages: tuple[str, ...] = ()  # of the Data Docs, as paths relative to their folder
    metrics: tuple[Metric, ...] = ()  # one per expectation
    suite: str = ""  # digest of the suite's file
    of_view: bool = True  # False: of an assertion or a source
    seen: bool = False  # it failed, and readers had seen its rows at this epoch before it was judged

    @property
    def suite_version(self) -> str:
        """The digest, short enough to compare by eye."""
        return self.suite[:7]

    @property
    def by_spark(self) -> int:
        """The number of expectations that Spark judged over all rows."""
        return sum(metric.place == JudgedBy.SPARK for metric in self.metrics)


class EpochQuality(msgspec.Struct, frozen=True):
    """The quality check's verdict on one epoch."""

    epoch: int
    at: datetime
    verdict: QualityVerdict  # NONE: not checked, as for all epochs of a train except the last
    checks: tuple[CheckFacts, ...]  # by view
    paused: tuple[str, ...]  # views with a suite that were not checked
    published_by: str = ""  # the command that published it without its checks, which may have run later
    refused: bool = False  # the quality check kept the whole epoch from readers, who then saw a later one instead

    @property
    def warnings(self) -> int:
        """The number of failed expectations that only report."""
        return sum(len(check.warnings) for check in self.checks)


class Outcome(StrEnum):
    """The outcome of one expectation in one check."""

    PASSED = "passed"
    WARNED = "warned"  # it failed and only reports
    FAILED = "failed"
    NOT_EVALUATED = "not evaluated"  # the suite of that time did not contain it


class ExpectationHistory(msgspec.Struct, frozen=True):
    """One expectation of a view's suite, in its current form in the file, or in the form that last failed."""

    expectation: str
    only_reports: bool
    in_suite: bool  # False: it is no longer in the file
    outcomes: tuple[tuple[int, Outcome], ...]  # (epoch, outcome), oldest first
    values: tuple[float | None, ...]  # the observed value or the number of failed rows, parallel to `outcomes`
    last_failure: Failure | None
    last_failed: int | None  # epoch


def quality_of_epoch(
    epoch: int, record: QualityRecord | None, pages: Mapping[str, tuple[str, ...]], *, by_view: bool
) -> EpochQuality:
    """Return the quality check's verdict on an epoch.

    Args:
        record: the quality check's record of the epoch; None if it has none.
        pages: the pages of the Data Docs about the epoch, by view.
        by_view: whether the quality check judges view by view, so that it refuses no whole epoch.
    """
    if record is None:
        return EpochQuality(epoch, epoch_moment(epoch), QualityVerdict.NONE, (), ())
    seen = record.seen or ()
    checks = tuple(_check(epoch, view, pages.get(view.view, ()), view.view in seen) for view in record.views)
    by = record.unchecked or record.published_by or ""
    refused = not (record.passed or by_view or by or record.was_published)
    return EpochQuality(epoch, epoch_moment(epoch), record.verdict, checks, record.paused, by, refused)


def record_etags(objects: ObjectStore, epochs: Sequence[int]) -> tuple[str | None, ...]:
    """Return the ETag of each epoch's quality record; None for an epoch without one.

    A record whose ETag is unchanged is unchanged. Cost: a HEAD per epoch, at most _PARALLEL at a time.
    """

    def etag(epoch: int) -> str | None:
        try:
            return objects.head(record_name(epoch)).etag
        except ObjectNotFoundError:
            return None

    if isinstance(objects, LocalObjectStore) or len(epochs) < 2:  # a thread costs more than a local file
        return tuple(map(etag, epochs))
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return tuple(pool.map(etag, epochs))


def expectations(
    view: str, checks: Sequence[CheckFacts], settings: QualitySettings | None
) -> tuple[ExpectationHistory, ...]:
    """Return the history of each expectation of a view's suite, as it was evaluated.

    An assertion has one expectation, and a source has one per rule that ever failed, or else one.

    Expectations in the file come first, in its order, then others that these checks evaluated. A record without
    numbers does not list its expectations: those of a suite with the file's digest passed unless they failed, and all
    others count as not evaluated.

    Args:
        view: the view; or the name of an assertion or a source, as in `CheckFacts`.
        checks: of this view, newest first. The history is oldest first, like a line of values.

    Cost: one read of the suite's file. An unreadable file counts as empty; `validate_views` reports the error.
    """
    if checks and not checks[0].of_view:
        failed = {
            failure.expectation: reports for check in reversed(checks) for failure, reports in _failures_of(check)
        }
        return tuple(_of_rule(text, reports, checks) for text, reports in (failed or {view: False}).items())
    now, digest = _in_file(view, settings)
    before = {m.expectation: False for check in checks for m in check.metrics}
    before |= {failure.expectation: reports for check in checks for failure, reports in _failures_of(check)}
    return tuple(
        _history(text, now.get(text, before.get(text, False)), text in now, checks, digest)
        for text in {**now, **before}
    )


def _of_rule(text: str, only_reports: bool, checks: Sequence[CheckFacts]) -> ExpectationHistory:
    """Return the history of an assertion or of a rule on arrival: it passed unless it failed."""
    history = _history(text, only_reports, True, checks, "")
    outcomes = tuple(
        (epoch, Outcome.PASSED if outcome is Outcome.NOT_EVALUATED else outcome) for epoch, outcome in history.outcomes
    )
    values = [None if is_source(check.view) else float(check.rows) for check in reversed(checks)]
    return msgspec.structs.replace(history, outcomes=outcomes, values=tuple(values))


def _history(
    text: str, only_reports: bool, in_suite: bool, checks: Sequence[CheckFacts], digest: str
) -> ExpectationHistory:
    outcomes, values, last, last_epoch = [], [], None, None
    for check in reversed(checks):
        failure, reports = next(((f, r) for f, r in _failures_of(check) if f.expectation == text), (None, False))
        metric = next((metric for metric in check.metrics if metric.expectation == text), None)
        if failure is not None:
            last, last_epoch = failure, check.epoch
            outcome = Outcome.WARNED if reports else Outcome.FAILED
        else:
            evaluated = metric is not None or (not check.metrics and in_suite and check.suite == digest)
            outcome = Outcome.PASSED if evaluated else Outcome.NOT_EVALUATED
        outcomes.append((check.epoch, outcome))
        values.append(None if metric is None else metric.value)
    return ExpectationHistory(text, only_reports, in_suite, tuple(outcomes), tuple(values), last, last_epoch)


def _failures_of(check: CheckFacts) -> Iterator[tuple[Failure, bool]]:
    yield from ((failure, False) for failure in check.failures)
    yield from ((failure, True) for failure in check.warnings)


def _in_file(view: str, settings: QualitySettings | None) -> tuple[dict[str, bool], str]:
    """Return the expectations of the suite's file, with whether each only reports, and the suite's digest."""
    if settings is None:
        return {}, ""
    try:
        suite = read_suite(settings.folder / f"{view}.json")
    except InputError:
        return {}, ""
    texts = {expectation_text(item["type"], item.get("kwargs", {})): suite.reports(item) for item in suite.items}
    return texts, suite.digest


def _check(epoch: int, view: ViewQuality, pages: tuple[str, ...], seen: bool) -> CheckFacts:
    return CheckFacts(
        epoch,
        epoch_moment(epoch),
        view.view,
        view.verdict,
        view.rows,
        view.expectations,
        view.failures,
        view.warnings,
        pages,
        view.metrics,
        view.suite,
        of_view=view.holds is msgspec.UNSET,
        seen=seen,
    )


def pages_of(docs: Path, epochs: Collection[int]) -> Mapping[int, Mapping[str, tuple[str, ...]]]:
    """Return the pages of the Data Docs about these epochs, by epoch and view.

    Cost: reads the beginning of the list, which has new pages, at most _MOST_BYTES.
    """
    wanted = set(epochs)
    pages_by_epoch: dict[int, dict[str, tuple[str, ...]]] = {}
    decoder = decoder_of(SuiteResult)
    try:
        with (docs / RESULTS).open("rb") as lines:
            while wanted and lines.tell() < _MOST_BYTES and (line := lines.readline()):
                result = decoder.decode(line)
                if result.epoch < min(wanted):
                    break
                if result.epoch in wanted:
                    of = pages_by_epoch.setdefault(result.epoch, {})
                    of[result.view] = (*of.get(result.view, ()), result.page)
    except (OSError, msgspec.DecodeError):
        return pages_by_epoch  # no suite has run yet, or another machine is writing the list: no page to link
    return pages_by_epoch
