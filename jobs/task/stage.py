"""Several levels of an epoch in one process: this process's units, one after another, and the exchange between levels.

All processes of the epoch run at once. After each level a process sends its cells to the processes of their units,
and waits until all others have done so. This replaces a stage per level, and exchanges through shuffle files.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.failure import carried_by_spark
from tussock.jobs.chunks.spark_hash import spark_hash
from tussock.jobs.exchange.peers import Peers
from tussock.jobs.task.flush import flush_function
from tussock.jobs.task.level import level_function
from tussock.jobs.wire.cell import CELL_SCHEMA, LeafInput, Mail, split_cells
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.measured import Report, not_measured
from tussock.jobs.wire.typed_rows import as_cells, steps_behind


class _LastEpoch:
    """The units that this process ran last. Its caches probably have their rows."""

    store: str = ""
    units: tuple[int, ...] = ()


_last = _LastEpoch()


def last_units(store_uri: str) -> tuple[int, ...]:
    """The units of a store that this process ran last, if it was the last store."""
    return _last.units if _last.store == store_uri else ()


def run_stage(
    task: EpochTask,
    levels: Sequence[int],
    peers: Peers,
    arriving: Iterator[pa.RecordBatch],
    report: Report = not_measured,
) -> Iterator[pa.RecordBatch]:
    """Run consecutive levels on the units of this process.

    Args:
        arriving: cells for units of this process, for any of the levels, and rows that Spark computed.
        report: called once per level and unit, and per part of the flush.

    Yields: the cells of the last level's units.
    Raises: retryable errors. Others are among the cells.
    """
    last = levels[-1]
    _last.store, _last.units = task.store_uri, tuple(peers.units)
    with carried_by_spark("exchange"):
        for batch in as_cells(arriving, steps_behind(task.schedule, levels[0] - 1), task.schedule):
            for level, mine in _by_level(task, levels, batch):
                peers.post(level, mine)
    done = 0
    for level in levels:
        for unit in peers.units:
            run = level_function(lambda: task, level, lambda unit=unit: unit, report)  # type: ignore[misc]
            for batch in run(peers.take(level, unit)):
                if level == last:
                    yield batch
                else:
                    with carried_by_spark("exchange"):
                        peers.post(level + 1, batch)
            done += 1
            peers.report_progress(done)
        if level != last:
            with carried_by_spark("exchange"):
                peers.finish(level + 1)


def flushed(
    task: EpochTask, last: Iterator[pa.RecordBatch], peers: Peers, report: Report = not_measured
) -> Iterator[pa.RecordBatch]:
    """Flush what units of the last level hand on, in as few processes as FlushPolicy wants. Other cells pass."""
    sealed: list[pa.RecordBatch] = []
    for batch in last:
        for is_sealed, mine in split_cells(batch, np.asarray(batch.column(1)) == Mail.SEALED):
            if is_sealed:
                sealed.append(mine)
            else:
                yield mine
    after = len(task.schedule.levels)
    size = sum(pc.sum(pc.binary_length(batch.column(3))).as_py() or 0 for batch in sealed)
    with carried_by_spark("exchange"):
        tasks = task.policy.exchange_tasks(peers.finish(after, size))
        for batch in sealed:
            parts = (spark_hash(np.asarray(batch.column(0))).astype(np.int64) % tasks).astype(np.int32)
            for part, mine in split_cells(batch, parts):
                numbered = mine.set_column(0, "slot", pa.repeat(pa.scalar(part, pa.int32()), mine.num_rows))
                peers.post_to(part % peers.count, after + 1, numbered.cast(CELL_SCHEMA))
        sealed.clear()
        peers.finish(after + 1)
    for part in range(peers.rank, tasks, peers.count):
        yield from flush_function(lambda: task, report)(peers.take(after + 1, part))


def _by_level(task: EpochTask, levels: Sequence[int], batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split cells by the level that reads them: that of a leaf's fragment. The first level passes others on."""
    fragments = np.asarray(batch.column(1))
    places = np.full(len(fragments), levels[0])
    for level in levels[1:]:
        own = [s.id for s in task.schedule.levels[level]]
        places[np.isin(fragments, own) & np.isin(np.asarray(batch.column(2)), list(LeafInput))] = level
    return split_cells(batch, places)
