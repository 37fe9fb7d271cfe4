"""Serialize errors from actors for the driver: the name of the error's class, and its arguments."""

import base64
import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import InputError, RetryableError, TussockError


class ActorError(InputError):
    """A row, file or expression of the user stopped the epoch. `relation` is the fragment's relation."""

    relation: str
    cause: str

    def __str__(self) -> str:
        return f"{self.relation}: {self.cause}"


class ViewFailedError(ActorError):
    """An operator of view `relation` could not process its input rows.

    `build`: the view is built over several epochs. `ways`: the remedies, which the driver adds.
    """

    build: bool = False
    ways: str = ""

    def __str__(self) -> str:
        ways = f"{'' if self.cause.endswith('.') else '.'} Nothing of this epoch was committed.{self.ways}"
        return f"view {self.relation!r}: {self.cause}{ways if self.ways else ''}"


class SourceFileError(InputError):
    """One file of a source cannot be processed. The source waits; everything else continues."""

    path = ""
    source = ""  # the source that met the error; empty until it is known

    @classmethod
    @contextmanager
    def met_in(cls, source: str) -> Iterator[None]:
        """Add the source's name to a SourceFileError that is raised in this context."""
        try:
            yield
        except SourceFileError as err:
            err.source = source
            raise


class SourceContradictedError(SourceFileError):
    """A source's changes contradict its rows: a deleted row does not exist, or an inserted row already does.

    `sources` are the sources that the failing view reads. One of them is at fault.
    """

    source: str
    sources: Sequence[str]
    row: str

    def __str__(self) -> str:
        of = f"source {self.source!r}" if len(self.sources) == 1 else f"one of the sources {', '.join(self.sources)}"
        return (
            f"{of}: its changes contradict the rows that it delivered before. They delete a row that does not exist, "
            f"or insert a row that already exists: ({self.row}). Either the change feed disagrees with its table, or "
            "the columns of option key do not identify a row. The source can only be read again from its beginning: "
            f"run DROP SOURCE {self.source} (CASCADE drops its readers too), then create the source and its readers "
            "again. Until then, views keep their rows."
        )


class SourceAwayError(RetryableError):
    """The server or disk of a source does not respond.

    The source waits until the next run; everything else continues.

    `path`: the item that was being read; empty if unknown.
    """

    source: str
    path: str
    reason: str

    def __str__(self) -> str:
        return self.reason


class _Envelope(msgspec.Struct):
    level: int
    relation: str
    module: str
    name: str
    args: list[object]
    text: str


def encode_failure(error: TussockError, relation: str, level: int) -> bytes:
    """Encode an error as JSON. Arguments that JSON cannot represent become text."""
    kind = type(error)
    args: list[object] = list(error.args)
    return msgspec.json.encode(
        _Envelope(level, relation, kind.__module__, kind.__qualname__, args, str(error)), enc_hook=str
    )


class TaskError(Exception):
    """An error from a Spark task whose output cannot hold one. Spark passes its message to the driver."""


_CARRIED = re.compile(r"tussock-failure:([A-Za-z0-9+/=]+)")


@contextmanager
def carried_by_spark(relation: str) -> Iterator[None]:
    """Wrap an error of a task in an exception that Spark passes to the driver, for `carried_failure`."""
    try:
        yield
    except TussockError as err:
        raise TaskError(
            f"{err} tussock-failure:{base64.b64encode(encode_failure(err, relation, 0)).decode()}"
        ) from None


def carried_failure(error: Exception) -> TussockError | None:
    """Find the error of a task under `carried_by_spark` in Spark's exception on the driver.

    None if Spark's exception has none.
    """
    match = _CARRIED.search(str(error))
    return None if match is None else first_failure([base64.b64decode(match[1])])


def first_failure(failures: list[bytes]) -> TussockError:
    """The error to raise if several actors failed: one of the lowest level, since later errors may follow from it.

    Within a level, the relation and the text decide.
    """
    envelopes = [decode_json(f, _Envelope) for f in failures]
    first = min(envelopes, key=lambda e: (e.level, e.relation, e.text))
    error = _rebuild_error(first)
    if isinstance(error, SourceFileError) and not error.source:
        error.source = first.relation
    error.add_note(f"while processing {first.relation!r}")
    return error


def _rebuild_error(envelope: _Envelope) -> TussockError:
    if envelope.module.startswith("tussock."):
        kind = getattr(importlib.import_module(envelope.module), envelope.name, None)
        if isinstance(kind, type) and issubclass(kind, TussockError):
            error = kind(*envelope.args)
            if str(error) == envelope.text:
                return error
    return ActorError(envelope.relation, envelope.text)
