"""The interface of a source: the methods that the driver, tasks and the planner call for each kind of source.

    SourceDescriber            at CREATE SOURCE: check the statement, infer the columns and the identity of rows
    SourcePinner               at the barrier: pin the epoch's input, as a document of the reader's own type
    InputReader                locate pinned input, read it by Spark alone (`verify`), name the origin of a row
    EngineReader, SourceReader  in the epoch: actors, or Spark, turn pinned input into rows with weights
    SourceHistory              afterwards: record the taken input in a state table of the source

A reader has no state: each call passes everything it needs. `registry.py` finds the reader of a format.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa

from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.deliveries import Deliveries
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.listing import Interval
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.zones import RuledZone

if TYPE_CHECKING:  # only processes that read files by Spark import it
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Restated:
    """Input to restate: take back the rows that were taken, and read the current ones.

    Args:
        item: its name, as in `Item`, or a glob or a folder of names: then all items that they name, changed, removed
            and new ones included. Empty: all items of the interval, in the same way.
        by: the item that replaces it; empty: the item itself.
        gone: nothing replaces it.
        interval: the interval to restate if no item is named.
        options: restate the files that were read with other options than the present ones. Their taken bytes are read
            again.
        more: further names like `item`, for the same epoch.
    """

    item: str = ""
    by: str = ""
    gone: bool = False
    interval: Interval | None = None
    options: bool = False
    more: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[str, ...]:
        """All names, each once."""
        return tuple(dict.fromkeys(name for name in (self.item, *self.more) if name))


#: Returns the sources of a kind whose input is pinned at one position, each with its table of taken input.
Together = Callable[[], Sequence[tuple[CreateSource, StorageTable | None]]]


def pinned_alone() -> Sequence[tuple[CreateSource, StorageTable | None]]:
    """Return no sources, since a source of most kinds is pinned without regard to others."""
    return ()


@dataclass(frozen=True, slots=True)
class PinRequest:
    """The input that a new barrier requests from a source."""

    interval: Interval | None = None  # of the run; None: everything that exists
    bytes_left: int | None = None  # what the epoch has left for the source; None: no bound
    epoch_bytes: int | None = None  # the limit of an epoch: an item that costs more is divided; None: no limit
    skip: tuple[str, ...] = ()  # names of items that count as taken without being read
    only_skipped: bool = False  # pin only the items in `skip`; the run decides which others are due
    restated: Restated | None = None  # pin only this
    deliveries: Deliveries | None = None  # how files form deliveries of the whole source; None: they do not
    sources_of_format: Together = pinned_alone  # those of the same format in the barrier's catalog, this one included
    shared: dict[object, object] = field(default_factory=dict)  # memory of the readers for one barrier


@dataclass(frozen=True, slots=True)
class Pins:
    """A barrier's pinned input of one source: two documents of the reader's own type; None if empty."""

    read: msgspec.Raw | None = None  # the epoch reads it
    unread: msgspec.Raw | None = None  # it counts as taken without being read
    by_spark: Mapping[str, str] = field(default_factory=dict)  # why Spark reads a file, by its name
    late: tuple[str, ...] = ()  # deliveries in `unread` that are too old, as texts for users


@dataclass(frozen=True, slots=True)
class Item:
    """One pinned thing under the name that users see: a file by its path."""

    name: str
    nbytes: int
    mark: str = ""  # changes if the same name gets other content; empty if unknown
    goes: bool = False  # its rows are taken back
    modified_ms: int = 0  # Unix ms of its last change; 0 if the listing has none
    cost: int = 0  # bytes that an epoch counts for it; 0: `nbytes`


@dataclass(frozen=True, slots=True)
class PinChanges:
    """Pinned items, by name, that are no longer as they were pinned."""

    changed: tuple[str, ...] = ()  # they have other content
    gone: tuple[str, ...] = ()  # they do not exist any more


@dataclass(frozen=True, slots=True)
class RowPlace:
    """The origin of a source's row."""

    text: str  # for the user: `record 3 of /a/b.parquet`; empty if unknown
    item: str  # the name of its item; empty if unknown


@dataclass(frozen=True, slots=True)
class ByColumns:
    """Declared columns identify a row."""

    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ByPosition:
    """The position in its file identifies a row. A hidden column `_row_id` follows the declared ones (row_ids.py)."""


@dataclass(frozen=True, slots=True)
class ByValue:
    """The values of all columns identify a row; equal rows are counted."""


Identity = ByColumns | ByPosition | ByValue


