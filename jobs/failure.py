"""Errors on their way from an actor to the driver: the class by name, and its arguments, which are its facts."""

import importlib

import msgspec

from statestore.errors import InputError, TussockError


class ActorError(InputError):
    """What a user's row, file or expression did to the epoch: the fragment's relation, and the cause."""

    def __init__(self, relation: str, cause: str) -> None:
        super().__init__(relation, cause)
        self.relation, self.cause = relation, cause

    def __str__(self) -> str:
        return f"{self.relation}: {self.cause}"


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
    return msgspec.json.encode(_Envelope(level, relation, kind.__module__, kind.__qualname__, args, str(error)), enc_hook=str)


def first_failure(failures: list[bytes]) -> TussockError:
    """The error to raise of several: of the lowest level, since later ones may be its consequence; ties by text."""
    envelopes = [msgspec.json.decode(f, type=_Envelope) for f in failures]
    first = min(envelopes, key=lambda e: (e.level, e.relation, e.text))
    error = _rebuild(first)
    error.add_note(f"while maintaining {first.relation!r}")
    return error


def _rebuild(envelope: _Envelope) -> TussockError:
    if envelope.module.split(".")[0] in ("jobs", "statestore"):
        kind = getattr(importlib.import_module(envelope.module), envelope.name, None)
        if isinstance(kind, type) and issubclass(kind, TussockError):
            error = kind(*envelope.args)
            if str(error) == envelope.text:
                return error
    return ActorError(envelope.relation, envelope.text)
