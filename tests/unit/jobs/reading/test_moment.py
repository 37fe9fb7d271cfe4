"""Time travel by the clock: which epoch a moment means, without Spark."""

from datetime import UTC, datetime

import pytest

from tussock.jobs.reading.moment import BadMomentError, epoch_at, moment_of
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, VnodeMapping

HOUR = 3_600_000
NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
NOW = NOON + 24 * HOUR
EPOCHS = tuple((NOON + hours * HOUR) << 16 for hours in (0, 1, 2))


def version(published: int = EPOCHS[-1], epochs: tuple[int, ...] = (0, *EPOCHS)) -> HummockVersion:
    return HummockVersion(9, EPOCHS[-1], published, epochs[0], 0, (), Catalog(), VnodeMapping(0, (0, 1)), epochs)


def at(text: str, time_zone: str = "UTC", of: HummockVersion | None = None) -> int:
    return epoch_at(of or version(), moment_of(text), time_zone, NOW)


def test_a_moment_means_the_newest_epoch_whose_barrier_it_had_seen() -> None:
    assert at("2026-01-01T11:59:59.999Z") == 0
    assert at("2026-01-01T12:00:00Z") == EPOCHS[0]
    assert at("2026-01-01T13:59:59Z") == EPOCHS[1]
    assert at("2026-01-02T00:00:00Z") == EPOCHS[2]


def test_a_moment_without_an_offset_is_local_time_of_the_store() -> None:
    assert at("2026-01-01 13:30") == EPOCHS[1]
    assert at("2026-01-01 13:30", "Europe/Berlin") == EPOCHS[0]
    assert at("2026-01-01 13:30+00:00", "Europe/Berlin") == EPOCHS[1]


def test_a_moment_never_shows_unpublished_epochs() -> None:
    assert at("2026-01-02", of=version(published=EPOCHS[1])) == EPOCHS[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", "ISO 8601"),
        ("2026-01-03", "is in the future; now is 2026-01-02 12:00:00.000\\+00:00"),
        ("2026-01-01 12:30", "no epoch that old is kept; expected 2026-01-01 13:00:00.000\\+00:00 or later"),
    ],
)
def test_a_moment_at_which_nothing_can_be_read_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(BadMomentError, match=says):
        at(text, of=version(epochs=EPOCHS[1:]))
