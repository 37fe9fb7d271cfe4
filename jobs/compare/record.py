"""The result of a comparison, as structs."""

from enum import StrEnum

import msgspec
import pyarrow as pa

from tussock.statestore.objectstore.requests import Requests


class DifferenceKind(StrEnum):
    """How a row differs. The values are printed."""

    MISSING = "missing"  # only the first side has it
    ADDED = "added"  # only the second side has it
    CHANGED = "changed"  # both have a row of its key, with other values


DIFFERENCE, SIDE = "_difference", "_side"
"""The first columns of sample rows: a `DifferenceKind`, and "from" or "to"."""


class RetypedColumn(msgspec.Struct, frozen=True):
    """A column that both sides have with different types, so that its values are not compared."""

    name: str
    before: str
    after: str


class ColumnCount(msgspec.Struct, frozen=True):
    """The changed rows in which a column differs."""

    name: str
    rows: int
    share: float | None  # of the rows whose key both sides have, 0 to 1; None: their number is not known


class DayCount(msgspec.Struct, frozen=True):
    """The rows of one day that differ."""

    day: str  # ISO 8601; empty: rows without a day
    missing: int
    added: int
    changed: int


class RelationDifference(msgspec.Struct, frozen=True):
    """The comparison of one view or table."""

    name: str
    key: tuple[str, ...]  # the columns by which rows are paired; empty: rows are compared as a bag
    rows_before: int | None  # None: not known without reading them
    rows_after: int | None
    missing: int
    added: int
    changed: int
    columns: tuple[ColumnCount, ...]  # those that differ, most rows first
    day_column: str  # the column of `days`; empty: the relation has none
    days: tuple[DayCount, ...]  # ascending
    samples: pa.Table  # DIFFERENCE, SIDE, and the compared columns; a changed row comes twice
    is_redefined: bool = False  # its SELECT has other words
    added_columns: tuple[str, ...] = ()
    dropped_columns: tuple[str, ...] = ()
    retyped_columns: tuple[RetypedColumn, ...] = ()

    @property
    def rows(self) -> int:
        """The rows that differ."""
        return self.missing + self.added + self.changed

    @property
    def has_other_schema(self) -> bool:
        """Whether the columns differ."""
        return bool(self.added_columns or self.dropped_columns or self.retyped_columns)

    @property
    def differs(self) -> bool:
        """Whether rows or columns differ."""
        return self.rows > 0 or self.has_other_schema


class ComparedSide(msgspec.Struct, frozen=True):
    """A side of a comparison."""

    name: str  # for people, such as `shop`
    epoch: int


class StoreDifference(msgspec.Struct, frozen=True):
    """The differences between two sides."""

    before: ComparedSide
    after: ComparedSide
    views: tuple[RelationDifference, ...]  # in the order of the catalog
    dropped: tuple[str, ...]  # views and tables that only the first side has
    created: tuple[str, ...]  # views and tables that only the second side has
    tolerance: float
    requests: Requests  # to the object stores

    @property
    def differs(self) -> bool:
        """Whether anything differs."""
        return bool(self.dropped or self.created) or any(view.differs for view in self.views)
