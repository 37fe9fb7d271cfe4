"""Read the status of a pipeline from its store, and decide its health."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tussock.jobs.barriers.moment import time_of_micros
from tussock.jobs.facts.barrier import barrier_facts
from tussock.jobs.facts.branches import find_own_branch
from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.facts.health import HealthFacts, find_troubles
from tussock.jobs.facts.moment import moment_if_any
from tussock.jobs.facts.published import compare_published, find_copy
from tussock.jobs.facts.readers import list_readers, list_stores_read
from tussock.jobs.facts.runs import RunFacts, last_run, overdue_repetition, overdue_run
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.facts.status import Status, WorkFacts
from tussock.jobs.facts.store import store_shape, sum_cost, vacuum_facts
from tussock.jobs.facts.trouble import Trouble
from tussock.jobs.facts.units import list_units
from tussock.jobs.facts.verified import read_verified
from tussock.jobs.facts.views import inputs_by_relation, list_views
from tussock.jobs.facts.zones import list_zones, zone_databases
from tussock.jobs.quality.arrival import missing_files, past_intervals
from tussock.jobs.quality.record import read_record
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.printed_commands import address_commands
from tussock.jobs.settings.ticks import Ticks
from tussock.jobs.sources.listing import Interval
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.work import work_under_way


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
    barrier = meta.barrier_after(version.epoch)
    epochs = list_epochs(meta, last, version=version)
    run = last_run(meta, now)
    past, ended = _past_intervals(version, pipeline, now), _ended_until(version, pipeline, run)
    sources = list_sources(meta, version, [one for one in past if _has_ended(one, ended, run)])
    status = Status(
        pipeline=pipeline.name,
        environment=pipeline.environment,
        store=meta.objects.uri,
        at=now,
        version=version.id,
        committed=moment_if_any(version.epoch),
        published=moment_if_any(version.published),
        floor=moment_if_any(version.min_readable_epoch),
        statements=meta.log_end() - version.log_end,
        troubles=(),
        open=None if barrier is None else barrier_facts(meta, version, barrier),
        sources=sources,
        views=list_views(
            meta,
            now,
            version,
            sources=sources,
            newest=epochs[-1] if epochs else None,
            barrier=barrier,
            wanted=pipeline.freshness,
        ),
        epochs=epochs,
        units=list_units(version, epochs, meta if everything else None),
        shape=store_shape(version),
        cost=sum_cost(version, epochs, pipeline.prices),
        vacuum=vacuum_facts(meta) if everything else None,
        work=tuple(
            WorkFacts(work.what, time_of_ms(work.began), time_of_ms(work.at), work.done, work.total)
            for work in work_under_way(meta.objects, int(now.timestamp() * 1000))
        ),
        tables=tuple(compare_published(meta, sink) for sink in pipeline.publish) if version.published else (),
        copy=find_copy(meta),
        verified=read_verified(meta, version),
        run=run,
        zones=list_zones(version),
        zone_databases=zone_databases() if version.catalog.zones else None,
        branch=own,
        branches=tuple(branch.name for branch in version.branches),
        readers=list_readers(meta),
        reads=list_stores_read(meta, version),
    )
    facts = _health_facts(meta, version, pipeline, status, past, ended)
    argument = status.pipeline_argument if status.pipeline else ""
    troubles = tuple(_to_run(trouble, argument, status.store) for trouble in find_troubles(facts))
    return msgspec.structs.replace(status, troubles=troubles)


def _health_facts(
    meta: MetaStore,
    version: HummockVersion,
    pipeline: Pipeline,
    status: Status,
    past: Sequence[Interval],
    ended: datetime | None,
) -> HealthFacts:
    """Return the facts that decide the health.

    Args:
        past: the newest intervals that have passed.
        ended: the end of the newest interval whose run has ended.
    """
    at_work = None if status.run is None or pipeline.schedule is None else status.run.interval_end
    due_until = max((at for at in (ended, at_work) if at is not None), default=status.at)
    due = [one for one in past if one.end <= due_until]
    return HealthFacts(
        status=status,
        committed=version.epoch,
        published=version.published,
        overdue=_overdue_since(status, pipeline),
        freshness=pipeline.freshness,
        publish=pipeline.publish,
        record=read_record(meta.objects, version.epoch) if version.epoch else None,
        missing=missing_files(meta, version, pipeline.arrival, due, status.at),
        is_empty=not version.epoch and not status.statements and status.open is None,
        inputs=inputs_by_relation(version.catalog) if version.held else {},
    )


def _overdue_since(status: Status, pipeline: Pipeline) -> datetime | None:
    """Return the time of the run that should have begun since the last sign of one; None if none is overdue."""
    run_at = None if status.run is None else status.run.at
    seen = max((at for at in (run_at, status.committed) if at is not None), default=None)
    if pipeline.schedule is None:
        return overdue_repetition(pipeline.triggers, seen, status.at)
    return overdue_run(pipeline.schedule, pipeline.time_zone, seen, status.at)


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
