"""The status of a pipeline at one moment, with its troubles first."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from tussock.jobs.facts.barrier import BarrierFacts, barrier_facts
from tussock.jobs.facts.epochs import EpochFacts, epochs
from tussock.jobs.facts.moment import age_text, moment
from tussock.jobs.facts.published import CopyFacts, PublishedFacts, copied, published
from tussock.jobs.facts.sources import SourceFacts, sources
from tussock.jobs.facts.store import CostFacts, StoreFacts, VacuumFacts, cost, store, vacuum
from tussock.jobs.facts.units import UnitFacts, units
from tussock.jobs.facts.verified import VerifiedFacts, verified
from tussock.jobs.facts.views import Quality, ViewFacts, ViewState, views
from tussock.jobs.settings.pipeline import PublishSettings
from tussock.jobs.settings.prices import Prices
from tussock.jobs.sources.rejects import rejects_name
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.work import work_under_way

# An epoch is stuck if it is open for longer than this and than STUCK_TIMES the longest recent epoch.
STUCK = timedelta(minutes=15)
STUCK_TIMES = 10
_NAMED = 5  # views listed in one trouble


class Trouble(msgspec.Struct, frozen=True):
    """Something that an operator should act on or, if not `wrong`, know about."""

    about: str  # `source weather`, `view delays`, `epoch`
    what: str
    do: str  # the next step
    wrong: bool = True  # readers miss something, or will
    since: datetime | None = None


class WorkFacts(msgspec.Struct, frozen=True):
    """Long work in progress: an epoch's levels, a compaction."""

    what: str
    began: datetime
    at: datetime  # time of this report
    done: int  # tasks
    total: int  # so far as known


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline at one moment. All parts are of one version."""

    pipeline: str  # empty if only its store was given
    environment: str = ""  # the chosen environment of the pipeline; empty if none
    store: str  # its address
    at: datetime
    version: int
    committed: datetime | None  # of the committed epoch; None: no epoch yet
    published: datetime | None  # of the published one
    floor: datetime | None  # of the oldest readable epoch
    statements: int  # waiting in the log
    troubles: tuple[Trouble, ...]  # wrong ones first
    open: BarrierFacts | None  # the running epoch
    sources: tuple[SourceFacts, ...]
    views: tuple[ViewFacts, ...]
    epochs: tuple[EpochFacts, ...]  # the newest, oldest first
    units: tuple[UnitFacts, ...]
    shape: StoreFacts
    cost: CostFacts
    vacuum: VacuumFacts | None = None  # None: not computed
    work: tuple[WorkFacts, ...] = ()  # long work in progress
    tables: PublishedFacts | None = None  # None: the pipeline publishes no tables, or no epoch is published
    copy: CopyFacts | None = None  # the store was moved or copied, and the user has not yet confirmed which
    verified: VerifiedFacts | None = None  # the last comparison with Spark's results; None: no comparison yet

    @property
    def wrong(self) -> bool:
        """Whether any trouble is wrong."""
        return any(trouble.wrong for trouble in self.troubles)


def status(
    meta: MetaStore,
    now: datetime,
    *,
    pipeline: str = "",
    environment: str = "",
    prices: Prices | None = None,
    last: int = 5,
    everything: bool = False,
    freshness: Mapping[str, int] | None = None,
    publish: PublishSettings | None = None,
) -> Status:
    """Return a pipeline's current status.

    Args:
        pipeline, environment: the names to show; empty without a pipeline or an environment.
        now: the time to which ages are counted.
        last: the number of newest epochs to include; units and cost cover these.
        freshness: the pipeline's maximum age of views, ms by name.
        publish: settings of published tables, to compare these with the store's history.
        everything: also report the stored bytes per unit, and what vacuum would free.

    Cost: the version once; one GET for the last verification, one for the open barrier, and the reads of
    `barrier_facts`; one HEAD request for the log's end; one LIST of long work; the requests of `sources`, `views`,
    `epochs`, `copied` and `published`. With `everything` also one range read per SST and a listing of the store. The
    cost does not grow with the number of epochs.
    """
    version = meta.latest()
    found = meta.barrier_after(version.epoch)
    opened = None if found is None else barrier_facts(meta, version, found)
    waits = sources(meta, version)
    done = epochs(meta, last, version=version)
    newest = done[-1] if done else None
    seen = views(meta, now, version, sources=waits, newest=newest, barrier=found, wanted=freshness)
    statements = meta.log_end() - version.log_end
    shape = store(version)
    copy = copied(meta)
    compared = verified(meta, version)
    tables = published(meta, publish) if publish is not None and version.published else None
    troubles = [
        *_of_copy(copy, publish),
        *_of_tables(tables, copy, f"{pipeline} --env {environment}" if environment else pipeline),
        *_of_sources(waits),
        *_of_views(seen, version.epoch if version.published < version.epoch else None),
        *_of_freshness(seen, freshness or {}),
        *_of_epochs(opened, done, now),
        *_of_publishing(version.epoch, version.published, seen, now),
        *_of_shape(shape),
        *_of_verified(compared),
    ]
    return Status(
        pipeline=pipeline,
        environment=environment,
        store=meta.objects.uri,
        at=now,
        version=version.id,
        committed=_moment(version.epoch),
        published=_moment(version.published),
        floor=_moment(version.min_readable_epoch),
        statements=statements,
        troubles=tuple(sorted(troubles, key=lambda trouble: not trouble.wrong)),
        open=opened,
        sources=waits,
        views=seen,
        epochs=done,
        units=units(version, done, meta if everything else None),
        shape=shape,
        cost=cost(version, done, prices or Prices()),
        vacuum=vacuum(meta) if everything else None,
        work=tuple(
            WorkFacts(work.what, now_of(work.began), now_of(work.at), work.done, work.total)
            for work in work_under_way(meta.objects, int(now.timestamp() * 1000))
        ),
        tables=tables,
        copy=copy,
        verified=compared,
    )


def _moment(epoch: int) -> datetime | None:
    return moment(epoch) if epoch else None


def now_of(unix_ms: int) -> datetime:
    """Convert a clock's milliseconds to a time."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


