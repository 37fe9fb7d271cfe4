"""TemporalFilter: compare a value of each row with the epoch's moment.

Rows appear and disappear as the moment advances.

State: rows as `value | stream key`, so that the rows that a new moment affects are adjacent. With `forgets`, for bounds
that never go back, the state has only rows that can still change sides: rows that will appear (for
`value < bound`) or disappear (for `value > bound`).

Let V(m) be the rows visible at moment m, I the input before the epoch and ΔI its change:

    Δ output  =  V(now)(I + ΔI) − V(before)(I)  =  ΔI⁺ ∩ V(now)  −  ΔI⁻ ∩ V(before)  +  (I − ΔI⁻) between the two bounds
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, chunk_schema
from tussock.jobs.executors.base import net_chunk, split_halves, state_table
from tussock.jobs.executors.operator import Actor, Executor, PlainNode
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Comparison, Expr
from tussock.statestore.hummock.key import encode_prefixes
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.nested import conform_rows
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type


class TemporalFilterNode(PlainNode, frozen=True, tag="TemporalFilter"):
    """Keeps rows by comparing column `value` with `bound`, an expression over the epoch's moment.

    The moment is the only column of the expression, a timestamp.

    Requires: the bound has the value's type, and is never NULL.
    """

    follows_moment: ClassVar[bool] = True

    value: int
    comparison: Comparison
    bound: Expr
    forgets: bool  # the bound never goes back, so rows that it has passed are not stored
    stream_key: tuple[int, ...]
    distribution: tuple[int, ...]  # a subset of the stream key
    types: tuple[str, ...]

    @property
    def key(self) -> tuple[int, ...]:
        """The columns of the state's key."""
        return tuple(dict.fromkeys((self.value, *self.stream_key)))

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The rows by value."""
        return (state_table("temporal_filter", self.types, [KeyColumn(c) for c in self.key], self.distribution),)

    def dry_run(self, kernel: Kernel) -> None:
        kernel.dry_run((self.bound,))

    def explain_text(self) -> str:
        kept_rows = "rows that will appear" if self.comparison.lets_in else "rows that will disappear"
        return f"TemporalFilter {self.condition} keeps {kept_rows if self.forgets else 'all rows'}"

    @property
    def condition(self) -> str:
        """The condition in EXPLAIN's format: `c3 > moment`."""
        return f"c{self.value} {self.comparison.sql} {expression_text(self.bound).replace('c0', 'moment')}"

    def describe_cost(self) -> str:
        return "changed rows + rows that appear or disappear as the moment passes, also without input"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return TemporalFilterExecutor(self, tables[0], actor)

    def compute_bounds(self, kernel: Kernel, before: int, now: int) -> tuple[pa.Scalar, pa.Scalar]:
        """The bounds at the previous and at the current moment (both in Unix microseconds).

        Raises: RowError if the bound raises at these moments.
        """
        moments = pa.table([pa.array([before, now], pa.int64()).cast(arrow_type("timestamp"))], names=["c0"])
        bounds = kernel.project_columns(moments, (self.bound,), (self.bound.type,)).column(0)
        return bounds[0], bounds[1]

    def is_visible(self, rows: pa.Table, bound: pa.Scalar) -> pa.ChunkedArray:
        """(rows,) whether each row is visible at a bound. Rows without a value are not."""
        compare = {
            Comparison.LESS: pc.less,
            Comparison.LESS_OR_EQUAL: pc.less_equal,
            Comparison.GREATER: pc.greater,
            Comparison.GREATER_OR_EQUAL: pc.greater_equal,
        }[self.comparison]
        return pc.fill_null(compare(rows.column(self.value), bound), False)


class TemporalFilterExecutor:
    """Emits the change of the visible rows that the input and the new moment cause.

    Invariant: the sum of all output chunks is the rows in the sum of all input chunks that are visible at this epoch's
        bound.
    """

    def __init__(self, node: TemporalFilterNode, table: StateTable, actor: Actor) -> None:
        self._node, self._table, self._actor = node, table, actor

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ChangeError if a row is inserted or deleted twice, RowError if the bound raises at this moment.

        Cost: the change, and one scan between the two bounds per vnode; no scan if the moment did not change.
        """
        (chunk,) = chunks
        node, table = self._node, self._table
        before, now = node.compute_bounds(self._actor.kernel, self._actor.moment_before, self._actor.moment)
        changed = split_halves(chunk, table.name, node.key)
        table.delete_rows(changed.gone.filter(self._is_stored(changed.gone, before)))
        passed = self._rows_between(before, now)
        if node.forgets:
            table.delete_rows(passed)
        table.insert_rows(changed.come.filter(self._is_stored(changed.come, now)))
        parts = [
            _with_weight(changed.gone.filter(node.is_visible(changed.gone, before)), -1),
            _with_weight(passed, 1 if _has_risen(before, now) == node.comparison.lets_in else -1),
            _with_weight(changed.come.filter(node.is_visible(changed.come, now)), 1),
        ]
        return net_chunk(
            pa.concat_tables([conform_rows(part, chunk_schema(node.types)) for part in parts]).combine_chunks()
        )

    def _is_stored(self, rows: pa.Table, bound: pa.Scalar) -> pa.ChunkedArray:
        """(rows,) whether the state stores each row at a bound: rows that can appear or disappear later."""
        known = pc.is_valid(rows.column(self._node.value))
        if not self._node.forgets:
            return known
        there = self._node.is_visible(rows, bound)
        return pc.and_(known, pc.invert(there) if self._node.comparison.lets_in else there)

    def _rows_between(self, before: pa.Scalar, now: pa.Scalar) -> pa.Table:
        """The stored rows between the old and the new bound."""
        node, table = self._node, self._table
        if before.equals(now):
            return table.layout.rows.empty_table()
        vnodes = np.asarray(self._actor.vnodes if node.distribution else [0], np.uint16)
        edges = self._edge_keys(vnodes, before), self._edge_keys(vnodes, now)
        return table.scan_between(*(edges if _has_risen(before, now) else edges[::-1])).rows

    def _edge_keys(self, vnodes: npt.NDArray[np.uint16], bound: pa.Scalar) -> pa.BinaryArray:
        """(vnodes,) the storage key at which the bound separates visible rows from others."""
        node, schema = self._node, self._table.layout.schema
        prefixes = encode_prefixes(schema.table_id, vnodes, [pa.repeat(bound, len(vnodes))], schema.key)
        return successors(prefixes) if node.comparison in (Comparison.LESS_OR_EQUAL, Comparison.GREATER) else prefixes


def _has_risen(before: pa.Scalar, now: pa.Scalar) -> bool:
    return bool(pc.less(before, now).as_py())


def _with_weight(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column(WEIGHT, pa.array(np.full(rows.num_rows, weight, np.int64)))
