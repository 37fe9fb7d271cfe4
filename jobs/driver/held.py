"""What an epoch in flight sealed, until its SSTs can be read in its place."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.task.flush import flush_cells
from tussock.jobs.wire.cell import CELL_SCHEMA, Address
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SealedTables(Protocol):
    """Sealed MemTables of one epoch, as cells. Epochs after it read them: each unit gets its own back."""

    @property
    def epoch(self) -> int:
        """Whose they are."""

    @property
    def tables(self) -> frozenset[int]:
        """Ids of the state tables among them."""

    def batches(self, number: int, tables: frozenset[int]) -> Iterator[pa.RecordBatch]:
        """Those of some tables that the driver holds, as cells of the `number`-th epoch in flight."""

    def frames(self, number: int, tables: frozenset[int]) -> "Iterator[DataFrame]":
        """Likewise, those that Spark holds."""

    def flush(self) -> list[SstInfo]:
        """Merge them into SSTs and upload these. Raises what the object store raises."""

    def release(self) -> None:
        """Forget them. Nothing of the epoch can be read from here, or computed again, afterwards."""


class HeldByDriver:
    """The sealed MemTables of an epoch that this process holds."""

    def __init__(self, objects: ObjectStore, task: EpochTask, sealed: pa.Table) -> None:
        """
        Args:
            sealed: cells of MemTables that the epoch sealed.
        """
        self.epoch, self.tables = task.epoch, frozenset(sealed["input"].to_pylist())
        self._objects, self._task, self._sealed = objects, task, sealed

    def batches(self, number: int, tables: frozenset[int]) -> Iterator[pa.RecordBatch]:
        """See SealedTables."""
        if wanted := sorted(self.tables & tables):
            mine = self._sealed.filter(pc.is_in(self._sealed["input"], pa.array(wanted, pa.int32())))
            there = Address.in_flight(number, 0).fragment
            yield from mine.set_column(
                1, CELL_SCHEMA.field(1), pa.repeat(pa.scalar(there, pa.int32()), mine.num_rows)
            ).to_batches()

    def frames(self, number: int, tables: frozenset[int]) -> "Iterator[DataFrame]":
        """See SealedTables. Spark holds none of them."""
        return iter(())

    def flush(self) -> list[SstInfo]:
        """See SealedTables."""
        return flush_cells(self._objects, self._task, self._sealed.to_batches()) if self.tables else []

    def release(self) -> None:
        """See SealedTables."""
        self._sealed = CELL_SCHEMA.empty_table()
        self.tables = frozenset()