# --- troubles -----------------------------------------------------------------------------------------------------


def _of_copy(copy: CopyFacts | None, publish: PublishSettings | None) -> Iterator[Trouble]:
    if copy is not None:
        what = f"was copied or moved: its recorded place is {copy.recorded}, but it is at {copy.found}"
        do = (
            f"Its tables are not published until you confirm which: `tussock store moved --store {copy.store}` if it "
            f"replaces the recorded store, `tussock store clone --store {copy.store}` if both stay in use."
        )
        yield Trouble("store", what, do, wrong=publish is not None)


def _of_tables(found: PublishedFacts | None, copy: CopyFacts | None, pipeline: str) -> Iterator[Trouble]:
    if found is None:
        return
    about, publish = f"tables in {found.to}", f"`tussock publish {pipeline or 'PIPELINE'}`"
    if found.trouble:
        do = "It is unknown whether they follow the store's history. Check the folder, and this process's access to it."
        yield Trouble(about, f"cannot be read: {found.trouble}", do, wrong=False)
    elif found.owner and copy is None:
        do = (
            "Set `[publish] to` in pipeline.toml to another folder; or, if this store replaces the other, remove the "
            "folder."
        )
        yield Trouble(about, f"belong to another store (identity {found.owner})", do)
    elif found.strange:
        what = (
            f"may contain rows of epoch {max(found.strange)}, which this store lacks: it was restored or created again"
        )
        yield Trouble(about, what, f"{publish} replaces them, as does the next published epoch.", since=found.at)
    elif found.unknown:
        what = "were written by an earlier release, which did not record their history"
        do = (
            f"If the store was ever restored from a copy, they may be wrong. {publish} replaces them once, as does the "
            "next epoch."
        )
        yield Trouble(about, what, do, wrong=False)


def _of_sources(found: Sequence[SourceFacts]) -> Iterator[Trouble]:
    for source in found:
        about = f"source {source.source}"
        for hold in source.held:
            do = "Its new files wait; all other work continues. Once the cause is removed, the next run reads them."
            yield Trouble(about, f"is held: {hold.reason}", do, since=hold.at)
        if source.trouble and not source.held:
            do = (
                "Its waiting input is unknown. The next run holds the source unless the cause is removed. If its place "
                "cannot be reached, check the path and this process's access."
            )
            yield Trouble(about, f"cannot be checked: {source.trouble}", do)
        if source.rejects:
            table = rejects_name(source.source)
            do = f"See them: SELECT * FROM {table}. Correct and restate the files, or TRUNCATE TABLE {table}."
            yield Trouble(about, f"has {source.rejects:,} unreadable records", do, wrong=False)


