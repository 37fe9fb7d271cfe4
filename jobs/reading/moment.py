"""Time travel: the epoch that readers saw at a moment."""

from datetime import datetime

from tussock.statestore.errors import InputError
from tussock.statestore.meta.epoch import epoch_ms, time_of_ms
from tussock.statestore.meta.errors import EpochExpiredError
from tussock.statestore.meta.readable import epoch_as_of
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.zones import tzinfo_of


class BadMomentError(InputError):
    """A text is not a moment, or nothing can be read at the moment."""

    moment: str
    reason: str
    expected: str

    def __str__(self) -> str:
        return f"moment {self.moment!r}: {self.reason}; expected {self.expected}"


def moment_of(text: str) -> datetime:
    """Parse an ISO 8601 date, or date and time, with or without an offset. Raises BadMomentError."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as err:
        raise BadMomentError(
            text,
            "it is not a date or a time",
            "an ISO 8601 date or date and time, e.g. 2026-01-01 12:00 or 2026-01-01T12:00:00Z",
        ) from err


def epoch_at(version: HummockVersion, moment: datetime, time_zone: str, now_ms: int) -> int:
    """Return the newest published epoch whose barrier was injected at or before `moment`.

    Args:
        moment: without an offset, local time in `time_zone`, the pipeline's.
        now_ms: Unix ms. A later moment is rejected, because its result could still change.

    Raises: BadMomentError for a later moment, and for one that retention no longer keeps; the error names the oldest
    readable moment.
    """
    at_ms = _ms_of(moment, time_zone)
    if at_ms > now_ms:
        raise BadMomentError(str(moment), f"it is in the future; now is {utc_text(now_ms)}", "a moment in the past")
    try:
        return min(epoch_as_of(version, at_ms), version.published)
    except EpochExpiredError as err:
        oldest = utc_text(epoch_ms(version.epochs[0]))
        raise BadMomentError(
            str(moment), "no epoch that old is kept", f"{oldest} or later (pipeline.toml: [upkeep] keep)"
        ) from err


def require_before(moment: datetime, time_zone: str, lost: int, following: int) -> None:
    """Raise BadMomentError unless `moment` is before `lost`, an epoch that is no longer kept, unlike `following`."""
    if _ms_of(moment, time_zone) >= epoch_ms(lost):
        expected = f"a moment before {utc_text(epoch_ms(lost))}, or from {utc_text(epoch_ms(following))} on"
        raise BadMomentError(str(moment), "no epoch of that moment is kept", expected)


def _ms_of(moment: datetime, time_zone: str) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=tzinfo_of(time_zone))
    return int(aware.timestamp() * 1000)


def utc_text(unix_ms: int) -> str:
    """Format Unix ms for messages: in UTC, with the offset."""
    return time_of_ms(unix_ms).isoformat(sep=" ", timespec="milliseconds")
