"""Epochs: u64, Unix milliseconds in the high 48 bits, a counter in the low 16. Totally ordered, allotted by meta.

The counter is the attempt of the barrier that got the epoch: 0 unless it supersedes another. So the first barrier of the next epoch can
never meet the epoch of one that was superseded in the same millisecond, whose sealed manifest may still lie around.
"""

from tussock.statestore.meta.errors import SettingError

COUNTER_BITS = 16
MAX_ATTEMPT = (1 << COUNTER_BITS) - 1


def allot_epoch(above: int, clock_ms: int, attempt: int = 0) -> int:
    """An epoch greater than `above`, at `clock_ms` (Unix ms) or as little after it as possible: a clock that goes back is harmless."""
    if not 0 <= attempt <= MAX_ATTEMPT:
        raise SettingError(
            "the attempt of a barrier",
            str(attempt),
            f"0 to {MAX_ATTEMPT}; commit this epoch before superseding it again",
        )
    return max(clock_ms, (above >> COUNTER_BITS) + 1) << COUNTER_BITS | attempt


def epoch_ms(epoch: int) -> int:
    """The Unix milliseconds in an epoch."""
    return epoch >> COUNTER_BITS
