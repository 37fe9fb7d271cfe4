"""The log of DML and DDL: bound statements at dense positions from 0, durable when `append` returns.

Entries are created with put-if-absent and never deleted, so probing finds the end. A barrier pins the log's end, and
its actors replay the entries before it. Statements are JSON of jobs/ and opaque here; large ones are payloads, named by
their hash.

A client id makes an append repeatable. Before the first attempt, a claim records the lowest possible position of the
entry. Every writer with this id walks up from there and takes the first position that is free or already has the id.
Two writers cannot both append: the one at the higher position has read the lower one first.
"""

from concurrent.futures import ThreadPoolExecutor

import msgspec

from tussock.statestore.errors import RetryableError
from tussock.statestore.forks import OwnName
from tussock.statestore.meta.document import checked_json, encode_document, read_document, require_document
from tussock.statestore.meta.errors import DamagedDocumentError, SettingError
from tussock.statestore.meta.names import client_name, hash_of, log_name, payload_name
from tussock.statestore.meta.probe import end_of
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.syncs import settle

PARALLEL_READS = 16


class LogEntry(msgspec.Struct, frozen=True):
    """One statement in the log."""

    position: int
    writer: str
    client_id: str
    statement: msgspec.Raw  # JSON


class Claim(msgspec.Struct, frozen=True):
    """The entry of `client_id` is at `start` or later, if it exists."""

    client_id: str
    writer: str
    start: int


class LogMovedError(RetryableError):
    """Another writer's entry has taken the position that a statement requires."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(expected, found)
        self.expected, self.found = expected, found

    def __str__(self) -> str:
        return (
            f"the log was expected to end at {self.expected}, but has {self.found} entries. Nothing was appended. "
            "Read the log, then repeat the statement."
        )


class StatementLog:
    """One process's view of the log; remembers the last known end. Not thread-safe: use one per thread."""

    def __init__(self, objects: ObjectStore, writer: str) -> None:
        self._objects = objects
        self._writer = OwnName(writer)
        self._known_end = 0  # all positions below exist

    def append(self, client_id: str, statement: bytes, seen_end: int = 0, expected: int | None = None) -> int:
        """Append a durable statement and return its position. Repeating a client id returns the first position.

        Args:
            client_id: the caller's name for this statement, not empty; a retry uses the same name.
            statement: one JSON value.
            seen_end: a position that the log is known to have reached; probing starts there.
            expected: the only position at which the statement is valid, because it depends on all entries before.

        Raises: LogMovedError if entries of others are at `expected` or later; nothing was appended.
        Cost: three requests without concurrent writers. A retry reads the entries from its first attempt to its
            position.
        """
        if not client_id:
            raise SettingError("a client id", "empty", "a text that stays the same when the statement is sent again")
        body = checked_json("a statement of the log", statement)
        end = self.end(seen_end)
        claim = Claim(client_id, str(self._writer), end)
        if not self._objects.put_if_absent(client_name(client_id), encode_document(claim)):
            claim = require_document(self._objects, client_name(client_id), Claim)
        position = claim.start
        while True:
            if expected is not None and max(position, end) > expected:
                raise LogMovedError(expected, max(position, end))
            entry = LogEntry(position, str(self._writer), client_id, body)
            if position >= end and self._objects.put_if_absent(log_name(position), encode_document(entry)):
                self._known_end = max(self._known_end, position + 1)
                return position
            if self._entry(position).client_id == client_id:
                settle()  # the call that wrote it may have been killed before it was durable
                return position
            position += 1

    def position_of(self, client_id: str) -> int | None:
        """The position of a client id's entry, or None. Cost: one GET, and the reads of a retry."""
        if (claim := read_document(self._objects, client_name(client_id), Claim)) is None:
            return None
        entries = self.read(claim.start, self.end(claim.start))
        return next((e.position for e in entries if e.client_id == client_id), None)

    def read(self, start: int, end: int) -> list[LogEntry]:
        """Read positions `start` to `end`-1, in order.

        One parallel GET each. Raises DamagedDocumentError if one is missing.
        """
        if end - start <= 1:
            return [self._entry(position) for position in range(start, end)]
        with ThreadPoolExecutor(min(PARALLEL_READS, end - start)) as threads:
            return list(threads.map(self._entry, range(start, end)))

    def end(self, seen_end: int = 0) -> int:
        """The number of entries. One HEAD if the known end is current, else about 2 log2(new entries)."""
        self._known_end = end_of(self._exists, max(self._known_end, seen_end))
        return self._known_end

    def put_payload(self, data: bytes) -> str:
        """Store bytes under a name derived from their hash, and return the name. Durable on return."""
        name = payload_name(data)
        if not self._objects.put_if_absent(name, data):
            raise DamagedDocumentError(name, "its bytes do not match the hash in its name")
        return name

    def _entry(self, position: int) -> LogEntry:
        return require_document(self._objects, log_name(position), LogEntry)

    def _exists(self, position: int) -> bool:
        try:
            self._objects.head(log_name(position))
        except ObjectNotFoundError:
            return False
        return True


def read_payload(objects: ObjectStore, name: str) -> bytes:
    """Read a payload and check it against its name. One GET. Raises DamagedDocumentError if it is missing or changed.

    Drivers and actors must read payloads with this function: the bytes contain no checksum.
    """
    try:
        data = objects.get(name)
    except ObjectNotFoundError as err:
        raise DamagedDocumentError(name, "it is missing, but an entry of the log depends on it") from err
    if not name.endswith("/" + hash_of(data)):
        raise DamagedDocumentError(name, f"its {len(data)} bytes do not match the hash in its name")
    return data
