"""Cells: the messages between the driver, the levels of an epoch and the flush, and their routes.

A cell is one row of a Spark shuffle: `(slot int, fragment int, input int, chunk binary)`. Spark moves a few large cells
instead of many rows. `slot` is the parallel unit that receives the cell. `(fragment, input)` is its `Address`:

    fragment                 input                  chunk
    >= 0: a fragment         >= 0: its exchange     a chunk of the fragment's output, as an Arrow stream
    >= 0: a fragment         a LeafInput            the input that a leaf fragment starts from
    >= 0: a fragment         <= FIRST_PART          one part of its output in an exchange (jobs/task/vnode_parts.py)
    SEALED                   >= 0: a table id       a sealed MemTable
    IN_FLIGHT - n            >= 0: a table id       a sealed MemTable of the n-th epoch in flight
    REPORT, SST              0                      JSON for the driver: a fragment's report; uploaded SSTs
    FAILURE                  0, or a LeafInput      JSON: an error that stops the epoch

A failure is data: the task itself succeeds, because a retry would meet the same error.

Each number below 0 has one meaning. Mail and LeafInput have no number in common, and stored plans use others (ROW_ID is
column -1, a fragment's inputs are -1 - i; jobs/plan/fragments.py; hidden columns are -11 and below;
jobs/logical/hidden_columns.py). Cells are never stored.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, add_weights
from tussock.jobs.schedule.schedule import Schedule, ScheduledFragment
from tussock.statestore.vnode import vnodes_of


class Mail(IntEnum):
    """The `fragment` of a cell that holds no fragment's output."""

    SEALED = -1_001
    REPORT = -1_002
    FAILURE = -1_003
    SST = -1_004
    IN_FLIGHT = -2_000  # and below: IN_FLIGHT - n is the n-th epoch in flight


class LeafInput(IntEnum):
    """The `input` of a cell that a leaf fragment starts from."""

    SPLITS = -101  # JSON: parts of files, which the actor reads
    BACKFILL = -102  # the same, for files that earlier epochs took
    ROWS = -103  # chunks that Spark's reader made
    BACKFILL_ROWS = -104  # the same, for files that earlier epochs took
    ENTRIES = -105  # JSON: row changes of the log
    TICK = -106  # empty; lets a fragment run without input
    FILES = -107  # JSON: the files whose rows keep ids of other files


_LEAF_INPUTS = frozenset(LeafInput)

FIRST_PART, _MOST_PARTS = -10_000, 1 << 10  # inputs of parts: FIRST_PART - (exchange * _MOST_PARTS + part)


