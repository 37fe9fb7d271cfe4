"""Cells: what travels between the driver, the levels of an epoch and the flush, and where each goes.

A cell is one row of a Spark shuffle: `(slot int, fragment int, input int, chunk binary)`. Spark moves a few large cells instead of rows.
`slot` is the parallel unit that gets the cell; `(fragment, input)` is its `Address`:

    fragment                 input                  chunk
    >= 0: a fragment         >= 0: its exchange     a chunk of the fragment's output, as an Arrow stream
    >= 0: a fragment         a LeafInput            what the fragment starts from
    SEALED                   >= 0: a table id       a sealed MemTable
    IN_FLIGHT - n            >= 0: a table id       a sealed MemTable of the n-th epoch in flight
    REPORT, SST              0                      JSON for the driver: what a fragment did, SSTs that were uploaded
    FAILURE                  0, or a LeafInput      JSON: an error that stops the epoch; a retry would meet it again, so no task fails by it

No number below 0 has two meanings: Mail and LeafInput share none, and neither uses those of stored plans (ROW_ID is column -1, a
fragment's inputs are -1 - i; jobs/plan/fragments.py). Cells are stored nowhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.flow.chunk import WEIGHT
from tussock.jobs.plan.schedule import Schedule
from tussock.statestore.vnode import vnodes_of


class Mail(IntEnum):
    """The `fragment` of a cell that holds no fragment's chunk."""

    SEALED = -1_001
    REPORT = -1_002
    FAILURE = -1_003
    SST = -1_004
    IN_FLIGHT = -2_000  # and below: IN_FLIGHT - n is the n-th epoch in flight


class LeafInput(IntEnum):
    """The `input` of a cell that a fragment starts from, where it comes from no other fragment."""

    SPLITS = -101  # JSON: parts of files, which the actor reads by itself
    BACKFILL = -102  # likewise, of files that were taken in earlier epochs
    ROWS = -103  # chunks that Spark's own reader made
    BACKFILL_ROWS = -104  # likewise, of files that were taken in earlier epochs
    ENTRIES = -105  # JSON: row changes of the log
    TICK = -106  # nothing; lets a fragment run without input


_LEAF_INPUTS = frozenset(LeafInput)


class Address(NamedTuple):
    """Where a cell belongs: see the module."""

    fragment: int
    input: int

    @classmethod
    def leaf(cls, fragment: int, input: LeafInput) -> "Address":
        """What a fragment starts from."""
        return cls(fragment, input)

    @classmethod
    def exchange(cls, producer: int, exchange: int) -> "Address":
        """A fragment's output on its way through one of its exchanges."""
        return cls(producer, exchange)

    @classmethod
    def sealed(cls, table_id: int) -> "Address":
        """A MemTable that this epoch sealed."""
        return cls(Mail.SEALED, table_id)

    @classmethod
    def in_flight(cls, number: int, table_id: int) -> "Address":
        """A MemTable that the `number`-th epoch in flight sealed."""
        return cls(Mail.IN_FLIGHT - number, table_id)

    @classmethod
    def answer(cls, mail: Mail) -> "Address":
        """What a unit answers the driver. A failure with this address is known to all units."""
        return cls(mail, 0)

    @property
    def epoch_in_flight(self) -> int | None:
        """The number of the epoch in flight whose MemTable the cell is; None for any other cell."""
        return Mail.IN_FLIGHT - self.fragment if self.fragment <= Mail.IN_FLIGHT else None


@dataclass(frozen=True, slots=True)
class Route:
    """What one level does with a cell: read it, let it pass to later levels, or neither. The one place that says so."""

    read: frozenset[Address]  # what fragments of this level read: exchanges, MemTables in flight
    starts: frozenset[int]  # fragments of this level, which read what they start from (LeafInput)
    later: frozenset[Address]  # exchanges from an earlier level to a later one
    gathers: bool  # the last level, whose units flush: sealed MemTables end here

    @classmethod
    def of(cls, schedule: Schedule, level: int, in_flight: int, flushes: bool) -> "Route":
        """The route of `level`.

        Args:
            in_flight: number of epochs in flight whose MemTables come as cells.
            flushes: whether units of the last level take what was sealed, instead of handing it to the driver.
        """
        here = schedule.levels[level]
        exchanges = (Address.exchange(f.producer, f.exchange) for s in here for f in s.feeds if f.exchange is not None)
        buffered = (Address.in_flight(n, table) for table in tables_read(schedule, level) for n in range(in_flight))
        later = (
            Address.exchange(s.id, x.index)
            for s in schedule.fragments()
            for x in s.exchanges
            if s.level < level < x.last_level
        )
        last = level == len(schedule.levels) - 1
        return cls(
            frozenset((*exchanges, *buffered)), frozenset(s.id for s in here), frozenset(later), flushes and last
        )

    def reads(self, address: Address) -> bool:
        """Whether fragments of this level read the cell."""
        return address in self.read or (address.input in _LEAF_INPUTS and address.fragment in self.starts)

    def passes(self, address: Address) -> bool:
        """Whether the cell goes on, unread, to the next level, or out of the last one."""
        match address.fragment:
            case Mail.REPORT | Mail.SST:
                return True
            case Mail.FAILURE:
                return address == Address.answer(Mail.FAILURE)
            case Mail.SEALED:
                return not self.gathers
            case _:
                return address in self.later


