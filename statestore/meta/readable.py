"""The epochs that readers may name, that compaction must preserve, and that retention keeps."""

from bisect import bisect_right
from collections.abc import Iterable

from tussock.statestore.meta.epoch import COUNTER_BITS, epoch_ms
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError, SettingError
from tussock.statestore.meta.sight import oldest_seen
from tussock.statestore.meta.version import HummockVersion


def readable_epochs(version: HummockVersion, pinned: Iterable[int]) -> tuple[int, ...]:
    """Epochs that readers may read now or later, ascending: the committed ones from the floor on, and the pinned ones.

    Retention moves the floor, but never above an epoch that readers see: the published epoch and the epochs of
    held-back relations. The committed epoch, which is the base of an open barrier, is at or above it. All epochs that
    are seen, retained or the base of a barrier are thus at or above the floor. Pins below the floor were taken before
    it rose.

    Requires: `pinned` was listed after `version` was read. A pin that is written later checks the floor.
    """
    return tuple(sorted({*version.epochs, *pinned}))


def check_readable(version: HummockVersion, epoch: int) -> None:
    """Check that a reader may start at `epoch`. Raises EpochNotCommittedError, EpochExpiredError."""
    if epoch < version.min_readable_epoch:
        raise EpochExpiredError(epoch, version.min_readable_epoch)
    if epoch not in version.epochs:
        raise EpochNotCommittedError(epoch, version.epoch)


def epoch_as_of(version: HummockVersion, at_ms: int) -> int:
    """The newest committed epoch at `at_ms` (Unix ms), by the clocks of the processes that injected the barriers.

    Raises EpochExpiredError if that epoch is no longer kept.
    """
    at = (at_ms + 1 << COUNTER_BITS) - 1  # the last epoch of this millisecond
    place = bisect_right(version.epochs, at)
    if place == 0:
        raise EpochExpiredError(at, version.min_readable_epoch)
    return version.epochs[place - 1]


def retained_floor(version: HummockVersion, keep_epochs: int, keep_ms: int, now_ms: int) -> int:
    """The highest floor that keeps both `keep_epochs` and `keep_ms`, and leaves held-back relations readable.

    Args:
        keep_epochs: at least 1; counts the published epoch and the epochs before it. Later epochs stay anyway.
        keep_ms: each moment of the last `keep_ms` stays readable, and so does the newest epoch before them; 0: no limit
            by time.
        now_ms: Unix ms.

    Raises SettingError.
    """
    if keep_epochs < 1 or keep_ms < 0:
        raise SettingError("retention", f"{keep_epochs} epochs and {keep_ms} ms", "1 epoch or more, and 0 ms or more")
    published = [epoch for epoch in version.epochs if epoch <= version.published]
    by_count = published[-keep_epochs:][0]
    wanted = min(by_count, oldest_seen(version))
    if keep_ms == 0:
        return wanted
    by_time = next((epoch for epoch in reversed(published) if epoch_ms(epoch) <= now_ms - keep_ms), published[0])
    return min(wanted, by_time)
