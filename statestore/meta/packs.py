"""Packs: PACK_SIZE neighbouring objects of a dense log as one object, so that a log does not keep an object per commit.

The log of versions and the log of statements number their objects without gaps (names.py). Vacuum packs a block of old
ones, and then removes them. A pack is

    head:  magic "TUSSOCKP" | first number u64 | mark u64 | documents u32 | unpacked bytes u64 | crc32c of the frame u32
           | crc32c of the bytes before it u32
    frame: zstd of the length of each document, u32 each, then the documents, with their own checksums

Numbers are little-endian. The mark of a pack of versions is the committed epoch after its last delta; else it is 0.

A name of a dense log is used once. A writer that slept since then could create a removed name again, and believe that
it has won. The name of a pack is the proof against this. Packs are written in order, before the objects that they
replace are removed, and are never removed. So

    while the pack of a number does not exist, the log contains its object and the objects of all later numbers;
    once it exists, only the pack counts, and an object with such a number is a leftover.

A reader therefore looks for the pack after it has read the objects, and a writer after it has created one. If the pack
exists, the reader starts again from the packs, and the writer has lost. Two vacuums may write a pack at once: both
read the same documents, and the first pack counts.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from tussock.statestore.checksum import crc32c
from tussock.statestore.meta.errors import DamagedDocumentError
from tussock.statestore.meta.names import ENTRIES, STATEMENT_PACKS, VERSION_PACKS, VERSIONS
from tussock.statestore.meta.probe import end_of
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore, object_exists
from tussock.statestore.objectstore.branch import first_statement_of

PACK_SIZE = 1024  # of each log; a snapshot is kept at the end of each pack of versions (snapshots.py)

_MAGIC = b"TUSSOCKP"
_HEAD = struct.Struct("<8sQQIQI")
_CRC = struct.Struct("<I")
_HEAD_BYTES = _HEAD.size + _CRC.size
_ZSTD = "zstd"
_THREADS = 16


class Pack(NamedTuple):
    """The content of a pack."""

    first: int  # the number of the first document
    mark: int
    documents: tuple[bytes, ...]


def encode_pack(pack: Pack) -> bytes:
    """The bytes of a pack."""
    lengths = struct.pack(f"<{len(pack.documents)}I", *map(len, pack.documents))
    plain = b"".join((lengths, *pack.documents))
    packed: bytes = pa.Codec(_ZSTD).compress(plain, asbytes=True)
    head = _HEAD.pack(_MAGIC, pack.first, pack.mark, len(pack.documents), len(plain), crc32c(packed))
    return head + _CRC.pack(crc32c(head)) + packed


def decode_pack(name: str, data: bytes) -> Pack:
    """Decode a pack; messages name it `name`. Raises DamagedDocumentError."""
    head, packed = _decode_head(name, data[:_HEAD_BYTES]), data[_HEAD_BYTES:]
    if head.crc != crc32c(packed):
        raise DamagedDocumentError(name, f"its {len(data)} bytes do not fit their checksum: truncated or changed")
    plain: bytes = pa.Codec(_ZSTD).decompress(packed, head.size, asbytes=True)
    documents, at = [], 4 * head.documents
    for length in struct.unpack_from(f"<{head.documents}I", plain):
        documents.append(plain[at : at + length])
        at += length
    return Pack(head.first, head.mark, tuple(documents))


class _Head(NamedTuple):
    magic: bytes
    first: int
    mark: int
    documents: int
    size: int
    crc: int


def _decode_head(name: str, data: bytes) -> _Head:
    if len(data) < _HEAD_BYTES or data[-_CRC.size :] != _CRC.pack(crc32c(data[: -_CRC.size])):
        raise DamagedDocumentError(name, "its head does not fit its checksum: truncated or changed")
    head = _Head(*_HEAD.unpack(data[: -_CRC.size]))
    if head.magic != _MAGIC or name != _format_pack_name(name.rpartition("/")[0] + "/", head.first):
        raise DamagedDocumentError(name, "its checksum is correct, but it is the object of another name")
    return head


@dataclass(slots=True)
class PackedLog:
    """The objects and the packs of one dense log, for one process. Not thread-safe: use one per thread.

    Args:
        singles, packs: prefixes of the names.
        origin: the number of the log's first document.
        few: up to so many documents are read one after another, more at once.
    """

    objects: ObjectStore
    singles: str
    packs: str
    origin: int
    few: int
    _last: Pack | None = None  # the pack that was read last

    def name_of_single(self, number: int) -> str:
        """The name of a document that is not packed."""
        return f"{self.singles}{number:020}.json"

    def pack_name(self, number: int) -> str:
        """The name of the pack for a document."""
        return _format_pack_name(self.packs, self.first_of(number))

    def first_of(self, number: int) -> int:
        """The first number of the pack for a document."""
        return number - (number - self.origin) % PACK_SIZE

    def is_packed(self, number: int) -> bool:
        """Whether the pack for this number exists. One HEAD."""
        return object_exists(self.objects, self.pack_name(number))

    def find_end(self, start: int | None = None) -> int:
        """The first number that is not packed. `start`: one that is packed, to begin at. Some HEADs."""
        known = 0 if start is None else (start - self.origin) // PACK_SIZE
        count = end_of(lambda n: self.is_packed(self.origin + n * PACK_SIZE), known)
        return self.origin + count * PACK_SIZE

    def read_documents(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read the documents `start` to `end` - 1 with their numbers, in order.

        Cost: a GET per document, or one per pack, and one HEAD per PACK_SIZE numbers.
        Raises: DamagedDocumentError if one is missing, when it is its turn.
        """
        while start < end:
            until = min(end, self.first_of(start) + PACK_SIZE)
            yield from zip(range(start, until), self._read_block(start, until), strict=False)
            start = until

    def read_pack(self, number: int) -> Pack | None:
        """The pack for a document, or None. One GET. Raises DamagedDocumentError."""
        if self._last is None or self._last.first != self.first_of(number):
            name = self.pack_name(number)
            try:
                data = self.objects.get(name)
            except ObjectNotFoundError:
                return None
            self._last = decode_pack(name, data)
        return self._last

    def find_marked(self, mark: int) -> Pack | None:
        """The first pack whose mark is at least `mark`, or None. Cost: the heads of a few packs, and one pack."""
        firsts = range(self.origin, self.find_end(), PACK_SIZE)
        place = bisect_left(firsts, mark, key=self.mark_of)
        return self.read_pack(firsts[place]) if place < len(firsts) else None

    def mark_of(self, first: int) -> int:
        """The mark of an existing pack. Reads its head only. Raises DamagedDocumentError, ShortReadError."""
        name = self.pack_name(first)
        (head,) = self.objects.get_ranges(name, [(0, _HEAD_BYTES)])
        return _decode_head(name, head).mark

    def _read_block(self, start: int, end: int) -> Iterator[bytes]:
        """As `read_documents`, within one pack."""
        documents = self._read_singles(range(start, end))
        # Look the pack up after the objects: none of them is removed before it exists.
        if (
            pack := self.read_pack(start) if len(documents) < end - start or self.is_packed(start) else None
        ) is not None:
            yield from pack.documents[start - pack.first : end - pack.first]
            return
        yield from documents
        if len(documents) < end - start:
            raise DamagedDocumentError(
                self.name_of_single(start + len(documents)), "it is missing, but later objects depend on it"
            )

    def _read_singles(self, numbers: Sequence[int]) -> list[bytes]:
        """The objects with these numbers up to the first one that is absent."""
        documents: list[bytes] = []
        if len(numbers) <= self.few or (first := self._get_single(numbers[0])) is None:
            answers: Iterator[bytes | None] = map(self._get_single, numbers)
            return _until_absent(answers, documents)
        with ThreadPoolExecutor(_THREADS) as threads:
            return _until_absent(threads.map(self._get_single, numbers[1:]), [first])

    def _get_single(self, number: int) -> bytes | None:
        try:
            return self.objects.get(self.name_of_single(number))
        except ObjectNotFoundError:
            return None


def version_packs(objects: ObjectStore) -> PackedLog:
    """The log of version deltas."""
    return PackedLog(objects, VERSIONS, VERSION_PACKS, origin=1, few=16)


def statement_packs(objects: ObjectStore) -> PackedLog:
    """The log of statements."""
    return PackedLog(objects, ENTRIES, STATEMENT_PACKS, origin=first_statement_of(objects), few=1)


def _format_pack_name(prefix: str, first: int) -> str:
    return f"{prefix}{first:020}.pack"


def _until_absent(answers: Iterator[bytes | None], documents: list[bytes]) -> list[bytes]:
    for data in answers:
        if data is None:
            break
        documents.append(data)
    return documents
