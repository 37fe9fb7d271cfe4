"""What the driver hands to every task of an epoch, and what an actor reports back."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from jobs.plan.schedule import Schedule
from jobs.sql.statements import Delete, Insert, Update
from jobs.wire.cell import (
    CELL_SCHEMA,
)


@dataclass(frozen=True, slots=True)
class EpochTask:
    """What every task of an epoch knows; broadcast once."""

    store_uri: str
    version: bytes  # the pinned HummockVersion, JSON
    schedule: Schedule
    epoch: int
    units: tuple[int, ...]  # vnode -> parallel unit
    target_bytes: int  # of an SST
    travelling_bytes: int | None = None  # of sealed MemTables that a unit hands on; what is more is uploaded here. None: all of it
    in_flight: tuple[int, ...] = ()  # epochs that `version` counts and that are not all in its SSTs: their sealed MemTables come as cells
    cells: bytes = b""  # those of the driver, as `cells_of` encodes them: what leaves start from, and what it holds of epochs in flight

    @property
    def data_prefix(self) -> str:
        """Where this epoch's objects go: named after the epoch, so that vacuum can tell whose they are."""
        return f"data/{self.epoch:016x}"


class FragmentReport(msgspec.Struct, frozen=True):
    """What one actor did, for the driver's summary."""

    relation_id: int
    fragment: int
    level: int
    unit: int
    rows_in: int
    rows_out: int
    last: bool  # the fragment that puts out the relation's changes


class Entry(msgspec.Struct, frozen=True):
    """One row change of the log, with its position there."""

    position: int
    statement: Insert | Update | Delete


UPLOADING_UNITS = 2  # so many at most upload what they seal, whatever its size: an SST each is never more than ceil(bytes / target) + 1


def cells_of(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Cells of the driver, as they go out with the task. Small things, so that no exchange of their own need bring them to their units."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, CELL_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def tables_read(schedule: Schedule, level: int) -> frozenset[int]:
    """Ids of the state tables that actors of a level may read."""
    found = {t for s in schedule.levels[level] if s.fragment is not None for o in s.fragment.operators for t in o.tables}
    return frozenset(found | {s.snapshot_table.table_id for s in schedule.levels[level] if s.snapshot_table is not None})