class Address(NamedTuple):
    """The destination of a cell; the module's docstring lists the values."""

    fragment: int
    input: int

    @classmethod
    def of_leaf(cls, fragment: int, input: LeafInput) -> "Address":
        """The input that a leaf fragment starts from."""
        return cls(fragment, input)

    @classmethod
    def of_exchange(cls, producer: int, exchange: int) -> "Address":
        """A fragment's output in one of its exchanges."""
        return cls(producer, exchange)

    @classmethod
    def of_part(cls, producer: int, exchange: int, part: int) -> "Address":
        """A part of a fragment's output in one of its exchanges."""
        return cls(producer, FIRST_PART - (exchange * _MOST_PARTS + part))

    @classmethod
    def of_sealed(cls, table_id: int) -> "Address":
        """A MemTable that this epoch sealed."""
        return cls(Mail.SEALED, table_id)

    @classmethod
    def in_flight(cls, number: int, table_id: int) -> "Address":
        """A MemTable that the `number`-th epoch in flight sealed."""
        return cls(Mail.IN_FLIGHT - number, table_id)

    @classmethod
    def of_answer(cls, mail: Mail) -> "Address":
        """A unit's answer to the driver. All units know a failure with this address."""
        return cls(mail, 0)

    @property
    def is_part(self) -> bool:
        """Whether the cell is a part of an exchange."""
        return self.fragment >= 0 and self.input <= FIRST_PART

    @property
    def exchange(self) -> "Address":
        """The exchange that the cell is a part of; any other address is itself."""
        return Address(self.fragment, (FIRST_PART - self.input) // _MOST_PARTS) if self.is_part else self

    @property
    def epoch_in_flight(self) -> int | None:
        """The number of the epoch in flight whose MemTable the cell is; None for any other cell."""
        return Mail.IN_FLIGHT - self.fragment if self.fragment <= Mail.IN_FLIGHT else None


@dataclass(frozen=True, slots=True)
class Route:
    """How one level handles a cell: read it, pass it to later levels, or neither. No other code decides this."""

    read: frozenset[Address]  # inputs of this level's fragments: exchanges, MemTables in flight
    starts: frozenset[int]  # fragments of this level, for their LeafInput cells
    later: frozenset[Address]  # exchanges from an earlier level to a later one
    gathers: bool  # true for the last level if units flush: sealed MemTables end here

    @classmethod
    def of_level(cls, schedule: Schedule, level: int, in_flight: int, flushes: bool) -> "Route":
        """The route of `level`.

        Args:
            in_flight: number of epochs in flight whose MemTables arrive as cells.
            flushes: whether units of the last level flush the sealed MemTables. Otherwise the driver takes them.
        """
        here = schedule.levels[level]
        exchanges = (
            Address.of_exchange(f.producer, f.exchange) for s in here for f in s.origins if f.exchange is not None
        )
        buffered = (Address.in_flight(n, table) for table in tables_read(schedule, level) for n in range(in_flight))
        later = (
            Address.of_exchange(s.id, x.index)
            for s in schedule.all_fragments()
            for x in s.exchanges
            if s.level < level < x.last_level
        )
        last = level == len(schedule.levels) - 1
        return cls(
            frozenset((*exchanges, *buffered)), frozenset(s.id for s in here), frozenset(later), flushes and last
        )

    def is_read(self, address: Address) -> bool:
        """Whether fragments of this level read the cell."""
        return address.exchange in self.read or (address.input in _LEAF_INPUTS and address.fragment in self.starts)

    def is_passed_on(self, address: Address) -> bool:
        """Whether the cell passes unread to the next level, or out of the last one."""
        match address.fragment:
            case Mail.REPORT | Mail.SST:
                return True
            case Mail.FAILURE:
                return address == Address.of_answer(Mail.FAILURE)
            case Mail.SEALED:
                return not self.gathers
            case _:
                return address.exchange in self.later


def tables_read(schedule: Schedule, level: int) -> frozenset[int]:
    """Ids of the state tables that actors of a level may read."""
    return tables_read_by(schedule.levels[level])


def tables_read_by(fragments: Sequence[ScheduledFragment]) -> frozenset[int]:
    """Ids of the state tables that actors of these fragments may read."""
    table_ids = {t for s in fragments if s.fragment is not None for o in s.fragment.operators for t in o.tables}
    snapshots = {s.snapshot_table.table_id for s in fragments if s.snapshot_table is not None}
    snapshots |= {s.replayed.table_id for s in fragments if s.replayed is not None}
    exchanged = [e.needed.replaced for s in fragments for e in s.exchanges]
    forwarded = [f.needed.replaced for s in fragments for f in s.origins if f.exchange is None]
    return frozenset(table_ids | snapshots | {r.table.table_id for r in (*exchanged, *forwarded) if r is not None})


_DISPATCHED = 32768  # rows per step; they and their reordered copy fit in the CPU's cache

CELL_SCHEMA = pa.schema([("slot", pa.int32()), ("fragment", pa.int32()), ("input", pa.int32()), ("chunk", pa.binary())])


def make_cells(slot: int, address: Address, chunks: Iterable[bytes | pa.Buffer]) -> pa.RecordBatch:
    """One cell per chunk, all with this unit and address. A single chunk is not copied."""
    data = list(chunks)
    columns = [pa.array([v] * len(data), pa.int32()) for v in (slot, *address)]
    values = _one_value(data[0]) if len(data) == 1 else pa.array([memoryview(d) for d in data], pa.binary())
    return pa.record_batch([*columns, values], schema=CELL_SCHEMA)


def _one_value(data: bytes | pa.Buffer) -> pa.BinaryArray:
    offsets = pa.array([0, len(data)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])


def split_cells(batch: pa.RecordBatch, numbers: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split cells by a number that each has, in the order of the numbers. Cells of one number are not copied.

    Args:
        numbers: (len(batch),) integers or booleans.
    """
    if not len(numbers):
        return
    if (numbers == numbers[0]).all():  # nearly always; the cells are large, and a filter would copy them
        yield numbers[0].item(), batch
        return
    for number in np.unique(numbers).tolist():
        yield number, batch.filter(pa.array(numbers == number))


def addresses_of(batch: pa.RecordBatch) -> list[Address]:
    """The address of each cell. A Python loop is cheap here: cells are few and large."""
    return [Address(*pair) for pair in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True)]


def split_by_unit(chunk: pa.Table, keys: Sequence[int], units: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """Split a chunk by parallel unit.

    Args:
        chunk: rows with weights (tussock.jobs.chunks.chunk).
        keys: columns of the distribution key. If empty, all rows go to vnode 0's unit.
        units: (vnode count,) the mapping, vnode -> unit.

    Yields: (unit, some of its rows). The rows of a unit keep their order; a large chunk gives several parts per unit.
    Cost: one hash and one stable sort of the rows.
    """
    if chunk.num_rows == 0:
        return
    if not keys:
        yield int(units[0]), chunk
        return
    alone = bool((units == units[0]).all())
    units = units.astype(np.uint16)  # there are no more units than vnodes, and NumPy sorts uint16 by counting
    for start in range(0, chunk.num_rows, _DISPATCHED):
        part = chunk.slice(start, _DISPATCHED).combine_chunks()
        yield from ((int(units[0]), part),) if alone else _split_rows(part, keys, units)


def _split_rows(chunk: pa.Table, keys: Sequence[int], units: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
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


def broadcast_chunk(chunk: pa.Table, units: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """The whole chunk for every parallel unit of the mapping. Use it only for small chunks."""
    if chunk.num_rows:
        yield from ((unit, chunk) for unit in np.unique(units).tolist())


def select_columns(chunk: pa.Table, columns: Sequence[int]) -> pa.Table:
    """Some columns of a chunk, renumbered, with the weights."""
    if list(columns) == list(range(chunk.num_columns - 1)):
        return chunk
    return add_weights(chunk.select(list(columns)), chunk.column(WEIGHT))
