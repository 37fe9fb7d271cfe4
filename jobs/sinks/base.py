"""The interface of sinks: copies of published rows, for readers without access to the store.

    SinkPlace  one entry of `[[publish]]`, opened for one publish or one upkeep: a folder, a database, a set of brokers
    Sink       one relation's rows at a place

A sink stores the epoch of its rows in the same step as the rows. A publish that is killed, repeated or run twice at
once therefore changes nothing twice: a later publisher continues from the recorded state.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from tussock.jobs.reading.keyed_rows import ChangesWithKeys, RowsWithKeys
from tussock.jobs.settings.home import Home
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.sinks.manifest import SinkSize, TableState
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.meta.catalog import ColumnSpec, TableSchema
from tussock.statestore.meta.store import MetaStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Outline:
    """The table that a relation becomes.

    Args:
        store: the identity of the store (tussock.jobs.settings.home).
        stores: identities whose tables it may write: `store`, and the ones that the same store had at earlier places.
        comment, comments: the comments in the relation's statement, on it and by column; empty if absent.
        key: the columns that distinguish the relation's rows; empty if it contains duplicates, or a key column is
            hidden.
        stored: the state table of the rows. Its columns are the visible ones, and then hidden ones.
    """

    store: str
    stores: frozenset[str]
    name: str
    columns: tuple[ColumnSpec, ...]
    key: tuple[str, ...]
    comment: str = ""
    comments: tuple[str, ...] = ()
    stored: TableSchema | None = None


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state of a sink.

    Args:
        epoch: the epoch of its rows, as of the last change of any row.
        version: the sink's own number or name of this state, under which it can be read again; as text.
        fits: its columns and key are the relation's; if not, it can only be replaced.
        digest: the digest of the epoch, if the sink stores it with its rows; else the ledger's records have it.
    """

    epoch: int
    version: str
    fits: bool
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A change of a sink, by the relation's key.

    Args:
        removed: (rows, key columns) of the rows to remove.
        written: (rows, columns) to insert, or to replace the row with the same key.
        only_new: no row is removed or replaced.
        changes: the net changes from which this was made: (changes, columns and CHANGE), with whole removed rows.
    """

    removed: pa.Table
    written: pa.Table
    only_new: bool
    changes: pa.Table


class BeatenError(Exception):
    """Another writer committed first: read the sink's state again. Never leaves tussock.jobs.sinks."""


class Sink(Protocol):
    """A copy of one relation."""

    place: str  # its location, for messages and manifests
    key: tuple[str, ...]  # by which `apply` finds rows; empty: it cannot

    def read_state(self) -> SinkState | None:
        """Return its current state; None if it was never written. Raises ForeignTableError."""
        ...

    def apply(self, difference: Difference, epoch: int) -> str | None:
        """Advance it from the state that `read_state` returned to `epoch`. Returns its version.

        None if it does not support this difference; it then is unchanged. Raises BeatenError.
        """
        ...

    def replace(self, rows: "WholeRows", epoch: int) -> str:
        """Replace its rows and columns by the ones of `epoch`, even if it contains a later epoch. Returns its version.

        Raises BeatenError.
        """
        ...

    def forget(self, has: Callable[[int], bool]) -> None:
        """Remove the states named after epochs for which `has` returns False.

        Requires: `read_state` returns a state of an existing epoch.
        """
        ...

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """Merge small files, and remove objects that no state of the last `keep_ms` needs.

        Returns a summary for display.

        Raises BeatenError if another writer is active; the next upkeep can retry.
        """
        ...

    def measure(self) -> SinkSize:
        """Return the size of its current state, as far as this costs no read of rows.

        Requires: `read_state`, `apply` or `replace` was called.
        """
        ...

    def read_rows(self) -> pa.RecordBatchReader:
        """Read all its rows, for comparison and display. Raises UnreadableSinkError if its kind has none to read."""
        ...


