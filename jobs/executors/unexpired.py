"""Unexpired: the sender's part of a TemporalFilter. It drops rows that the bound has passed for good.

No state: a deleted row matters only if the previous epoch's bound had not passed it.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import some_rows
from tussock.jobs.executors.base import weights_of
from tussock.jobs.executors.operator import Actor, Executor, PlainNode
from tussock.jobs.executors.temporal_filter import TemporalFilterNode
from tussock.jobs.kernels.kernel import Kernel
from tussock.statestore.table.state_table import StateTable


class Unexpired(PlainNode, frozen=True):
    """The changes that matter to `reader`. Requires: the reader's bound never goes back and removes rows."""

    reader: TemporalFilterNode

    @property
    def types(self) -> tuple[str, ...]:
        return self.reader.types

    def explain_text(self) -> str:
        return f"Unexpired {self.reader.condition}"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return UnexpiredExecutor(self, actor.kernel, actor.moment_before, actor.moment)


class UnexpiredExecutor:
    """Tests deleted rows with the previous moment, and inserted rows with the current one."""

    def __init__(self, node: Unexpired, kernel: Kernel, before: int, now: int) -> None:
        self._reader, self._kernel, self._before, self._now = node.reader, kernel, before, now

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises RowError if the bound raises at this epoch's moment. Cost: one comparison per row."""
        (chunk,) = chunks
        if not chunk.num_rows:
            return chunk
        before, now = self._reader.compute_bounds(self._kernel, self._before, self._now)
        goes = weights_of(chunk) < 0
        there = self._reader.is_visible(chunk, now).to_numpy(zero_copy_only=False)
        if goes.any():
            there = np.where(goes, self._reader.is_visible(chunk, before).to_numpy(zero_copy_only=False), there)
        return some_rows(chunk, there)
