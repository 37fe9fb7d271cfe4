"""The boundary around the readers of sources: each error of a reader becomes an error of its source, so that the source is held.

A reader reads foreign bytes through foreign libraries. Nobody can list their errors, so the boundary names none of their classes:

    InputError and its like                 as they are: they are about the source already
    RetryableError of the source's server   SourceAwayError: the source waits, and the next run tries it again
    ShortReadError of the source's file     SourceTroubleError
    any other exception                     SourceTroubleError, with its cause in one line (tussock.jobs.settings.cause)

An error of the store itself is the store's, and passes. Readers are given out by `jobs/sources/registry.py:reader_of`, behind this
boundary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from tussock.jobs.flow.failure import SourceAwayError, SourceFileError
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.cause import cause_of, is_panic
from tussock.jobs.sources.base import ReadPart, SourceReader
from tussock.jobs.sources.errors import ways_on
from tussock.statestore.errors import MustStopError, RetryableError, TussockError
from tussock.statestore.objectstore.base import ShortReadError


class SourceTroubleError(SourceFileError):
    """A source, or one of its items, that its reader cannot read. `path`: the item; empty for the source as a whole."""

    def __init__(self, name: str, path: str, format: str, reason: str) -> None:
        super().__init__(name, path, format, reason)
        self.source, self.path, self.format, self.reason = name, path, format, reason

    def __str__(self) -> str:
        if self.path:
            return (
                f"file {self.path} cannot be read as {self.format}: {self.reason.rstrip('.')}. "
                f"Repair it, and the next run takes it in; or go on: {ways_on(self.path)}."
            )
        return (
            f"source {self.source!r} cannot be read as {self.format}: {self.reason.rstrip('.')}. "
            "Correct its files, and the next run takes them in. If "
            f"an option of the source is the cause, DROP SOURCE {self.source} (CASCADE drops its readers too) and create it with another."
        )


_AT_CREATION = ("check", "describe")


class BoundedReader:
    """A reader behind the boundary. Methods that take the source as an argument look at the source's own input, and are guarded; the others
    work on documents and tables of the store, whose errors are the store's."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        """See ActorReader. Errors name the item of the part."""
        assert not self._reader.needs_spark, "Spark reads in `frame`"
        with boundary(source, self._reader.item_of(part)):
            return self._reader.read(source, part, columns)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._reader, name)
        return _guarded(found, waits=name not in _AT_CREATION) if callable(found) else found


def bounded(reader: SourceReader) -> SourceReader:
    """The reader behind the boundary."""
    return cast(SourceReader, BoundedReader(reader))


def _guarded(method: Callable[..., Any], *, waits: bool) -> Callable[..., Any]:
    """`waits`: the source exists, so that it can wait for its server."""

    def call(*args: Any, **named: Any) -> Any:
        source = next((value for value in (*args, *named.values()) if isinstance(value, CreateSource)), None)
        if source is None:
            return method(*args, **named)
        store = next((value.objects.uri for value in (*args, *named.values()) if hasattr(value, "objects")), "")
        try:
            with boundary(source, store=store):
                return method(*args, **named)
        except SourceAwayError as err:
            if waits or not isinstance(err.__cause__, TussockError):
                raise
            raise err.__cause__ from None

    return call


@contextmanager
def boundary(source: CreateSource, path: str = "", store: str = "") -> Iterator[None]:
    """Turn any error of the block into an error of the source.

    Args:
        path: the item that is read; empty if it is not known.
        store: the URI of Tussock's own store, if the block uses that too: its errors pass.
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
