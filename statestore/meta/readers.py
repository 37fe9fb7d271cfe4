"""Readers at work, and the floor below which none may start. How pins and floor see each other: pin.py."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.delta import FloorRaised, RelationsForgotten, VersionChange
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError, PinLapsedError
from tussock.statestore.meta.pin import Pin, delete_pins, drop_pin, list_pins, renew_pin, write_pin
from tussock.statestore.meta.readable import check_readable
from tussock.statestore.meta.sight import oldest_seen
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.version_log import VersionLog
from tussock.statestore.objectstore.base import AccessDeniedError, ObjectStore


class UnpinnedReadWarning(UserWarning):
    """A read that nothing protects from vacuum, since its process may not write to the store."""

    def __init__(self, uri: str, epoch: int, reason: str) -> None:
        super().__init__(uri, epoch, reason)
        self.uri, self.epoch, self.reason = uri, epoch, reason

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} of {self.uri} is read without a pin, which this process may not write or remove ({self.reason}). Rows are "
            "right; but where a compaction and a vacuum run meanwhile, objects may be gone before they are read: MissingSstError, and the "
            "read is to be started again. Rights to put and delete below meta/pin/ prevent it."
        )


class Readers:
    """Takes pins for one process. The methods are those of MetaStore with the same names. Not safe for threads: one for each."""

    def __init__(
        self,
        objects: ObjectStore,
        versions: VersionLog,
        writer: str,
        clock_ms: Callable[[], int],
        numbers: Iterator[int],
    ) -> None:
        self._objects, self._versions, self._writer, self._clock_ms = objects, versions, writer, clock_ms
        self._numbers = numbers  # of pins: no two of a process share one

    def pin(self, epoch: int, lease_ms: int, onward: bool = False) -> Pin:
        """See MetaStore.pin."""
        holder = f"{self._writer}/{next(self._numbers)}"
        version = self.version_at(epoch)
        while True:
            pin = Pin(epoch, holder, version.id, self._clock_ms() + lease_ms, onward=onward)
            write_pin(self._objects, pin)
            try:
                now = self.version_at(
                    epoch, besides=holder
                )  # the floor may have risen in between, without our pin being seen
            except (EpochExpiredError, EpochNotCommittedError):
                delete_pins(self._objects, pin)
                raise
            if _ssts(version) <= _ssts(now):
                return pin
            version = now  # a compaction took out SSTs in between, and vacuum may not have seen us: pin what stands now, in the same object

    def version_at(self, epoch: int, besides: str = "") -> HummockVersion:
        """See MetaStore.version_at. `besides`: the holder of a pin that does not count."""
        newest = self._versions.latest()
        try:
            check_readable(newest, epoch)
        except EpochExpiredError:
            pins = [pin for pin in list_pins(self._objects, epoch) if pin.holder != besides]
            for version in (self._versions.at(pin.version) for pin in sorted(pins, key=lambda pin: -pin.version)):
                if version.min_readable_epoch <= epoch:
                    return version
            raise
        return newest

    @contextmanager
    def reading(self, epoch: int, lease_ms: int) -> Iterator[HummockVersion]:
        """See MetaStore.reading. While the block runs a thread renews the pin, each time a third of its lease is over.

        A process that may only read the store reads `version_at` without a pin, with a warning. Rows are right all the same: a
        version is fixed and its SSTs never change; one that vacuum removed meanwhile is MissingSstError.
        """
        try:
            pin = self.pin(epoch, lease_ms)
        except AccessDeniedError as err:
            version = self.version_at(epoch)
            warnings.warn(UnpinnedReadWarning(self._objects.uri, epoch, err.reason), stacklevel=3)
            yield version
            return
        kept = _Kept(self._objects, pin, lease_ms, self._clock_ms)
        try:
            yield self._versions.at(pin.version)
        finally:
            try:
                drop_pin(self._objects, kept.end())
            except AccessDeniedError as err:  # the pin stays until its lease is over
                warnings.warn(UnpinnedReadWarning(self._objects.uri, epoch, err.reason), stacklevel=3)


class _Kept:
    """A pin that a thread renews until `end`."""

    def __init__(self, objects: ObjectStore, pin: Pin, lease_ms: int, clock_ms: Callable[[], int]) -> None:
        self._objects, self._pin, self._lease_ms, self._clock_ms = objects, pin, lease_ms, clock_ms
        self._over = Event()
        self._thread = Thread(target=self._renew, name="pin", daemon=True)
        self._thread.start()

    def end(self) -> Pin:
        """The pin as it was renewed last; nobody renews it any more."""
        self._over.set()
        self._thread.join()
        return self._pin

    def _renew(self) -> None:
        while not self._over.wait(self._lease_ms / 3000):
            try:
                self._pin = renew_pin(self._objects, self._pin, self._clock_ms() + self._lease_ms)
            except RetryableError:
                continue  # a third of the lease is left for the next try
            except (PinLapsedError, AccessDeniedError):
                return  # the reader finds an SST missing, or nothing


def raise_floor(objects: ObjectStore, versions: VersionLog, epoch: int, now_ms: int) -> HummockVersion:
    """See MetaStore.raise_floor."""

    def decide(version: HummockVersion) -> VersionChange | None:
        if epoch <= version.min_readable_epoch:
            return None
        if epoch > version.published:
            raise EpochNotCommittedError(epoch, version.published)
        floor = min(epoch, oldest_seen(version))
        return FloorRaised(floor) if floor > version.min_readable_epoch else None

    versions.append(decide)
    pins = list_pins(objects)
    if lapsed := [pin for pin in pins if pin.expires_ms <= now_ms]:
        delete_pins(objects, *lapsed)
    pinned = [pin.epoch for pin in pins if pin.expires_ms > now_ms]

    def forget(version: HummockVersion) -> VersionChange | None:
        oldest = min((version.min_readable_epoch, *pinned))
        gone = tuple(r.id for r in version.catalog.relations if r.dropped is not None and r.dropped <= oldest)
        return RelationsForgotten(gone) if gone else None

    return versions.append(forget).version


def _ssts(version: HummockVersion) -> set[str]:
    return {sst.name for level in version.levels for sst in level}
