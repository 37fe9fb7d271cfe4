"""All there is to know about a pipeline at one moment, and first what is wrong with it."""

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

STUCK = timedelta(
    minutes=15
)  # an epoch that is open for longer, and for STUCK_TIMES the longest of those before it, is not getting on
STUCK_TIMES = 10
_NAMED = 5  # views in one trouble


class Trouble(msgspec.Struct, frozen=True):
    """Something that a person should see to, or, where it is not `wrong`, know."""

    about: str  # `source weather`, `view delays`, `epoch`
    what: str
    do: str  # the next step
    wrong: bool = True  # readers miss something, or will
    since: datetime | None = None


class WorkFacts(msgspec.Struct, frozen=True):
    """Long work that somebody is at: an epoch's levels, a compaction."""

    what: str
    began: datetime
    at: datetime  # when it was so
    done: int  # tasks
    total: int  # as far as they are known


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline at one moment. All of it is of one version."""

    pipeline: str  # empty: its store was named
    store: str  # its address
    at: datetime
    version: int
    committed: datetime | None  # of the committed epoch; None: there is none yet
    published: datetime | None  # of the published one
    floor: datetime | None  # of the oldest that a reader may name
    statements: int  # that wait in the log
    troubles: tuple[Trouble, ...]  # what is wrong first
    open: BarrierFacts | None  # the epoch that is begun and not committed
    sources: tuple[SourceFacts, ...]
    views: tuple[ViewFacts, ...]
    epochs: tuple[EpochFacts, ...]  # the newest, oldest first
    units: tuple[UnitFacts, ...]
    shape: StoreFacts
    cost: CostFacts
    vacuum: VacuumFacts | None = None  # None: nobody looked
    work: tuple[WorkFacts, ...] = ()  # long work that is under way
    tables: PublishedFacts | None = None  # the published tables; None: the pipeline has none, or no epoch is published
    copy: CopyFacts | None = None  # the store was moved or copied, and nobody said which yet
    verified: VerifiedFacts | None = None  # the last comparison with Spark's answers; None: there was none

    @property
    def wrong(self) -> bool:
        """Whether something is."""
        return any(trouble.wrong for trouble in self.troubles)


def status(
    meta: MetaStore,
    now: datetime,
    *,
    pipeline: str = "",
    prices: Prices | None = None,
    last: int = 5,
    everything: bool = False,
    freshness: Mapping[str, int] | None = None,
    publish: PublishSettings | None = None,
) -> Status:
    """A pipeline now.

    Args:
        now: what ages are counted to.
        last: so many of the newest epochs; units and cost are about these.
        freshness: how old the pipeline wants its views to be at most, ms by name.
        publish: where the pipeline publishes tables, which are then compared with the store's history.
        everything: also what is stored of each unit, and what vacuum would free.

    Cost: the version once; a GET for the last verification, one for the open barrier, and what `barrier_facts` reads of one; a HEAD for
    the log's end; a LIST of long work; the requests of `sources`, `views`, `epochs`, `copied` and `published`.
    With `everything` a range read of each SST, and a listing of the store. Nothing
    grows with the number of epochs.
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
        *_of_tables(tables, copy, pipeline),
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
    """A clock's milliseconds as a time."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


# --- what is wrong ---------------------------------------------------------------------------------------------------------------


def _of_copy(copy: CopyFacts | None, publish: PublishSettings | None) -> Iterator[Trouble]:
    if copy is not None:
        what = f"was copied or moved: it records that it belongs at {copy.recorded}, and stands at {copy.found}"
        do = (
            f"Its tables are not published until you say which: `tussock store moved --store {copy.store}` if it takes the place of the "
            f"one there, `tussock store clone --store {copy.store}` if both are to be used."
        )
        yield Trouble("store", what, do, wrong=publish is not None)


def _of_tables(found: PublishedFacts | None, copy: CopyFacts | None, pipeline: str) -> Iterator[Trouble]:
    if found is None:
        return
    about, publish = f"tables in {found.to}", f"`tussock publish {pipeline or 'PIPELINE'}`"
    if found.trouble:
        do = "Whether they follow the store's history is not known; see to the folder, or to this process's access to it."
        yield Trouble(about, f"cannot be looked at: {found.trouble}", do, wrong=False)
    elif found.owner and copy is None:
        do = "Give `[publish] to` in pipeline.toml a folder of its own; or, if this store takes the other one's place, remove the folder."
        yield Trouble(about, f"belong to another store (identity {found.owner})", do)
    elif found.strange:
        what = f"may hold rows of epoch {max(found.strange)}, which this store does not have: it was restored from a copy or made anew"
        yield Trouble(
            about, what, f"{publish} replaces them; so does the next epoch that is published.", since=found.at
        )
    elif found.unknown:
        what = "were written by an earlier release, which did not record the history that they follow"
        do = f"If the store was ever restored from a copy, they may be wrong. {publish} replaces them once; so does the next epoch."
        yield Trouble(about, what, do, wrong=False)


def _of_sources(found: Sequence[SourceFacts]) -> Iterator[Trouble]:
    for source in found:
        about = f"source {source.source}"
        for hold in source.held:
            do = "Its new files wait, and everything else goes on; once the cause is gone, the next run takes them in."
            yield Trouble(about, f"is held: {hold.reason}", do, since=hold.at)
        if source.trouble and not source.held:
            do = "What waits is not known, and the next run would hold the source; see to its place, or to this process's access to it."
            yield Trouble(about, f"cannot be listed: {source.trouble}", do)
        if source.rejects:
            table = rejects_name(source.source)
            do = f"Look: SELECT * FROM {table}. Correct and restate the files, or TRUNCATE TABLE {table}."
            yield Trouble(about, f"has {source.rejects:,} records that could not be read", do, wrong=False)


def _of_views(found: Sequence[ViewFacts], unpublished: int | None) -> Iterator[Trouble]:
    """`unpublished`: the epoch of which other troubles say what holds it."""
    for view in found:
        about = f"{view.kind} {view.view}"
        if view.state is ViewState.PAUSED:
            why = f": {view.reason}" if view.reason else ", by a person or with a view that it reads"
            do = f"It keeps the rows of then. Correct the row or the SELECT, then `tussock apply PIPELINE --resume {view.view}`."
            yield Trouble(about, f"is paused{why}", do, since=view.since)
        elif view.state is ViewState.HELD_BACK:
            do = "Readers go on seeing earlier rows. Correct the rows with another epoch, or the suite, and run again."
            failures = "; ".join(view.quality.failures) or view.reason
            yield Trouble(about, f"is held back: {failures}", do, since=view.since)
        elif view.quality.verdict is Quality.FAILED and view.quality.epoch != unpublished:
            do = "Correct the rows with another epoch, or the suite, and run again."
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
            do = "Look at the newest runs: one is late, or has failed, or none was made."
            missed, most = age_text(view.freshness_s or 0), age_text(view.wanted_s or 0)
            what = f"is older than it should be: readers miss a change of {missed} ago, and are to miss none of {most}"
            yield Trouble(f"{view.kind} {view.view}", what, do)
    for name in sorted(wanted.keys() - {view.view for view in found}):
        yield Trouble(
            f"view {name}",
            "has a freshness in pipeline.toml, and there is no such view",
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
            "is sealed and not committed"
            if opened.sealed
            else f"is open since {opened.at:%Y-%m-%d %H:%M:%S} and not sealed"
        )
        do = "Its run has died, or works for long: look at its log. Running again finishes it; `tussock barrier show` says what it takes."
        yield Trouble(
            "epoch", f"{opened.epoch}, attempt {opened.attempt} of writer {opened.writer}, {what}", do, since=opened.at
        )


def _of_publishing(committed: int, published: int, seen: Sequence[ViewFacts], now: datetime) -> Iterator[Trouble]:
    if committed == published:
        return
    refused = [view for view in seen if view.quality.verdict is Quality.FAILED and view.quality.epoch == committed]
    if refused:
        do = "Readers go on seeing the epoch before. Correct the rows with another epoch, or the suite, and run again."
        failed = "\n".join(f"{view.view}: {'; '.join(view.quality.failures)}" for view in refused)
        yield Trouble(
            "epoch", f"{committed} is not published, for suites failed:\n{failed}", do, since=moment(committed)
        )
        return
    late = now - moment(committed) > STUCK
    do = "The run that made it publishes it; where none is at work, the next one does."
    yield Trouble("epoch", f"{committed} is committed and not published", do, wrong=late, since=moment(committed))


def _of_shape(shape: StoreFacts) -> Iterator[Trouble]:
    if shape.compaction_due and not shape.open_tasks:
        do = "The upkeep DAG does it at its time; `tussock compact` does it now."
        yield Trouble("store", f"is to be compacted: {shape.compaction_due[0]}", do, wrong=False)


def _of_verified(found: VerifiedFacts | None) -> Iterator[Trouble]:
    if found is None:
        return
    if found.different:
        names = ", ".join(found.different[:_NAMED]) + (
            f" and {more} more" if (more := len(found.different) - _NAMED) > 0 else ""
        )
        restate = " and ".join(f"`tussock restate {name} --time-zone`" for name in found.read_in_utc)
        repair = (
            "The next epoch builds them anew."
            if found.repair_waits
            else "`tussock verify --repair` has the next epoch build them anew."
        )
        do = (
            f"{restate} first, which reads files of an earlier release in the store's time zone; then `tussock verify`."
            if restate
            else repair
        )
        yield Trouble("verification", f"found views that differ from Spark's answer: {names}", do, since=found.since)
        return
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.views.items())
    yield Trouble(
        "verification",
        f"compared views with Spark's answers: {counts}",
        "`tussock verify` compares them again.",
        False,
        found.at,
    )
