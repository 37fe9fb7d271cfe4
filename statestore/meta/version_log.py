"""The version log: deltas, each written with one put-if-absent, and snapshots to start from (snapshots.py).

A commit creates `meta/version/<newest id + 1>.json`. Names are used once. Ids are therefore dense, the writer of a
version has seen all versions before it, and probing finds the newest without a LIST. Snapshots and the head hint only
save reads: without the hint, opening needs more probes; without a snapshot, it replays more deltas.

Vacuum packs old deltas and removes them (packs.py). So a process that slept looks up whether the pack of the delta that
it read first exists: then it begins again at the end of the packs.

A *glance* reads the next delta only, and omits that look if the delta is absent. The process may have slept, and the
delta may have been packed: then the answer is stale. A stale answer equals the answer of a process that paused here for
as long, and such a process fails safely at its commit. So a glance cannot damage the store. An operation that commits
nothing proves at its end that its glances were right (`Glances`). A glance that finds a delta looks as usual, because
the delta may be a leftover.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from tussock.statestore.errors import DamagedError, RetryableError, TussockError
from tussock.statestore.forks import OwnName
from tussock.statestore.meta.delta import EpochCommitted, VersionChange, VersionDelta, apply_delta
from tussock.statestore.meta.document import decode_document, encode_document, read_document
from tussock.statestore.meta.errors import NoSuchVersionError
from tussock.statestore.meta.names import version_name
from tussock.statestore.meta.packs import version_packs
from tussock.statestore.meta.pages import laid_out
from tussock.statestore.meta.probe import end_of
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY, Snapshots, read_deltas
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore, object_exists
from tussock.statestore.objectstore.syncs import wait_until_durable

log = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """The result of an append: a version that contains the change, and whether this call committed it."""

    version: HummockVersion
    mine: bool


@dataclass(slots=True)
class Glances:
    """The glances of one operation, by all threads that share a version log."""

    first: int | None = None  # the id of the first version that the operation saw

    def are_proven_by(self, newest: HummockVersion) -> bool:
        """Whether all glances at both logs were right. `newest`: read with a look after them.

        If the operation's first version is still the newest one, then it was so all the time. No statement after its
        log end was packed either, since packs contain only statements before the log end of a version.
        """
        return self.first in (None, newest.id)


@dataclass(slots=True)
class _Shared:
    """What the threads of a process share of a log."""

    newest: HummockVersion | None = None  # the version that one of them has seen last
    glances: Glances | None = None  # of the current operation, if it glances


class VersionLog:
    """One process's view of the log; keeps the newest version that it has seen. Not thread-safe: use one per thread.

    Cost: opening reads the hint, a snapshot and fewer than SNAPSHOT_EVERY deltas. Later, `read_latest` is one GET and
        one HEAD if nothing is new, or one GET as a glance.
    """

    def __init__(self, objects: ObjectStore, writer: str, initial: Callable[[], HummockVersion]) -> None:
        self._objects = objects
        self._writer = OwnName(writer)
        self._initial = initial  # version 0, which has no snapshot
        self._snapshots = Snapshots(objects, initial)
        self._packs = version_packs(objects)
        self._known: HummockVersion | None = None  # the newest version that this thread has seen
        self._shared = _Shared()
        self._due: HummockVersion | None = None  # a version whose snapshot may be missing

    def for_another_thread(self) -> "VersionLog":
        """A view of the log for another thread, which starts from the newest version that this one has seen."""
        other = VersionLog(self._objects, str(self._writer), self._initial)
        other._shared = self._shared
        return other

    @property
    def newest_seen(self) -> HummockVersion | None:
        """The newest version that this process has seen. No request."""
        mine, other = self._known, self._shared.newest  # a thread may overwrite a newer one of another thread
        return other if mine is None or (other is not None and other.id > mine.id) else mine

    @property
    def current_glances(self) -> Glances | None:
        """The glances of the operation that runs, if it proves them later."""
        return self._shared.glances

    @contextmanager
    def glances(self) -> Iterator[Glances]:
        """Let `read_latest` glance within the block. The caller proves the glances: by a commit, or `are_proven_by`."""
        outer, self._shared.glances = self._shared.glances, Glances()
        try:
            yield self._shared.glances
        finally:
            self._shared.glances = outer

    def read_latest(self, *, proven: bool = False) -> HummockVersion:
        """The newest version. Raises DamagedDocumentError, BadDeltaError.

        `proven`: look also within the block of `glances`.
        """
        version = self._find_newest(looks=proven or self.current_glances is None)
        if (glances := self.current_glances) is not None and glances.first is None:
            glances.first = version.id
        return version

    def _find_newest(self, *, looks: bool) -> HummockVersion:
        """As `read_latest`. If not `looks`, only glance."""
        known = self.newest_seen
        start = known if known is not None else self._snapshots.read_hinted()
        while True:
            version = failure = None
            try:
                version = self._version_after(start)
            except DamagedError as err:  # perhaps leftovers below the end of the packs, which do not fit each other
                failure = err
            if not looks and known is not None and version is known:
                self._known = known
                return known
            # Look the pack up after the reads: no delta is removed before it exists.
            if not self._packs.is_packed(start.id + 1):
                if version is None:
                    raise failure or AssertionError
                return self._remember_newest(version)
            self._due = None  # obsolete; newer snapshots follow
            start = self._rebuild_version(self._packs.find_end(start.id + 1) - 1)

    def _version_after(self, version: HummockVersion) -> HummockVersion:
        """The newest version after `version`, unless its next delta is packed."""
        for _ in range(SNAPSHOT_EVERY):
            if (delta := read_document(self._objects, version_name(version.id + 1), VersionDelta)) is None:
                return version
            version = self._remember_due(apply_delta(version, delta))
        # Far behind, because of a stale hint or a long pause: jump instead of reading all deltas in between.
        newest_id = end_of(self._has_delta, version.id + 1) - 1
        self._due = None  # obsolete; newer snapshots follow
        version = self._snapshots.read_nearest(newest_id, version)
        while (delta := read_document(self._objects, version_name(version.id + 1), VersionDelta)) is not None:
            version = self._remember_due(apply_delta(version, delta))
        return version

    def read_version(self, version_id: int) -> HummockVersion:
        """The version with this id.

        Reads a snapshot and fewer than SNAPSHOT_EVERY deltas, more if snapshots are lost.
        """
        if not 0 <= version_id <= (newest := self._find_newest(looks=True).id):
            raise NoSuchVersionError(version_id, newest)
        if (known := self.newest_seen) is not None and known.id == version_id:
            return known
        return self._rebuild_version(version_id)

    def _rebuild_version(self, version_id: int) -> HummockVersion:
        """A version, from the nearest snapshot. Requires: it exists."""
        version = self._snapshots.read_nearest(version_id, self._initial())
        for delta in self.read_deltas(version.id + 1, version_id):
            version = apply_delta(version, delta)
        return version

    def read_deltas(self, first: int, last: int) -> Iterator[VersionDelta]:
        """Read deltas `first` to `last`, packed or not; see PackedLog.read_documents. Requires: they have been seen."""
        return read_deltas(self._packs, first, last)

    def has_packed_epoch(self, epoch: int) -> bool:
        """Whether a packed delta committed this epoch. Cost: see PackedLog.find_marked. Raises DamagedDocumentError."""
        if (pack := self._packs.find_marked(epoch)) is None:
            return False
        changes = (decode_document(version_name(pack.first), data, VersionDelta).change for data in pack.documents)
        return any(isinstance(change, EpochCommitted) and change.epoch == epoch for change in changes)

    def append_change(self, decide: Callable[[HummockVersion], VersionChange | None]) -> AppendResult:
        """Commit the change that `decide` returns for the newest version; None: nothing to do.

        Returns the resulting version.

        If another writer commits first, `decide` is called again with the new version: it rebases, or raises its own
        error. The change is visible to all readers on return. If this raises MustStopError, nothing is visible.
        """
        while True:
            # A glance is enough before a put: the look after it checks the same pack, that of the next delta.
            version, prepared = self._find_newest(looks=False), None
            with suppress(TussockError):
                prepared = self._prepare_delta(version, decide)
            # Without a put, nothing would prove the glance.
            if (
                prepared is None
                and (prepared := self._prepare_delta(version := self._find_newest(looks=True), decide)) is None
            ):
                wait_until_durable()  # the caller reports a version of another process
                return AppendResult(version, mine=False)
            delta, after = prepared
            document = encode_document(delta)
            if self._objects.put_if_absent(version_name(delta.id), document):
                if (pack := self._packs.read_pack(delta.id)) is None:
                    after = self._remember_newest(self._remember_due(after))
                    self._write_snapshot()
                    log.debug("version %d committed: %s", after.id, type(delta.change).__name__)
                    return AppendResult(after, mine=True)
                # This process slept while the delta of this number was packed and removed. It may be ours, if the
                # answer to an earlier attempt was lost.
                if pack.documents[delta.id - pack.first] == document:
                    return AppendResult(self._find_newest(looks=True), mine=True)
            kind = type(delta.change).__name__
            log.info("version %d was committed by another writer first: %s rebases on it", delta.id, kind)

    def _prepare_delta(
        self, version: HummockVersion, decide: Callable[[HummockVersion], VersionChange | None]
    ) -> tuple[VersionDelta, HummockVersion] | None:
        """The delta that `decide` asks for, and the version after it. Rejects an invalid change before the put."""
        if (change := decide(version)) is None:
            return None
        delta = VersionDelta(version.id + 1, str(self._writer), change)
        return delta, apply_delta(version, delta)

    def _remember_newest(self, version: HummockVersion) -> HummockVersion:
        self._known = self._shared.newest = version
        return version

    def _remember_due(self, version: HummockVersion) -> HummockVersion:
        """Remember a version that needs a snapshot, and return it in the snapshot's form, which later versions share.

        If this process is killed, the next committer writes it.
        """
        if version.id % SNAPSHOT_EVERY == 0:
            version = self._due = laid_out(version)
        return version

    def _has_delta(self, delta_id: int) -> bool:
        return object_exists(self._objects, version_name(delta_id))

    def _write_snapshot(self) -> None:
        """Write a due snapshot.

        The change is already committed, so a failure here must not look like a failed commit.
        """
        if self._due is None:
            return
        try:
            self._snapshots.write_snapshot(self._due)
        except RetryableError:
            return  # still due: the next commit retries
        except DamagedError as err:  # of a page, and of the log below it
            log.warning("the snapshot of version %d is not written, because %s", self._due.id, err)
        self._due = None
