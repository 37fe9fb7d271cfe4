"""Epochs: u64, Unix milliseconds in the high 48 bits, a counter in the low 16. Totally ordered and assigned by meta.

The counter is the attempt number of the epoch's barrier: 0 unless the barrier supersedes another. The first barrier of
the next epoch can therefore never get the epoch of a barrier that was superseded in the same millisecond, whose sealed
manifest may still exist.
"""

from datetime import UTC, datetime

from tussock.statestore.meta.errors import SettingError

COUNTER_BITS = 16
MAX_ATTEMPT = (1 << COUNTER_BITS) - 1


def allot_epoch(above: int, clock_ms: int, attempt: int = 0) -> int:
    """Assign an epoch above `above`, at `clock_ms` (Unix ms) or the earliest time after it. The clock may go back."""
    if not 0 <= attempt <= MAX_ATTEMPT:
        raise SettingError(
            "the attempt of a barrier",
            str(attempt),
            f"0 to {MAX_ATTEMPT}; commit this epoch before you supersede it again",
        )
    return max(clock_ms, (above >> COUNTER_BITS) + 1) << COUNTER_BITS | attempt


_BETWEEN_BITS = 6
_LATEST_MS = 253_402_300_799_000  # of a time with a whole second that Python can express


def allot_between(above: int, attempt: int) -> int:
    """Assign an epoch above `above` within its millisecond: of a branch, before the next epoch of its parent.

    A thousand such epochs fit between two of the parent. Like `allot_epoch`, no epoch is assigned twice.
    """
    epoch = (above >> _BETWEEN_BITS) + 1 << _BETWEEN_BITS | attempt
    if attempt >= 1 << _BETWEEN_BITS or epoch_ms(epoch) != epoch_ms(above):
        expected = f"an attempt below {1 << _BETWEEN_BITS}, and fewer than a thousand epochs after the parent's last"
        raise SettingError("the epoch of a branch", f"attempt {attempt} after epoch {above}", expected)
    return epoch


def time_of_ms(unix_ms: int) -> datetime:
    """Convert Unix milliseconds to a time in UTC. A time that Python lacks becomes the last one of the year 9999."""
    return datetime.fromtimestamp(min(unix_ms, _LATEST_MS) / 1000, UTC)


def epoch_ms(epoch: int) -> int:
    """The Unix milliseconds of an epoch."""
    return epoch >> COUNTER_BITS
