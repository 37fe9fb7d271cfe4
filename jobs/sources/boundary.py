"""The boundary around source readers: it turns each error of a reader into an error of its source, which is then held.

A reader reads foreign bytes with foreign libraries, whose errors cannot be enumerated. The boundary names none of their
classes:

    TussockError (InputError and others)    passes: it already describes the source
    RetryableError of the source's server   becomes SourceAwayError: the source waits, and the next run retries it
    ShortReadError of the source's file     becomes SourceTroubleError
    any other exception                     becomes SourceTroubleError, with its one-line cause (settings/cause.py)

Errors of Tussock's own store pass unchanged. `reader_of` of registry.py returns only readers inside this boundary. Each
method is written out, so that mypy finds one that is missing here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.chunks.failure import SourceAwayError, SourceFileError
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.cause import cause_of, is_panic
from tussock.jobs.sources.base import (
    DividedInput,
    Division,
    EngineReader,
    Identity,
    Item,
    OptionEffect,
    PinChanges,
    PinRequest,
    Pins,
    ReadPart,
    Revision,
    RowPlace,
    SourceReader,
    TimeZones,
)
from tussock.jobs.sources.credentials import refuse_credentials
from tussock.jobs.sources.errors import ways_on, without_path
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.keyed import DELETE_LIMIT, check_keyed, deliveries_in, records_of, require_same_place
from tussock.jobs.sources.keyed import OPTIONS as KEYED_OPTIONS
from tussock.jobs.sources.listing import Interval
from tussock.statestore.errors import MustStopError, RetryableError, TussockError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.objectstore.base import ShortReadError
from tussock.statestore.table.storage_table import StorageTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SourceTroubleError(SourceFileError):
    """A reader cannot read a source or one of its items.

    Args:
        path: the item; empty for the source as a whole.
    """

    source: str
    path: str
    format: str
    reason: str

    def __str__(self) -> str:
        if self.path:
            return (
                f"file {self.path} cannot be read as {self.format}: "
                f"{without_path(self.reason, self.path).rstrip('.')}. "
                f"Repair it, and the next run reads it. {ways_on(self.path)}."
            )
        return (
            f"source {self.source!r} cannot be read as {self.format}: {self.reason.rstrip('.')}. "
            "Correct its files, and the next run reads them. If an option of the source is the cause, "
            f"change it by ALTER SOURCE {self.source} SET OPTIONS (…)."
        )


class BoundedEngine(EngineReader):
    """A reader of the engine inside the boundary."""

    def __init__(self, reader: EngineReader) -> None:
        self._reader = reader

    def find_reason_for_spark(self, source: CreateSource) -> str | None:
        with errors_of_source(source):
            return self._reader.find_reason_for_spark(records_of(source))

    def reasons_for_spark(self, source: CreateSource, document: msgspec.Raw, zones: TimeZones) -> Mapping[str, str]:
        with errors_of_source(source):
            return self._reader.reasons_for_spark(records_of(source), document, zones)

    def divide(self, source: CreateSource, document: msgspec.Raw, division: Division) -> DividedInput:
        with errors_of_source(source):
            return self._reader.divide(records_of(source), document, division)

    def item_of(self, part: msgspec.Raw) -> str:
        return self._reader.item_of(part)

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        """See EngineReader. Errors name the file."""
        with errors_of_source(source, self._reader.item_of(part)):
            return self._reader.read(records_of(source), part, columns)


class BoundedReader(SourceReader):
    """A reader inside the boundary.

    Methods with a source among their arguments read the source's input, and are guarded. The other methods use
    documents and tables of the store, whose errors pass. The reader of a keyed source sees its records (keyed.py).
    """

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader

    @property
    def login(self) -> str:
        return self._reader.login

    # --- at CREATE SOURCE: the source does not exist yet, so it cannot wait for its server ----------------------------

    def default_options(self, options: Mapping[str, str]) -> dict[str, str]:
        return self._reader.default_options(options)

    def check(self, source: CreateSource) -> None:
        """See SourceDescriber. Raises CredentialInOptionError too."""
        refuse_credentials(source, self._reader.login)
        check_keyed(source, self._reader.hidden(source))
        with _errors_of_new_source(source):
            self._reader.check(records_of(source))

    def effect_of(self, option: str) -> OptionEffect:
        """See SourceDescriber."""
        if option == DELETE_LIMIT:
            return OptionEffect.AT_ONCE
        return OptionEffect.IDENTITY if option in KEYED_OPTIONS else self._reader.effect_of(option)

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        """See SourceDescriber. A keyed source declares the columns of its rows."""
        with _errors_of_new_source(source):
            fields = self._reader.describe(records_of(source), spark)
        return fields if source.keyed is None else source.fields

    def identity(self, source: CreateSource) -> Identity:
        with errors_of_source(source):
            return self._reader.identity(records_of(source))

    def append_only(self, source: CreateSource) -> bool:
        with errors_of_source(source):
            return self._reader.append_only(records_of(source))

    def hidden(self, source: CreateSource) -> tuple[HiddenColumn, ...]:
        with errors_of_source(source):
            return self._reader.hidden(records_of(source))

    # --- at the barrier -----------------------------------------------------------------------------------------------

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner."""
        if request.restated is not None and request.restated.by:
            require_same_place(source, request.restated.item, request.restated.by)
        request = replace(request, deliveries=deliveries_in(source))
        with errors_of_source(source, store=keeper.objects.uri):
            return self._reader.pin(records_of(source), taken, request, keeper)

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        with errors_of_source(source):
            return self._reader.waiting(records_of(source), taken, interval)

    def wants(self, source: CreateSource, interval: Interval | None, item: str) -> bool:
        with errors_of_source(source):
            return self._reader.wants(records_of(source), interval, item)

    def revise(self, source: CreateSource, taken: StorageTable | None, revision: Revision, keeper: Keeper) -> Pins:
        with errors_of_source(source, store=keeper.objects.uri):
            return self._reader.revise(records_of(source), taken, revision, keeper)

    def changes_since(self, source: CreateSource, document: msgspec.Raw) -> PinChanges:
        with errors_of_source(source):
            return self._reader.changes_since(records_of(source), document)

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        return self._reader.items(document)

    def part_of(self, document: msgspec.Raw, names: Collection[str]) -> msgspec.Raw | None:
        return self._reader.part_of(document, names)

    # --- in the epoch -------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> EngineReader | None:
        """See SourceReader. Inside the boundary too."""
        return None if self._reader.engine is None else BoundedEngine(self._reader.engine)

    @property
    def lists_deletes(self) -> bool:
        return self._reader.lists_deletes

    def locate_input(self, source: CreateSource, document: msgspec.Raw, keeper: Keeper) -> msgspec.Raw:
        with errors_of_source(source, store=keeper.objects.uri):
            return self._reader.locate_input(records_of(source), document, keeper)

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """See SourceReader."""
        reader, source = self._reader, records_of(source)
        with errors_of_source(source):
            return _union_frames(
                reader.frame(spark, as_of, some, columns) for as_of, some in _alike_parts(reader, source, document)
            )

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        """See InputReader."""
        source = records_of(source)
        with errors_of_source(source):
            return _union_frames(
                _with_present_columns(self._reader.by_spark(session, as_of, some, hidden), as_of, source, hidden)
                for as_of, some in _alike_parts(self._reader, source, document)
            )

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        with errors_of_source(source):
            return self._reader.translate(error, records_of(source), document)

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> RowPlace:
        return self._reader.place_of(row_id, documents)

    # --- taken input --------------------------------------------------------------------------------------------------

    def taken_schema(self, name: str) -> TableSchema:
        return self._reader.taken_schema(name)

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        return self._reader.taken_rows(schema, pins, epoch)

    def as_recorded(self, schema: TableSchema, document: msgspec.Raw, epoch: int) -> msgspec.Raw:
        return self._reader.as_recorded(schema, document, epoch)

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        return self._reader.taken_items(taken)

    def taken_total(self, taken: StorageTable) -> tuple[int, int]:
        return self._reader.taken_total(taken)

    def taken_by_spark(self, taken: StorageTable) -> tuple[int, str]:
        return self._reader.taken_by_spark(taken)

    def kept_objects(self, taken: StorageTable) -> Collection[str]:
        return self._reader.kept_objects(taken)

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        return self._reader.taken_document(taken, without, first, end)

    def taken_sizes(self, taken: StorageTable) -> Mapping[int, int] | None:
        return self._reader.taken_sizes(taken)


