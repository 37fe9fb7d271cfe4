"""An order of rows by columns, in the form that nodes store."""

from collections.abc import Collection, Sequence

import msgspec

from tussock.statestore.meta.catalog import KeyColumn

TIES = "ties by stream key"  # for EXPLAIN: the query leaves the order of equal rows open, but it is deterministic


class Order(msgspec.Struct, frozen=True):
    """One ORDER BY column."""

    column: int
    descending: bool
    nulls_last: bool

    def explain_text(self) -> str:
        """The column in EXPLAIN's format: `c3 desc nulls last`."""
        return f"c{self.column}{' desc' if self.descending else ''} nulls {'last' if self.nulls_last else 'first'}"


def table_key(order: Sequence[Order], stream_key: Sequence[int]) -> tuple[KeyColumn, ...]:
    """The key of a state whose rows are ordered, ties by the stream key.

    If a column repeats, its first occurrence counts.
    """
    key: dict[int, KeyColumn] = {}
    for one in order:
        key.setdefault(one.column, KeyColumn(one.column, one.descending, one.nulls_last))
    for column in stream_key:
        key.setdefault(column, KeyColumn(column))
    return tuple(key.values())


def leaves_ties(ordered: Collection[int], stream_key: Collection[int]) -> bool:
    """Whether the query leaves the order of some rows open: they may be equal in all columns of an order.

    `ordered`: the columns of the order, and of the partition that it orders.
    """
    return not set(stream_key) <= set(ordered)
