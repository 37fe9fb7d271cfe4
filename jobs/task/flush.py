"""The flush: merge the sealed MemTables of all actors into few SSTs of the target size."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa

from tussock.jobs.chunks.chunk import decode
from tussock.jobs.chunks.failure import carried_by_spark
from tussock.jobs.settings.logs import configure_logging, working_on
from tussock.jobs.task.level import CellFunction
from tussock.jobs.task.opened import measured, opened_objects
from tussock.jobs.wire.cell import Address, Mail, cells
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.measured import Report, not_measured
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.recent_runs import keep_written
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectStore


def flush_function(task: "Callable[[], EpochTask]", report: Report = not_measured) -> CellFunction:
    """The function of a task of the flush exchange. Other cells pass unchanged.

    `report`: called with the number of requests.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = task()
        sealed: list[pa.RecordBatch] = []
        for batch in batches:
            is_sealed = batch.column(1).to_numpy() == Mail.SEALED
            if not is_sealed.all():
                yield batch.filter(pa.array(~is_sealed))
            if is_sealed.any():
                sealed.append(batch.filter(pa.array(is_sealed)))
        if sealed:
            configure_logging()
            with working_on(epoch=known.epoch, flush="exchange"):
                yield from measured(_flushed(known, sealed), known.store_uri, None, report)

    return run


def _flushed(task: EpochTask, sealed: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carried_by_spark("flush"):
        infos = flush_cells(opened_objects(task.store_uri), task, sealed)
    yield cells(0, Address.answer(Mail.SST), [msgspec.json.encode(infos)])


def flush_cells(objects: ObjectStore, task: EpochTask, sealed: Sequence[pa.RecordBatch]) -> list[SstInfo]:
    """Merge sealed MemTables, given as cells, into SSTs and upload these."""
    batches = []
    for batch in sealed:
        for i, table_id in enumerate(batch.column(2).to_pylist()):
            if (rows := decode([batch.column(3)[i].as_buffer()])) is not None:
                batches.append(SealedBatch(table_id, rows))
    policy = task.policy
    infos = batch_ingest(objects, batches, task.epoch, task.data_prefix, policy.target_bytes)
    if len(infos) == 1:
        count = Counter(batch.table_id for batch in batches)
        whole = (batch for batch in batches if count[batch.table_id] == 1)
        keep_written(process_cache(), objects.uri, infos[0], whole)
    return infos
