"""Decoders of JSON by type, made one at a time.

msgspec learns the fields of a struct when its first decoder is made, and keeps them with the class. While one thread does so, another
thread that decodes the same class would read a half-filled list, which ends the process. So all code gets its decoders here.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_making = threading.RLock()
_made: dict[Any, msgspec.json.Decoder[Any]] = {}


@overload
def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type. Made once per process."""
    if (known := _made.get(kind)) is None:
        with _making:
            known = _made[kind] = msgspec.json.Decoder(kind)
    return known


def decoded(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: type[T]) -> T:
    """The value of a JSON text. Raises msgspec.DecodeError."""
    return decoder_of(kind).decode(data)


def converted(value: Any, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """A value of plain Python as a type. Raises msgspec.ValidationError."""
    with _making:
        return msgspec.convert(value, kind, dec_hook=dec_hook)
