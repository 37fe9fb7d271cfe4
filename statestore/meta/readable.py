"""Which epochs a reader may name, and which ones compaction has to keep whole."""

from collections.abc import Iterable

from statestore.meta.errors import EpochExpiredError, EpochNotCommittedError
from statestore.meta.version import HummockVersion


def readable_epochs(version: HummockVersion, pinned: Iterable[int]) -> tuple[int, ...]:
    """Epochs at which somebody may read now or later, ascending: the committed ones from the floor on, and those pinned.

    The floor is what retention moves, and stays at or below the published epoch; the committed epoch, base of an open barrier, is above
    that. So published, retained and open bases are all from the floor on. Pins below it were taken before it rose.

    Requires: `pinned` was listed after `version` was read. A pin written later checks the floor itself.
    """
    return tuple(sorted({*version.epochs, *pinned}))


def check_readable(version: HummockVersion, epoch: int) -> None:
    """Whether a reader may start at `epoch`. Raises EpochNotCommittedError, EpochExpiredError."""
    if epoch < version.min_readable_epoch:
        raise EpochExpiredError(epoch, version.min_readable_epoch)
    if epoch not in version.epochs:
        raise EpochNotCommittedError(epoch, version.epoch)
