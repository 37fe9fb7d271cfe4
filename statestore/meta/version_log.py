"""The version log: deltas, each written with one put-if-absent, and snapshots to start from (snapshots.py).

A commit creates `meta/version/<newest id + 1>.json`. Names are used once and never deleted. Ids are therefore dense,
the writer of a version has seen all versions before it, and probing finds the newest without a LIST. Snapshots and the
head hint only save reads: without the hint, opening needs more probes; without a snapshot, it replays more deltas.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tussock.statestore.errors import DamagedError, RetryableError
from tussock.statestore.forks import OwnName
from tussock.statestore.meta.delta import VersionChange, VersionDelta, apply
from tussock.statestore.meta.document import encode_document, read_document, require_document
from tussock.statestore.meta.errors import NoSuchVersionError
from tussock.statestore.meta.names import version_name
from tussock.statestore.meta.pages import laid_out
from tussock.statestore.meta.probe import end_of
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY, Snapshots
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.syncs import settle

log = logging.getLogger(__name__)


class Appended(NamedTuple):
    """The result of an append: a version that contains the change, and whether this call committed it."""

    version: HummockVersion
    mine: bool


class VersionLog:
    """One process's view of the log; keeps the newest version that it has seen. Not thread-safe: use one per thread.

    Cost: opening reads the hint, a snapshot and fewer than SNAPSHOT_EVERY deltas. Later, `latest` is one GET if nothing
        is new.
    """

    def __init__(self, objects: ObjectStore, writer: str, initial: Callable[[], HummockVersion]) -> None:
        self._objects = objects
        self._writer = OwnName(writer)
        self._initial = initial  # version 0, which has no snapshot
        self._snapshots = Snapshots(objects, initial)
        self._newest: HummockVersion | None = None
        self._due: HummockVersion | None = None  # a version whose snapshot may be missing

    def for_another_thread(self) -> "VersionLog":
        """A view of the log for another thread, which starts from the newest version that this one has seen."""
        other = VersionLog(self._objects, str(self._writer), self._initial)
        other._newest = self._newest
        return other

    def latest(self) -> HummockVersion:
        """The newest version. Raises DamagedDocumentError, BadDeltaError."""
        version = self._newest if self._newest is not None else self._snapshots.hinted()
        for _ in range(SNAPSHOT_EVERY):
            if (delta := read_document(self._objects, version_name(version.id + 1), VersionDelta)) is None:
                return self._seen(version)
            version = self._noted(apply(version, delta))
        # Far behind, because of a stale hint or a long pause: jump instead of reading all deltas in between.
        newest_id = end_of(self._exists, version.id + 1) - 1
        self._due = None  # obsolete; newer snapshots follow
        version = self._seen(self._snapshots.nearest(newest_id, version))
        while (delta := read_document(self._objects, version_name(version.id + 1), VersionDelta)) is not None:
            version = self._noted(apply(version, delta))
        return self._seen(version)

    def at(self, version_id: int) -> HummockVersion:
        """The version with this id.

        Reads a snapshot and fewer than SNAPSHOT_EVERY deltas, more if snapshots are lost.
        """
        if not 0 <= version_id <= (newest := self.latest().id):
            raise NoSuchVersionError(version_id, newest)
        if self._newest is not None and self._newest.id == version_id:
            return self._newest
        version = self._snapshots.nearest(version_id, self._initial())
        for delta_id in range(version.id + 1, version_id + 1):
            version = apply(version, require_document(self._objects, version_name(delta_id), VersionDelta))
        return version

    def deltas(self, first: int, last: int) -> Iterator[VersionDelta]:
        """Read deltas `first` to `last`, one GET each. Requires: they have been seen. Raises DamagedDocumentError."""
        return (require_document(self._objects, version_name(i), VersionDelta) for i in range(first, last + 1))

    def append(self, decide: Callable[[HummockVersion], VersionChange | None]) -> Appended:
        """Commit the change that `decide` returns for the newest version; None: nothing to do.

        Returns the resulting version.

        If another writer commits first, `decide` is called again with the new version: it rebases, or raises its own
        error. The change is visible to all readers on return. If this raises MustStopError, nothing is visible.
        """
        while True:
            version = self.latest()
            if (change := decide(version)) is None:
                settle()  # the caller reports a version of another process
                return Appended(version, mine=False)
            delta = VersionDelta(version.id + 1, str(self._writer), change)
            after = apply(version, delta)  # rejects an invalid change before anything is written
            if self._objects.put_if_absent(version_name(delta.id), encode_document(delta)):
                after = self._seen(self._noted(after))
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
        """Remember a version that needs a snapshot, and return it in the snapshot's form, which later versions share.

        If this process is killed, the next committer writes it.
        """
        if version.id % SNAPSHOT_EVERY == 0:
            version = self._due = laid_out(version)
        return version

    def _exists(self, delta_id: int) -> bool:
        try:
            self._objects.head(version_name(delta_id))
        except ObjectNotFoundError:
            return False
        return True

    def _write_snapshot(self) -> None:
        """Write a due snapshot.

        The change is already committed, so a failure here must not look like a failed commit.
        """
        if self._due is None:
            return
        try:
            self._snapshots.write(self._due)
        except RetryableError:
            return  # still due: the next commit retries
        except DamagedError as err:  # of a page, and of the log below it
            log.warning("the snapshot of version %d is not written, because %s", self._due.id, err)
        self._due = None
