"""The log of DML and DDL: bound statements at dense positions from 0, durable when `append_statement` returns.

Entries are created with put-if-absent, so probing finds the end. A barrier pins the log's end, and its actors replay
the entries before it. Vacuum packs old entries and removes them (packs.py). Statements are JSON of jobs/ and opaque
here; large ones are payloads, named by their hash.

A client id makes an append repeatable. Every writer with this id walks up from the lowest possible position of the
entry, and takes the first position that is free or already has the id. Two writers cannot both append: the one at the
higher position has read the lower one first. The caller knows that position if it made the id itself: no entry is older
than the id. Otherwise a claim records it before the first attempt.
"""

import msgspec

from tussock.statestore.errors import RetryableError
from tussock.statestore.forks import OwnName
from tussock.statestore.meta.document import (
    checked_json,
    decode_document,
    encode_document,
    read_document,
    require_document,
)
from tussock.statestore.meta.errors import DamagedDocumentError, SettingError
from tussock.statestore.meta.names import client_name, hash_of, log_name, payload_name
from tussock.statestore.meta.packs import statement_packs
from tussock.statestore.meta.probe import end_of
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore, object_exists
from tussock.statestore.objectstore.syncs import wait_until_durable


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

    expected: int
    entries: int

    def __str__(self) -> str:
        return (
            f"the log was expected to end at {self.expected}, but has {self.entries} entries. Nothing was appended. "
            "Read the log, then repeat the statement."
        )


class StatementLog:
    """One process's view of the log; remembers the last known end. Not thread-safe: use one per thread."""

    def __init__(self, objects: ObjectStore, writer: str) -> None:
        self._objects = objects
        self._writer = OwnName(writer)
        self._packs = statement_packs(objects)
        self._known_end = 0  # all positions below exist or are packed

    def append_statement(
        self,
        client_id: str,
        statement: bytes,
        seen_end: int = 0,
        expected: int | None = None,
        since: int | None = None,
        is_new: bool = False,
    ) -> int:
        """Append a durable statement and return its position. Repeating a client id returns the first position.

        Args:
            client_id: the caller's name for this statement, not empty; a retry uses the same name.
            statement: one JSON value.
            seen_end: a position that the log is known to have reached; probing starts there.
            expected: the only position at which the statement is valid, because it depends on all entries before.
            since: a position below which the entry cannot be, the same in each retry; None: unknown, so that a claim is
                needed, which stays in the store.
            is_new: no other call has used or will use the client id, so that no claim is needed.

        Raises: LogMovedError if entries of others are at `expected` or later; nothing was appended.
        Cost: three requests without concurrent writers, four with a claim. A retry reads the entries from its first
            attempt to its position.
        """
        if not client_id:
            raise SettingError("a client id", "empty", "a text that stays the same when the statement is sent again")
        body = checked_json("a statement of the log", statement)
        end = end_of(self._has_entry, max(self._known_end, seen_end))  # too low after a sleep, which costs only time
        position = end if is_new else self._claim_position(client_id, end) if since is None else since
        while True:
            if expected is not None and max(position, end) > expected:
                raise LogMovedError(expected, max(position, end))
            entry = LogEntry(position, str(self._writer), client_id, body)
            if position >= end and self._objects.put_if_absent(log_name(position), encode_document(entry)):
                if not self._packs.is_packed(position):
                    self._known_end = max(self._known_end, position + 1)
                    return position
                end = self.find_end()  # this process slept while the entry of this position was packed and removed
            if self._read_entry(position).client_id == client_id:
                wait_until_durable()  # the call that wrote it may have been killed before it was durable
                return position
            position += 1

    def position_of(self, client_id: str, since: int | None = None) -> int | None:
        """The position of a client id's entry, or None. Cost: at most one GET, and the reads of a retry.

        `since`: as of the append.
        """
        if since is None:
            if (claim := read_document(self._objects, client_name(client_id), Claim)) is None:
                return None
            since = claim.start
        entries = self.read_entries(since, self.find_end(since))
        return next((e.position for e in entries if e.client_id == client_id), None)

    def read_entries(self, start: int, end: int) -> list[LogEntry]:
        """Read positions `start` to `end` - 1, in order. Cost: see PackedLog.read_documents.

        Raises DamagedDocumentError if one is missing.
        """
        return [decode_document(log_name(at), data, LogEntry) for at, data in self._packs.read_documents(start, end)]

    def find_end(self, seen_end: int = 0, *, looks: bool = True) -> int:
        """The number of entries. Two HEADs if the known end is current, else about 2 log2(new entries).

        `looks`: whether to look for a pack if there is no new entry. Otherwise the caller must prove later that none
        was there: see Glances.
        """
        start = max(self._known_end, seen_end)
        while True:
            end = end_of(self._has_entry, start)
            if end == start and not looks:
                return end
            # Look the pack up after the probes: no entry is removed before it exists.
            if not self._packs.is_packed(start):
                self._known_end = end
                return end
            start = self._packs.find_end(start)

    def put_payload(self, data: bytes) -> str:
        """Store bytes under a name derived from their hash, and return the name. Durable on return."""
        name = payload_name(data)
        if not self._objects.put_if_absent(name, data):
            raise DamagedDocumentError(name, "its bytes do not match the hash in its name")
        return name

    def _claim_position(self, client_id: str, end: int) -> int:
        """The position from which all writers with this client id walk up."""
        claim = Claim(client_id, str(self._writer), end)
        if not self._objects.put_if_absent(client_name(client_id), encode_document(claim)):
            claim = require_document(self._objects, client_name(client_id), Claim)
        return claim.start

    def _read_entry(self, position: int) -> LogEntry:
        (entry,) = self.read_entries(position, position + 1)
        return entry

    def _has_entry(self, position: int) -> bool:
        return object_exists(self._objects, log_name(position))


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
