"""msgspec JSON decoders, cached by type and created one at a time.

msgspec inspects a struct's fields when it creates the first decoder for it, and caches them on the class. A thread that
decodes the same class at that moment reads a half-filled list, and the process crashes. Get all decoders from this
module.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

from tussock.statestore.forks import wait_before_fork

T = TypeVar("T")

_making = threading.RLock()
wait_before_fork(_making)
_made: dict[Any, msgspec.json.Decoder[Any]] = {}


@overload
def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type. It is created once per process."""
    if (known := _made.get(kind)) is None:
        with _making:
            known = _made[kind] = msgspec.json.Decoder(kind)
    return known


def decode_json(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: type[T]) -> T:
    """Decode a JSON text as `kind`. Raises msgspec.DecodeError."""
    return decoder_of(kind).decode(data)


def convert_value(value: Any, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Convert plain Python values to `kind`. Raises msgspec.ValidationError."""
    with _making:
        return msgspec.convert(value, kind, dec_hook=dec_hook)
