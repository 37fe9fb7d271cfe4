"""The task that the driver sends to every unit of an epoch, and the report that an actor returns."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pyarrow as pa

from tussock.jobs.logical.statements import CreateFunction
from tussock.jobs.schedule.schedule import Schedule
from tussock.jobs.wire.cell import CELL_SCHEMA
from tussock.jobs.wire.flush_policy import ExpectedSize, FlushPolicy
from tussock.statestore.zones import ZoneRules


@dataclass(frozen=True, slots=True)
class EpochTask:
    """The data that every task of an epoch needs; broadcast once."""

    store_uri: str
    version: bytes  # JSON of a VersionPart: the pinned version, with the SSTs of the tables that actors may read
    schedule: Schedule
    epoch: int
    unit_of_vnode: tuple[int, ...]  # as the barrier pinned it
    expected: ExpectedSize  # how much the epoch is likely to seal
    policy: FlushPolicy = field(default_factory=FlushPolicy)
    in_flight: tuple[int, ...] = ()  # epochs in `version` without SSTs: their sealed MemTables arrive as cells
    functions: tuple[CreateFunction, ...] = ()  # the user's live functions, with their code
    moment: int = 0  # value of now() in views, Unix microseconds; `version` has the previous epoch's moment
    zones: tuple[ZoneRules, ...] = ()  # the recorded rules of time zones
    sealed_for: tuple[int, ...] = ()  # of an undivided task: by vnode, the unit for which the only unit seals its rows
    cells: bytes = b""  # the driver's cells, encoded by `cells_of`: leaf inputs, and MemTables of epochs in flight

    @property
    def vnode_count(self) -> int:
        """The number of vnodes."""
        return len(self.unit_of_vnode)

    @property
    def unit_count(self) -> int:
        """The number of parallel units, which are numbered from 0."""
        return max(self.unit_of_vnode) + 1

    @property
    def units_flush(self) -> bool:
        """Whether units gather the sealed MemTables at the last level, to flush or exchange them.

        Otherwise the driver gathers them.
        """
        return self.expected is ExpectedSize.MUCH

    def with_cells(self, cells: bytes) -> "EpochTask":
        """A copy of the task with the driver's cells."""
        return replace(self, cells=cells)

    def to_undivided(self) -> "EpochTask":
        """The same task for one unit that has the vnodes of all.

        The unit seals for the others (tussock.jobs.task.sealing), so that it writes the same SSTs as they.
        """
        cells = cells_in([self.cells]).drop_columns(["slot"])
        once = pa.TableGroupBy(cells, CELL_SCHEMA.names[1:], use_threads=False).aggregate([])
        together = once.add_column(0, CELL_SCHEMA.field(0), pa.array(np.zeros(once.num_rows, np.int32)))
        batches = together.cast(CELL_SCHEMA).to_batches()
        return replace(
            self, unit_of_vnode=(0,) * self.vnode_count, sealed_for=self.unit_of_vnode, cells=cells_of(batches)
        )

    @property
    def data_prefix(self) -> str:
        """The folder of this epoch's objects.

        It contains the epoch, so that vacuum can tell which epoch wrote an object.
        """
        return f"data/{self.epoch:016x}"


class HotKeyFound(msgspec.Struct, frozen=True):
    """The most frequent key in a sample of one input's rows; see tussock.jobs.task.hot_key."""

    input: int  # index among the fragment's inputs
    keys: tuple[int, ...]  # columns of that input
    values: tuple[str, ...]  # the key's values, as text
    vnode: int
    share: float  # fraction of the sample
    rows: int  # rows of that input on this unit


class FragmentReport(msgspec.Struct, frozen=True):
    """The work of one actor, for the driver's summary.

    It is equal in every attempt. Measurements such as seconds differ, so they travel separately
    (jobs/wire/measured.py).
    """

    relation_id: int
    fragment: int
    level: int
    unit: int
    rows_in: int
    rows_out: int
    last: bool  # whether the fragment emits the relation's changes
    undeclared: tuple[str, ...] = ()  # for a source: fields of new files that it does not declare, for messages
    net: int = 0  # sum of the output's weights
    bytes_in: int = 0  # size of the input rows as Arrow arrays
    hot: HotKeyFound | None = None
    counters: dict[str, int] = {}  # of its executors
    matched: int = 0  # for a source: rows of its files that cancelled each other


def cells_of(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Encode cells that travel between the driver and the processes of an epoch. They are small: no exchange."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, CELL_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def cells_in(parts: Iterable[bytes]) -> pa.Table:
    """All cells of several results of `cells_of`."""
    return pa.concat_tables([CELL_SCHEMA.empty_table(), *(pa.ipc.open_stream(part).read_all() for part in parts)])
