"""The face of a source: what a driver, a task and the SQL need to know of one kind of source.

    check, describe        at CREATE SOURCE: is the statement sound, is something there, which columns does it have
    pin, revise            at the barrier: what the epoch takes, as a document of the reader's own
    parts, frame, read     in the epoch: pinned input becomes rows with weights
    taken_*                afterwards: what was taken, recorded in a state table of the source

A reader has no state: everything it knows comes with the call. Readers are found by format (tussock.jobs.sources.registry).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec
import pyarrow as pa

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.listing import Interval
from tussock.statestore.decoding import decoded
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.table.storage_table import StorageTable

if TYPE_CHECKING:  # a process that reads no files by Spark does not import it
    from pyspark.sql import DataFrame, SparkSession

ROW_ID_NAME = "_row_id"


@dataclass(frozen=True, slots=True)
class Restated:
    """What a person wants taken in once more, as it is now: the rows that were taken go, and those of now come.

    Args:
        item: by name, as `Item` has it; empty: all of the interval, whether it has changed, is gone, or is new.
        by: the item that takes its place; empty: itself.
        gone: nothing takes its place.
        interval: where no item is named.
        time_zone: the files whose times an earlier release read in UTC, whatever the store's zone. The taken bytes are read again.
    """

    item: str = ""
    by: str = ""
    gone: bool = False
    interval: Interval | None = None
    time_zone: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What a new barrier asks a source for."""

    interval: Interval | None = None  # of the run; None: whatever is there
    max_bytes: int | None = None  # of input on storage; None: no bound
    skip: tuple[str, ...] = ()  # items, by name, that count as taken without being read
    only_skipped: bool = False  # nothing but those to skip: which others are due, only a run knows
    restated: Restated | None = None  # nothing but that


@dataclass(frozen=True, slots=True)
class Pins:
    """What a barrier holds of one source: two documents of its reader's own type, or None where there is nothing."""

    read: msgspec.Raw | None = None  # the epoch reads it
    unread: msgspec.Raw | None = None  # it counts as taken and is not read


@dataclass(frozen=True, slots=True)
class Item:
    """One pinned thing, as a person names it: a file by its path."""

    name: str
    nbytes: int
    mark: str = ""  # another one where the same name stands for other content; empty where nothing says so
    goes: bool = False  # its rows are taken back
    modified_ms: int = 0  # Unix ms of its last change, where a listing says so; else 0


_UNDECLARED = b"undeclared"  # in the metadata of a chunk's schema


def with_undeclared(chunk: pa.Table, columns: Sequence[str]) -> pa.Table:
    """A chunk that a reader has read, with what its input holds beside the declared columns, each `name type`."""
    return chunk.replace_schema_metadata({_UNDECLARED: msgspec.json.encode(columns)}) if columns else chunk


def undeclared_of(chunk: pa.Table) -> tuple[str, ...]:
    """What a chunk's input holds that its source does not declare; empty where the reader does not say."""
    return decoded((chunk.schema.metadata or {}).get(_UNDECLARED, b"[]"), tuple[str, ...])


