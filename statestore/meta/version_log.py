"""The version log: deltas, one put-if-absent each, and snapshots of whole versions to start from.

A commit is the creation of `meta/version/<newest id + 1>.json`. Names are used once and never deleted, so ids are dense, the
creator of the next one has seen all before it, and the newest is found by probing: no LIST. Snapshots and the head hint only save reads;
losing or damaging the hint costs probes, losing a snapshot costs replay.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.delta import VersionChange, VersionDelta, apply
from tussock.statestore.meta.document import encode_document, read_document, require_document
from tussock.statestore.meta.errors import DamagedDocumentError, NoSuchVersionError
from tussock.statestore.meta.names import HEAD, snapshot_name, version_name
from tussock.statestore.meta.probe import end_of
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = (
    16  # deltas; opening a store replays fewer than this many, and one commit in as many writes a whole version
)


class Head(msgspec.Struct, frozen=True):
    """The hint: a snapshot of this id was there."""

    snapshot: int


class Appended(NamedTuple):
    """The result of an append: a version that holds the change, and whether this call committed it."""

    version: HummockVersion
    mine: bool


class VersionLog:
    """One writer's or reader's view of the log; keeps the newest version it has seen. Not safe for threads: one for each.

    Cost: opening reads the hint, a snapshot and fewer than SNAPSHOT_EVERY deltas; after that `latest` is one GET when nothing is new.
    """

    def __init__(self, objects: ObjectStore, writer: str, initial: Callable[[], HummockVersion]) -> None:
        self._objects = objects
        self._writer = writer
        self._initial = initial  # version 0, of which there is no snapshot
        self._newest: HummockVersion | None = None
        self._due: HummockVersion | None = None  # a version that may have no snapshot yet

    def for_another_thread(self) -> "VersionLog":
        """Another view of the log, for another thread, that has seen what this one has."""
        other = VersionLog(self._objects, self._writer, self._initial)
        other._newest = self._newest
        return other

    def latest(self) -> HummockVersion:
        """The newest version. Raises DamagedDocumentError, BadDeltaError."""
        version = self._newest if self._newest is not None else self._hinted()
        for _ in range(SNAPSHOT_EVERY):
            if (delta := read_document(self._objects, version_name(version.id + 1), VersionDelta)) is None:
                return self._seen(version)
            version = self._noted(apply(version, delta))
        # Far behind: a stale hint, or a process that slept. Jump, instead of reading everything in between.
        newest_id = end_of(self._exists, version.id + 1) - 1
        self._due = None  # what was due is history; newer ones follow
        version = self._seen(self._nearest_snapshot(newest_id, version))
        while (delta := read_document(self._objects, version_name(version.id + 1), VersionDelta)) is not None:
            version = self._noted(apply(version, delta))
        return self._seen(version)

    def at(self, version_id: int) -> HummockVersion:
        """The version of this id, as it was. Reads a snapshot and fewer than SNAPSHOT_EVERY deltas, more where snapshots are lost."""
        if not 0 <= version_id <= (newest := self.latest().id):
            raise NoSuchVersionError(version_id, newest)
        if self._newest is not None and self._newest.id == version_id:
            return self._newest
        version = self._nearest_snapshot(version_id, self._initial())
        for delta_id in range(version.id + 1, version_id + 1):
            version = apply(version, require_document(self._objects, version_name(delta_id), VersionDelta))
        return version

    def deltas(self, first: int, last: int) -> Iterator[VersionDelta]:
        """Deltas `first` to `last`, one GET each. Requires: they have been seen. Raises DamagedDocumentError."""
        return (require_document(self._objects, version_name(i), VersionDelta) for i in range(first, last + 1))

    def append(self, decide: Callable[[HummockVersion], VersionChange | None]) -> Appended:
        """Commit what `decide` wants for the newest version, and return the version it made; None: nothing to do.

        When somebody else commits first, `decide` is asked again with theirs: it rebases, or raises its own error. A change is visible
        to everybody when this returns; when it raises MustStopError nothing is.
        """
        while True:
            version = self.latest()
            if (change := decide(version)) is None:
                return Appended(version, mine=False)
            delta = VersionDelta(version.id + 1, self._writer, change)
            after = apply(version, delta)  # refuses before anything is written
            if self._objects.put_if_absent(version_name(delta.id), encode_document(delta)):
                self._seen(self._noted(after))
                self._write_snapshot()
                log.debug("version %d committed: %s", after.id, type(change).__name__)
                return Appended(after, mine=True)
            log.info(
                "version %d was committed by another writer first: %s rebases on it", delta.id, type(change).__name__
            )

    def _seen(self, version: HummockVersion) -> HummockVersion:
        self._newest = version
        return version

    def _noted(self, version: HummockVersion) -> HummockVersion:
        """Remember a version of which there has to be a snapshot. The next committer writes it, if this one is killed."""
        if version.id % SNAPSHOT_EVERY == 0:
            self._due = version
        return version

    def _exists(self, delta_id: int) -> bool:
        try:
            self._objects.head(version_name(delta_id))
        except ObjectNotFoundError:
            return False
        return True

    def _hinted(self) -> HummockVersion:
        """Where the hint says to start; version 0 if it is of no use."""
        try:
            head = read_document(self._objects, HEAD, Head)
        except DamagedDocumentError:
            head = None  # it only saves reads
        if (
            head is None
            or (version := read_document(self._objects, snapshot_name(head.snapshot), HummockVersion)) is None
        ):
            return self._initial()
        return version

    def _nearest_snapshot(self, version_id: int, above: HummockVersion) -> HummockVersion:
        """The newest snapshot at or below `version_id`; `above` if there is none newer than it."""
        for snapshot_id in range(version_id - version_id % SNAPSHOT_EVERY, above.id, -SNAPSHOT_EVERY):
            if (version := read_document(self._objects, snapshot_name(snapshot_id), HummockVersion)) is not None:
                return version
        return above

    def _write_snapshot(self) -> None:
        """Keep opening cheap. The change is committed already: that the bucket refuses this must not look as if the commit had failed."""
        if self._due is None:
            return
        try:
            # Equal bytes from every writer; another release's may differ, and do as well.
            self._objects.put_if_absent(snapshot_name(self._due.id), encode_document(self._due))
            self._objects.put(HEAD, encode_document(Head(self._due.id)))
        except RetryableError:
            return  # still due: the next commit tries again
        self._due = None