@dataclass(frozen=True, slots=True)
class ReadPart:
    """The rows of one part.

    Args:
        rows: a chunk (tussock.jobs.chunks.chunk): the wanted columns, `_row_id` if the identity is ByPosition, and the
            weights.
        rejects: a chunk with the columns FIELDS of rejects.py: unreadable records, if the source quarantines them; else
            None.
        undeclared: columns of the part that the source does not declare, each as `name type`; empty if the reader does
            not check.
    """

    rows: pa.Table
    rejects: pa.Table | None = None
    undeclared: tuple[str, ...] = ()


class OptionEffect(Enum):
    """The effect of changing an option of an existing source."""

    AT_ONCE = auto()  # it locates input, or decides when and how input is taken
    NEW_INPUT = auto()  # it decides rows, so it holds for input that is taken from then on
    IDENTITY = auto()  # it decides which rows are the same row
    STATE = auto()  # views over the source keep state according to it
    POSITION = auto()  # the taken positions belong to it

    @property
    def refusal(self) -> str | None:
        """Why the option cannot be changed; None if it can."""
        return _FIXED.get(self)


_FIXED = {
    OptionEffect.IDENTITY: "it decides which rows are the same row, so views over the source would be wrong",
    OptionEffect.STATE: "the state of views over the source depends on it",
    OptionEffect.POSITION: "the input that was read before belongs to its present value",
}


class SourceDescriber(Protocol):
    """The methods that CREATE SOURCE and the planner use."""

    @property
    def login(self) -> str:
        """How to give credentials, since options may contain none: a sentence without its full stop."""

    def default_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options that a new source gets besides the options of its statement."""

    def check(self, source: CreateSource) -> None:
        """Reject a statement that could not be honoured later. Reads no input. Raises BadOptionError, BadPathError."""

    def effect_of(self, option: str) -> OptionEffect:
        """Return the effect of setting, changing or removing an option of an existing source."""

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        """Return the declared columns, or those inferred from the input.

        Raises an error if the input does not exist.
        """

    def identity(self, source: CreateSource) -> Identity:
        """Return the columns, position or values that identify a row."""

    def append_only(self, source: CreateSource) -> bool:
        """Return whether every weight is and stays +1, so that views keep less state."""

    def hidden(self, source: CreateSource) -> tuple[HiddenColumn, ...]:
        """Return the hidden columns of the source; empty if its rows come from no files."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A change of a barrier's pins: they omit the items in `skip`, and pin the current state of those in `repin`."""

    pins: Pins
    skip: Sequence[str] = ()
    repin: Sequence[str] = ()


class SourcePinner(Protocol):
    """The methods that barriers use."""

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """Pin the input of the next epoch.

        Args:
            taken: the table of taken input at the barrier's base; None for a new source.

        Raises:
            CannotRestateError: this kind of source cannot restate what `request` requests.
        """

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        """List the items that exist and are not taken yet, of the interval or of all. Raises the errors of `pin`.

        Cost: less than `pin`, which reads the pinned items.
        """

    def wants(self, source: CreateSource, interval: Interval | None, item: str) -> bool:
        """Return whether a run reads an item of this name if it exists. Does no I/O."""

    def revise(self, source: CreateSource, taken: StorageTable | None, revision: Revision, keeper: Keeper) -> Pins:
        """Return the pins of a superseding barrier."""

    def changes_since(self, source: CreateSource, document: msgspec.Raw) -> PinChanges:
        """Return the pinned items that have changed since the pin. Cost for files: one HEAD request each."""

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        """List the items that a document pins, for display and for sums of bytes."""

    def part_of(self, document: msgspec.Raw, names: Collection[str]) -> msgspec.Raw | None:
        """Return the document with only the named items; None if the document cannot be divided."""


class InputReader(Protocol):
    """The methods that read pinned input."""

    @property
    def lists_deletes(self) -> bool:
        """Whether its input lists deleted rows, so that it may contradict the taken rows."""

    def locate_input(self, source: CreateSource, document: msgspec.Raw, keeper: Keeper) -> msgspec.Raw:
        """Return the document with the current locations of its items, which may differ from the pinned ones.

        `divide`, `frame` and `translate` get the result.
        """

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        """Read pinned input with Spark's own reader only; `tussock verify` compares views with it.

        The frame has the declared columns, then the hidden ones. It omits records that the source quarantines, and
        ignores weights.

        Args:
            session: in the pipeline's time zone; the frame belongs to it.
            hidden: of `hidden`.

        Raises: PinnedReadError, and the reader's errors if the input has changed since it was pinned.
        """

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> RowPlace:
        """Return the origin of a row, from its `_row_id`."""


