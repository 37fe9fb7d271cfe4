"""An order of rows by columns, as nodes store it."""

from collections.abc import Collection

import msgspec

TIES = "among equals by stream key"  # how EXPLAIN says that rows which the query's order leaves equal have one nevertheless


class Order(msgspec.Struct, frozen=True):
    """One ORDER BY column."""

    column: int
    descending: bool
    nulls_last: bool

    def text(self) -> str:
        """As EXPLAIN shows it: `c3 desc nulls last`."""
        return f"c{self.column}{' desc' if self.descending else ''} nulls {'last' if self.nulls_last else 'first'}"


def leaves_ties(ordered: Collection[int], stream_key: Collection[int]) -> bool:
    """Whether two rows may be equal in all columns of an order (and of the partition that it orders), so that the query does not say which
    of them comes first."""
    return not set(stream_key) <= set(ordered)
