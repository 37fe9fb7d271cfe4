"""The bytes of meta objects: golden texts that change only on purpose, and an independently computed checksum."""

import json

import msgspec
import pytest

from tussock.statestore.meta.delta import (
    EpochCommitted,
    FloorRaised,
    MappingChanged,
    Published,
    RelationsForgotten,
    VersionDelta,
)
from tussock.statestore.meta.document import checked_json, decode_document, encode_document
from tussock.statestore.meta.errors import DamagedDocumentError, SettingError
from tussock.statestore.meta.settings import StoreSettings
from tussock.statestore.meta.version import SectionInfo, SstInfo, VnodeMapping

LAST = 2**64 - 1
SST = SstInfo("data/018bcfe568000000/ab.sst", 100, 20, 3, LAST, LAST, (SectionInfo(1, b"\x00\xff", b"\xff", 3, 90),))
GOLDEN: list[tuple[msgspec.Struct, str]] = [
    (StoreSettings(1, 256, 2, "UTC"), '{"format":1,"vnode_count":256,"units":2,"time_zone":"UTC"}\ncrc32c 989d5c01\n'),
    (
        VersionDelta(1, "w", EpochCommitted(0, LAST, 1, (SST,), 4)),
        '{"id":1,"writer":"w","change":{"type":"epoch","prev_epoch":0,"epoch":18446744073709551615,"attempt":1,'
        '"ssts":[{"name":"data/018bcfe568000000/ab.sst","size":100,"footer_size":20,"rows":3,'
        '"min_epoch":18446744073709551615,"max_epoch":18446744073709551615,'
        '"sections":[{"table_id":1,"first_key":"AP8=","last_key":"/w==","rows":3,"bytes":90}]}],"log_end":4}}'
        "\ncrc32c 325a37ef\n",
    ),
    (
        VersionDelta(2, "w", Published(7)),
        '{"id":2,"writer":"w","change":{"type":"publish","epoch":7}}\ncrc32c 3629c45e\n',
    ),
    (
        VersionDelta(3, "w", FloorRaised(7)),
        '{"id":3,"writer":"w","change":{"type":"floor","epoch":7}}\ncrc32c 4aaac275\n',
    ),
    (
        VersionDelta(4, "w", RelationsForgotten((3,))),
        '{"id":4,"writer":"w","change":{"type":"forget","relations":[3]}}\ncrc32c 384e4b56\n',
    ),
    (
        VersionDelta(5, "w", MappingChanged(VnodeMapping(1, (0, 1)))),
        '{"id":5,"writer":"w","change":{"type":"mapping","mapping":{"id":1,"units":[0,1]}}}\ncrc32c c657df50\n',
    ),
]


def _crc32c(data: bytes) -> int:
    """RFC 3720's checksum, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("value", "text"), GOLDEN, ids=lambda part: type(part).__name__ if isinstance(part, msgspec.Struct) else ""
)
def test_a_document_is_the_golden_text_and_reads_back(value: msgspec.Struct, text: str) -> None:
    assert encode_document(value).decode() == text
    assert decode_document("x", text.encode(), type(value)) == value
    body, closing, end = text.split("\n")
    assert (closing, end) == (f"crc32c {_crc32c(body.encode()):08x}", "")
    json.loads(body)


def test_a_field_of_a_later_release_is_ignored_and_a_missing_one_is_named() -> None:
    def closed(body: bytes) -> bytes:
        return body + b"\ncrc32c %08x\n" % _crc32c(body)

    later = closed(b'{"format":1,"vnode_count":256,"units":2,"time_zone":"UTC","colour":"blue"}')
    assert decode_document("x", later, StoreSettings) == StoreSettings(1, 256, 2, "UTC")
    with pytest.raises(DamagedDocumentError, match=r"checksum is correct.*time_zone"):
        decode_document("x", closed(b'{"format":1,"vnode_count":256,"units":2}'), StoreSettings)
    with pytest.raises(DamagedDocumentError, match=r"checksum is correct.*future"):
        decode_document("x", closed(b'{"id":1,"writer":"w","change":{"type":"future"}}'), VersionDelta)


def test_embedded_json_is_kept_to_the_byte_and_checked_first() -> None:
    text = b'{"b" : [1, 2],\n "a": "\xc3\xa4"}'
    assert bytes(checked_json("it", text)) == text
    for wrong in (b"", b"{", b"1 2", b'"\xff"'):
        with pytest.raises(SettingError, match=r"it is .*one JSON value"):
            checked_json("it", wrong)
