"""What the driver hands to every task of an epoch, and what an actor reports back."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa

from tussock.jobs.logical.statements import CreateFunction
from tussock.jobs.plan.schedule import Schedule
from tussock.jobs.wire.cell import CELL_SCHEMA
from tussock.jobs.wire.flush_policy import Expected, FlushPolicy


@dataclass(frozen=True, slots=True)
class EpochTask:
    """What every task of an epoch knows; sent out once."""

    store_uri: str
    version: bytes  # the pinned HummockVersion, JSON
    schedule: Schedule
    epoch: int
    units: tuple[int, ...]  # vnode -> parallel unit, as the barrier pinned it
    expected: Expected  # what the epoch is likely to seal
    policy: FlushPolicy = field(default_factory=FlushPolicy)
    in_flight: tuple[
        int, ...
    ] = ()  # epochs that `version` counts and whose SSTs it lacks: their sealed MemTables come as cells
    functions: tuple[CreateFunction, ...] = ()  # those of the user that live, with their code
    moment: int = 0  # what now() means in views, Unix microseconds; that of the epoch before is the version's
    cells: bytes = b""  # those of the driver, as `cells_of` encodes them: what leaves start from, and what it holds of epochs in flight

    @property
    def unit_count(self) -> int:
        """The number of parallel units, which are numbered from 0."""
        return max(self.units) + 1

    @property
    def units_flush(self) -> bool:
        """Whether units gather what was sealed at the last level, to flush it or to hand it to the exchange; else the driver takes it."""
        return self.expected is Expected.MUCH

    def with_cells(self, cells: bytes) -> "EpochTask":
        """The task with the driver's cells."""
        return replace(self, cells=cells)

    @property
    def data_prefix(self) -> str:
        """Where this epoch's objects go: named after the epoch, so that vacuum knows whose they are."""
        return f"data/{self.epoch:016x}"


class HotKeyFound(msgspec.Struct, frozen=True):
    """The key with the most rows in a sample of one input's rows; see tussock.jobs.task.hot_key."""

    input: int  # place among the fragment's inputs
    keys: tuple[int, ...]  # columns of that input
    values: tuple[str, ...]  # of these, as text
    vnode: int
    share: float  # of the sample
    rows: int  # of that input on this unit


class FragmentReport(msgspec.Struct, frozen=True):
    """What one actor did, for the driver's summary. The same in every attempt: what differs (seconds) travels by jobs/wire/measured.py."""

    relation_id: int
    fragment: int
    level: int
    unit: int
    rows_in: int
    rows_out: int
    last: bool  # the fragment that puts out the relation's changes
    undeclared: tuple[str, ...] = ()  # of a source: what new files hold that it does not declare, for a person
    net: int = 0  # sum of the weights of what was put out
    bytes_in: int = 0  # of the rows in, as Arrow arrays
    hot: HotKeyFound | None = None


def cells_of(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Cells of the driver, as they go out with the task. Small things, so that no exchange of their own need bring them to their units."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, CELL_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
