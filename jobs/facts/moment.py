"""Epochs as times."""

from datetime import datetime

from tussock.statestore.meta.epoch import epoch_ms, time_of_ms


def epoch_moment(epoch: int) -> datetime:
    """Return the time when an epoch's barrier was injected, by its driver's clock."""
    return time_of_ms(epoch_ms(epoch))


def moment_if_any(epoch: int) -> datetime | None:
    """Return the time of an epoch; None for 0, which stands for no epoch."""
    return epoch_moment(epoch) if epoch else None


def age_text(seconds: float) -> str:
    """Format a span in its largest suitable unit, such as `3 min`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