class SinkPlace(Protocol):
    """An entry of `[[publish]]`, opened. Used by one thread."""

    def sink_of(self, outline: Outline) -> Sink:
        """Return the sink of a relation. Raises UnpublishableColumnError, UnpublishableNameError."""
        ...

    def has_table(self, relation: str, state: TableState) -> bool:
        """Return whether the table of a finished epoch still exists. Cost: one small request."""
        ...

    def finish_epoch(self, epoch: int, tables: Mapping[str, TableState], *, complete: bool) -> None:
        """Make the changes of all its sinks visible, if they are not yet. Called once per publish, after the last sink.

        Args:
            tables: the tables at the epoch.
            complete: they are all tables of the sink: none failed, and none is at a later epoch.

        Raises BeatenError if another writer won, and no change of this publish is visible.
        """
        ...


@dataclass(frozen=True, slots=True)
class Publisher:
    """The store and the process that publish to a place.

    Args:
        home: the store's identity.
        digest_of: returns the digest of an epoch of the store, for sinks that store it with their rows; see SinkState.
        spark: None: sinks that need Spark cannot be opened.
    """

    meta: MetaStore
    home: Home
    digest_of: Callable[[int], str]
    spark: "SparkSession | None" = field(default=None, compare=False)


OpenPlace = Callable[[PublishSettings, Publisher], AbstractContextManager[SinkPlace]]
"""Opens a place of the settings' kind; closes it after the block, and leaves unfinished changes invisible."""


@runtime_checkable
class LocatingSink(Protocol):
    """A sink that marks rows in its files by a locator (jobs/locator). It needs the stored keys of changes."""

    locating: bool  # whether it can use the keys in the state that `read_state` returned

    def apply_keyed(self, changes: ChangesWithKeys, epoch: int) -> str | None:
        """Advance it, as `apply` does. Returns its version; None if it has to be replaced."""
        ...


class WholeRows(Protocol):
    """All rows of a relation at the published epoch; may be read repeatedly."""

    def batches(self) -> pa.RecordBatchReader:
        """Read the rows in this process, batch by batch."""
        ...

    def keyed(self) -> Iterator[RowsWithKeys]:
        """Read the rows in the order of their stored keys, with the keys."""
        ...

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """Read the rows in Spark, one partition per parallel unit."""
        ...


class ForeignTableError(InputError):
    """The place for a published relation contains a table of another store or program."""

    place: str
    finding: str

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.finding}. It was not changed. Set `[publish] to` in pipeline.toml to a folder that "
            "only this pipeline writes, and `namespace` too if Iceberg tables share a catalog, or remove that table if "
            "it is no longer needed."
        )


class UnreadableSinkError(InputError, hides_row_values=True):
    """A sink of this kind has no rows that could be read back."""

    sink: str
    kind: str

    def __str__(self) -> str:
        return (
            f"sink {self.sink!r} of kind {self.kind!r} contains changes, and no rows to read. Read the view from the "
            "store: omit --published."
        )


class UnpublishableColumnError(InputError, hides_row_values=True):
    """The sink's kind of table does not support a column."""

    relation: str
    column: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.relation!r} cannot be published: column {self.column!r} {self.reason}. Omit the relation from "
            "`[publish] relations`, or create it again with another name (AS) or type (CAST) for that column."
        )


class UnpublishableNameError(InputError, hides_row_values=True):
    """The sink cannot represent the name of a relation."""

    relation: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.relation!r} cannot be published: {self.reason}. Omit the relation from `[publish] relations`, or "
            "publish a view with another name that selects from it."
        )


REMOVE = "Restore the table's folder from a copy, or remove it: the next publish writes it again"


class BrokenTableError(InputError):
    """The files of a published table contradict each other or cannot be read."""

    place: str
    operation: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operation} failed at {self.place}: {self.reason.rstrip('.')}. {REMOVE}."


class SinkBusyError(RetryableError):
    """Other writers always committed first."""

    place: str
    tries: int

    def __str__(self) -> str:
        return (
            f"{self.place}: other writers committed first {self.tries} times in a row. Nothing is lost: run again. "
            "Only Tussock should write this table."
        )
