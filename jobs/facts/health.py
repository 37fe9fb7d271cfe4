"""The health of a pipeline: everything that is wrong with it or worth knowing, each with its next step.

`find_troubles` is the only place that decides. `tussock status`, the pages, the metrics and the DAG's task `health`
show its result; docs/operations.md lists the conditions (tests/airflow/pages/test_health.py causes each one).
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from tussock.jobs.facts.moment import age_text, epoch_moment
from tussock.jobs.facts.published import CopyFacts, PublishedFacts
from tussock.jobs.facts.runs import RunFacts, RunState
from tussock.jobs.facts.sources import SourceFacts
from tussock.jobs.facts.status import Status
from tussock.jobs.facts.store import StoreFacts
from tussock.jobs.facts.trouble import Trouble, TroubleKind
from tussock.jobs.facts.verified import VerifiedFacts
from tussock.jobs.facts.views import Quality, ViewFacts, ViewState
from tussock.jobs.quality.arrival import MissingFiles
from tussock.jobs.quality.record import CORRECT_ROWS, QualityRecord, is_source, remedies, subject_of
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.sources.rejects import rejects_name

# An epoch is stuck if it is open for longer than this and than STUCK_TIMES the longest recent epoch.
STUCK = timedelta(minutes=15)
STUCK_TIMES = 10
_NAMED = 5  # views listed in one trouble


class HealthFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that decide the health: the status, and facts of the same version that it does not show."""

    status: Status  # still without its troubles
    committed: int  # epoch; 0: none
    published: int
    overdue: datetime | None  # as tussock.jobs.facts.runs.overdue_run
    freshness: Mapping[str, int]
    publish: Sequence[PublishSettings]
    record: QualityRecord | None = None  # the quality check's, of the committed epoch
    missing: Sequence[MissingFiles] = ()  # of the newest intervals
    is_empty: bool = False  # no epoch is committed or open, and no statement waits
    inputs: Mapping[str, Set[str]] = {}  # the relations that each view reads; empty if no view is held back


def find_troubles(facts: HealthFacts) -> tuple[Trouble, ...]:
    """Return the troubles of a pipeline whose store can be read, wrong ones first."""
    status, pipeline = facts.status, facts.status.pipeline_argument
    unpublished = facts.committed if facts.published < facts.committed else None
    listed = [
        *_of_runs(status, facts.overdue),
        *_of_empty(facts),
        *_of_copy(status.copy, facts.publish),
        *(t for one in status.tables for t in _of_tables(one, status.copy, facts.published, pipeline)),
        *_of_sources(status.sources),
        *_of_views(status.views, unpublished, pipeline),
        *_of_freshness(status, facts.freshness),
        *_of_epochs(status),
        *_of_arrival(facts.missing),
        *_of_late_files(status.sources),
        *_of_publishing(facts),
        *_of_checks(facts),
        *(_of_shape(status.shape) if status.branch is None else ()),  # a branch would get copies of the parent's rows
        *_of_verified(status.verified),
        *_of_followers(facts),
    ]
    if not any(trouble.wrong for trouble in listed):
        listed += _of_incomplete(status)
    return tuple(sorted(listed, key=lambda trouble: not trouble.wrong))


def _of_runs(status: Status, overdue: datetime | None) -> Iterator[Trouble]:
    run = status.run
    if run is not None and not _is_past(run, status.committed):
        barrier = f"`tussock barrier show{status.pipeline_option}`"
        if run.state is RunState.FAILED:
            waits = f"The next run continues with the same input; {barrier} lists it."
            again = "Run it again: its input is not lost." if status.open is None else waits
            do = f"Correct the cause. {again}"
            yield Trouble(
                TroubleKind.RUN_FAILED, f"run {run.name}", f"failed ({run.what}): {run.error}", do, since=run.at
            )
        elif run.state is RunState.INTERRUPTED:
            what = f"was interrupted ({run.what}): its process gave its last sign at {run.at:%Y-%m-%d %H:%M:%S}"
            do = (
                f"Process {run.writer} was probably killed; check its host's memory. Its input is not lost: the next "
                f"run continues with it{'' if status.open is None else f', and {barrier} lists it'}."
            )
            yield Trouble(TroubleKind.RUN_INTERRUPTED, f"run {run.name}", what, do, since=run.at)
    if overdue is not None:
        what = f"is overdue: the run of {overdue:%Y-%m-%d %H:%M} UTC has not begun"
        do = "Check that Airflow's scheduler runs, and that the pipeline's epoch DAG is neither paused nor in error."
        yield Trouble(TroubleKind.RUN_OVERDUE, "schedule", what, do, since=overdue)