def _of_views(found: Sequence[ViewFacts], unpublished: int | None) -> Iterator[Trouble]:
    """`unpublished`: an epoch whose failed suites another trouble reports."""
    for view in found:
        about = f"{view.kind} {view.view}"
        if view.state is ViewState.PAUSED:
            why = f": {view.reason}" if view.reason else ", by a user or with a view that it reads"
            do = (
                "It keeps its current rows. Correct the row or the SELECT, then run `tussock apply PIPELINE --resume "
                f"{view.view}`."
            )
            yield Trouble(about, f"is paused{why}", do, since=view.since)
        elif view.state is ViewState.HELD_BACK:
            do = (
                "Readers still see earlier rows. Correct the rows with another epoch, or correct the suite, and run "
                "again."
            )
            failures = "; ".join(view.quality.failures) or view.reason
            yield Trouble(about, f"is held back: {failures}", do, since=view.since)
        elif view.quality.verdict is Quality.FAILED and view.quality.epoch != unpublished:
            do = "Correct the rows with another epoch, or correct the suite, and run again."
            yield Trouble(
                about, f"did not pass its suite: {'; '.join(view.quality.failures)}", do, since=view.quality.at
            )
        if view.quality.verdict is Quality.WARNING:
            yield Trouble(
                about, f"has warnings: {'; '.join(view.quality.warnings)}", "Its rows are published.", wrong=False
            )


def _of_freshness(found: Sequence[ViewFacts], wanted: Mapping[str, int]) -> Iterator[Trouble]:
    for view in found:
        if view.stale:
            do = "Check the newest runs: one is late, has failed, or was not started."
            missed, most = age_text(view.freshness_s or 0), age_text(view.wanted_s or 0)
            what = f"is too old: readers miss a change of {missed} ago; at most {most} is allowed"
            yield Trouble(f"{view.kind} {view.view}", what, do)
    for name in sorted(wanted.keys() - {view.view for view in found}):
        yield Trouble(
            f"view {name}",
            "has a freshness in pipeline.toml, but no such view exists",
            "Correct the name under [freshness].",
        )


def _of_epochs(opened: BarrierFacts | None, done: Sequence[EpochFacts], now: datetime) -> Iterator[Trouble]:
    if opened is None:
        return
    longest = max(
        (e.seconds.plan + e.seconds.run + e.seconds.flush for e in done if e.seconds is not None), default=0.0
    )
    if now - opened.at > max(STUCK, timedelta(seconds=STUCK_TIMES * longest)):
        what = (
            "is sealed but not committed"
            if opened.sealed
            else f"has been open since {opened.at:%Y-%m-%d %H:%M:%S} and is not sealed"
        )
        do = (
            "Its run has died or is slow: check its log. Another run finishes it; `tussock barrier show` lists its "
            "input."
        )
        yield Trouble(
            "epoch", f"{opened.epoch}, attempt {opened.attempt} of writer {opened.writer}, {what}", do, since=opened.at
        )


def _of_publishing(committed: int, published: int, seen: Sequence[ViewFacts], now: datetime) -> Iterator[Trouble]:
    if committed == published:
        return
    refused = [view for view in seen if view.quality.verdict is Quality.FAILED and view.quality.epoch == committed]
    if refused:
        do = (
            "Readers still see the previous epoch. Correct the rows with another epoch, or correct the suite, and run "
            "again."
        )
        failed = "\n".join(f"{view.view}: {'; '.join(view.quality.failures)}" for view in refused)
        yield Trouble(
            "epoch", f"{committed} is not published, because suites failed:\n{failed}", do, since=moment(committed)
        )
        return
    late = now - moment(committed) > STUCK
    do = "The run that created it publishes it; if that run is gone, the next run does."
    yield Trouble("epoch", f"{committed} is committed but not published", do, wrong=late, since=moment(committed))


def _of_shape(shape: StoreFacts) -> Iterator[Trouble]:
    if shape.compaction_due and not shape.open_tasks:
        do = "The upkeep DAG does this on its schedule; `tussock compact` does it now."
        yield Trouble("store", f"should be compacted: {shape.compaction_due[0]}", do, wrong=False)


def _of_verified(found: VerifiedFacts | None) -> Iterator[Trouble]:
    if found is None:
        return
    if found.different:
        names = ", ".join(found.different[:_NAMED]) + (
            f" and {more} more" if (more := len(found.different) - _NAMED) > 0 else ""
        )
        restate = " and ".join(f"`tussock restate {name} --time-zone`" for name in found.read_in_utc)
        repair = (
            "The next epoch rebuilds them."
            if found.repair_waits
            else "`tussock verify --repair` makes the next epoch rebuild them."
        )
        do = (
            f"Run {restate} first, to read files of an earlier release in the store's time zone; then run `tussock "
            "verify`."
            if restate
            else repair
        )
        yield Trouble("verification", f"found views that differ from Spark's results: {names}", do, since=found.since)
        return
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.views.items())
    yield Trouble(
        "verification",
        f"compared the views with Spark's results: {counts}",
        "`tussock verify` compares them again.",
        False,
        found.at,
    )