def tables_read(schedule: Schedule, level: int) -> frozenset[int]:
    """Ids of the state tables that actors of a level may read."""
    found = {
        t for s in schedule.levels[level] if s.fragment is not None for o in s.fragment.operators for t in o.tables
    }
    snapshots = {s.snapshot_table.table_id for s in schedule.levels[level] if s.snapshot_table is not None}
    exchanged = [e.want.replaced for s in schedule.levels[level] for e in s.exchanges]
    forwarded = [f.want.replaced for s in schedule.levels[level] for f in s.feeds if f.exchange is None]
    return frozenset(found | snapshots | {r.table.table_id for r in (*exchanged, *forwarded) if r is not None})


_DISPATCHED = 32768  # rows dispatched at once: they, and their copies in another order, stay in the CPU's cache

CELL_SCHEMA = pa.schema([("slot", pa.int32()), ("fragment", pa.int32()), ("input", pa.int32()), ("chunk", pa.binary())])


def cells(slot: int, address: Address, chunks: Iterable[bytes | pa.Buffer]) -> pa.RecordBatch:
    """One cell per chunk, all for the same unit and address. A single chunk is not copied."""
    data = list(chunks)
    columns = [pa.array([v] * len(data), pa.int32()) for v in (slot, *address)]
    values = _one_value(data[0]) if len(data) == 1 else pa.array([memoryview(d) for d in data], pa.binary())
    return pa.record_batch([*columns, values], schema=CELL_SCHEMA)


def _one_value(data: bytes | pa.Buffer) -> pa.BinaryArray:
    offsets = pa.array([0, len(data)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])


def addresses_of(batch: pa.RecordBatch) -> list[Address]:
    """The address of each cell. A loop per cell: they are few and large."""
    return [Address(*pair) for pair in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True)]


def dispatch(chunk: pa.Table, keys: Sequence[int], units: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """Slice a chunk per parallel unit.

    Args:
        chunk: rows with weights (tussock.jobs.flow.chunk).
        keys: the distribution key's columns; none: all rows go to vnode 0's unit.
        units: (vnode count,) the mapping, vnode -> unit.

    Yields: (unit, some of its rows); a unit's rows in their order, of many rows a part at a time.
    Cost: one hash and one stable sort of the rows.
    """
    if chunk.num_rows == 0:
        return
    if not keys:
        yield int(units[0]), chunk
        return
    units = units.astype(np.uint16)  # no more than vnodes; so narrow, they are sorted by counting
    for start in range(0, chunk.num_rows, _DISPATCHED):
        yield from _dispatched(chunk.slice(start, _DISPATCHED).combine_chunks(), keys, units)


def _dispatched(chunk: pa.Table, keys: Sequence[int], units: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    unit_of_row = units.take(vnodes_of([chunk.column(k) for k in keys], len(units)))
    counts = np.bincount(unit_of_row)
    if len(receivers := np.flatnonzero(counts).tolist()) == 1:
        yield receivers[0], chunk
        return
    order = np.argsort(unit_of_row, kind="stable")
    weights = chunk.column(WEIGHT)
    grouped = chunk.drop_columns([WEIGHT]).take(pa.array(order))
    one_weight = pc.min_max(weights)
    same = one_weight["min"] == one_weight["max"]
    grouped = grouped.append_column(WEIGHT, weights if same else weights.take(pa.array(order)))
    starts = np.cumsum(counts) - counts
    for unit in receivers:
        yield unit, grouped.slice(starts[unit], counts[unit])


def broadcast(chunk: pa.Table, units: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """The whole chunk for every parallel unit of the mapping; for chunks that are known to be small."""
    if chunk.num_rows:
        yield from ((unit, chunk) for unit in np.unique(units).tolist())


def select(chunk: pa.Table, columns: Sequence[int]) -> pa.Table:
    """Some columns of a chunk, renumbered, with its weights."""
    picked = [chunk.column(c) for c in columns]
    return pa.table([*picked, chunk.column(WEIGHT)], names=[*(f"c{i}" for i in range(len(columns))), WEIGHT])