def _of_empty(facts: HealthFacts) -> Iterator[Trouble]:
    if facts.is_empty:
        fills = f"`tussock apply {facts.status.pipeline_argument}` queues the statements of the pipeline's SQL files"
        failed = "If an apply has failed, its message has the reason."
        do = f"{fills}. {failed}" if facts.status.pipeline else "Give it statements."
        yield Trouble(TroubleKind.STORE_EMPTY, "store", "is empty: no statement was ever given", do, wrong=False)


def _of_incomplete(status: Status) -> Iterator[Trouble]:
    """Yield that the last run is red, if nothing is wrong any more that would show why."""
    run = status.run
    if run is not None and run.state is RunState.INCOMPLETE and not _is_past(run, status.committed):
        left = "\n".join(left.splitlines()[0] for left in run.undone if left)
        do = "If this is still to be done, do it and clear the run. Otherwise the next run ends this note."
        what = f"ended, and left something undone:\n{left}"
        yield Trouble(TroubleKind.RUN_INCOMPLETE, f"run {run.name}", what, do, wrong=False, since=run.at)


def _is_past(run: RunFacts, committed: datetime | None) -> bool:
    """Whether an epoch began after the end of a run, so that its outcome no longer matters."""
    return committed is not None and committed > run.at


def _of_copy(copy: CopyFacts | None, publish: Sequence[PublishSettings]) -> Iterator[Trouble]:
    if copy is not None:
        what = f"was copied or moved: its recorded place is {copy.recorded}, but it is at {copy.found}"
        do = (
            f"Its tables are not published until you confirm which: `tussock store moved --store {copy.store}` if it "
            f"replaces the recorded store, `tussock store clone --store {copy.store}` if both stay in use."
        )
        yield Trouble(TroubleKind.STORE_COPIED, "store", what, do, wrong=bool(publish))


def _of_tables(tables: PublishedFacts, copy: CopyFacts | None, published: int, pipeline: str) -> Iterator[Trouble]:
    about, publish = f"tables in {tables.to}", f"`tussock publish {pipeline}`"
    if tables.trouble:
        do = "It is unknown whether they follow the store's history. Check the folder, and this process's access to it."
        yield Trouble(TroubleKind.TABLES, about, f"cannot be read: {tables.trouble}", do, wrong=False)
    elif tables.owner and copy is None:
        do = (
            "Set `[publish] to` in pipeline.toml to another folder; or, if this store replaces the other, remove the "
            "folder."
        )
        yield Trouble(TroubleKind.TABLES, about, f"belong to another store (identity {tables.owner})", do)
    elif tables.strange:
        what = (
            f"may contain rows of epoch {max(tables.strange)}, which this store lacks: it was restored or created again"
        )
        yield Trouble(
            TroubleKind.TABLES,
            about,
            what,
            f"{publish} replaces them, as does the next published epoch.",
            since=tables.at,
        )
    elif tables.unknown:
        what = "have no record of their history"
        do = (
            f"If the store was ever restored from a copy, they may be wrong. {publish} replaces them once, as does the "
            "next epoch."
        )
        yield Trouble(TroubleKind.TABLES, about, what, do, wrong=False)
    elif 0 < tables.epoch < published:
        what = f"are at epoch {tables.epoch}, and readers of the store see epoch {published}"
        do = f"{publish} brings them on in one step, as does the next published epoch."
        yield Trouble(TroubleKind.TABLES, about, what, do, since=epoch_moment(tables.epoch), wrong=False)


