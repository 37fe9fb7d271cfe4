"""What every kind of sink is: a copy of one relation's published rows, for readers that know nothing of the store.

A sink keeps, with its rows and in the same step, the epoch whose rows they are. So a publish that is killed, repeated or done by two at
once changes nothing twice: who comes finds what is there, and brings it on from there or leaves it alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.meta.catalog import ColumnSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Outline:
    """The table that a relation becomes.

    Args:
        store: the identity of the store that it is a copy of (tussock.jobs.settings.home).
        stores: identities whose tables it may write: `store`, and those that the same store had at earlier places.
        comment, comments: what the relation's statement says of it and of its columns, by column; empty where it says nothing.
        key: the columns that the relation's rows are distinguished by; empty where it keeps duplicates, or a column of its key is hidden.
    """

    store: str
    stores: frozenset[str]
    name: str
    columns: tuple[ColumnSpec, ...]
    key: tuple[str, ...]
    comment: str = ""
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkState:
    """What a sink holds.

    Args:
        epoch: whose rows they are, as of the last change of any.
        version: the sink's own number or name of this state, by which it can be read again; as text.
        fits: whether its columns and its key are the relation's; where not, it can only be replaced.
    """

    epoch: int
    version: str
    fits: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """What to change in a sink, by the relation's key.

    Args:
        removed: (rows, key columns) of rows that go.
        written: (rows, columns) of rows that come, or that take the place of the row of the same key.
        only_new: no row goes and none is replaced.
    """

    removed: pa.Table
    written: pa.Table
    only_new: bool


class BeatenError(Exception):
    """Another writer's commit came first: look again at what the sink holds. Stays inside of tussock.jobs.sinks."""


class Sink(Protocol):
    """A copy of one relation."""

    place: str  # where it is, for messages and manifests
    key: tuple[str, ...]  # by which `apply` finds rows; empty: it finds none

    def held(self) -> SinkState | None:
        """What it holds now; None: nothing was ever written there. Raises ForeignTableError."""
        ...

    def apply(self, difference: Difference, epoch: int) -> str | None:
        """Bring it from what `held` found to `epoch`. Returns its version; None: such a difference cannot be brought in, and nothing was
        done. Raises BeatenError."""
        ...

    def replace(self, rows: "WholeRows", epoch: int) -> str:
        """Make the rows of `epoch` its only ones, its columns theirs, also if it holds a later epoch. Returns its version. Raises
        BeatenError."""
        ...

    def forget(self, has: Callable[[int], bool]) -> None:
        """Remove the states that are named after epochs which the store does not have; `has` tells. Requires: `held` names one it has."""
        ...

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """Merge what is small, and remove what no state of the last `keep_ms` needs. Returns what was done, for people. Raises BeatenError:
        somebody writes; there is time until the next upkeep."""
        ...


class WholeRows(Protocol):
    """All rows of a relation at the epoch that is published; may be asked for again and again."""

    def batches(self) -> pa.RecordBatchReader:
        """In this process, batch by batch."""
        ...

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """In Spark, one partition a parallel unit."""
        ...


class ForeignTableError(InputError):
    """A table stands where a relation is to be published, and it is not this store's."""

    def __init__(self, place: str, found: str) -> None:
        super().__init__(place, found)
        self.place, self.found = place, found

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.found}. Nothing of it was changed. Give `[publish] to` in pipeline.toml a folder of its own, or remove "
            "that table if nobody needs it."
        )


class UnpublishableColumnError(InputError):
    """A column that the sink's kind of table cannot hold."""

    def __init__(self, relation: str, column: str, reason: str) -> None:
        super().__init__(relation, column, reason)
        self.relation, self.column, self.reason = relation, column, reason

    def __str__(self) -> str:
        return (
            f"{self.relation!r} cannot be published: column {self.column!r} {self.reason}. Leave it out of `[publish] relations`, or make "
            "it anew with another name (AS) or type (CAST) for that column."
        )


REMOVE = "Restore the table's folder from a copy, or remove it: the next publish writes the table anew"


class BrokenTableError(InputError):
    """A published table whose own files contradict each other, or cannot be read."""

    def __init__(self, place: str, operation: str, reason: str) -> None:
        super().__init__(place, operation, reason)
        self.place, self.operation, self.reason = place, operation, reason

    def __str__(self) -> str:
        return f"{self.operation} failed at {self.place}: {self.reason.rstrip('.')}. {REMOVE}."


class SinkBusyError(RetryableError):
    """Other writers were always first."""

    def __init__(self, place: str, tries: int) -> None:
        super().__init__(place, tries)
        self.place, self.tries = place, tries

    def __str__(self) -> str:
        return (
            f"{self.place}: other writers committed first {self.tries} times in a row. Nothing is lost: run again. Nobody but Tussock "
            "should write this table."
        )
