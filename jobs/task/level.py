"""One level of an epoch on one parallel unit: cells in, this unit's actors, cells out.

All input of the level has arrived before an actor starts, so an exchange aligns barriers. A failure of one unit reaches
every unit before the next level. A unit that receives a failure starts no actor of that level, so it seals and uploads
nothing for an epoch that cannot be committed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain

import numpy as np
import pyarrow as pa

from tussock.jobs.settings.logs import working_on
from tussock.jobs.task.opened import measure_work
from tussock.jobs.task.unit import Unit
from tussock.jobs.task.vnode_parts import PartCells
from tussock.jobs.wire.cell import Address, Mail, Route, addresses_of, make_cells
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.measured import Report, not_measured
from tussock.jobs.wire.typed_rows import as_cells, steps_behind
from tussock.statestore.table.row_cache import process_row_cache

CellFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # a task's work: cells in, cells out


def level_function(
    task: "Callable[[], EpochTask]",
    level: int,
    unit_number: Callable[[], int],
    report: Report = not_measured,
    *,
    encrypts: bool = False,
) -> CellFunction:
    """The function that runs one level's actors on one unit.

    Args:
        task: returns the epoch's task.
        unit_number: returns the unit. In Spark, the exchange puts its cells into the partition with that number.
        report: called with the measurement at the end, unless the level fails.
        encrypts: whether cells that go to the local disk are encrypted.
    """

    def run_level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known, unit = task(), unit_number()
        route = Route.of_level(known.schedule, level, len(known.in_flight), known.units_flush)
        last = level == len(known.schedule.levels) - 1
        inbox: dict[Address, list[bytes]] = {}
        sealed: list[tuple[int, bytes]] = []  # MemTables of earlier levels, still encoded: (table id, chunk)
        failed = False
        parts = PartCells(known.vnode_count, encrypts=encrypts)
        arriving = as_cells(batches, steps_behind(known.schedule, level - 1), known.schedule)
        for batch in chain(_cells_of_driver(known, unit, route, last), arriving):
            addresses = addresses_of(batch)
            through = [i for i, address in enumerate(addresses) if route.is_passed_on(address)]
            if through:
                yield batch.take(pa.array(through, pa.int64()))
            for i, address in enumerate(addresses):
                if address.fragment == Mail.FAILURE:
                    failed = True
                    if not route.is_passed_on(address):
                        yield from announce_failure(batch.column(3)[i].as_py(), range(known.unit_count))
                elif address.is_part and route.is_read(address):
                    parts.put_cell(address, batch.slice(i, 1))
                elif route.is_read(address):
                    inbox.setdefault(address, []).append(batch.column(3)[i].as_py())
                elif route.gathers and address.fragment == Mail.SEALED:
                    sealed.append((address.input, batch.column(3)[i].as_py()))
        with closing(parts):
            if (inbox or sealed or parts.has_parts()) and not failed:
                with process_row_cache().defer_publications(), working_on(epoch=known.epoch, level=level, unit=unit):
                    actors = Unit(known, level, unit, inbox, sealed, parts)
                    yield from measure_work(actors.run(), known.store_uri, unit, report)

    return run_level


def announce_failure(failure: bytes, units: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """A failure cell for every unit, so that none continues."""
    for unit in units:
        yield make_cells(unit, Address.of_answer(Mail.FAILURE), [failure])


def _cells_of_driver(task: EpochTask, unit: int, route: Route, last: bool) -> Iterator[pa.RecordBatch]:
    """The driver's cells for this unit that this level reads.

    In the last level also MemTables that the driver holds. Cost: 10 us for each batch of another unit, possibly one per
    unit.
    """
    if not task.cells:
        return
    for batch in pa.ipc.open_stream(task.cells):
        mine = np.flatnonzero(batch.column(0).to_numpy() == unit)
        if not len(mine):
            continue
        cells = batch.take(pa.array(mine))
        wanted = [
            i
            for i, address in enumerate(addresses_of(cells))
            if route.is_read(address) or (last and address.fragment == Mail.SEALED)
        ]
        if wanted:
            yield cells if len(wanted) == len(cells) else cells.take(pa.array(wanted, pa.int64()))