def _of_sources(sources: Sequence[SourceFacts]) -> Iterator[Trouble]:
    for source in sources:
        about = f"source {source.source}"
        for hold in source.held:
            do = "Its new input waits; all other work continues. Once the cause is removed, the next run reads it."
            yield Trouble(TroubleKind.SOURCE_HELD, about, f"is held: {hold.reason}", do, since=hold.at)
        if source.trouble and not source.held:
            do = (
                "Its waiting input is unknown. Runs that check this file hold the source until then. A run of an "
                "interval checks only the files of its interval. Clear that of this file to read it again."
                if source.changed
                else "Its waiting input is unknown. The next run holds the source unless the cause is removed. If its "
                "place cannot be reached, check the path and this process's access."
            )
            yield Trouble(TroubleKind.SOURCE_UNLISTED, about, f"cannot be checked: {source.trouble}", do)
        if source.rejects:
            records = "unreadable record" if source.rejects == 1 else "unreadable records"
            table = rejects_name(source.source)
            do = (
                f"`tussock read {table}` shows them. Correct their files and restate them (`tussock restate "
                f"{source.source} --file FILE`), or empty the table (`tussock query 'TRUNCATE TABLE {table}'`)."
            )
            yield Trouble(TroubleKind.REJECTS, about, f"has {source.rejects:,} {records}", do, wrong=False)


def _of_views(views: Sequence[ViewFacts], unpublished: int | None, pipeline: str) -> Iterator[Trouble]:
    """`unpublished`: an epoch whose failed suites another trouble reports."""
    for view in views:
        about = f"{view.kind} {view.view}"
        if view.state is ViewState.PAUSED:
            why = f": {view.reason}" if view.reason else ", by a user or with a view that it reads"
            do = (
                f"It keeps its current rows. Correct the row or the SELECT, then run `tussock apply "
                f"{pipeline} --resume {view.view}`."
            )
            yield Trouble(TroubleKind.VIEW_PAUSED, about, f"is paused{why}", do, since=view.since)
        elif view.state is ViewState.HELD_BACK and view.quality.failures:  # the others: _of_followers
            do = f"Readers still see earlier rows. {CORRECT_ROWS}"
            what = f"is held back: {'; '.join(view.quality.failures)}"
            yield Trouble(TroubleKind.VIEW_HELD_BACK, about, what, do, since=view.since)
        elif view.quality.verdict is Quality.FAILED and view.quality.epoch != unpublished:
            do = CORRECT_ROWS
            yield Trouble(
                TroubleKind.SUITE_FAILED,
                about,
                f"did not pass its suite: {'; '.join(view.quality.failures)}",
                do,
                since=view.quality.at,
            )
        if view.quality.verdict is Quality.WARNING:
            yield Trouble(
                TroubleKind.SUITE_WARNS,
                about,
                f"has warnings: {'; '.join(view.quality.warnings)}",
                "Its rows are published.",
                wrong=False,
            )


def _of_followers(facts: HealthFacts) -> Iterator[Trouble]:
    """Yield one trouble for all views that are held back though they passed their own suites.

    It follows the troubles of its causes, which have the remedies.
    """
    held_back = [view for view in facts.status.views if view.state is ViewState.HELD_BACK and not view.quality.failures]
    if not held_back:
        return
    names = tuple(view.view for view in held_back)
    kinds = {view.view: f"{view.kind} {view.view}" for view in facts.status.views}
    reached = set(names).union(*(facts.inputs.get(name, ()) for name in names))
    failed = [one for one in (() if facts.record is None else facts.record.views) if one.failures]
    causes = [
        kinds.get(one.view) or subject_of(one.view)
        for one in failed
        if one.view not in names and not reached.isdisjoint(one.held_back)
    ]
    about, verb = (kinds[names[0]], "is") if len(names) == 1 else (f"{len(names)} views", "are")
    what = (
        f"{verb} held back, because {_list_names(causes)} failed"
        if causes
        else f"{verb} held back: {held_back[0].reason}"
    )
    if len(names) > 1:
        what += f": {_list_names(names)}"
    do = "Readers still see their earlier rows. The next epoch after the correction shows the new ones."
    since = min((view.since for view in held_back if view.since is not None), default=None)
    yield Trouble(TroubleKind.VIEW_HELD_BACK, about, what, do, since=since, views=names)


def _list_names(names: Sequence[str]) -> str:
    """List up to _NAMED names, and the number of the others."""
    more = f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
    return ", ".join(names[:_NAMED]) + more


