"""The flush: merge the sealed MemTables of all actors into few SSTs of the target size."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from tussock.jobs.chunks.chunk import decode_tables
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.recent_runs import keep_written
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectStore


def flush_cells(objects: ObjectStore, task: EpochTask, sealed: Sequence[pa.RecordBatch]) -> list[SstInfo]:
    """Merge sealed MemTables, given as cells, into SSTs and upload these."""
    batches = []
    for batch in sealed:
        for i, table_id in enumerate(batch.column(2).to_pylist()):
            if (rows := decode_tables([batch.column(3)[i].as_buffer()])) is not None:
                batches.append(SealedBatch(table_id, rows))
    policy = task.policy
    infos = batch_ingest(objects, batches, task.epoch, task.data_prefix, policy.target_bytes)
    if len(infos) == 1:
        count = Counter(batch.table_id for batch in batches)
        whole = (batch for batch in batches if count[batch.table_id] == 1)
        keep_written(process_cache(), objects.uri, infos[0], whole)
    return infos
