"""An order of rows by columns, as nodes store it."""

import msgspec


class Order(msgspec.Struct, frozen=True):
    """One ORDER BY column."""

    column: int
    descending: bool
    nulls_last: bool

    def text(self) -> str:
        """As EXPLAIN shows it: `c3 desc nulls last`."""
        return f"c{self.column}{' desc' if self.descending else ''} nulls {'last' if self.nulls_last else 'first'}"
