"""Meta objects as bytes: a JSON document followed by a checksum line, which detects and locates flipped bits.

    {"id":7,"writer":"…","change":{"type":"publish","epoch":123}}
    crc32c 0a1b2c3d

The checksum is the crc32c of everything before the line break that precedes it, as 8 lower-case hex digits. Integers
are exact up to u64; bytes are base64. A reader ignores unknown fields. A missing field takes its default, and the
document is refused if the field has none.
"""

from typing import TypeVar

import msgspec

from tussock.statestore.checksum import crc32c
from tussock.statestore.decoding import decoder_of
from tussock.statestore.meta.errors import DamagedDocumentError, SettingError
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

T = TypeVar("T", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()
_CLOSING_BYTES = len("\ncrc32c 00000000\n")


def encode_document(value: msgspec.Struct) -> bytes:
    """Encode a document. Equal values have equal bytes if their dicts have the same insertion order."""
    body = _encoder.encode(value)
    return body + _closing_of(body)


def decode_document(name: str, data: bytes, kind: type[T]) -> T:
    """Decode a document; messages name it `name`. Raises DamagedDocumentError."""
    body, closing = data[:-_CLOSING_BYTES], data[-_CLOSING_BYTES:]
    if closing != _closing_of(body):
        raise DamagedDocumentError(name, f"its {len(data)} bytes do not end in their checksum: truncated or changed")
    try:
        value = decoder_of(kind).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise DamagedDocumentError(
            name, f"its checksum is correct, but it is not a {kind.__name__} of this release: {err}"
        ) from err
    assert isinstance(value, kind)
    return value


def read_document(objects: ObjectStore, name: str, kind: type[T]) -> T | None:
    """Read a document, or return None if it does not exist. One GET. Raises DamagedDocumentError."""
    try:
        data = objects.get(name)
    except ObjectNotFoundError:
        return None
    return decode_document(name, data, kind)


def require_document(objects: ObjectStore, name: str, kind: type[T]) -> T:
    """Read a document that must exist. One GET. Raises DamagedDocumentError."""
    if (value := read_document(objects, name, kind)) is None:
        raise DamagedDocumentError(name, "it is missing, but later objects depend on it")
    return value


def checked_json(what: str, data: bytes) -> msgspec.Raw:
    """Check a JSON value of another package for embedding in a document. Raises SettingError about `what`."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise SettingError(what, repr(data[:80]), f"one JSON value ({err})") from err
    return msgspec.Raw(data)


def _closing_of(body: bytes) -> bytes:
    return b"\ncrc32c %08x\n" % crc32c(body)
