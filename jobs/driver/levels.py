"""The levels of one epoch, from its plan to what they answer."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from tussock.jobs.driver.epoch_plan import EpochPlan
from tussock.jobs.driver.held import SealedTables
from tussock.jobs.driver.leaves import LeafCells, place_of
from tussock.jobs.driver.row_names import named_error
from tussock.jobs.driver.runner import LevelRunner, LevelsToRun, tables_of_all_levels
from tussock.jobs.flow.failure import first_failure
from tussock.jobs.plan.definition import functions_of
from tussock.jobs.plan.schedule import Schedule
from tussock.jobs.wire.cell import Mail, addresses_of
from tussock.jobs.wire.epoch_task import EpochTask, FragmentReport, cells_of
from tussock.jobs.wire.measured import MeasurementSum
from tussock.statestore.decoding import decoded
from tussock.statestore.errors import InputError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.meta.work import followed
from tussock.statestore.progress import Progress, no_progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ran:
    """What the levels of an epoch did.

    Args:
        reports: one of each actor that had something to do.
        uploaded: SSTs that were uploaded where they were sealed.
        held: all else that was sealed, to be flushed; None where no fragment had anything to do.
        measured: by units and workers; it grows while Spark flushes.
    """

    reports: Sequence[FragmentReport] = ()
    uploaded: tuple[SstInfo, ...] = ()
    held: SealedTables | None = None
    measured: MeasurementSum = field(default_factory=MeasurementSum)

    def __str__(self) -> str:
        """For the log."""
        rows = sum(report.rows_in for report in self.reports)
        fragments = len({report.fragment for report in self.reports})
        return f"{fragments} fragments in {len(self.reports)} actors, {rows} rows in, {len(self.uploaded)} SSTs uploaded by units"


def run_levels(
    runner: LevelRunner,
    meta: MetaStore,
    plan: EpochPlan,
    held: Sequence[SealedTables] = (),
    progress: Progress = no_progress,
) -> Ran:
    """Run an epoch's levels, without its flush.

    Args:
        held: what epochs in flight sealed, oldest first: the rows that `plan.base` counts and that are not in its version's SSTs.
        progress: called with one line from time to time, where it takes long.

    Raises: InputError branches when an input stops the epoch; errors of the object store. Nothing is flushed then.
    """
    leaf = LeafCells(meta, plan)
    own, reads = list(leaf.batches()), leaf.spark_reads()
    if not own and not reads:
        return Ran()
    task = EpochTask(
        meta.objects.uri,
        msgspec.json.encode(plan.base.version),
        plan.schedule,
        plan.barrier.epoch,
        plan.units,
        plan.expected(runner.policy),
        runner.policy,
        tuple(one.epoch for one in held),
        functions_of(plan.catalog.stored()),
        plan.barrier.moment,
    )
    read = tables_of_all_levels(task)
    buffered = [cells for number, one in enumerate(held) for cells in one.batches(number, read)]
    task = task.with_cells(cells_of([*own, *buffered]))
    log.info(
        "running %d levels on %d units, expecting to seal %s",
        len(plan.schedule.levels),
        task.unit_count,
        task.expected.value,
    )
    started = {a.fragment for batch in own for a in addresses_of(batch)} | {r.scheduled.id for r in reads}
    levels = LevelsToRun(
        meta.objects, task, reads, held, meta.settings.time_zone, views_by_spark(plan.schedule, started)
    )
    with followed(meta.objects, "epoch", f"epoch {task.epoch}", levels.far, progress):
        answers, sealed = runner.run(levels)
    try:
        return Ran(*read_answers(answers), sealed, levels.measured)
    except BaseException:
        sealed.release()
        raise


def views_by_spark(schedule: Schedule, started: Iterable[int]) -> tuple[str, ...]:
    """The views of which Spark computes something, where only these leaves have anything to start from."""
    reached, found = set(started), set()
    for scheduled in schedule.fragments():
        if coming := [feed for feed in scheduled.feeds if feed.producer in reached]:
            reached.add(scheduled.id)
            if any(feed.want.project for feed in coming):
                found.add(scheduled.shown)
    return tuple(sorted(found))


def read_answers(answers: pa.Table) -> tuple[list[FragmentReport], tuple[SstInfo, ...]]:
    """What came back to the driver: reports and SSTs. Raises the first failure among the cells."""
    by_kind: dict[int, list[bytes]] = {}
    for fragment, chunk in zip(answers["fragment"].to_pylist(), answers["chunk"].to_pylist(), strict=True):
        by_kind.setdefault(fragment, []).append(chunk)
    if failures := by_kind.get(Mail.FAILURE):
        raise first_failure(failures)
    reports = [decoded(chunk, FragmentReport) for chunk in by_kind.get(Mail.REPORT, [])]
    return reports, in_order(i for chunk in by_kind.get(Mail.SST, []) for i in decoded(chunk, list[SstInfo]))


def in_order(ssts: Iterable[SstInfo]) -> tuple[SstInfo, ...]:
    """SSTs of an epoch, each once, in the one order in which every run of it names them."""
    found = {sst.name: sst for sst in ssts}
    return tuple(found[name] for name in sorted(found))


def with_names(err: InputError, meta: MetaStore, plan: EpochPlan) -> InputError:
    """An actor's error with names in it: actors know columns by number, and the files of rows by number too."""
    return named_error(err, plan.schedule, plan.catalog, lambda source, row_id: place_of(meta, plan, source, row_id))
