"""RowDigest: append two columns that identify all values of a row, for any column types.

A source whose rows have no key and can be deleted (a Delta table) identifies a deleted row by its values. NumberCopies
counts the rows of each digest, and rows are distributed by digest.

    digest = (h(1, nulls, columns), h(2, nulls, columns))      h: xxhash64, floats by their bits

`nulls` are bits that mark the NULL columns, since h skips NULL. Two different rows have equal digests with a
probability of about 2^-128; among a billion rows, with 2^-69.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk, make_chunk
from tussock.jobs.executors.operator import Actor, Computed, Executor, Origin, Passed, PlainNode
from tussock.statestore.hummock.key import encode_identities
from tussock.statestore.nested import bits_of, is_nested
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import null_mask, one_array, xxhash64

_BITS = 63  # columns per bigint of NULL bits
DIGEST = ("bigint", "bigint")


class RowDigest(PlainNode, frozen=True):
    """The row, followed by its digest. No state."""

    types: tuple[str, ...]

    def column_origins(self) -> tuple[Origin, ...]:
        return (*(Passed(i) for i in range(len(self.types) - 2)), Computed(""), Computed(""))

    def explain_text(self) -> str:
        return "RowDigest"

    def describe_cost(self) -> str:
        return "changed rows"

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
        columns = [one_array(c) for c in chunk.columns[:-1]]
        hashed = [
            *_null_bits(columns, chunk.num_rows),
            *(encode_identities(c) if is_nested(c.type) else bits_of(c) for c in columns),
        ]
        halves = [pa.array(xxhash64([_constant_column(n, chunk.num_rows), *hashed]).view(np.int64)) for n in (1, 2)]
        return make_chunk([*chunk.columns[:-1], *halves], chunk[WEIGHT])


def _null_bits(columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
    words = []
    for start in range(0, len(columns), _BITS):
        word = np.zeros(rows, np.int64)
        for bit, column in enumerate(columns[start : start + _BITS]):
            if column.null_count:
                word |= null_mask(column).astype(np.int64) << bit
        words.append(pa.array(word))
    return words


def _constant_column(value: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value, np.int64))
