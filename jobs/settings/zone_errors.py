"""Errors of time zones whose rules differ between a store and a library."""

from datetime import UTC, datetime, timedelta

from tussock.statestore.errors import InputError
from tussock.statestore.zones import ZoneRules, different_spans

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 3  # spans in a message


class UnknownZoneError(InputError):
    """Java does not know a time zone."""

    zone: str
    java: str

    def __str__(self) -> str:
        return (
            f"{self.java} does not know the time zone {self.zone!r}. Nothing was changed. Use a newer Java, or another "
            "name of the zone."
        )


class ZoneRulesDifferError(InputError):
    """A library has other rules of a time zone than the store."""

    zone: str
    database: str  # the database of the library
    recorded: str  # the database of the store
    spans: str  # the times at which the rules differ

    @classmethod
    def of_rules(cls, recorded: ZoneRules, current: ZoneRules) -> "ZoneRulesDifferError":
        """The error for two rules that differ."""
        return cls(recorded.name, current.origin, recorded.origin, spans_text(recorded, current))

    def __str__(self) -> str:
        return (
            f"the rules of time zone {self.zone} in {self.database} differ from those that the store has recorded from "
            f"{self.recorded}: {self.spans}. Nothing was changed. Use a Java with the recorded rules, or move the "
            "store to the rules of this Java: `tussock plan PIPELINE --zone-rules` shows the views that change, and "
            "`tussock apply PIPELINE --zone-rules` rebuilds them."
        )


def spans_text(one: ZoneRules, other: ZoneRules) -> str:
    """The times at which two rules differ, such as `from 2026-11-01 09:00 UTC on`."""
    spans = different_spans(one, other)
    texts = [
        f"from {_time_text(start)} to {_time_text(end)}" if end is not None else f"from {_time_text(start)} on"
        for start, end in spans[:_SHOWN]
    ]
    more = f" and {len(spans) - _SHOWN} later spans" if len(spans) > _SHOWN else ""
    return f"{', '.join(texts)}{more}"


def _time_text(second: int | None) -> str:
    return "the earliest times" if second is None else f"{_EPOCH + timedelta(seconds=second):%Y-%m-%d %H:%M} UTC"