class SourceHistory(Protocol):
    """The record of the taken input."""

    def taken_schema(self, name: str) -> TableSchema:
        """Return the schema of the state table of taken input. Its id is 0 until the catalog assigns one."""

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        """Return the rows that record a barrier's pins as taken. `schema` has the table's id."""

    def as_recorded(self, schema: TableSchema, document: msgspec.Raw, epoch: int) -> msgspec.Raw:
        """Return a document with the facts that `taken_rows` records, from which hidden columns are computed."""

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        """List the taken items, for display."""

    def taken_total(self, taken: StorageTable) -> tuple[int, int]:
        """Return the number of taken items and their bytes."""

    def taken_by_spark(self, taken: StorageTable) -> tuple[int, str]:
        """Return the number of taken files that Spark reads beside the engine, and why it reads the last one.

        0 and an empty text if no file has such a record.
        """

    def kept_objects(self, taken: StorageTable) -> Collection[str]:
        """Return the names of the store's objects that keep bytes of taken input."""

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        """Return the taken input as a document to read again, as a new view does.

        Args:
            without: a document whose items are omitted.
            first, end: the range of numbers to include, `end` exclusive, if `taken_sizes` has numbers.
        """

    def taken_sizes(self, taken: StorageTable) -> Mapping[int, int] | None:
        """Return the bytes of taken input by the numbers that the `_row_id`s of its rows begin with, ascending.

        A build reads the input in pieces of these numbers. None if the input can only be read as a whole.
        """


@dataclass(frozen=True, slots=True)
class TimeZones:
    """The time zones by which files are read, by their recorded rules.

    Args:
        of_store: for times without a zone.
        named: returns the zone that an option names.
    """

    of_store: RuledZone
    named: Callable[[str], RuledZone]


@dataclass(frozen=True, slots=True)
class Division:
    """The readers among which input is divided.

    Args:
        units: the number of units whose actors read it.
        by_spark: the barrier's record of files that Spark reads. Taken files have their own.
    """

    units: int
    zones: TimeZones
    by_spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DividedInput:
    """Pinned input of a source, divided into parts for actors and items for Spark.

    Args:
        parts: for actors, JSON each. Units get them in turn, in this order.
        rest: the document of the items that Spark reads; None if there are none.
        why: why actors do not read them, for users; empty without `rest`, or if Spark reads all files of the format.
        together: one unit reads all parts, so that equal rows of removed and added files cancel each other out.
    """

    parts: Sequence[msgspec.Raw] = ()
    rest: msgspec.Raw | None = None
    why: str = ""
    together: bool = False


class EngineReader(Protocol):
    """Reads the files of a format that actors read as Spark's reader would; Spark reads the others.

    The barrier decides it for each file (`reasons_for_spark`), by the beginning or the footer of the file.
    """

    def find_reason_for_spark(self, source: CreateSource) -> str | None:
        """Return why Spark reads all files of the source, by its options and types; None if not. Does no I/O."""
        return None

    def reasons_for_spark(self, source: CreateSource, document: msgspec.Raw, zones: TimeZones) -> Mapping[str, str]:
        """Return the files of pinned input that Spark reads, each with the reason. None, unless a format decides here.

        An unreadable file is not among them: its reader reports it.

        Cost: one read per file of its footer, or of its first 256 KB; 16 at a time.
        """
        return {}

    def divide(self, source: CreateSource, document: msgspec.Raw, division: Division) -> DividedInput:
        """Divide pinned input between actors and Spark."""

    def item_of(self, part: msgspec.Raw) -> str:
        """Return the name of the item that a part belongs to."""

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        """Read these declared columns of one part, in a task.

        Deterministic. Raises OnlySparkReadsError, and InputErrors that name the item and the record.
        """


class SourceReader(SourceDescriber, SourcePinner, InputReader, SourceHistory, Protocol):
    """A kind of source. Actors read the input that `engine` accepts, and Spark reads the rest."""

    @property
    def engine(self) -> EngineReader | None:
        """The reader of the input that needs no Spark; None if Spark reads all input of the format."""

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """Return pinned input as rows `(part int, chunk binary, failure binary)`.

        Chunks are IPC streams that still contain rejects (see `split_rejects` of rejects.py). Failures are
        encoded by tussock.jobs.chunks.failure.

        Args:
            spark: a session in the store's time zone.
            columns: declared columns in order, then hidden ones (tussock.jobs.logical.hidden_columns).
        """

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        """Translate an error that Spark raised over `frame`; None if it is not an error of this source."""