class SourceReader(Protocol):
    """One kind of source."""

    needs_spark: ClassVar[bool]  # `frame` reads it, else `parts` and `read` do
    lists_deletes: ClassVar[bool]  # its input lists rows that go, so that it may contradict what was taken

    def key(self, source: CreateSource) -> tuple[int, ...] | None:
        """The declared columns that identify a row; None: rows have no key of their own and get a hidden `_row_id` behind them."""

    def append_only(self, source: CreateSource) -> bool:
        """Whether every weight is +1, now and for ever: views then keep less state."""

    # --- at CREATE SOURCE --------------------------------------------------------------------------------------------------------

    def check(self, source: CreateSource) -> None:
        """Refuse a statement that could not be honoured later. Reads nothing. Raises BadOptionError, BadPathError."""

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        """The source's columns: those declared, else those that its input says. Raises where the input can't be there, too."""

    # --- at the barrier ----------------------------------------------------------------------------------------------------------

    def taken_schema(self, name: str) -> TableSchema:
        """The state table of what has been taken; its id is 0 until the catalog numbers it."""

    def pin(self, source: CreateSource, taken: StorageTable | None, asked: Asked, keeper: Keeper) -> Pins:
        """What the next epoch takes. `taken` is the table as the barrier's base has it; None while the source is new. Raises
        CannotRestateError for what is `asked` and a source of this kind can't do."""

    def waiting(self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None) -> tuple[Item, ...]:
        """What is there and not taken yet, of a run's interval or at all. Raises as `pin` does. Cost: less than `pin`'s, which reads what
        it pins."""

    def wants(self, source: CreateSource, interval: Interval | None, item: str) -> bool:
        """Whether a run takes in the item of this name, if it is there. Looks nowhere."""

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        """What has been taken so far, for persons."""

    def revise(
        self, source: CreateSource, held: Pins, taken: StorageTable | None, skip: Sequence[str], repin: Sequence[str], keeper: Keeper
    ) -> Pins:
        """The pins of a barrier that supersedes another: without what is to be skipped, with what is re-pinned as it is now."""

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        """What a document pins, for persons and for sums of bytes."""

    def part_of(self, document: msgspec.Raw, names: Collection[str]) -> msgspec.Raw | None:
        """The document with the items of these names alone; None for a document that cannot be divided."""

    # --- in the epoch ------------------------------------------------------------------------------------------------------------

    def located(self, source: CreateSource, document: msgspec.Raw, keeper: Keeper) -> msgspec.Raw:
        """The document with the places to read it from, which may be others than those where it was pinned: what `parts`, `frame` and
        `translate` get."""

    def parts(self, source: CreateSource, document: msgspec.Raw, units: int) -> Sequence[msgspec.Raw]:
        """Pinned input cut for actors, JSON each, in the order in which units are dealt them in turn. Empty where `frame` reads it."""

    def item_of(self, part: msgspec.Raw) -> str:
        """The name of the item that a part of `parts` belongs to."""

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> pa.Table:
        """In a task: one part as a chunk (tussock.jobs.flow.chunk) of these columns, `_row_id` where there is no key, and the weights.
        Deterministic. Raises InputErrors that name the item and the record."""

    def frame(self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]) -> "DataFrame | None":
        """Pinned input read by Spark: rows `(part int, chunk binary, failure binary)`, chunks as IPC streams of what `read` returns,
        failures as tussock.jobs.flow.failure encodes them. None where `read` reads it. `spark`: a session in the store's time zone."""

    def by_spark(self, session: "SparkSession", source: CreateSource, document: msgspec.Raw) -> "DataFrame":
        """The rows of pinned input by Spark's own reader alone, with the declared columns: what `tussock verify` compares views with.
        Records that the source puts aside are left out, and weights are not looked at.

        Args:
            session: in the pipeline's time zone; the frame belongs to it.

        Raises: errors of the input that is not as it was pinned any more; NoSparkReaderError.
        """

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        """What an error that Spark raised over `frame` means; None where it is none of this source's."""

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> str:
        """Where a row came from, by its `_row_id`: `record 3 of /a/b.parquet`."""

    # --- what has been taken -----------------------------------------------------------------------------------------------------

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        """The rows that record a barrier's pins as taken. `schema` carries the table's id."""

    def kept(self, taken: StorageTable) -> Collection[str]:
        """The objects of the store, by name, that keep bytes of what has been taken."""

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        """Everything taken so far but what `without` names, as a document to read again: what a new view starts from. Where `taken_sizes`
        has numbers: what is numbered from `first` up to, not including, `end`."""

    def taken_sizes(self, taken: StorageTable) -> Mapping[int, int] | None:
        """Bytes of what has been taken, by the numbers that its rows' `_row_id`s begin with, ascending, so that it can be read again piece
        by piece; None where it can be read as a whole alone."""
