"""Runs the levels of one epoch: from its plan to the answers of its actors."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pyarrow as pa

from tussock.jobs.barriers.epoch_plan import EpochPlan
from tussock.jobs.barriers.leaves import LeafCells, place_of
from tussock.jobs.catalog.definition import functions_of
from tussock.jobs.chunks.failure import first_failure
from tussock.jobs.driver.delete_limits import require_within_limits
from tussock.jobs.driver.runner import LevelRunner, LevelsToRun
from tussock.jobs.driver.sealed_tables import SealedTables
from tussock.jobs.schedule.schedule import Schedule
from tussock.jobs.trouble.row_names import named_error
from tussock.jobs.trouble.ways_around import ways_around
from tussock.jobs.wire.cell import Mail, addresses_of, tables_read_by
from tussock.jobs.wire.epoch_task import EpochTask, FragmentReport, cells_of
from tussock.jobs.wire.measured import MeasurementSum
from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.version import part_of
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.meta.work import follow_progress
from tussock.statestore.progress import Progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LevelResults:
    """The result of an epoch's levels.

    Args:
        reports: one per actor that had rows.
        uploaded: SSTs that units uploaded when they sealed.
        unflushed: the other sealed MemTables, which must be flushed; None if no fragment had rows.
        measured: measurements of units and workers; Spark adds to it during the flush.
        taken: the taken files, which the driver has sealed. They are in `unflushed` or `uploaded` too.
    """

    reports: Sequence[FragmentReport] = ()
    uploaded: tuple[SstInfo, ...] = ()
    unflushed: SealedTables | None = None
    measured: MeasurementSum = field(default_factory=MeasurementSum)
    taken: tuple[SealedBatch, ...] = ()

    def __str__(self) -> str:
        """Summarize for the log."""
        rows = sum(report.rows_in for report in self.reports)
        fragments = len({report.fragment for report in self.reports})
        return (
            f"{fragments} fragments in {len(self.reports)} actors, {rows} rows in, {len(self.uploaded)} SSTs uploaded "
            "by units"
        )


def run_levels(
    runner: LevelRunner,
    meta: MetaStore,
    plan: EpochPlan,
    unflushed: Sequence[SealedTables],
    progress: Progress,
) -> LevelResults:
    """Run an epoch's levels, without its flush.

    Args:
        unflushed: sealed MemTables of the epochs in flight, oldest first: the rows that `plan.base` contains and that
            the SSTs of its version lack.
        progress: receives a line now and then during long work.

    Raises: InputError branches if an input blocks the epoch, OnlySparkReadsError among them; errors of the object
        store. Nothing was flushed then.
    """
    leaf = LeafCells(meta, plan)
    own, reads = list(leaf.yield_cells()), leaf.spark_reads()
    if not own and not reads:
        return LevelResults()
    size = plan.input_size()
    started = {a.fragment for batch in own for a in addresses_of(batch)} | {r.scheduled.id for r in reads}
    reached = fragments_with_input(plan.schedule, started)
    read = tables_read_by([scheduled for scheduled in plan.schedule.all_fragments() if scheduled.id in reached])
    task = EpochTask(
        store_uri=meta.objects.uri,
        version=msgspec.json.encode(part_of(plan.base.version, read)),
        schedule=plan.schedule,
        epoch=plan.barrier.epoch,
        unit_of_vnode=plan.unit_of_vnode,
        expected=size.predict_amount(runner.policy),
        policy=runner.policy,
        in_flight=tuple(one.epoch for one in unflushed),
        functions=functions_of(plan.catalog.stored_relations()),
        moment=plan.barrier.moment,
        zones=plan.catalog.zones,
    )
    buffered = [cells for number, one in enumerate(unflushed) for cells in one.batches(number, read)]
    task = task.with_cells(cells_of([*own, *buffered]))
    log.info(
        "running %d levels on %d units, expecting to seal %s",
        len(plan.schedule.levels),
        task.unit_count,
        task.expected.value,
    )
    levels = LevelsToRun(
        meta.objects,
        task,
        reads,
        unflushed,
        plan.catalog.resolve_zone(meta.settings.time_zone),
        views_by_spark(plan.schedule, reached),
        size.nbytes,
        previous_hosts=partial(read_hosts, meta, plan.base.version.epoch),
    )
    with follow_progress(meta.objects, "epoch", f"epoch {task.epoch}", levels.far, progress):
        answers, sealed = runner.run(levels)
    log.info("the levels ran %s", levels.measured.ran)
    try:
        reports, uploaded = read_answers(answers)
        require_within_limits(reports, plan.schedule)
        return LevelResults(reports, uploaded, sealed, levels.measured, leaf.taken)
    except BaseException:
        sealed.release()
        raise


def read_hosts(meta: MetaStore, epoch: int) -> Mapping[str, Sequence[int]]:
    """Return the units of an epoch by the host that ran them; empty if its manifest is gone or the store is new."""
    manifest = meta.read_manifest(epoch) if epoch else None
    return {} if manifest is None else manifest.hosts


def fragments_with_input(schedule: Schedule, started: Iterable[int]) -> frozenset[int]:
    """Return the fragments that may have input, if only these leaves have. The others read no state."""
    reached = set(started)
    for scheduled in schedule.all_fragments():
        if any(origin.producer in reached for origin in scheduled.origins):
            reached.add(scheduled.id)
    return frozenset(reached)


def views_by_spark(schedule: Schedule, reached: Collection[int]) -> tuple[str, ...]:
    """Return the views with expressions that Spark computes, if only these fragments have input."""
    reading = (s for s in schedule.all_fragments() for f in s.origins if f.producer in reached and f.needed.project)
    return tuple(sorted({scheduled.shown_name for scheduled in reading}))


def read_answers(answers: pa.Table) -> tuple[list[FragmentReport], tuple[SstInfo, ...]]:
    """Return the reports and the SSTs from the cells that reached the driver. Raises the first failure among them."""
    by_kind: dict[int, list[bytes]] = {}
    for fragment, chunk in zip(answers["fragment"].to_pylist(), answers["chunk"].to_pylist(), strict=True):
        by_kind.setdefault(fragment, []).append(chunk)
    if failures := by_kind.get(Mail.FAILURE):
        raise first_failure(failures)
    reports = [decode_json(chunk, FragmentReport) for chunk in by_kind.get(Mail.REPORT, [])]
    return reports, in_order(i for chunk in by_kind.get(Mail.SST, []) for i in decode_json(chunk, list[SstInfo]))


def in_order(ssts: Iterable[SstInfo]) -> tuple[SstInfo, ...]:
    """Return the SSTs of an epoch without duplicates, in an order that is the same in each run of the epoch."""
    sst_by_name = {sst.name: sst for sst in ssts}
    return tuple(sst_by_name[name] for name in sorted(sst_by_name))


def with_names(err: InputError, meta: MetaStore, plan: EpochPlan) -> InputError:
    """Return an actor's error with the names of columns and files, and the remedies; actors only have numbers."""
    return named_error(
        err,
        plan.schedule,
        plan.catalog,
        lambda source, row_id: place_of(meta, plan, source, row_id),
        lambda view, item: ways_around(meta, plan, view, item),
    )
