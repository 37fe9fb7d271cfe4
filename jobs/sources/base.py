"""The face of a source: what a driver, a task and the SQL need to know of one kind of source.

    SourceDescriber            at CREATE SOURCE: is the statement sound, is something there, its columns, what identifies a row
    SourcePinner               at the barrier: what the epoch takes, as a document of the reader's own
    ActorReader, SparkReader   in the epoch: actors, or Spark, make rows with weights of pinned input
    SourceHistory              afterwards: what was taken, recorded in a state table of the source

A reader has no state: everything it needs comes with the call. Readers are found by format (tussock.jobs.sources.registry).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import msgspec
import pyarrow as pa

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.listing import Interval
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.table.storage_table import StorageTable

if TYPE_CHECKING:  # a process that reads no files by Spark does not import it
    from pyspark.sql import DataFrame, SparkSession


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


@dataclass(frozen=True, slots=True)
class ByColumns:
    """Declared columns identify a row."""

    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ByPosition:
    """The place in its file identifies a row: a hidden column `_row_id` follows the declared ones (row_ids.py)."""


@dataclass(frozen=True, slots=True)
class ByValue:
    """The values of all columns identify a row; equal rows are counted."""


Identity = ByColumns | ByPosition | ByValue


@dataclass(frozen=True, slots=True)
class ReadPart:
    """The rows of one part.

    Args:
        rows: a chunk (tussock.jobs.flow.chunk): the wanted columns, `_row_id` if rows are identified ByPosition, and the weights.
        rejects: a chunk of the columns FIELDS of rejects.py: records that cannot be read, if the source quarantines; None: none.
        undeclared: columns of the part that the source does not declare, each `name type`; empty if the reader does not look.
    """

    rows: pa.Table
    rejects: pa.Table | None = None
    undeclared: tuple[str, ...] = ()


class SourceDescriber(Protocol):
    """What CREATE SOURCE and the planner need of a kind of source."""

    def assumed(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options that a new source gets in addition to those of its statement. Sources of earlier releases may lack them."""

    def check(self, source: CreateSource) -> None:
        """Refuse a statement that could not be honoured later. Reads nothing. Raises BadOptionError, BadPathError."""

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        """The source's columns: those declared, else those that its input says. Raises where the input can't be there, too."""

    def identity(self, source: CreateSource) -> Identity:
        """What identifies a row."""

    def append_only(self, source: CreateSource) -> bool:
        """Whether every weight is +1, now and for ever: views then keep less state."""


class SourcePinner(Protocol):
    """What barriers need of a kind of source."""

    def pin(self, source: CreateSource, taken: StorageTable | None, asked: Asked, keeper: Keeper) -> Pins:
        """What the next epoch takes. `taken` is the table as the barrier's base has it; None while the source is new. Raises
        CannotRestateError for what is `asked` and a source of this kind can't do."""

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        """What is there and not taken yet, of a run's interval or at all. Raises as `pin` does. Cost: less than `pin`'s, which reads what
        it pins."""

    def wants(self, source: CreateSource, interval: Interval | None, item: str) -> bool:
        """Whether a run takes in the item of this name, if it is there. Looks nowhere."""

    def revise(
        self,
        source: CreateSource,
        held: Pins,
        taken: StorageTable | None,
        skip: Sequence[str],
        repin: Sequence[str],
        keeper: Keeper,
    ) -> Pins:
        """The pins of a barrier that supersedes another: without what is to be skipped, with what is re-pinned as it is now."""

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        """What a document pins, for persons and for sums of bytes."""

    def part_of(self, document: msgspec.Raw, names: Collection[str]) -> msgspec.Raw | None:
        """The document with the items of these names alone; None for a document that cannot be divided."""


class InputReader(Protocol):
    """What the two ways to read pinned input have in common."""

    lists_deletes: ClassVar[bool]  # its input lists rows that go, so that it may contradict what was taken

    def located(self, source: CreateSource, document: msgspec.Raw, keeper: Keeper) -> msgspec.Raw:
        """The document with the places to read it from, which may be others than those where it was pinned: what `parts`, `frame` and
        `translate` get."""

    def by_spark(self, session: "SparkSession", source: CreateSource, document: msgspec.Raw) -> "DataFrame":
        """The rows of pinned input by Spark's own reader alone, with the declared columns: what `tussock verify` compares views with.
        Records that the source puts aside are left out, and weights are not looked at.

        Args:
            session: in the pipeline's time zone; the frame belongs to it.

        Raises: errors of the input that is not as it was pinned any more; NoSparkReaderError.
        """

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> str:
        """Where a row came from, by its `_row_id`: `record 3 of /a/b.parquet`."""


class SourceHistory(Protocol):
    """The record of what has been taken."""

    def taken_schema(self, name: str) -> TableSchema:
        """The state table of what has been taken; its id is 0 until the catalog numbers it."""

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        """The rows that record a barrier's pins as taken. `schema` carries the table's id."""

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        """What has been taken so far, for persons."""

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


class ActorReader(SourceDescriber, SourcePinner, InputReader, SourceHistory, Protocol):
    """A kind of source that actors read."""

    needs_spark: ClassVar[Literal[False]]

    def parts(self, source: CreateSource, document: msgspec.Raw, units: int) -> Sequence[msgspec.Raw]:
        """Pinned input cut for actors, JSON each, in the order in which units are dealt them in turn."""

    def item_of(self, part: msgspec.Raw) -> str:
        """The name of the item that a part of `parts` belongs to."""

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        """In a task: the rows of one part, with these columns. Deterministic. Raises InputErrors that name the item and the record."""


class SparkReader(SourceDescriber, SourcePinner, InputReader, SourceHistory, Protocol):
    """A kind of source that Spark reads."""

    needs_spark: ClassVar[Literal[True]]

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """Pinned input as rows `(part int, chunk binary, failure binary)`: chunks as IPC streams, in which rejects are not yet apart
        (`parted` of rejects.py), and failures as tussock.jobs.flow.failure encodes them. `spark`: a session in the store's time zone."""

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        """What an error that Spark raised over `frame` means; None where it is none of this source's."""


SourceReader = ActorReader | SparkReader
