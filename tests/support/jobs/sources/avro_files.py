"""Containers of Avro, written without a package."""

import zlib
from pathlib import Path

_SCHEMA = b'{"type":"record","name":"r","fields":[{"name":"v","type":"string"}]}'
_SYNC = b"s" * 16
_IN_BLOCK = 1_000


def write_avro(path: Path, rows: int, value: str) -> None:
    """Write records of one string `v`, in compressed blocks of 1,000 records. Requires: rows are whole blocks."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(_text(value.encode()) * _IN_BLOCK) + packer.flush()
    with path.open("wb") as file:
        entries = (b"avro.schema", _SCHEMA, b"avro.codec", b"deflate")
        file.write(b"Obj\x01" + _number(2) + b"".join(map(_text, entries)) + _number(0) + _SYNC)
        for _ in range(rows // _IN_BLOCK):
            file.write(_number(_IN_BLOCK) + _text(block) + _SYNC)


def _number(value: int) -> bytes:
    value, encoded = value << 1, bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _text(value: bytes) -> bytes:
    return _number(len(value)) + value
