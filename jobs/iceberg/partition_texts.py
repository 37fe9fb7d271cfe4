"""The partition of a file as text: a JSON list, with a pair of kind and text for each value that JSON cannot hold."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from tussock.statestore.decoding import decode_json

_KINDS: Mapping[type, tuple[str, Callable[[Any], str]]] = {
    float: ("float", repr),
    Decimal: ("decimal", str),
    bytes: ("binary", bytes.hex),
    uuid.UUID: ("uuid", str),
}
_VALUES: Mapping[str, Callable[[str], Any]] = {
    "float": float,
    "decimal": Decimal,
    "binary": bytes.fromhex,
    "uuid": uuid.UUID,
}


def encode_partition(values: Iterable[Any]) -> str:
    """Return partition values as text; empty if there are none. Equal values have equal texts."""
    encoded = [_encode_value(value) for value in values]
    return msgspec.json.encode(encoded).decode() if encoded else ""


def decode_partition(text: str) -> tuple[Any, ...]:
    """Return the values of `encode_partition`."""
    values = decode_json(text or "[]", list[int | str | bool | tuple[str, str] | None])
    return tuple(_VALUES[value[0]](value[1]) if isinstance(value, tuple) else value for value in values)


def _encode_value(value: Any) -> Any:
    kind = _KINDS.get(type(value))
    return value if kind is None else (kind[0], kind[1](value))
