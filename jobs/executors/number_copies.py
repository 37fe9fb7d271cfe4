"""NumberCopies: distinguish equal rows of a stream without a key by numbering them.

    state: digest -> number of copies of the row            24 bytes per distinct row, for any width
    n copies have the numbers 0 … n-1; an insert adds copy n, a delete removes copy n-1

(digest, copy) is therefore a key: a deleted row has the same key as when it was inserted.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import empty_chunk, make_chunk
from tussock.jobs.executors.base import NO_ROW, change_error, key_ids, state_table, take_rows, weights_of
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.operator import Actor, ComputedColumn, Executor, Origin, PassedColumn, PlainNode
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.positions import indices_in_ranges
from tussock.statestore.table.state_table import StateTable


class NumberCopies(PlainNode, frozen=True):
    """The row with its digest (the last two columns of the input), followed by the number of the copy."""

    types: tuple[str, ...]

    @property
    def width(self) -> int:
        """The number of columns of the row without its digest."""
        return len(self.types) - 3

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The number of copies of each row."""
        return (state_table("copies", ("bigint", "bigint", "bigint"), [KeyColumn(0), KeyColumn(1)], (0, 1)),)

    def column_origins(self) -> tuple[Origin, ...]:
        return (*(PassedColumn(i) for i in range(self.width + 2)), ComputedColumn(""))

    def explain_text(self) -> str:
        return f"NumberCopies of [{', '.join(f'c{i}' for i in range(self.width))}]"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return NumberCopiesExecutor(self, tables[0])


class NumberCopiesExecutor:
    """Invariant: the sum of all output chunks, without the numbers, is the sum of all input chunks."""

    def __init__(self, node: NumberCopies, table: StateTable) -> None:
        self._node, self._table = node, table

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ChangeError if more copies are deleted than exist.

        Cost: one batched read of the digests whose count changes.
        """
        (chunk,), node = chunks, self._node
        if not chunk.num_rows:
            return empty_chunk(node.types)
        digest = chunk.select([node.width, node.width + 1])
        ids, first = key_ids(digest.columns, chunk.num_rows)
        change = np.zeros(len(first), np.int64)
        np.add.at(change, ids, weights_of(chunk))
        first, change = first[change != 0], change[change != 0]
        if not len(first):
            return empty_chunk(node.types)
        keys = take_rows(digest, first)
        before = np.zeros(len(first), np.int64)
        if not self._table.is_empty():
            before = integer_values(self._table.get_rows(keys).rows.column(2))
        after = before + change
        if (after < 0).any():
            raise change_error(
                self._table.name, NO_ROW, take_rows(chunk, first).select(list(range(node.width))), int(np.argmin(after))
            )
        self._write_counts(keys, after)
        rows = np.repeat(np.arange(len(first)), np.abs(change))
        copies = np.minimum(before, after)[rows] + indices_in_ranges(np.abs(change))
        out = take_rows(chunk, first[rows])
        return make_chunk([*out.columns[:-1], pa.array(copies)], pa.array(np.sign(change)[rows]))

    def _write_counts(self, keys: pa.Table, after: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        rows = pa.table([*keys.columns, pa.array(after)], names=["c0", "c1", "c2"])
        self._table.delete_rows(rows.filter(pa.array(after == 0)))
        self._table.insert_rows(rows.filter(pa.array(after > 0)))