def _of_freshness(status: Status, freshness: Mapping[str, int]) -> Iterator[Trouble]:
    for view in status.views:
        if view.stale:
            do = "Check the newest runs: one is late, has failed, or was not started."
            missed, most = age_text(view.freshness_s or 0), age_text(view.wanted_s or 0)
            what = f"is too old: readers miss a change of {missed} ago; at most {most} is allowed"
            yield Trouble(TroubleKind.VIEW_STALE, f"{view.kind} {view.view}", what, do)
    if status.statements:
        return  # they may create the view
    for name in sorted(freshness.keys() - {view.view for view in status.views}):
        yield Trouble(
            TroubleKind.VIEW_UNKNOWN,
            f"view {name}",
            "has a freshness in pipeline.toml, but no such view exists",
            "Correct the name under [freshness].",
        )


def _of_epochs(status: Status) -> Iterator[Trouble]:
    opened, run = status.open, status.run
    if opened is None or (
        run is not None and run.state in (RunState.FAILED, RunState.INTERRUPTED) and run.at > opened.at
    ):
        return  # another trouble has the reason
    longest = max(
        (e.seconds.plan + e.seconds.run + e.seconds.flush for e in status.epochs if e.seconds is not None), default=0.0
    )
    if status.at - opened.at <= max(STUCK, timedelta(seconds=STUCK_TIMES * longest)):
        return
    named = f"{opened.epoch}, attempt {opened.attempt} of writer {opened.writer},"
    if run is not None and run.state is RunState.RUNNING:
        what = f"{named} takes longer than usual: it has been open since {opened.at:%Y-%m-%d %H:%M:%S}"
        do = f"Its run is at work (last sign at {run.at:%H:%M:%S}); its log shows the progress."
        yield Trouble(TroubleKind.EPOCH_STUCK, "epoch", what, do, wrong=False, since=opened.at)
        return
    what = (
        "is sealed but not committed"
        if opened.sealed
        else f"has been open since {opened.at:%Y-%m-%d %H:%M:%S} and is not sealed"
    )
    do = (
        "Its run has died or is slow: check its log. Another run finishes it; "
        f"`tussock barrier show{status.pipeline_option}` lists its input."
    )
    yield Trouble(TroubleKind.EPOCH_STUCK, "epoch", f"{named} {what}", do, since=opened.at)


def _of_arrival(missing: Sequence[MissingFiles]) -> Iterator[Trouble]:
    """Yield one trouble per source: for its oldest interval, with a list of the others."""
    by_source: dict[str, list[MissingFiles]] = {}
    for one in missing:
        by_source.setdefault(one.source, []).append(one)
    for source, intervals in by_source.items():
        first, *others = sorted(intervals, key=lambda one: one.interval.start)
        what = first.what
        if others:
            named = _list_names([f"{one.interval.start:%Y-%m-%d %H:%M} has {len(one.files)}" for one in others])
            what += f". Later intervals with another number of files than expected: {named}"
        about = f"source {source}"
        yield Trouble(TroubleKind.FILES_MISSING, about, what, first.do, wrong=not first.warns, since=first.due)


def _of_late_files(sources: Sequence[SourceFacts]) -> Iterator[Trouble]:
    """Yield one trouble per source: for its oldest interval, with a list of the others."""
    for source in sources:
        if not source.late:
            continue
        first, *others = sorted(source.late, key=lambda one: one.interval.start)
        start, end = first.interval.start, first.interval.end
        files = "files" if len(first.files) > 1 else "a file"
        what = (
            f"has {files} that no scheduled run takes: {_list_names(first.files)}, for the interval from "
            f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}, which has run or was left out"
        )
        if others:
            later = _list_names([f"{other.interval.start:%Y-%m-%d %H:%M}" for other in others])
            what += f". Later intervals with such files: {later}"
        do = (
            f"Run the interval again: `tussock epoch --interval {start.isoformat()} {end.isoformat()}`, or clear its "
            "run. A restatement of the interval also takes corrected and deleted files."
        )
        yield Trouble(TroubleKind.FILES_LATE, f"source {source.source}", what, do, wrong=False)


