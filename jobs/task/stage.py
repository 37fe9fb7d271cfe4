"""Several levels of an epoch in one process: this process's units, one after another, and the exchange between levels.

All processes of the epoch run at once; there may be one. After each level a process sends its cells to the processes of
their units, and waits until all others have done so. The last stage ends with the flush if it needs an exchange.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.failure import carried_by_spark
from tussock.jobs.chunks.spark_hash import spark_hash
from tussock.jobs.exchange.peers import Peers
from tussock.jobs.settings.logs import configure_logging, working_on
from tussock.jobs.task.level import CellFunction, level_function
from tussock.jobs.task.memory import apply_memory
from tussock.jobs.task.opened import measure_work, opened_objects
from tussock.jobs.wire.cell import CELL_SCHEMA, Address, LeafInput, Mail, make_cells, split_cells
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush import flush_cells
from tussock.jobs.wire.measured import Report, not_measured
from tussock.jobs.wire.typed_rows import as_cells, steps_behind

Attempt = Callable[[int, CellFunction, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Runs the function of a unit over the unit's cells."""


class _LastEpoch:
    """The units that this process ran last. Its caches probably have their rows."""

    store: str = ""
    units: tuple[int, ...] = ()


_last = _LastEpoch()  # read by the next Spark task of this process, which tells the driver (one_stage.py)


def last_units(store_uri: str) -> tuple[int, ...]:
    """The units of a store that this process ran last, if it was the last store."""
    return _last.units if _last.store == store_uri else ()


def attempt_once(unit: int, function: CellFunction, arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a unit's function over its arriving cells. A test passes another Attempt, which repeats or fails."""
    return function(arriving)


def run_stage(
    task: EpochTask,
    levels: Sequence[int],
    peers: Peers,
    arriving: Iterable[pa.RecordBatch] = (),
    report: Report = not_measured,
    attempt: Attempt = attempt_once,
) -> Iterator[pa.RecordBatch]:
    """Run consecutive levels on the units of this process. After the last level of all, flush if units exchange it.

    Args:
        arriving: cells for units of this process, for any of the levels, and rows that Spark computed.
        report: called once per level and unit, and per part of the flush.

    Yields: the cells of the last level's units.
    Raises: retryable errors. Others are among the cells.
    """
    _last.store, _last.units = task.store_uri, tuple(peers.units)
    apply_memory(task.policy.memory, peers.process_count)
    stage = _Stage(task, peers, report, attempt)
    answers = stage.run_levels(levels, iter(arriving))
    is_last = levels[-1] == len(task.schedule.levels) - 1
    if is_last and task.policy.may_exchange(task.expected, task.unit_count):
        return stage.flush_exchanged(answers)
    return answers


@dataclass(frozen=True, slots=True)
class _Stage:
    """The work of this process. See `run_stage`."""

    task: EpochTask
    peers: Peers
    report: Report
    attempt: Attempt

    def run_levels(self, levels: Sequence[int], arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, peers = self.task, self.peers
        last = levels[-1]
        with carried_by_spark("exchange"):
            for batch in as_cells(arriving, steps_behind(task.schedule, levels[0] - 1), task.schedule):
                for level, mine in _by_level(task, levels, batch):
                    peers.post_cells(level, mine)
        done = 0
        for level in levels:
            for unit in peers.units:
                number, encrypts = partial(int, unit), peers.encrypts_files
                run = level_function(lambda: task, level, number, self.report, encrypts=encrypts)
                for batch in self.attempt(unit, run, peers.take_cells(level, unit)):
                    if level == last:
                        yield batch
                    else:
                        with carried_by_spark("exchange"):
                            peers.post_cells(level + 1, batch)
                done += 1
                peers.report_progress(done)
            if level != last:
                with carried_by_spark("exchange"):
                    peers.finish_level(level + 1)

    def flush_exchanged(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Flush what units of the last level hand on, in as few processes as FlushPolicy wants. Other cells pass."""
        task, peers = self.task, self.peers
        sealed: list[pa.RecordBatch] = []
        for batch in answers:
            for is_sealed, mine in split_cells(batch, np.asarray(batch.column(1)) == Mail.SEALED):
                if is_sealed:
                    sealed.append(mine)
                else:
                    yield mine
        after = len(task.schedule.levels)
        size = sum(pc.sum(pc.binary_length(batch.column(3))).as_py() or 0 for batch in sealed)
        with carried_by_spark("exchange"):
            tasks = task.policy.exchange_tasks(peers.finish_level(after, size))
            for batch in sealed:
                parts = (spark_hash(np.asarray(batch.column(0))).astype(np.int64) % tasks).astype(np.int32)
                for part, mine in split_cells(batch, parts):
                    numbered = mine.set_column(0, "slot", pa.repeat(pa.scalar(part, pa.int32()), mine.num_rows))
                    peers.post_to(part % peers.process_count, after + 1, numbered.cast(CELL_SCHEMA))
            sealed.clear()
            peers.finish_level(after + 1)
        for part in range(peers.rank, tasks, peers.process_count):
            yield from self.attempt(part, flush_function(lambda: task, self.report), peers.take_cells(after + 1, part))


def flush_function(task: "Callable[[], EpochTask]", report: Report = not_measured) -> CellFunction:
    """The function of a task of the flush exchange. Other cells pass unchanged.

    `report`: called with the number of requests.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = task()
        sealed: list[pa.RecordBatch] = []
        for batch in batches:
            is_sealed = batch.column(1).to_numpy() == Mail.SEALED
            if not is_sealed.all():
                yield batch.filter(pa.array(~is_sealed))
            if is_sealed.any():
                sealed.append(batch.filter(pa.array(is_sealed)))
        if sealed:
            configure_logging()
            with working_on(epoch=known.epoch, flush="exchange"):
                yield from measure_work(_flush_sealed(known, sealed), known.store_uri, None, report)

    return run


def _flush_sealed(task: EpochTask, sealed: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carried_by_spark("flush"):
        infos = flush_cells(opened_objects(task.store_uri), task, sealed)
    yield make_cells(0, Address.of_answer(Mail.SST), [msgspec.json.encode(infos)])


def _by_level(task: EpochTask, levels: Sequence[int], batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split cells by the level that reads them: the level of a leaf's fragment. The first level passes others on."""
    fragments = np.asarray(batch.column(1))
    places = np.full(len(fragments), levels[0])
    for level in levels[1:]:
        own = [s.id for s in task.schedule.levels[level]]
        places[np.isin(fragments, own) & np.isin(np.asarray(batch.column(2)), list(LeafInput))] = level
    return split_cells(batch, places)
