"""Active readers, and the floor below which none may start. pin.py explains how pins and the floor see each other."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tussock.statestore.errors import RetryableError
from tussock.statestore.forks import OwnName, OwnProcess
from tussock.statestore.meta.delta import FloorRaised, RelationsForgotten, VersionChange
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError, PinLapsedError
from tussock.statestore.meta.pages import names_gone
from tussock.statestore.meta.pin import Pin, delete_pins, drop_pin, list_pins, renew_pin, write_pin
from tussock.statestore.meta.readable import check_readable
from tussock.statestore.meta.sight import oldest_seen
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.version_log import VersionLog
from tussock.statestore.objectstore.base import AccessDeniedError, ObjectStore, ObjectStoreFullError


class UnpinnedReadWarning(UserWarning):
    """A read without protection against vacuum, because its process may not write to the store, or it is full."""

    def __init__(self, uri: str, epoch: int, reason: str) -> None:
        super().__init__(uri, epoch, reason)
        self.uri, self.epoch, self.reason = uri, epoch, reason

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} of {self.uri} is read without a pin, because this process cannot write or remove one "
            f"({self.reason}). The rows are correct. If compaction and vacuum run during the read, they may delete "
            "objects before the read needs them; it then fails with MissingSstError and must be repeated. "
            "To prevent this, grant the rights to put and delete objects below meta/pin/, and free space there."
        )


class Readers:
    """Pins for one process, for the methods of the same names in MetaStore. Not thread-safe: use one per thread."""

    def __init__(
        self,
        objects: ObjectStore,
        versions: VersionLog,
        writer: str,
        clock_ms: Callable[[], int],
        numbers: Iterator[int],
    ) -> None:
        self._objects, self._versions, self._clock_ms = objects, versions, clock_ms
        self._writer = OwnName(writer)
        self._numbers = numbers  # unique to each pin of the process

    def pin_epoch(self, epoch: int, lease_ms: int, onward: bool = False, reader: str = "") -> Pin:
        """See MetaStore.pin_epoch."""
        holder = f"{reader} by {self._writer}/{next(self._numbers)}".removeprefix(" by ")
        version = self.version_at(epoch)
        while True:
            pin = Pin(epoch, holder, version.id, self._clock_ms() + lease_ms, onward=onward)
            write_pin(self._objects, pin)
            try:
                # The floor may have risen before our pin was visible.
                now = self.version_at(epoch, besides=holder)
            except (EpochExpiredError, EpochNotCommittedError):
                delete_pins(self._objects, pin)
                raise
            if not names_gone(version, now):
                return pin
            # A compaction removed SSTs in between, and vacuum may have missed our pin: pin the current version instead.
            version = now

    def version_at(self, epoch: int, besides: str = "") -> HummockVersion:
        """See MetaStore.version_at. `besides`: holder of a pin to ignore."""
        newest = self._versions.read_latest(proven=True)
        try:
            check_readable(newest, epoch)
        except EpochExpiredError:
            pins = [pin for pin in list_pins(self._objects, epoch) if pin.holder != besides]
            for version in (
                self._versions.read_version(pin.version) for pin in sorted(pins, key=lambda pin: -pin.version)
            ):
                if version.min_readable_epoch <= epoch:
                    return version
            raise
        return newest

    @contextmanager
    def open_for_reading(self, epoch: int, lease_ms: int) -> Iterator[HummockVersion]:
        """See MetaStore.open_for_reading. A thread renews the pin after each third of its lease while the block runs.

        A process with read-only access, or of a full store, reads `version_at` without a pin, with a warning. Rows are
        still correct, because a version is fixed and its SSTs never change. If vacuum removes an SST meanwhile, the
        read raises MissingSstError.
        """
        try:
            pin = self.pin_epoch(epoch, lease_ms)
        except (AccessDeniedError, ObjectStoreFullError) as err:
            version = self.version_at(epoch)
            reason = err.reason if isinstance(err, AccessDeniedError) else "no space left"
            warnings.warn(UnpinnedReadWarning(self._objects.uri, epoch, reason), stacklevel=3)
            yield version
            return
        renewal = _Kept(self._objects, pin, lease_ms, self._clock_ms)
        try:
            yield self._versions.read_version(pin.version)
        finally:
            try:
                if renewal.process.is_here:  # a child that leaves the block must not end its parent's read
                    drop_pin(self._objects, renewal.stop_renewing())
            except AccessDeniedError as err:  # The pin stays until its lease expires.
                warnings.warn(UnpinnedReadWarning(self._objects.uri, epoch, err.reason), stacklevel=3)


class _Kept:
    """A pin that a thread renews until `stop_renewing`."""

    def __init__(self, objects: ObjectStore, pin: Pin, lease_ms: int, clock_ms: Callable[[], int]) -> None:
        self._objects, self._pin, self._lease_ms, self._clock_ms = objects, pin, lease_ms, clock_ms
        self.process = OwnProcess()
        self._over = Event()
        self._thread = Thread(target=self._renew_repeatedly, name="pin", daemon=True)
        self._thread.start()

    def stop_renewing(self) -> Pin:
        """Stop renewing, and return the last renewal."""
        self._over.set()
        self._thread.join()
        return self._pin

    def _renew_repeatedly(self) -> None:
        while not self._over.wait(self._lease_ms / 3000):
            try:
                self._pin = renew_pin(self._objects, self._pin, self._clock_ms() + self._lease_ms)
            except RetryableError:
                continue  # retry after another third of the lease
            except (PinLapsedError, AccessDeniedError):
                return  # at worst the reader finds an SST missing


def raise_floor(objects: ObjectStore, versions: VersionLog, epoch: int, now_ms: int) -> HummockVersion:
    """See MetaStore.raise_floor."""

    def decide(version: HummockVersion) -> VersionChange | None:
        if epoch <= version.min_readable_epoch:
            return None
        if epoch > version.published:
            raise EpochNotCommittedError(epoch, version.published)
        floor = min(epoch, oldest_seen(version))
        return FloorRaised(floor) if floor > version.min_readable_epoch else None

    versions.append_change(decide)
    pins = list_pins(objects)
    if lapsed := [pin for pin in pins if pin.expires_ms <= now_ms]:
        delete_pins(objects, *lapsed)
    pinned = [pin.epoch for pin in pins if pin.expires_ms > now_ms]

    def forget_dropped(version: HummockVersion) -> VersionChange | None:
        oldest = min((version.min_readable_epoch, *pinned))
        gone = tuple(r.id for r in version.catalog.relations if r.dropped is not None and r.dropped <= oldest)
        return RelationsForgotten(gone) if gone else None

    return versions.append_change(forget_dropped).version
