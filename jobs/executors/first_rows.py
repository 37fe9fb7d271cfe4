"""FirstRows: the sender's part of a TopN over insert-only input. It drops rows that cannot be among the first rows.

No state: a row after `limit` other rows of its epoch stays after them.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.operator import Actor, Executor, PlainNode, column_list
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import probe_order, take_keys
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.table.state_table import StateTable

_PIECE_ROWS = 64 * 1024  # rows whose keys are encoded together


class FirstRows(PlainNode, frozen=True):
    """The first `limit` rows of each chunk in the order of `key`, which is unique. Requires: insert-only input."""

    key: tuple[KeyColumn, ...]
    limit: int
    types: tuple[str, ...]

    def explain_text(self) -> str:
        return f"FirstRows key=[{column_list([k.column for k in self.key])}] limit={self.limit}"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return FirstRowsExecutor(self)


class FirstRowsExecutor:
    """Holds the keys of one piece of the chunk, and the first rows so far."""

    def __init__(self, node: FirstRows) -> None:
        self._node = node

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Cost: an encoding of the keys, and a comparison of each with the last key of the first rows so far."""
        (chunk,) = chunks
        if chunk.num_rows <= self._node.limit:
            return chunk
        first, keys = chunk.slice(0, 0), pa.array([], pa.binary())
        for start in range(0, chunk.num_rows, _PIECE_ROWS):
            piece = chunk.slice(start, _PIECE_ROWS)
            piece_keys = self._encode_keys(piece)
            if 0 < len(keys) == self._node.limit:
                before = pc.less(piece_keys, keys[-1])
                piece, piece_keys = piece.filter(before), piece_keys.filter(before)
            if piece.num_rows:
                keys = pa.concat_arrays([keys, piece_keys])
                order = probe_order(keys)[: self._node.limit]
                first, keys = pa.concat_tables([first, piece]).take(pa.array(order)), take_keys(keys, order)
        return first

    def _encode_keys(self, rows: pa.Table) -> pa.BinaryArray:
        columns = [rows.column(k.column) for k in self._node.key]
        return encode_keys(0, np.zeros(rows.num_rows, np.uint16), columns, self._node.key)
