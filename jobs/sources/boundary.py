"""The boundary around source readers: it turns each error of a reader into an error of its source, which is then held.

A reader reads foreign bytes with foreign libraries, whose errors cannot be enumerated. The boundary names none of their
classes:

    TussockError (InputError and others)    passes: it already describes the source
    RetryableError of the source's server   becomes SourceAwayError: the source waits, and the next run retries it
    ShortReadError of the source's file     becomes SourceTroubleError
    any other exception                     becomes SourceTroubleError, with its one-line cause (settings/cause.py)

Errors of Tussock's own store pass unchanged. `reader_of` of registry.py returns only readers inside this boundary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tussock.jobs.chunks.failure import SourceAwayError, SourceFileError
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.cause import cause_of, is_panic
from tussock.jobs.sources.base import EngineReader, OptionEffect, PinRequest, Pins, ReadPart, SourceReader
from tussock.jobs.sources.credentials import refuse_credentials
from tussock.jobs.sources.errors import ways_on, without_path
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.keyed import DELETE_LIMIT, check_keyed, deliveries_in, records_of, require_same_place
from tussock.jobs.sources.keyed import OPTIONS as KEYED_OPTIONS
from tussock.statestore.errors import MustStopError, RetryableError, TussockError
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


class BoundedEngine:
    """A reader of the engine inside the boundary."""

    def __init__(self, reader: EngineReader) -> None:
        self._reader = reader

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        """See EngineReader. Errors name the file."""
        with errors_of_source(source, self._reader.item_of(part)):
            return self._reader.read(records_of(source), part, columns)

    def __getattr__(self, name: str) -> Any:
        return _guard_method(getattr(self._reader, name), waits=True)


class BoundedReader:
    """A reader inside the boundary.

    Methods with a source among their arguments read the source's input, and are guarded. The other methods use
    documents and tables of the store, whose errors pass. The reader of a keyed source sees its records (keyed.py).
    """

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader

    def check(self, source: CreateSource) -> None:
        """See SourceDescriber. Raises CredentialInOptionError too."""
        refuse_credentials(source, self._reader.login)
        check_keyed(source, self._reader.hidden(source))
        _guard_method(self._reader.check, waits=False)(source)

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        """See SourceDescriber. A keyed source declares the columns of its rows."""
        fields = cast(tuple[Field, ...], _guard_method(self._reader.describe, waits=False)(source, spark))
        return fields if source.keyed is None else source.fields

    def effect_of(self, option: str) -> OptionEffect:
        """See SourceDescriber."""
        if option == DELETE_LIMIT:
            return OptionEffect.AT_ONCE
        return OptionEffect.IDENTITY if option in KEYED_OPTIONS else self._reader.effect_of(option)

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner."""
        if request.restated is not None and request.restated.by:
            require_same_place(source, request.restated.item, request.restated.by)
        request = replace(request, deliveries=deliveries_in(source))
        return cast(Pins, _guard_method(self._reader.pin, waits=True)(source, taken, request, keeper))

    @property
    def engine(self) -> EngineReader | None:
        """See SourceReader. Inside the boundary too."""
        return None if self._reader.engine is None else cast(EngineReader, BoundedEngine(self._reader.engine))

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

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._reader, name)
        return _guard_method(member, waits=True) if callable(member) else member


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


def bound_reader(reader: SourceReader) -> SourceReader:
    """Wrap a reader in the boundary."""
    return cast(SourceReader, BoundedReader(reader))


def _guard_method(method: Callable[..., Any], *, waits: bool) -> Callable[..., Any]:
    """`waits`: the source already exists, and waits for its server."""

    def call_method(*args: Any, **named: Any) -> Any:
        source = next((value for value in (*args, *named.values()) if isinstance(value, CreateSource)), None)
        if source is None:
            return method(*args, **named)
        args = tuple(records_of(value) if value is source else value for value in args)
        named = {name: records_of(value) if value is source else value for name, value in named.items()}
        store = next((value.objects.uri for value in (*args, *named.values()) if hasattr(value, "objects")), "")
        try:
            with errors_of_source(source, store=store):
                return method(*args, **named)
        except SourceAwayError as err:
            if waits or not isinstance(err.__cause__, TussockError):
                raise
            raise err.__cause__ from None

    return call_method


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
