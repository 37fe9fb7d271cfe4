"""One level of an epoch in a Spark task: cells in, this unit's actors, cells out.

`level_function` is what `mapInArrow` runs. All input of the epoch is there before an actor starts, so the shuffle aligns barriers.
"""

from collections.abc import Callable, Iterator
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from jobs.task.collector import collect_own_garbage
from jobs.task.unit import Unit
from jobs.wire.cell import (
    BACKFILL,
    BACKFILL_ROWS,
    BUFFERED,
    ENTRIES,
    FAILURE,
    FLUSH,
    REPORT,
    ROWS,
    SPLITS,
    SST,
    TICK,
)
from jobs.wire.epoch_task import EpochTask, tables_read
from statestore.table.row_cache import process_row_cache

_LEAF_INPUTS = (SPLITS, BACKFILL, ROWS, BACKFILL_ROWS, ENTRIES, TICK)


def partition_of_this_task() -> int:
    """The number of the partition that this Spark task computes."""
    context = TaskContext.get()
    assert context is not None, "not in a Spark task"
    return context.partitionId()


def level_function(
    task: "Callable[[], EpochTask]", level: int, slot: Callable[[], int] = partition_of_this_task
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs one level's actors on one unit: cells in, cells out.

    Args:
        task: yields the broadcast value.
        slot: yields the unit. In Spark the exchange puts the cells of a slot into the partition of that number.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known, unit = task(), slot()
        inbox: dict[tuple[int, int], list[bytes]] = {}
        sealed: list[tuple[int, bytes]] = []  # what the levels before sealed, as it came: (table id, chunk)
        kept, passing = _addresses_read(known, level), _addresses_passing(known, level)
        last = level == len(known.schedule.levels) - 1
        flushes = last and known.travelling_bytes is None
        handed_on = (REPORT, FAILURE, SST) if flushes else (REPORT, FAILURE, SST, FLUSH)
        for batch in chain(_cells_of_driver(known, unit, kept, last), batches):
            addresses = list(zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True))  # cells are few and large
            through = [i for i, (f, n) in enumerate(addresses) if f in handed_on or (f, n) in passing]
            if through:
                yield batch.take(pa.array(through, pa.int64()))
            for i, address in enumerate(addresses):
                if address in kept:
                    inbox.setdefault(address, []).append(batch.column(3)[i].as_py())
                elif flushes and address[0] == FLUSH:
                    sealed.append((address[1], batch.column(3)[i].as_py()))
        if inbox or sealed:
            with process_row_cache().publishing():
                actors = Unit(known, level, unit, inbox, [] if flushes else None)
                yield from actors.run()
                yield from actors.flush(sealed)
        if TaskContext.get() is not None:
            collect_own_garbage()

    return run


def _cells_of_driver(task: EpochTask, unit: int, read: frozenset[tuple[int, int]], last: bool) -> Iterator[pa.RecordBatch]:
    """The driver's cells for this unit that this level reads; with the last level also what the driver sealed."""
    if not task.cells:
        return
    for batch in pa.ipc.open_stream(task.cells):
        addresses = zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True)
        mine = [i for i, (s, f, n) in enumerate(addresses) if s == unit and ((f, n) in read or (last and f == FLUSH))]
        yield batch.take(pa.array(mine, pa.int64()))


def _addresses_read(task: EpochTask, level: int) -> frozenset[tuple[int, int]]:
    schedule = task.schedule
    read = {(f.producer, f.exchange) for s in schedule.levels[level] for f in s.feeds if f.exchange is not None}
    leaves = {(s.id, n) for s in schedule.levels[level] for n in _LEAF_INPUTS}
    buffered = {(BUFFERED - n, table) for table in tables_read(schedule, level) for n in range(len(task.in_flight))}
    return frozenset(read | leaves | buffered)


def _addresses_passing(task: EpochTask, level: int) -> frozenset[tuple[int, int]]:
    schedule = task.schedule
    return frozenset((s.id, x.index) for s in schedule.fragments() for x in s.exchanges if s.level < level < x.last_level)
