"""RowDigest: append two columns that identify all values of a row, for any column types.

A source whose rows have no key and can be deleted (a Delta table) identifies a deleted row by its values. NumberCopies
counts the rows of each digest, and rows are distributed by digest.

tussock.jobs.chunks.digests defines the digest.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk, make_chunk
from tussock.jobs.chunks.digests import digests_of
from tussock.jobs.executors.operator import Actor, ComputedColumn, Executor, Origin, PassedColumn, PlainNode
from tussock.statestore.table.state_table import StateTable

DIGEST = ("bigint", "bigint")


class RowDigest(PlainNode, frozen=True):
    """The row, followed by its digest. No state."""

    types: tuple[str, ...]

    def column_origins(self) -> tuple[Origin, ...]:
        return (*(PassedColumn(i) for i in range(len(self.types) - 2)), ComputedColumn(""), ComputedColumn(""))

    def explain_text(self) -> str:
        return "RowDigest"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return RowDigestExecutor(self)


def row_digest_of(types: Sequence[str]) -> RowDigest:
    """The node for rows of these types."""
    return RowDigest((*types, *DIGEST))


class RowDigestExecutor:
    """A row's digest depends on its values alone, and must be equal in every release, because state is stored by it."""

    def __init__(self, node: RowDigest) -> None:
        self._node = node

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Cost: two hashes per value."""
        (chunk,) = chunks
        if not chunk.num_rows:
            return empty_chunk(self._node.types)
        halves = [pa.array(half.view(np.int64)) for half in digests_of(chunk.columns[:-1], chunk.num_rows)]
        return make_chunk([*chunk.columns[:-1], *halves], chunk[WEIGHT])
