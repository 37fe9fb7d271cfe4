"""The status of a pipeline at one moment, with its troubles first."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tussock.jobs.barriers.moment import time_of_micros
from tussock.jobs.facts.barrier import BarrierFacts, barrier_facts
from tussock.jobs.facts.branches import BranchFacts, find_own_branch
from tussock.jobs.facts.epochs import EpochFacts, list_epochs
from tussock.jobs.facts.health import HealthFacts, HealthVerdict, Trouble, find_troubles, health_verdict
from tussock.jobs.facts.moment import moment_if_any
from tussock.jobs.facts.published import CopyFacts, PublishedFacts, compare_published, find_copy
from tussock.jobs.facts.readers import ReaderFacts, list_readers, list_stores_read
from tussock.jobs.facts.runs import RunFacts, last_run, last_sign, overdue_repetition, overdue_run
from tussock.jobs.facts.sources import SourceFacts, list_sources
from tussock.jobs.facts.store import CostFacts, StoreFacts, VacuumFacts, store_shape, sum_cost, vacuum_facts
from tussock.jobs.facts.units import UnitFacts, list_units
from tussock.jobs.facts.verified import VerifiedFacts, read_verified
from tussock.jobs.facts.views import ViewFacts, inputs_by_relation, list_views
from tussock.jobs.facts.zones import ZoneDatabases, ZoneFacts, list_zones, zone_databases
from tussock.jobs.quality.arrival import missing_files, past_intervals
from tussock.jobs.quality.record import read_record
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.printed_commands import address_commands, in_commands
from tussock.jobs.settings.ticks import Ticks
from tussock.jobs.sources.listing import Interval
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.work import work_under_way


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
    tables: tuple[PublishedFacts, ...] = ()  # one per sink; none if no epoch is published
    copy: CopyFacts | None = None  # the store was moved or copied, and the user has not yet confirmed which
    verified: VerifiedFacts | None = None  # the last comparison with Spark's results; None: no comparison yet
    run: RunFacts | None = None  # the last one; None: it has left no record
    zones: tuple[ZoneFacts, ...] = ()  # time zones with recorded rules; none if all times are in UTC
    zone_databases: ZoneDatabases | None = None  # of this host; None: no rules are recorded
    branch: BranchFacts | None = None  # the store is this branch
    branches: tuple[str, ...] = ()  # the open branches of this store
    readers: tuple[ReaderFacts, ...] = ()  # sources of other stores that read this one
    reads: tuple[ReaderFacts, ...] = ()  # its own sources that read other stores

    @property
    def verdict(self) -> HealthVerdict:
        """The health in one word."""
        return health_verdict(self.troubles)

    @property
    def wrong(self) -> bool:
        """Whether any trouble is wrong."""
        return any(trouble.wrong for trouble in self.troubles)

    @property
    def silent_since(self) -> datetime | None:
        """The last sign of a process that works on the open epoch, if none has given one for a minute."""
        return None if self.open is None else last_sign(self.open.at, self.run, self.at)


def read_status(
    meta: MetaStore,
    now: datetime,
    pipeline: Pipeline | None = None,
    *,
    last: int = 5,
    everything: bool = False,
) -> Status:
    """Return a pipeline's current status.

    Args:
        now: the time to which ages are counted.
        pipeline: None for a store without a pipeline.
        last: the number of newest epochs to include; units and cost cover these.
        everything: also report the stored bytes per unit, and what vacuum would free.

    Cost: the version once; one GET each for the last verification, the last run and the open barrier, and the reads of
    `barrier_facts`; one HEAD request for the log's end; one LIST of long work and one of pins; the requests of
    `list_sources`, `list_views`, `list_epochs`, `find_copy` and `compare_published`. With `everything` also one range
    read per SST and a listing of the store. The cost does not grow with the number of epochs.
    """
    pipeline = pipeline or _NO_PIPELINE
    version, own = meta.read_latest(), find_own_branch(meta)
    argument = pipeline.name and in_commands(pipeline.name, pipeline.environment, own.name if own is not None else "")
    facts = _health_facts(meta, version, now, pipeline, own, last)
    return Status(
        pipeline=pipeline.name,
        environment=pipeline.environment,
        store=meta.objects.uri,
        at=now,
        version=version.id,
        committed=moment_if_any(version.epoch),
        published=moment_if_any(version.published),
        floor=moment_if_any(version.min_readable_epoch),
        statements=facts.statements,
        troubles=tuple(_to_run(trouble, argument, meta.objects.uri) for trouble in find_troubles(facts)),
        open=facts.opened,
        sources=tuple(facts.sources),
        views=tuple(facts.views),
        epochs=tuple(facts.epochs),
        units=list_units(version, facts.epochs, meta if everything else None),
        shape=facts.shape,
        cost=sum_cost(version, facts.epochs, pipeline.prices),
        vacuum=vacuum_facts(meta) if everything else None,
        work=tuple(
            WorkFacts(work.what, time_of_ms(work.began), time_of_ms(work.at), work.done, work.total)
            for work in work_under_way(meta.objects, int(now.timestamp() * 1000))
        ),
        tables=tuple(facts.tables),
        copy=facts.copy,
        verified=facts.verified,
        run=facts.run,
        zones=list_zones(version),
        zone_databases=zone_databases() if version.catalog.zones else None,
        branch=own,
        branches=tuple(branch.name for branch in version.branches),
        readers=list_readers(meta),
        reads=list_stores_read(meta, version),
    )


def _health_facts(
    meta: MetaStore,
    version: HummockVersion,
    now: datetime,
    pipeline: Pipeline,
    own: BranchFacts | None,
    last: int,
) -> HealthFacts:
    barrier = meta.barrier_after(version.epoch)
    epochs = list_epochs(meta, last, version=version)
    newest = epochs[-1] if epochs else None
    statements = meta.log_end() - version.log_end
    run = last_run(meta, now)
    seen_run = max(
        (at for at in (None if run is None else run.at, moment_if_any(version.epoch)) if at is not None), default=None
    )
    past, ended = _past_intervals(version, pipeline, now), _ended_until(version, pipeline, run)
    at_work = None if run is None or pipeline.schedule is None else run.interval_end
    due_until = max((at for at in (ended, at_work) if at is not None), default=now)
    due = [one for one in past if one.end <= due_until]
    sources = list_sources(meta, version, [one for one in past if _has_ended(one, ended, run)])
    return HealthFacts(
        pipeline=pipeline.name,
        environment=pipeline.environment,
        branch=own.name if own is not None else "",
        now=now,
        committed=version.epoch,
        published=version.published,
        run=run,
        overdue=overdue_repetition(pipeline.triggers, seen_run, now)
        if pipeline.schedule is None
        else overdue_run(pipeline.schedule, pipeline.time_zone, seen_run, now),
        opened=None if barrier is None else barrier_facts(meta, version, barrier),
        sources=sources,
        views=list_views(
            meta, now, version, sources=sources, newest=newest, barrier=barrier, wanted=pipeline.freshness
        ),
        epochs=epochs,
        shape=store_shape(version),
        freshness=pipeline.freshness,
        publish=pipeline.publish,
        tables=tuple(compare_published(meta, sink) for sink in pipeline.publish) if version.published else (),
        copy=find_copy(meta),
        verified=read_verified(meta, version),
        record=read_record(meta.objects, version.epoch) if version.epoch else None,
        inputs=inputs_by_relation(version.catalog) if version.held else {},
        statements=statements,
        is_empty=not version.epoch and not statements and barrier is None,
        missing=missing_files(meta, version, pipeline.arrival, due, now),
    )


_INTERVALS = 31  # the newest, whose files must have arrived
_NO_PIPELINE = Pipeline("", Path(), "", ())


def _past_intervals(version: HummockVersion, pipeline: Pipeline, now: datetime) -> list[Interval]:
    if pipeline.schedule is None:
        return []
    return past_intervals(pipeline.schedule, version.catalog.resolve_zone(pipeline.time_zone), now, _INTERVALS)


def _ended_until(version: HummockVersion, pipeline: Pipeline, run: RunFacts | None) -> datetime | None:
    """Return the end of the newest interval whose run has ended; None if there is none, or without a schedule.

    A scheduler that stands still is another trouble (`overdue`).
    """
    if (schedule := pipeline.schedule) is None:
        return None
    ends = [] if run is None or run.ended_until is None else [run.ended_until]
    moment_of_store = time_of_micros(version.moment)
    if version.by_intervals and moment_of_store > Ticks(schedule.cron, pipeline.time_zone).first_tick(schedule.start):
        ends.append(moment_of_store)
    return max(ends, default=None)


def _has_ended(interval: Interval, until: datetime | None, run: RunFacts | None) -> bool:
    """Return whether the run of an interval has ended, so that files that arrive now are late.

    Args:
        until: the end of the newest interval whose run has ended.
        run: the last run. If it has not succeeded, it or its repetition takes the files of its interval.
    """
    if until is None or interval.end > until:
        return False
    # In UTC, because Python finds times of two zones never equal in an hour that clocks repeat.
    return run is None or run.has_epochs or run.interval_end != interval.end.astimezone(UTC)


def _to_run(trouble: Trouble, pipeline: str, store: str) -> Trouble:
    """Return the trouble with commands that work as printed."""
    what, do = (address_commands(text, pipeline=pipeline, store=store) for text in (trouble.what, trouble.do))
    return msgspec.structs.replace(trouble, what=what, do=do)
