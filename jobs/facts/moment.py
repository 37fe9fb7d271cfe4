"""Epochs as times."""

from datetime import UTC, datetime

from tussock.statestore.meta.epoch import epoch_ms


def epoch_moment(epoch: int) -> datetime:
    """Return the time when an epoch's barrier was injected, by its driver's clock."""
    return datetime.fromtimestamp(epoch_ms(epoch) / 1000, UTC)


def age_text(seconds: float) -> str:
    """Format a span in its largest suitable unit, such as `3 min`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
