"""HashJoin: inner equi-join of two changing inputs.

State: one table a side, `join key | stream key -> row`, so that a key's partners lie next to each other. With dL, dR the epoch's changes,

    change of L join R  =  dL join R before  +  L after join dR

Rows whose key is NULL never join (but by `<=>`), so they are neither read for nor stored.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.executors.base import halves, key_ids, net, same_rows, state_table, take_rows
from jobs.executors.operator import Actor, Executor, Origin, Passed, expression_error
from jobs.kernels.errors import RowError
from jobs.kernels.kernel import Kernel
from jobs.sql.expression_text import expression_text
from jobs.sql.logical import Expr
from jobs.wire.chunk import WEIGHT, empty_chunk, make_chunk
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable
from statestore.vnode import normalise


class HashJoin(msgspec.Struct, frozen=True, tag=True):
    """Inner equi-join. Output: left columns, then right columns. State: one table a side, `join key | stream key -> row`."""

    left_types: tuple[str, ...]
    right_types: tuple[str, ...]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    left_stream_key: tuple[int, ...]
    right_stream_key: tuple[int, ...]
    condition: Expr | None
    types: tuple[str, ...]

    @property
    def keeps_relation(self) -> bool:
        return False

    @property
    def emits_without_input(self) -> bool:
        return False

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The left rows, then the right rows. A column joined on twice is in the key once, in the distribution as often as it is hashed."""
        return (
            _side("join_left", self.left_types, self.left_keys, self.left_stream_key),
            _side("join_right", self.right_types, self.right_keys, self.right_stream_key),
        )

    def lineage(self) -> tuple[Origin, ...]:
        return tuple(Passed(i) for i in range(len(self.types)))

    def expressions(self) -> tuple[Expr, ...]:
        return () if self.condition is None else (self.condition,)

    def text(self) -> str:
        keys = zip(self.left_keys, self.right_keys, self.null_safe, strict=True)
        pairs = (f"c{a} {'<=>' if safe else '='} right c{b}" for a, b, safe in keys)
        where = "" if self.condition is None else f" where {expression_text(self.condition)}"
        return f"HashJoin inner on {' and '.join(pairs)}{where}"

    def executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return HashJoinExecutor(self, tables, actor.kernel)


def _side(name: str, types: tuple[str, ...], keys: tuple[int, ...], stream_key: tuple[int, ...]) -> TableSchema:
    return state_table(name, types, [KeyColumn(k) for k in dict.fromkeys((*keys, *stream_key))], keys)


class HashJoinExecutor:
    """Joins changes with the other side's rows.

    Invariant: the sum of all output chunks is the join of the sums of both inputs. Weights are +1 or -1 per stream key and side.
    """

    def __init__(self, node: HashJoin, tables: Sequence[StateTable], kernel: Kernel) -> None:
        """`tables`: as `state_tables(node)` lays them out."""
        self._node, self._kernel = node, kernel
        self._left, self._right = tables

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Left chunk, right chunk.

        Raises:
            ChangeError: a row of one side came or went twice.
            ExpressionError: the condition raised on a joined row.

        Cost: one prefix scan a side for the distinct keys that the other side's changes have; then O(rows joined).
        """
        node = self._node
        left = self._joinable(net(chunks[0]), node.left_keys)
        right = self._joinable(net(chunks[1]), node.right_keys)
        from_left = self._matches(left, node.left_keys, self._right, node.right_keys)
        self._write(self._left, left, node.left_keys, node.left_stream_key)
        from_right = self._matches(right, node.right_keys, self._left, node.left_keys)
        self._write(self._right, right, node.right_keys, node.right_stream_key)
        parts = [empty_chunk(node.types)]
        if from_left is not None:
            changes, partners = from_left
            parts.append(make_chunk([*changes.columns[:-1], *partners.columns], changes[WEIGHT]))
        if from_right is not None:
            changes, partners = from_right
            parts.append(make_chunk([*partners.columns, *changes.columns[:-1]], changes[WEIGHT]))
        joined = pa.concat_tables(parts)
        if node.condition is not None and joined.num_rows:
            try:
                joined = self._kernel.filter(joined, node.condition)
            except RowError as err:
                raise expression_error(err, 0, node.condition, joined) from err
        return net(joined)

    def _joinable(self, chunk: pa.Table, keys: Sequence[int]) -> pa.Table:
        """The rows whose key may equal another."""
        for key, null_safe in zip(keys, self._node.null_safe, strict=True):
            column = chunk.column(key)
            if not null_safe and column.null_count:
                chunk = chunk.filter(pc.is_valid(column))
        return chunk

    @staticmethod
    def _matches(chunk: pa.Table, keys: Sequence[int], other: StateTable, other_keys: Sequence[int]) -> tuple[pa.Table, pa.Table] | None:
        """Rows of the chunk and the other side's rows that have their key, paired by position; None where there are none."""
        asked = dict(zip(reversed(other_keys), reversed(keys), strict=True))  # the other side's column -> ours; of several the first
        for column, key in zip(other_keys, keys, strict=True):
            if asked[column] != key and chunk.num_rows:  # joined on twice: both of ours must agree
                one, two = (pa.table([normalise(chunk.column(k))], names=["k"]) for k in (key, asked[column]))
                chunk = chunk.filter(pa.array(same_rows(one, two)))
        if chunk.num_rows == 0:
            return None
        columns = [chunk.column(asked[column]) for column in dict.fromkeys(other_keys)]
        ids, first = key_ids(columns, chunk.num_rows)
        prefixes = pa.table(columns, names=[f"k{i}" for i in range(len(columns))])
        found = other.scan_prefix(take_rows(prefixes, first))
        if found.rows.num_rows == 0:
            return None
        partners = np.bincount(found.index.to_numpy(), minlength=len(first))  # per distinct key; rows of a key lie together
        starts = np.cumsum(partners) - partners
        counts = partners[ids]
        ours = np.repeat(np.arange(chunk.num_rows), counts)
        theirs = np.repeat(starts[ids] - (np.cumsum(counts) - counts), counts) + np.arange(len(ours))
        return chunk.take(pa.array(ours)), found.rows.take(pa.array(theirs))

    @staticmethod
    def _write(table: StateTable, chunk: pa.Table, keys: Sequence[int], stream_key: Sequence[int]) -> None:
        if chunk.num_rows:
            halves(chunk, table.name, tuple(dict.fromkeys((*keys, *stream_key)))).write(table)
