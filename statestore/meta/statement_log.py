"""The log of DML and DDL: bound statements, dense positions from 0, durable when `append` returns.

Entries are created with put-if-absent and never deleted, so the end is found by probing. A barrier pins the log's end; its actors
replay what lies before. Statements are JSON of jobs/ and opaque here; large ones are payloads named after their bytes.

A client id makes an append repeatable. Before its first entry is written, a claim notes the position from which on the entry may stand;
every writer with that id walks up from there, and takes the first position that is free or already holds the id. Two of them cannot
both write: a writer at the higher position has read the lower one before.
"""

from concurrent.futures import ThreadPoolExecutor

import msgspec

from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.document import checked_json, encode_document, read_document, require_document
from tussock.statestore.meta.errors import DamagedDocumentError, SettingError
from tussock.statestore.meta.names import client_name, hash_of, log_name, payload_name
from tussock.statestore.meta.probe import end_of
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

PARALLEL_READS = 16


class LogEntry(msgspec.Struct, frozen=True):
    """One statement of the log."""

    position: int
    writer: str
    client_id: str
    statement: msgspec.Raw  # JSON


class Claim(msgspec.Struct, frozen=True):
    """An entry of `client_id` stands at `start` or later, if at all."""

    client_id: str
    writer: str
    start: int


class LogMovedError(RetryableError):
    """A statement was to stand at a position of the log that others have reached first."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(expected, found)
        self.expected, self.found = expected, found

    def __str__(self) -> str:
        return f"the log was expected to end at {self.expected} and holds {self.found} entries. Nothing was appended; read it and repeat."


class StatementLog:
    """One process's view of the log; remembers how far it has seen it. Not safe for threads: one for each."""

    def __init__(self, objects: ObjectStore, writer: str) -> None:
        self._objects = objects
        self._writer = writer
        self._known_end = 0  # every position below exists

    def append(self, client_id: str, statement: bytes, seen_end: int = 0, expected: int | None = None) -> int:
        """Make a statement durable and return its position; a repeat of the client id changes nothing and answers the first position.

        Args:
            client_id: the caller's name for this statement, not empty; one per statement, the same when it is sent again.
            statement: one JSON value.
            seen_end: a position the log is known to have reached, to start probing at.
            expected: the position that the statement is right at, since it was made of what the log held before.

        Raises: LogMovedError where others' entries stand at `expected` or before it; nothing was appended.
        Cost: three requests when nobody else writes. A repeat reads the entries between its first try and where it stands.
        """
        if not client_id:
            raise SettingError("a client id", "empty", "a text that is the same when the statement is sent again")
        body = checked_json("a statement of the log", statement)
        end = self.end(seen_end)
        claim = Claim(client_id, self._writer, end)
        if not self._objects.put_if_absent(client_name(client_id), encode_document(claim)):
            claim = require_document(self._objects, client_name(client_id), Claim)
        position = claim.start
        while True:
            if expected is not None and max(position, end) > expected:
                raise LogMovedError(expected, max(position, end))
            entry = LogEntry(position, self._writer, client_id, body)
            if position >= end and self._objects.put_if_absent(log_name(position), encode_document(entry)):
                self._known_end = max(self._known_end, position + 1)
                return position
            if self._entry(position).client_id == client_id:
                return position
            position += 1

    def position_of(self, client_id: str) -> int | None:
        """Where the entry of a client id stands; None: none was appended. Cost: one GET, and the reads of a repeat."""
        if (claim := read_document(self._objects, client_name(client_id), Claim)) is None:
            return None
        entries = self.read(claim.start, self.end(claim.start))
        return next((e.position for e in entries if e.client_id == client_id), None)

    def read(self, start: int, end: int) -> list[LogEntry]:
        """Entries at positions `start` to `end`-1, in order. One GET each, parallel. Raises DamagedDocumentError where one is missing."""
        if end - start <= 1:
            return [self._entry(position) for position in range(start, end)]
        with ThreadPoolExecutor(min(PARALLEL_READS, end - start)) as threads:
            return list(threads.map(self._entry, range(start, end)))

    def end(self, seen_end: int = 0) -> int:
        """The number of entries. One HEAD if `seen_end` or what this process has seen is still it, else about 2 log2(entries since)."""
        self._known_end = end_of(self._exists, max(self._known_end, seen_end))
        return self._known_end

    def put_payload(self, data: bytes) -> str:
        """Store bytes under a name made of them, and return it; durable on return."""
        name = payload_name(data)
        if not self._objects.put_if_absent(name, data):
            raise DamagedDocumentError(name, "its bytes are not those it is named after")
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
    """The bytes of a payload, checked against its name. One GET. Raises DamagedDocumentError where it is missing or changed.

    The one way to read a payload, for drivers and actors alike: its bytes carry no checksum of their own.
    """
    try:
        data = objects.get(name)
    except ObjectNotFoundError as err:
        raise DamagedDocumentError(name, "it is missing, though an entry of the log rests on it") from err
    if not name.endswith("/" + hash_of(data)):
        raise DamagedDocumentError(name, f"its {len(data)} bytes are not those it is named after")
    return data
