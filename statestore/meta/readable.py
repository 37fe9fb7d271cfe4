"""Which epochs a reader may name, which ones compaction has to keep whole, and which ones retention keeps."""

from bisect import bisect_right
from collections.abc import Iterable

from tussock.statestore.meta.epoch import COUNTER_BITS, epoch_ms
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError, SettingError
from tussock.statestore.meta.sight import oldest_seen
from tussock.statestore.meta.version import HummockVersion


def readable_epochs(version: HummockVersion, pinned: Iterable[int]) -> tuple[int, ...]:
    """Epochs at which somebody may read now or later, ascending: the committed ones from the floor on, and those pinned.

    The floor is what retention moves, and stays at or below what readers see: the published epoch, and those that held-back relations stay
    at. The committed epoch, base of an open barrier, is above that. So seen, retained and open bases are all from the floor on. Pins below
    it were taken before it rose.

    Requires: `pinned` was listed after `version` was read. A pin written later checks the floor itself.
    """
    return tuple(sorted({*version.epochs, *pinned}))


def check_readable(version: HummockVersion, epoch: int) -> None:
    """Whether a reader may start at `epoch`. Raises EpochNotCommittedError, EpochExpiredError."""
    if epoch < version.min_readable_epoch:
        raise EpochExpiredError(epoch, version.min_readable_epoch)
    if epoch not in version.epochs:
        raise EpochNotCommittedError(epoch, version.epoch)


def epoch_as_of(version: HummockVersion, at_ms: int) -> int:
    """The epoch that was the newest committed one at `at_ms` (Unix ms): time travel by the clock of those who injected barriers.

    Raises EpochExpiredError when that one is no longer kept.
    """
    at = (at_ms + 1 << COUNTER_BITS) - 1  # the last epoch of this millisecond
    place = bisect_right(version.epochs, at)
    if place == 0:
        raise EpochExpiredError(at, version.min_readable_epoch)
    return version.epochs[place - 1]


def retained_floor(version: HummockVersion, keep_epochs: int, keep_ms: int, now_ms: int) -> int:
    """Where retention wants the floor: as high as it may be, so that both wishes hold, and what is held back stays readable.

    Args:
        keep_epochs: at least 1; the published epoch and so many less one before it stay readable. Later ones stay anyway.
        keep_ms: every moment that is no longer ago stays readable, so also the epoch that was the newest at its beginning; 0: no such wish.
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
