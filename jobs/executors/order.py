"""An order of rows by columns, as nodes store it."""

from collections.abc import Collection, Sequence

import msgspec

from tussock.statestore.meta.catalog import KeyColumn

TIES = "among equals by stream key"  # how EXPLAIN says that rows which the query's order leaves equal have one nevertheless


class Order(msgspec.Struct, frozen=True):
    """One ORDER BY column."""

    column: int
    descending: bool
    nulls_last: bool

    def text(self) -> str:
        """As EXPLAIN shows it: `c3 desc nulls last`."""
        return f"c{self.column}{' desc' if self.descending else ''} nulls {'last' if self.nulls_last else 'first'}"


def table_key(order: Sequence[Order], stream_key: Sequence[int]) -> tuple[KeyColumn, ...]:
    """The key of a state whose rows lie in an order, ties by the stream key. A column named twice counts where it is first."""
    key: dict[int, KeyColumn] = {}
    for one in order:
        key.setdefault(one.column, KeyColumn(one.column, one.descending, one.nulls_last))
    for column in stream_key:
        key.setdefault(column, KeyColumn(column))
    return tuple(key.values())


def leaves_ties(ordered: Collection[int], stream_key: Collection[int]) -> bool:
    """Whether two rows may be equal in all columns of an order (and of the partition that it orders), so that the query does not say which
    of them comes first."""
    return not set(stream_key) <= set(ordered)
