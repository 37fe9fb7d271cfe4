"""Run a level in a Spark task."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from tussock.jobs.settings.logs import configure_logging
from tussock.jobs.task.collector import collect_own_garbage
from tussock.jobs.task.level import CellFunction
from tussock.jobs.wire.typed_rows import widen_batch
from tussock.statestore.allocator import keep_freed_memory
from tussock.statestore.table.row_cache import process_row_cache


def partition_of_this_task() -> int:
    """The number of the partition that this Spark task computes."""
    context = TaskContext.get()
    assert context is not None, "not in a Spark task"
    return context.partitionId()


def in_spark_task(function: CellFunction, schema: pa.Schema) -> CellFunction:
    """Adapt a cell function for `mapInArrow`. Its output has the columns of `schema` (tussock.jobs.wire.typed_rows).

    The worker logs as TUSSOCK_LOG requires (jobs/settings/logs.py), keeps freed memory for reuse
    (statestore/allocator.py), shares rows with the other workers, to which its units may move
    (statestore/table/shared_runs.py), and excludes caches from garbage collection (jobs/task/collector.py).
    """

    def run_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        configure_logging()
        keep_freed_memory()
        process_row_cache().share_runs()
        for batch in function(batches):
            yield widen_batch(batch, schema)
        collect_own_garbage()

    return run_task


def without_cells(function: CellFunction) -> CellFunction:
    """A level whose only input is the driver's cells. The input frame merely provides one partition per unit."""

    def run_without_cells(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers:
            pass
        return function(iter(()))

    return run_without_cells
