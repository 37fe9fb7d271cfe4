"""Errors on their way from an actor to the driver: the class by name, and its arguments, which are its facts."""

import base64
import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from tussock.statestore.decoding import decoded
from tussock.statestore.errors import InputError, RetryableError, TussockError


class ActorError(InputError):
    """What a user's row, file or expression did to the epoch: the fragment's relation, and the cause."""

    def __init__(self, relation: str, cause: str) -> None:
        super().__init__(relation, cause)
        self.relation, self.cause = relation, cause

    def __str__(self) -> str:
        return f"{self.relation}: {self.cause}"


class ViewFailedError(ActorError):
    """An operator of a view found no answer for the rows that it got. `relation` is the view; `build`: several epochs build it."""

    def __init__(self, relation: str, cause: str, build: bool = False) -> None:
        InputError.__init__(self, relation, cause, build)
        self.relation, self.cause, self.build = relation, cause, build

    def __str__(self) -> str:
        return f"view {self.relation!r}: {self.cause}"


class SourceFileError(InputError):
    """What is wrong with one file of a source: the source can wait while everything else goes on."""

    path: str
    source: str = ""  # the source that met it, once that is known

    @classmethod
    @contextmanager
    def met_in(cls, source: str) -> Iterator[None]:
        """Names the source in what is raised here."""
        try:
            yield
        except SourceFileError as err:
            err.source = source
            raise


class SourceContradictedError(SourceFileError):
    """The changes that a source's input lists contradict the rows that were taken: a row goes that is not there, or comes twice. `sources`:
    those that the failing view reads; one of them is at fault."""

    path = ""

    def __init__(self, source: str, sources: Sequence[str], row: str) -> None:
        super().__init__(source, tuple(sources), row)
        self.source, self.sources, self.row = source, tuple(sources), row

    def __str__(self) -> str:
        of = f"source {self.source!r}" if len(self.sources) == 1 else f"one of the sources {', '.join(self.sources)}"
        return (
            f"{of}: its changes contradict the rows that were taken before. A row goes that is not there, or comes a second time: "
            f"({self.row}). A change feed that disagrees with its table has this effect, and so has an option key whose columns do not "
            f"identify a row. Its rows can only be taken in from the beginning: DROP SOURCE {self.source} (CASCADE drops its readers too), "
            "and create it and them again. Until then views keep the rows that were taken."
        )


class SourceAwayError(RetryableError):
    """The server or disk of a source does not answer. The source waits while everything else goes on; the next run tries it again.
    `path`: the item that was read; empty if that is not known."""

    def __init__(self, source: str, path: str, reason: str) -> None:
        super().__init__(source, path, reason)
        self.source, self.path, self.reason = source, path, reason

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
    """The error as bytes. Arguments that JSON can't hold are sent as text."""
    kind = type(error)
    args: list[object] = list(error.args)
    return msgspec.json.encode(
        _Envelope(level, relation, kind.__module__, kind.__qualname__, args, str(error)), enc_hook=str
    )


class TaskError(Exception):
    """An error on its way out of a Spark task whose output has no place for one; Spark's message to the driver carries it."""


_CARRIED = re.compile(r"tussock-failure:([A-Za-z0-9+/=]+)")


@contextmanager
def carried_by_spark(relation: str) -> Iterator[None]:
    """In a task: lets an error reach the driver within Spark's own, where `carried_failure` finds it."""
    try:
        yield
    except TussockError as err:
        raise TaskError(
            f"{err} tussock-failure:{base64.b64encode(encode_failure(err, relation, 0)).decode()}"
        ) from None


def carried_failure(error: Exception) -> TussockError | None:
    """The error that a task raised under `carried_by_spark`, out of what Spark raised on the driver; None where there is none."""
    found = _CARRIED.search(str(error))
    return None if found is None else first_failure([base64.b64decode(found[1])])


def first_failure(failures: list[bytes]) -> TussockError:
    """The error to raise of several: of the lowest level, since later ones may be its consequence; ties by text."""
    envelopes = [decoded(f, _Envelope) for f in failures]
    first = min(envelopes, key=lambda e: (e.level, e.relation, e.text))
    error = _rebuild(first)
    if isinstance(error, SourceFileError) and not error.source:
        error.source = first.relation
    error.add_note(f"while at work on {first.relation!r}")
    return error


def _rebuild(envelope: _Envelope) -> TussockError:
    if envelope.module.startswith("tussock."):
        kind = getattr(importlib.import_module(envelope.module), envelope.name, None)
        if isinstance(kind, type) and issubclass(kind, TussockError):
            error = kind(*envelope.args)
            if str(error) == envelope.text:
                return error
    return ActorError(envelope.relation, envelope.text)
