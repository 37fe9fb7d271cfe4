"""Results of the quality gate per epoch, view and expectation, with failed rows and links to pages of the Data Docs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from tussock.jobs.facts.moment import moment
from tussock.jobs.gate.index import RESULTS, SuiteResult
from tussock.jobs.gate.record import Failure, GateVerdict, Metric, ViewQuality, read_record
from tussock.jobs.gate.suite import read_suite
from tussock.jobs.gate.text import expectation_text
from tussock.jobs.settings.pipeline import QualitySettings
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import InputError
from tussock.statestore.objectstore.base import ObjectStore

# Bytes read from the newest-first list of the Data Docs; older entries are only in the Data Docs' own index.
_MOST_BYTES = 8 << 20


class CheckFacts(msgspec.Struct, frozen=True):
    """The result of one view's suite at one epoch."""

    epoch: int
    at: datetime
    view: str
    verdict: GateVerdict
    rows: int  # checked
    all_rows: bool  # False: only those changed since the epoch that readers saw
    expectations: int
    failures: tuple[Failure, ...]
    warnings: tuple[Failure, ...]
    pages: tuple[str, ...] = ()  # of the Data Docs, as paths relative to their folder
    metrics: tuple[Metric, ...] = ()  # one per expectation
    maintained: int = 0  # expectations answered from state that epochs keep for the view
    scanned: int = 0  # expectations for which all rows of a large view were read


class EpochQuality(msgspec.Struct, frozen=True):
    """The gate's verdict on one epoch."""

    epoch: int
    at: datetime
    verdict: GateVerdict  # NONE: not checked, as for all epochs of a train except the last
    checks: tuple[CheckFacts, ...]  # by view
    paused: tuple[str, ...]  # views with a suite that were not checked


class ExpectationHistory(msgspec.Struct, frozen=True):
    """One expectation of a view's suite, in its current form in the file, or in the form that last failed."""

    expectation: str
    only_reports: bool
    in_suite: bool  # False: it is no longer in the file
    outcomes: tuple[
        tuple[int, GateVerdict], ...
    ]  # (epoch, outcome), newest first; NONE: the suite had another digest then
    values: tuple[float | None, ...]  # the observed value or the number of failed rows, parallel to `outcomes`
    last_failure: Failure | None
    last_failed: int | None  # epoch


def quality_of_epochs(
    objects: ObjectStore, epochs: Sequence[int], settings: QualitySettings | None
) -> tuple[EpochQuality, ...]:
    """Return the gate's verdicts on epochs, in their order.

    Cost: one GET per epoch, and at most _MOST_BYTES of the Data Docs' list.
    """
    pages = {} if settings is None else _pages(settings.docs, epochs)
    found = []
    for epoch in epochs:
        record = read_record(objects, epoch)
        if record is None:
            found.append(EpochQuality(epoch, moment(epoch), GateVerdict.NONE, (), ()))
            continue
        checks = tuple(_check(epoch, view, pages.get((epoch, view.view), ())) for view in record.views)
        found.append(EpochQuality(epoch, moment(epoch), record.verdict, checks, record.paused))
    return tuple(found)


def expectations(
    view: str, checks: Sequence[CheckFacts], settings: QualitySettings | None
) -> tuple[ExpectationHistory, ...]:
    """Return the history of each expectation of a view's suite.

    Expectations in the file come first, in its order, then others that failed in these checks.

    Args:
        checks: of this view, newest first.

    Cost: one read of the suite's file. An unreadable file counts as empty; `validate_views` reports the error.
    """
    now = dict(_in_file(view, settings))
    failed = {failure.expectation: reports for check in checks for failure, reports in _failed(check)}
    return tuple(
        _history(text, now.get(text, failed.get(text, False)), text in now, checks) for text in {**now, **failed}
    )


def _history(text: str, only_reports: bool, in_suite: bool, checks: Sequence[CheckFacts]) -> ExpectationHistory:
    outcomes, values, last, last_epoch = [], [], None, None
    for check in checks:
        failure = next((f for f, _ in _failed(check) if f.expectation == text), None)
        if failure is not None and last is None:
            last, last_epoch = failure, check.epoch
        passed = GateVerdict.PASSED if in_suite else GateVerdict.NONE
        outcomes.append((check.epoch, passed if failure is None else GateVerdict.FAILED))
        values.append(next((metric.value for metric in check.metrics if metric.expectation == text), None))
    return ExpectationHistory(text, only_reports, in_suite, tuple(outcomes), tuple(values), last, last_epoch)


def _failed(check: CheckFacts) -> Iterator[tuple[Failure, bool]]:
    yield from ((failure, False) for failure in check.failures)
    yield from ((failure, True) for failure in check.warnings)


def _in_file(view: str, settings: QualitySettings | None) -> Iterator[tuple[str, bool]]:
    if settings is None:
        return
    try:
        suite = read_suite(settings.folder / f"{view}.json")
    except InputError:
        return
    for item in suite.items:
        yield expectation_text(item["type"], item.get("kwargs", {})), suite.reports(item)


def _check(epoch: int, view: ViewQuality, pages: tuple[str, ...]) -> CheckFacts:
    return CheckFacts(
        epoch,
        moment(epoch),
        view.view,
        view.verdict,
        view.rows,
        view.all_rows,
        view.expectations,
        view.failures,
        view.warnings,
        pages,
        view.metrics,
        view.maintained,
        view.scanned,
    )


def _pages(docs: Path, epochs: Iterable[int]) -> dict[tuple[int, str], tuple[str, ...]]:
    """Return the pages of these epochs, by epoch and view. Only the beginning of the list, with new pages, is read."""
    wanted = set(epochs)
    found: dict[tuple[int, str], tuple[str, ...]] = {}
    decoder = decoder_of(SuiteResult)
    try:
        with (docs / RESULTS).open("rb") as lines:
            while wanted and lines.tell() < _MOST_BYTES and (line := lines.readline()):
                result = decoder.decode(line)
                if result.epoch < min(wanted):
                    break
                if result.epoch in wanted:
                    found[result.epoch, result.view] = (*found.get((result.epoch, result.view), ()), result.page)
    except (OSError, msgspec.DecodeError):
        return found  # no suite has run yet, or another machine is writing the list: no page to link
    return found
