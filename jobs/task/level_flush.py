"""The flush of one level on one unit: its sealed MemTables are uploaded here, or travel to the driver or another level.

Only the last level gathers MemTables, if units flush. Earlier levels send theirs on; whole SSTs are uploaded at once.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from tussock.jobs.chunks.chunk import decode_tables, encode_table
from tussock.jobs.chunks.failure import carried_by_spark
from tussock.jobs.task.opened import opened_objects
from tussock.jobs.task.sealing import LevelSealer, hand_over
from tussock.jobs.wire.cell import Address, Mail, make_cells
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import Flush
from tussock.statestore.allocator import give_back_freed_memory
from tussock.statestore.hummock.ingest import PartIngest, batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.stacked import count_bytes

_LARGE_BYTES = 128 << 20  # sealed on a unit; from here on, encoding them sets the peak of its memory

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LevelFlush:
    """The MemTables that one level seals on one unit.

    Args:
        arrived: MemTables of earlier levels, still encoded, if this level gathers them: (table id, chunk).
        gathered: MemTables of this level; None unless it flushes.
    """

    task: EpochTask
    unit: int
    arrived: Sequence[tuple[int, bytes]]
    gathered: list[SealedBatch] | None
    sealing: LevelSealer = field(init=False)

    def __post_init__(self) -> None:
        self.sealing = LevelSealer(self.task, self.unit)

    def keep_sealed(self, sealed: SealedBatch) -> Iterator[pa.RecordBatch]:
        """Keep a sealed MemTable if this level flushes, else send it on.

        Whole SSTs are uploaded here; only the rest travels.
        """
        if self.gathered is not None:
            self.gathered.append(sealed)
            return
        for part, uploaded in self.sealing.divide(sealed):
            if uploaded:
                yield self._upload_sealed([SealedBatch(part.table_id, part.rows.slice(0, uploaded))])
            rest = part.rows.slice(uploaded)
            if rest.num_rows:
                for cell in encode_table(rest):
                    yield make_cells(self.unit, Address.of_sealed(part.table_id), [cell])

    def flush_sealed(self) -> Iterator[pa.RecordBatch]:
        """In the flushing level: upload the MemTables that this unit sealed in all levels, or exchange them."""
        if self.gathered is None or not (self.gathered or self.arrived):
            return
        size = sum(count_bytes(batch.rows) for batch in self.gathered) + sum(len(chunk) for _, chunk in self.arrived)
        flush = self.task.policy.choose_flush(self.task.expected, size, self.task.unit_count)
        log.info("%d bytes are sealed on this unit: flushed by %s", size, flush.value)
        if flush is Flush.UNIT:
            if size >= _LARGE_BYTES:
                give_back_freed_memory()
            self.gathered += (
                b for table_id, chunk in self.arrived if (b := decode_sealed(table_id, chunk)) is not None
            )
            with carried_by_spark("flush"):
                yield self._upload_sealed(hand_over(self.gathered))
            return
        for table_id, chunk in self.arrived:
            yield make_cells(self.unit, Address.of_sealed(table_id), [chunk])
        own, self.gathered = self.gathered, None
        for sealed in own:
            yield from self.keep_sealed(sealed)

    def begin_ingest(self) -> PartIngest:
        """Return the upload of parts of MemTables while their executors go on."""
        task = self.task
        return PartIngest(opened_objects(task.store_uri), task.epoch, task.data_prefix, task.policy.target_bytes)

    def make_sst_cell(self, infos: list[SstInfo]) -> pa.RecordBatch:
        """Return the cell that lists uploaded SSTs for the driver."""
        return make_cells(self.unit, Address.of_answer(Mail.SST), [msgspec.json.encode(infos)])

    def _upload_sealed(self, batches: Iterable[SealedBatch]) -> pa.RecordBatch:
        task = self.task
        objects = opened_objects(task.store_uri)
        return self.make_sst_cell(
            batch_ingest(objects, batches, task.epoch, task.data_prefix, task.policy.target_bytes)
        )


def decode_sealed(table_id: int, chunk: bytes) -> SealedBatch | None:
    """Return a MemTable that was encoded as a chunk; None if it has no rows."""
    rows = decode_tables([chunk])
    return None if rows is None else SealedBatch(table_id, rows)