def _alike_parts(
    reader: SourceReader, source: CreateSource, document: msgspec.Raw
) -> Sequence[tuple[CreateSource, msgspec.Raw]]:
    """The parts of a document, each with the source as of the time when it was first read."""
    return reader.alike_parts(source, document) if isinstance(reader, FileSource) else [(source, document)]


def _with_present_columns(
    frame: "DataFrame", as_of: CreateSource, source: CreateSource, hidden: Sequence[HiddenColumn]
) -> "DataFrame":
    """Give the columns of earlier files their present names and types. Spark converts the values."""
    if as_of.fields == source.fields:
        return frame
    pairs = zip(as_of.fields, source.fields, strict=True)
    present = (f"CAST({quote_name(was.name)} AS {now.type}) AS {quote_name(now.name)}" for was, now in pairs)
    return frame.selectExpr(*present, *(quote_name(column.column) for column in hidden))


def _union_frames(frames: "Iterator[DataFrame]") -> "DataFrame":
    return reduce(lambda before, more: before.unionAll(more), frames)


@contextmanager
def _errors_of_new_source(source: CreateSource) -> Iterator[None]:
    """As `errors_of_source`, for a source that does not exist yet: an error of its server passes."""
    try:
        with errors_of_source(source):
            yield
    except SourceAwayError as err:
        if not isinstance(err.__cause__, TussockError):
            raise
        raise err.__cause__ from None


@contextmanager
def errors_of_source(source: CreateSource, path: str = "", store: str = "") -> Iterator[None]:
    """Turn any error of the block into an error of the source.

    Args:
        path: the item being read; empty if unknown.
        store: the URI of Tussock's own store, if the block uses it; errors of that store pass.
    """
    try:
        yield
    except (MustStopError, SourceAwayError):
        raise
    except (RetryableError, ShortReadError) as err:
        if store and getattr(err, "uri", "") == store:
            raise
        if isinstance(err, ShortReadError):
            raise SourceTroubleError(source.name, path, source.format, str(err)) from err
        raise SourceAwayError(source.name, path, str(err)) from err
    except TussockError:
        raise
    except BaseException as err:
        if not isinstance(err, Exception) and not is_panic(err):
            raise
        raise SourceTroubleError(source.name, path, source.format, cause_of(err)) from err
