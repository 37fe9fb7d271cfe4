"""The local runner with an adverse shuffle: the shipped code, without Spark.

Cells reach a task in a random order and in random batches. Each task runs twice, on two such orders, as in a retry or
in a second driver. Both attempts must return the same cells, byte for byte, and upload the same objects.
"""

import random
import threading
from collections.abc import Iterator

import pyarrow as pa

from tussock.jobs.driver.levels import read_answers
from tussock.jobs.driver.runner import LevelsToRun, LocalRunner
from tussock.jobs.driver.sealed_tables import SealedTables, TablesInDriver
from tussock.jobs.task.level import CellFunction
from tussock.jobs.task.stage import flush_function
from tussock.jobs.wire.cell import CELL_SCHEMA, Mail
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.meta.version import SstInfo

_ONE_TASK = (
    threading.Lock()
)  # a worker process of Spark's runs one task at a time; here the committing thread runs some too


class UnkindShuffle(LocalRunner):
    """Runs every task twice, each time on its cells in another order, and compares."""

    def __init__(self, seed: int, target_sst_bytes: int = 4096) -> None:
        # Units upload most of their sealed rows, or gather them all.
        small = {"driver_bytes": 6_000} if seed % 2 == 0 else {"little_rows": -1}
        super().__init__(FlushPolicy(target_bytes=target_sst_bytes, **small))
        self.random = random.Random(seed)
        self.moved = 0  # cells that went from one unit to another

    def may_unite(self, task: EpochTask) -> bool:
        """Never: cells must travel between units."""
        return False

    def run_unit(
        self, unit: int, function: CellFunction, arriving: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Two attempts of one task, which must agree."""
        cells = list(arriving)
        with _ONE_TASK:
            first, second = (
                pa.Table.from_batches(list(function(self._unkindly(iter(cells)))), CELL_SCHEMA) for _ in range(2)
            )
        assert _ordered(first) == _ordered(second), "two attempts of a task differ"
        self.moved += sum(slot != unit for slot in first["slot"].to_pylist())
        return iter(first.to_batches())

    def hold_sealed(self, levels: LevelsToRun, sealed: pa.Table) -> SealedTables:
        """Hold the sealed rows; attempt their flush twice, too."""
        return _HeldUnkindly(self, levels, sealed)

    def _unkindly(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = [row for batch in batches for row in batch.to_pylist()]
        self.random.shuffle(left)
        while left:
            size = self.random.randint(1, 4)
            yield from pa.Table.from_pylist(left[:size], CELL_SCHEMA).to_batches()
            left = left[size:]


class _HeldUnkindly(TablesInDriver):
    def __init__(self, shuffle: UnkindShuffle, levels: LevelsToRun, sealed: pa.Table) -> None:
        super().__init__(levels.objects, levels.task, sealed)
        self._shuffle = shuffle

    def flush(self) -> list[SstInfo]:
        """Flush as Spark does: in a task after an exchange."""
        sealed = iter(self._sealed.to_batches())
        answers = pa.Table.from_batches(
            self._shuffle.run_unit(0, flush_function(lambda: self._task), sealed), CELL_SCHEMA
        )
        assert Mail.SEALED not in answers["fragment"].to_pylist()
        return list(read_answers(answers)[1])


def _ordered(cells: pa.Table) -> list[tuple[int, int, int, bytes]]:
    return sorted((c["slot"], c["fragment"], c["input"], c["chunk"]) for c in cells.to_pylist())
