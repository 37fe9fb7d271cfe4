"""NullAwareAnti: NOT IN. The left rows whose key is known to differ from all right keys.

SQL's `x NOT IN (SELECT y FROM r)` is true if r is empty. Otherwise it is true if x is not NULL, r has no NULL, and no
row of r equals x. The output of a left row depends on three conditions:

    out(row)  =  no right key is NULL  and  (there is no right row  or  x is not NULL)  and  no right row has the key x

The last condition is an anti join (hash_join.py). The first two are facts about all right rows, which no single actor
has. A global aggregate therefore counts rows and non-NULL keys, and its row goes to every actor (dispatch `broadcast`)
as the third input.

State: the anti join's two tables, the left rows with a NULL key, and the two facts as of the previous epoch. Facts are
stored once per vnode, so that they move with the vnode to another actor. They are written only when they change.

While a right key is NULL the output is empty, but the state is maintained. An epoch in which the first NULL appears (or
the last one disappears) reads all left rows of the actor and emits the whole output with weight -1 (or +1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import empty_chunk, with_weight
from tussock.jobs.executors.base import key_ids, split_halves, state_table, take_rows
from tussock.jobs.executors.broadcast_row import BroadcastRow, broadcast_row_table, row_in
from tussock.jobs.executors.hash_join import HashJoin, HashJoinExecutor
from tussock.jobs.executors.operator import Actor, Executor, PlainNode
from tussock.jobs.executors.unbounded import NOT_IN, UnboundedCost
from tussock.jobs.logical.nodes import JoinKind
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import StateTable


class NullAwareAnti(PlainNode, frozen=True):
    """NOT IN over one column. Output: left rows.

    Inputs: left rows, right rows, and one row (number of right rows, number of right rows with a non-NULL key).
    """

    left_types: tuple[str, ...]
    right_types: tuple[str, ...]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_stream_key: tuple[int, ...]
    right_stream_key: tuple[int, ...]
    types: tuple[str, ...]

    @property
    def anti_join(self) -> HashJoin:
        """The join of the rows with non-NULL keys."""
        sides = (self.left_types, self.right_types, self.left_keys, self.right_keys)
        return HashJoin(*sides, (False,), self.left_stream_key, self.right_stream_key, None, self.types, JoinKind.ANTI)

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The anti join's tables, the left rows with a NULL key, and the facts per vnode."""
        key = [KeyColumn(k) for k in dict.fromkeys((*self.left_keys, *self.left_stream_key))]
        nulls = state_table("not_in_nulls", self.left_types, key, self.left_keys)
        facts = broadcast_row_table("not_in_facts", ("boolean", "boolean"))
        return (*self.anti_join.state_tables(), nulls, facts)

    def explain_text(self) -> str:
        return f"NullAwareAnti c{self.left_keys[0]} not in right c{self.right_keys[0]}"

    def describe_cost(self) -> str:
        return (
            "changed rows + rows with their keys; all left rows if the first right NULL appears or the last disappears"
        )

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        return (*self.anti_join.unbounded_costs(), NOT_IN)

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return NullAwareAntiExecutor(self, tables, actor)


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts about all right rows."""

    empty: bool
    has_null: bool


class NullAwareAntiExecutor:
    """Invariant: the sum of all output chunks is the left rows with a true NOT IN over the sums of both inputs."""

    def __init__(self, node: NullAwareAnti, tables: Sequence[StateTable], actor: Actor) -> None:
        """`tables`: in the layout of `node.state_tables()`."""
        self._node, self._actor = node, actor
        self._left, self._right, self._nulls, facts = tables
        self._facts = BroadcastRow(facts, actor)
        self._anti = HashJoinExecutor(node.anti_join, tables[:2], actor.kernel)

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Process the left chunk, the right chunk and the changed facts.

        Raises ChangeError: a row of one side is inserted or deleted twice.
        Cost: as an anti join; also a scan of the actor's left rows in an epoch in which the first right NULL
            appears or the last one disappears. Memory: the output.
        """
        left, right, counts = chunks
        before = self._read_facts()
        after = before if (changed := _facts_in(counts)) is None else changed
        out = [empty_chunk(self._node.types)]
        if after.has_null and not before.has_null:
            out += self._all_left_rows(before, -1)
        key = left.column(self._node.left_keys[0])
        known = self._anti.apply(left.filter(pc.is_valid(key)), right)
        unknown = self._change_nulls(left.filter(pc.is_null(key)), before, after)
        if not before.has_null and not after.has_null:
            out += [known, *unknown]
        if before.has_null and not after.has_null:
            out += self._all_left_rows(after, 1)
        if after != before:
            self._write_facts(after)
        return pa.concat_tables(out)

    def _change_nulls(self, chunk: pa.Table, before: _Facts, after: _Facts) -> list[pa.Table]:
        """Apply the changes of left rows with a NULL key, which are in the output while there are no right rows."""
        parts = split_halves(
            chunk, self._nulls.name, tuple(dict.fromkeys((*self._node.left_keys, *self._node.left_stream_key)))
        )
        out: list[pa.Table] = []
        if before.empty and after.empty:
            out = [with_weight(parts.gone, -1), with_weight(parts.come, 1)]
        elif before.empty:
            out = [with_weight(rows, -1) for rows in self._nulls.scan(self._actor.vnodes)]
        parts.write_to(self._nulls)
        if after.empty and not before.empty:
            out = [with_weight(rows, 1) for rows in self._nulls.scan(self._actor.vnodes)]
        return out

    def _all_left_rows(self, facts: _Facts, weight: int) -> Iterator[pa.Table]:
        """All left rows in the output while no right key is NULL, from the tables' current rows."""
        for rows in self._left.scan(self._actor.vnodes):
            keys = pa.table([rows.column(self._node.left_keys[0])], names=["k0"])
            ids, first = key_ids(keys.columns, keys.num_rows)
            matched = np.zeros(len(first), np.bool_)
            matched[self._right.scan_prefix(take_rows(keys, first), limit=1).index.to_numpy()] = True
            yield with_weight(rows.filter(pa.array(~matched[ids])), weight)
        if facts.empty:
            yield from (with_weight(rows, weight) for rows in self._nulls.scan(self._actor.vnodes))

    def _read_facts(self) -> _Facts:
        """The facts as of the previous epoch. Before the first row arrived, the right side was empty."""
        if (row := self._facts.read_row()) is None:
            return _Facts(True, False)
        return _Facts(*(column[0].as_py() for column in row.columns))

    def _write_facts(self, facts: _Facts) -> None:
        self._facts.write_row(pa.table([[facts.empty], [facts.has_null]], names=["c0", "c1"]))


def _facts_in(counts: pa.Table) -> _Facts | None:
    """The facts in the aggregate's new row; None if it did not change."""
    if (row := row_in(counts)) is None:
        return None
    rows, known = (column[0].as_py() for column in row.columns)
    return _Facts(rows == 0, known < rows)
