"""The sealed MemTables of epochs in flight, until their SSTs can be read instead."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.wire.cell import CELL_SCHEMA, Address
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush import flush_cells
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SealedTables(Protocol):
    """The sealed MemTables of one epoch as cells. Later epochs read them: each unit gets its own."""

    @property
    def epoch(self) -> int:
        """The epoch that sealed them."""

    @property
    def tables(self) -> frozenset[int]:
        """The ids of their state tables."""

    def batches(self, number: int, tables: frozenset[int]) -> Iterator[pa.RecordBatch]:
        """Yield the tables that the driver holds, as cells of the `number`-th epoch in flight."""

    def frames(self, number: int, tables: frozenset[int]) -> "Iterator[DataFrame]":
        """Yield the tables that Spark holds, in the same way."""

    def flush(self) -> list[SstInfo]:
        """Merge them into SSTs and upload these. Raises the errors of the object store."""

    def release(self) -> None:
        """Delete them. Afterwards, nothing of the epoch can be read from here or computed again."""


class TablesInDriver:
    """The sealed MemTables of an epoch, held by this process."""

    def __init__(self, objects: ObjectStore, task: EpochTask, sealed: pa.Table, *, undivided: bool = False) -> None:
        """
        Args:
            sealed: cells of the sealed MemTables.
            undivided: whether one unit sealed the rows of all, so that all of them need its cells.
        """
        self.epoch, self.tables = task.epoch, frozenset(sealed["input"].to_pylist())
        self._objects, self._task, self._sealed, self._undivided = objects, task, sealed, undivided

    def batches(self, number: int, tables: frozenset[int]) -> Iterator[pa.RecordBatch]:
        """See SealedTables."""
        if wanted := sorted(self.tables & tables):
            mine = self._sealed.filter(pc.is_in(self._sealed["input"], pa.array(wanted, pa.int32())))
            there = Address.in_flight(number, 0).fragment
            mine = mine.set_column(1, CELL_SCHEMA.field(1), pa.repeat(pa.scalar(there, pa.int32()), mine.num_rows))
            if not self._undivided:
                yield from mine.to_batches()
                return
            for unit in range(self._task.unit_count):
                slots = pa.repeat(pa.scalar(unit, pa.int32()), mine.num_rows)
                yield from mine.set_column(0, CELL_SCHEMA.field(0), slots).to_batches()

    def frames(self, number: int, tables: frozenset[int]) -> "Iterator[DataFrame]":
        """See SealedTables. Empty: Spark holds none."""
        return iter(())

    def flush(self) -> list[SstInfo]:
        """See SealedTables."""
        return flush_cells(self._objects, self._task, self._sealed.to_batches()) if self.tables else []

    def release(self) -> None:
        """See SealedTables."""
        self._sealed = CELL_SCHEMA.empty_table()
        self.tables = frozenset()
