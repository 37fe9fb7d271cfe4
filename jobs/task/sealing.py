"""How a level hands on its sealed MemTables: whole SSTs are uploaded, and the rest goes to the driver or another level.

The unit of an undivided epoch decides as the units for which it works: it divides MemTables by their vnodes, once a
decision may depend on it. So the epoch need not run again with its units if it seals more than expected.

An executor that reads its input in parts seals while it goes on (SealedParts). So a large epoch has one SST of each
table in memory, and not all of its rows.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import some_rows
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import ExpectedSize, Flush
from tussock.statestore.hummock.ingest import PartIngest, vnodes_of_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.stacked import canonical_rows
from tussock.statestore.table.state_table import StateTable

SEALED_ROWS = 1 << 17  # written to one table before a part of it is sealed


@dataclass(slots=True)
class LevelSealer:
    """The decisions about the MemTables of one level on one unit."""

    task: EpochTask
    unit: int
    sent_bytes: Counter[int] = field(default_factory=Counter)  # to the driver, by unit
    whole: list[SealedBatch] = field(default_factory=list)  # sent undivided, and not counted by unit yet
    whole_bytes: int = 0
    divides: bool = False  # whether a MemTable had to be divided

    def divide(self, sealed: SealedBatch) -> Iterator[tuple[SealedBatch, int]]:
        """Yield the parts of a MemTable, each with the number of its first rows to upload. The others are sent."""
        if not self.task.sealed_for:
            yield sealed, self._count_uploaded(self.unit, sealed)
            return
        if not self.divides and self._fits_one_unit(sealed):
            self.whole.append(sealed)
            yield sealed, 0
            return
        for before in self.whole:
            for unit, part in self._by_unit(before):
                self._count_uploaded(unit, part)
        self.whole, self.divides = [], True
        for unit, part in self._by_unit(sealed):
            yield part, self._count_uploaded(unit, part)

    def _fits_one_unit(self, sealed: SealedBatch) -> bool:
        """Whether every unit sends all of its rows to the driver, since even one unit with the rows of all would."""
        size = content_bytes(sealed.rows)
        self.whole_bytes += size
        return not self.task.policy.whole_bytes(size) and self._flush_of(self.whole_bytes) is Flush.DRIVER

    def _count_uploaded(self, unit: int, part: SealedBatch) -> int:
        """The number of rows that a unit uploads. The bytes of the others count as sent."""
        size, rows = content_bytes(part.rows), part.rows.num_rows
        uploaded: int = rows * self.task.policy.whole_bytes(size) // size
        if self.task.expected is ExpectedSize.LITTLE and self._flush_of(self.sent_bytes[unit] + size) is Flush.UNIT:
            uploaded = rows  # more than expected when the epoch was planned
        if uploaded < rows:
            self.sent_bytes[unit] += content_bytes(part.rows.slice(uploaded)) if uploaded else size
        return uploaded

    def _flush_of(self, nbytes: int) -> Flush:
        units = self.task.sealed_for or self.task.unit_of_vnode
        return self.task.policy.choose_flush(self.task.expected, nbytes, max(units) + 1)

    def _by_unit(self, sealed: SealedBatch) -> Iterator[tuple[int, SealedBatch]]:
        keys: pa.Array = sealed.rows.column(0).combine_chunks()
        owners = np.asarray(self.task.sealed_for)[vnodes_of_keys(keys)]
        for unit in np.unique(owners).tolist():
            yield unit, SealedBatch(sealed.table_id, some_rows(sealed.rows, owners == unit))


@dataclass(slots=True)
class SealedParts:
    """The parts of MemTables that one fragment's executors seal while they go on.

    `ingest`: uploads parts; None: nothing is uploaded, because the epoch seals little.
    """

    ingest: PartIngest | None
    _waiting: dict[int, list[SealedBatch]] = field(default_factory=dict)  # by table
    _waiting_bytes: Counter[int] = field(default_factory=Counter)

    def seal_tables(self, tables: Sequence[StateTable]) -> None:
        """Seal the tables with many changes, and upload those with enough for an SST.

        If there are such tables, no table remembers what it read: it would remember the keys of the whole epoch.
        """
        if not any(table.written_rows >= SEALED_ROWS for table in tables):
            return
        for table in tables:
            table.forget_rows()
            if table.written_rows >= SEALED_ROWS and (sealed := table.seal_part()) is not None:
                self._add_part(sealed)

    def close_ssts(self) -> list[SstInfo]:
        """The SSTs of the uploaded parts. No part may follow."""
        return [] if self.ingest is None else self.ingest.close()

    def take_rest(self) -> Iterator[SealedBatch]:
        """Yield the parts that were not uploaded."""
        for table_id in sorted(self._waiting):
            yield from self._waiting.pop(table_id)

    def _add_part(self, sealed: SealedBatch) -> None:
        table_id = sealed.table_id
        self._waiting.setdefault(table_id, []).append(sealed)
        self._waiting_bytes[table_id] += content_bytes(sealed.rows)
        if self.ingest is not None and self._waiting_bytes[table_id] >= self.ingest.target_bytes:
            del self._waiting_bytes[table_id]
            self.ingest.add_part(hand_over(self._waiting.pop(table_id)))


def hand_over(batches: list[SealedBatch]) -> Iterator[SealedBatch]:
    """Yield the batches and release each one."""
    while batches:
        yield batches.pop()


def content_bytes(rows: pa.Table) -> int:
    """The size of the rows as Arrow sends them. It depends on the values only, and some of the rows are never larger.

    `nbytes` depends on how the arrays were made, too: one that has lost its NULLs may still have a buffer for them.
    """
    return sum(pa.ipc.get_record_batch_size(part) for part in canonical_rows(rows).to_batches())
