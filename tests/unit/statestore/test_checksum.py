"""crc32c compared with RFC 3720's own values, for every kind of bytes that the store checks."""

import google_crc32c
import pyarrow as pa
import pytest

from tussock.statestore.checksum import crc32c

RFC_3720 = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    b"123456789": 0xE3069283,
    b"": 0,
}
"""Appendix B.4 of the RFC, and the value by which checksums are listed."""


@pytest.mark.parametrize(
    ("data", "checksum"), RFC_3720.items(), ids=lambda part: part.hex()[:8] if isinstance(part, bytes) else ""
)
def test_checksums_are_those_of_the_rfc(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum
    assert crc32c(memoryview(b"x" + data + b"x")[1:-1]) == checksum
    assert crc32c(memoryview(bytearray(data))) == checksum
    assert crc32c(pa.py_buffer(data)) == checksum


def test_the_library_computes_in_c() -> None:
    assert google_crc32c.implementation == "c"