def _of_publishing(facts: HealthFacts) -> Iterator[Trouble]:
    committed, now = facts.committed, facts.status.at
    if committed == facts.published:
        return
    refused = [
        f"{view.view}: {'; '.join(view.quality.failures)}"
        for view in facts.status.views
        if view.quality.verdict is Quality.FAILED and view.quality.epoch == committed
    ]
    refused += [f"{name}: {text}" for name, text in _of_assertions(facts.record, "failures")]
    if refused:
        do = f"Readers still see the previous epoch. {_next_steps(facts.record)}"
        failed = "\n".join(refused)
        yield Trouble(
            TroubleKind.EPOCH_REFUSED,
            "epoch",
            f"{committed} is not published, because suites failed:\n{failed}",
            do,
            since=epoch_moment(committed),
        )
        return
    late = now - epoch_moment(committed) > STUCK
    do = "The run that created it publishes it; if that run is gone, the next run does."
    yield Trouble(
        TroubleKind.EPOCH_UNPUBLISHED,
        "epoch",
        f"{committed} is committed but not published",
        do,
        wrong=late,
        since=epoch_moment(committed),
    )


def _of_checks(facts: HealthFacts) -> Iterator[Trouble]:
    """Yield troubles of the record of quality only: skipped checks; assertions and arrivals that failed or warn."""
    if facts.record is None:
        return
    since, pipeline = epoch_moment(facts.record.epoch), facts.status.pipeline_argument
    if facts.record.unchecked and facts.committed == facts.published:
        what = f"{facts.committed} was published without its quality checks, by {facts.record.unchecked}"
        do = f"`tussock check {pipeline}` runs them now; the next epoch runs them before it is published."
        yield Trouble(TroubleKind.UNCHECKED, "epoch", what, do, wrong=False, since=since)
    for name, text in _of_assertions(facts.record, "failures") if facts.committed == facts.published else ():
        do = _next_steps(facts.record, name)
        held_back = _held_back(facts, name)
        yield Trouble(TroubleKind.SUITE_FAILED, subject_of(name), f"did not hold: {text}{held_back}", do, since=since)
    for name, text in _of_assertions(facts.record, "warnings"):
        only = "" if is_source(name) else f" {name}"
        do = f"`tussock check {pipeline}{only}` shows the rows. They are published."
        yield Trouble(TroubleKind.ASSERTION_WARNS, subject_of(name), text, do, wrong=False, since=since)


def _held_back(facts: HealthFacts, name: str) -> str:
    """Return the views whose rows an entry of the record holds back, for the end of a sentence."""
    held_back = {view.view for view in facts.status.views if view.state is ViewState.HELD_BACK}
    entry = None if facts.record is None else facts.record.view(name)
    names = [view for view in (() if entry is None else entry.held_back) if view in held_back]
    return f"; readers keep seeing earlier rows of {', '.join(names)}" if names else ""


def _next_steps(record: QualityRecord | None, name: str = "") -> str:
    """Return the next steps after the failures of a record (empty: all) or of one of its entries."""
    results = () if record is None else record.views
    return " ".join(remedies(one for one in results if name in ("", one.view))) or CORRECT_ROWS


def _of_assertions(record: QualityRecord | None, of: Literal["failures", "warnings"]) -> Iterator[tuple[str, str]]:
    """Yield the assertions and arrivals that failed or warned, with their finding."""
    for result in () if record is None else record.views:
        if result.holds is not msgspec.UNSET:
            for failure in getattr(result, of):
                rule = f"{failure.expectation}: " if is_source(result.view) else ""
                yield result.view, f"{rule}{failure.observed}"


def _of_shape(shape: StoreFacts) -> Iterator[Trouble]:
    if shape.compaction_due and not shape.open_tasks:
        do = "The upkeep DAG does this on its schedule; `tussock compact` does it now."
        yield Trouble(
            TroubleKind.COMPACTION_DUE, "store", f"should be compacted: {shape.compaction_due[0]}", do, wrong=False
        )


def _of_verified(verification: VerifiedFacts | None) -> Iterator[Trouble]:
    if verification is None:
        return
    if verification.different:
        names = ", ".join(verification.different[:_NAMED]) + (
            f" and {more} more" if (more := len(verification.different) - _NAMED) > 0 else ""
        )
        do = (
            "The next epoch rebuilds them."
            if verification.repair_waits
            else "`tussock verify --repair` makes the next epoch rebuild them."
        )
        yield Trouble(
            TroubleKind.VIEW_DIFFERENT,
            "verification",
            f"found views that differ from Spark's results: {names}",
            do,
            since=verification.since,
        )
        return
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verification.views.items())
    yield Trouble(
        TroubleKind.VERIFIED,
        "verification",
        f"compared the views with Spark's results: {counts}",
        "`tussock verify` compares them again.",
        False,
        verification.at,
    )
