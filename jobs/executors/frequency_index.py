"""Frequency index: the most frequent values of each group first, for mode over rows that may be deleted.

State: `group key | count descending | value`, of values that occur more than once. A group without rows here has only
values that occur once, and the distinct state has these in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tussock.jobs.executors.base import state_table, take_rows
from tussock.jobs.executors.distinct_state import CountChanges, DistinctState, DistinctValues
from tussock.jobs.executors.group_segments import I64
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.schema import PrefixRows
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import one_array


@dataclass(frozen=True, slots=True)
class Frequencies:
    """The layout of a frequency index over distinct values of one column. `greatest`: of equal counts, first."""

    values: DistinctValues
    greatest: bool

    def table_schema(self, input_types: Sequence[str], keys: Sequence[int], stream_key: Sequence[int]) -> TableSchema:
        """The state table with id 0, for rows grouped by `keys`."""
        types = [*(input_types[k] for k in keys), "bigint", *self.values.types]
        key = [*map(KeyColumn, range(len(keys))), KeyColumn(len(keys), True), KeyColumn(len(keys) + 1, self.greatest)]
        return state_table(f"agg_frequent_c{self.values.args[0]}", types, key, range(len(keys)))

    def open_state(self, values: DistinctState, table: StateTable) -> "FrequencyIndex":
        """The index in an actor, which follows the values. `table`: in the layout of `table_schema()`."""
        return FrequencyIndex(values, table, self.greatest)


class FrequencyIndex:
    """The frequencies of one actor's groups."""

    def __init__(self, values: DistinctState, table: StateTable, greatest: bool) -> None:
        self.values = values
        self._table, self._greatest = table, greatest
        values.follow_changes(self._write_changes)

    def apply_chunk(self, chunk: pa.Table) -> I64:
        """Nothing: the distinct state passes its changes on. Returns: (n,) zeros."""
        return np.zeros(chunk.num_rows, np.int64)

    def read_most_frequent(self, groups: pa.Table) -> tuple[pa.Array, I64]:
        """(n,) the first value and its count; NULL and 0 for groups without values. Cost: two limited scans."""
        most_frequent = self._table.scan_prefix(groups, limit=1)
        repeated = most_frequent.index.to_numpy()
        others = np.setdiff1d(np.arange(groups.num_rows), repeated)
        once = self.values.read_ends(take_rows(groups, others), self._greatest)
        single = others[once.index.to_numpy()]
        values = pa.concat_arrays([_column(most_frequent, -1), _column(once, -2)])
        counts = np.concatenate([_column(most_frequent, -2).to_numpy(), _column(once, -1).to_numpy()])
        place = np.full(groups.num_rows, len(values), np.int64)
        place[np.concatenate([repeated, single])] = np.arange(len(values))
        return values.take(pa.array(place, mask=place == len(values))), np.append(counts, 0)[place]

    def _write_changes(self, changes: CountChanges) -> None:
        *groups, values, _ = changes.rows.columns
        halves = ((changes.before, self._table.delete_rows), (changes.after, self._table.insert_rows))
        for counts, write in halves:
            rows = pa.table([*groups, pa.array(counts), values], names=[f"c{i}" for i in range(len(groups) + 2)])
            write(rows.filter(pa.array(counts > 1)))


def _column(read: PrefixRows, place: int) -> pa.Array:
    return one_array(read.rows.column(place))
