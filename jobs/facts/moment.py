"""Epochs as times."""

from datetime import UTC, datetime

from statestore.meta.epoch import epoch_ms


def moment(epoch: int) -> datetime:
    """When the barrier of an epoch was injected, by the clock of its driver."""
    return datetime.fromtimestamp(epoch_ms(epoch) / 1000, UTC)
