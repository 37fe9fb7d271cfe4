"""The rules of time zones: every conversion between instants and local times of a store, in one place.

The databases of Java, Arrow, DuckDB and Python disagree about some zones, and each changes with its releases. So a
store records the rules of its zone, and of each zone that a statement names, when a statement first uses them. All
processes then convert by the recorded rules.

    rules        the changes of a zone's offset, each at an instant; then yearly changes for ever
    digest       a text that is equal for equal offsets at all instants, whatever the origin of the rules
    ruled zone   a zone's name and the digest of its recorded rules: `Europe/Berlin@3f0c…`. UTC has no rules.

Local times that a zone skips or repeats convert as in Java: a skipped time moves forward by the gap, a repeated time is
the earlier instant.
"""

import hashlib
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NewType
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import numpy.typing as npt

RuledZone = NewType("RuledZone", str)
Seconds = npt.NDArray[np.int64]

_MARK = "@"  # between a name and a digest; no zone's name contains it
_DIGEST_CHARACTERS = 16
_MILLION = 1_000_000
_DAY_S = 86_400
_CYCLE_YEARS = 400  # after so many years, the calendar repeats with the days of the week
_CYCLE_S = 146_097 * _DAY_S
_LEAST_LAST_YEAR = 2037  # databases list changes up to this year, whether yearly rules start before or not
_FARTHEST_US = (1 << 63) - 1 - 2 * _DAY_S * _MILLION  # no offset moves it beyond 64 bits
_EPOCH = datetime(1970, 1, 1)


class YearlyChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of the offset in each year.

    Args:
        month: 1 to 12.
        day: of the month; negative: from its end, -1 is the last.
        weekday: 1 (Monday) to 7: the first such day from `day` on, or, if `day` is negative, the last one up to it.
            0: `day` itself.
        seconds: of the day, in UTC if `counted` is "utc", at the standard offset if "standard", else in local time.
        standard, before, after: offsets in seconds.
    """

    month: int
    day: int
    weekday: int
    seconds: int
    counted: str
    standard: int
    before: int
    after: int

    def instant_in_year(self, year: int) -> int:
        """The change in a year, in Unix seconds."""
        length = monthrange(year, self.month)[1]
        at = date(year, self.month, self.day if self.day > 0 else length + 1 + self.day)
        if self.weekday:
            step = (self.weekday - at.isoweekday()) % 7
            at += timedelta(days=step if self.day > 0 else step - 7 if step else 0)
        local = (at - _EPOCH.date()).days * _DAY_S + self.seconds
        return local - {"utc": 0, "standard": self.standard}.get(self.counted, self.before)


class ZoneRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of one zone, as recorded in a store.

    Args:
        name: as in SQL.
        digest: equal for rules with equal offsets at all instants; see `zone_rules`.
        origin: the database from which they were recorded, for messages.
        first: the offset before all changes, in seconds east of UTC.
        changes: (Unix seconds, offset from then on), ascending.
        yearly: the changes of each year after the last of `changes`.
    """

    name: str
    digest: str
    origin: str
    first: int
    changes: tuple[tuple[int, int], ...] = ()
    yearly: tuple[YearlyChange, ...] = ()

    @property
    def ruled_zone(self) -> RuledZone:
        """The name of the zone with these rules, by which this process finds them from now on."""
        install_rules((self,))
        return RuledZone(f"{self.name}{_MARK}{self.digest}")


_installed: dict[str, ZoneRules] = {}  # by digest


def zone_rules(
    name: str, origin: str, first: int, changes: Iterable[tuple[int, int]], yearly: Iterable[YearlyChange] = ()
) -> ZoneRules:
    """Rules with their digest. Arguments: see ZoneRules."""
    rules = ZoneRules(name, "", origin, first, tuple(changes), tuple(yearly))
    listed = table_of(rules)
    text = msgspec.json.encode((listed.offsets.tolist(), listed.at.tolist()))
    return msgspec.structs.replace(rules, digest=hashlib.sha256(text).hexdigest()[:_DIGEST_CHARACTERS])


class ZoneTable:
    """A zone's offsets in a form that converts whole columns.

    Changes are listed for more than 400 years after the last irregular one. Later times have the offsets of the same
    time of an earlier cycle of 400 years. So the table is exact at all instants.
    """

    def __init__(self, rules: ZoneRules) -> None:
        changes = list(_without_repeats(rules.first, [*rules.changes, *_expand_changes(rules)]))
        self.at = np.array([at for at, _ in changes], np.int64)
        self.offsets = np.array([rules.first, *(offset for _, offset in changes)], np.int64)
        # A local time belongs to the offset after a change if it is later than both readings of the change.
        self._local = self.at + np.maximum(self.offsets[:-1], self.offsets[1:])
        assert (np.diff(self._local) > 0).all(), f"{rules.name}: changes are closer than their offsets"
        self._last = _start_of(_last_year(rules) + 1) if rules.yearly else None
        self._at, self._local_at, self._offsets = self.at.tolist(), self._local.tolist(), self.offsets.tolist()

    def offsets_at(self, seconds: Seconds) -> Seconds:
        """(n,) the offset at each instant, in Unix seconds."""
        offsets: Seconds = self.offsets[np.searchsorted(self.at, self._in_table(seconds), side="right")]
        return offsets

    def offsets_of_local(self, seconds: Seconds) -> Seconds:
        """(n,) the offset of each local time, in seconds since the local 1970-01-01."""
        offsets: Seconds = self.offsets[np.searchsorted(self._local, self._in_table(seconds), side="right")]
        return offsets

    def offset_at(self, second: int) -> int:
        """The offset at one instant."""
        return int(self._offsets[bisect_right(self._at, self._fold_into_cycle(second))])

    def offset_of_local(self, second: int, fold: int) -> int:
        """The offset of one local time. `fold`: 1 for the later reading of a repeated or skipped time."""
        second = self._fold_into_cycle(second)
        place = bisect_right(self._local_at, second)
        if fold and place < len(self._at):
            least = self._at[place] + min(self._offsets[place], self._offsets[place + 1])
            place += second >= least
        return int(self._offsets[place])

    def _fold_into_cycle(self, second: int) -> int:
        if self._last is None or second < self._last:
            return second
        return self._last - _CYCLE_S + (second - self._last) % _CYCLE_S

    def _in_table(self, seconds: Seconds) -> Seconds:
        if self._last is None or not seconds.size or seconds.max() < self._last:
            return seconds
        return np.where(seconds < self._last, seconds, self._last - _CYCLE_S + (seconds - self._last) % _CYCLE_S)


class RecordedZone(tzinfo):
    """A zone with recorded rules, for Python's datetimes."""

    def __init__(self, rules: ZoneRules) -> None:
        self._rules, self._table = rules, table_of(rules)

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        """The offset of a local time."""
        if dt is None:
            return None
        local = dt.replace(tzinfo=None, microsecond=0) - _EPOCH
        return timedelta(seconds=self._table.offset_of_local(local.days * _DAY_S + local.seconds, dt.fold))

    def dst(self, dt: datetime | None) -> timedelta | None:
        """Unknown: rules are offsets."""
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        """The offset, such as `+0100`: rules have no other names."""
        return None if dt is None else dt.strftime("%z")

    def fromutc(self, dt: datetime) -> datetime:
        """The local time of an instant, with its fold."""
        at = dt.replace(tzinfo=None) - _EPOCH
        local = dt + timedelta(seconds=self._table.offset_at(at.days * _DAY_S + at.seconds))
        return local if self.utcoffset(local.replace(fold=0)) == local - dt else local.replace(fold=1)

    def __reduce__(self) -> tuple[type["RecordedZone"], tuple[ZoneRules]]:
        return RecordedZone, (self._rules,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedZone) and other._rules == self._rules

    def __hash__(self) -> int:
        return hash(self._rules.digest)


class NoRulesError(LookupError):
    """A conversion by a zone without recorded rules. Conversions that decide rows have none but recorded ones."""

    def __init__(self, zone: str) -> None:
        super().__init__(f"no rules of the time zone {zone!r} are known to this process")


def is_utc(zone: str) -> bool:
    """Whether a zone's local time equals UTC. Such a zone needs no rules."""
    return zone in ("UTC", "Etc/UTC", "Z", "GMT")


def name_of(zone: str) -> str:
    """The name of a zone, ruled or not."""
    return zone.partition(_MARK)[0]


def digest_of(zone: str) -> str:
    """The digest of a ruled zone's rules. Empty without rules."""
    return zone.partition(_MARK)[2]


def rules_of(zone: str) -> ZoneRules:
    """The rules of a ruled zone. Raises NoRulesError."""
    if (rules := _installed.get(digest_of(zone))) is None:
        raise NoRulesError(zone)
    if rules.name != (name := name_of(zone)):  # zones with equal rules, such as Asia/Kolkata and Asia/Calcutta
        return msgspec.structs.replace(rules, name=name)
    return rules


def ruled_in(recorded: Iterable[ZoneRules], name: str) -> RuledZone:
    """The zone with this name and its recorded rules; without rules if none are recorded."""
    return next((rules.ruled_zone for rules in recorded if rules.name == name), RuledZone(name))


def install_rules(recorded: Iterable[ZoneRules]) -> None:
    """Make rules known to this process by their digests."""
    for rules in recorded:
        _installed.setdefault(rules.digest, rules)


@lru_cache(maxsize=1024)
def table_of(rules: ZoneRules) -> ZoneTable:
    """The table of rules. Cost: once per process, about a millisecond."""
    return ZoneTable(rules)


def tzinfo_of(zone: str) -> tzinfo:
    """A zone for Python's datetimes.

    Without recorded rules, it is Python's: a store records rules with its first statement, and before that, no row
    depends on them.
    """
    if is_utc(zone):
        return UTC
    return RecordedZone(rules_of(zone)) if digest_of(zone) else ZoneInfo(zone)


def local_micros(instants: Seconds, zone: str) -> Seconds:
    """(n,) the local time of each instant, both in microseconds. Raises NoRulesError, OverflowError."""
    _require_in_range(instants)
    if is_utc(zone):
        return instants
    return instants + table_of(rules_of(zone)).offsets_at(instants // _MILLION) * _MILLION


def instant_micros(local: Seconds, zone: str) -> Seconds:
    """(n,) the first instant of each local time, both in microseconds. Raises NoRulesError, OverflowError."""
    _require_in_range(local)
    if is_utc(zone):
        return local
    return local - table_of(rules_of(zone)).offsets_of_local(local // _MILLION) * _MILLION


def different_spans(one: ZoneRules, other: ZoneRules) -> list[tuple[int | None, int | None]]:
    """The spans in which two rules of a zone have different offsets, in Unix seconds.

    None: without start or end. Later spans than the tables contain are omitted.
    """
    a, b = table_of(one), table_of(other)
    edges = np.union1d(a.at, b.at)
    before = bool(a.offsets[0] != b.offsets[0])
    differ = [before, *(a.offsets_at(edges) != b.offsets_at(edges)).tolist()]
    spans: list[tuple[int | None, int | None]] = []
    start: int | None = None
    for place, is_different in enumerate(differ):
        edge = int(edges[place - 1]) if place else None
        if is_different and (not place or not differ[place - 1]):
            start = edge
        elif not is_different and place and differ[place - 1]:
            spans.append((start, edge))
    return [*spans, (start, None)] if differ[-1] else spans


def _require_in_range(micros: Seconds) -> None:
    if micros.size and (micros.max() > _FARTHEST_US or micros.min() < -_FARTHEST_US):
        raise OverflowError("the time is out of range")


def _last_year(rules: ZoneRules) -> int:
    """The last year that a table lists."""
    last = max([_LEAST_LAST_YEAR, *((_EPOCH + timedelta(seconds=at)).year for at, _ in rules.changes[-1:])])
    return last + _CYCLE_YEARS + 1  # a year more, because a local time near the last change may be in the next year


def _start_of(year: int) -> int:
    return (date(year, 1, 1) - _EPOCH.date()).days * _DAY_S


def _expand_changes(rules: ZoneRules) -> list[tuple[int, int]]:
    """The yearly changes that a table lists."""
    if not rules.yearly:
        return []
    last = rules.changes[-1][0] if rules.changes else None
    first = 1970 if last is None else (_EPOCH + timedelta(seconds=last)).year
    changes = ((y.instant_in_year(year), y.after) for year in range(first, _last_year(rules) + 1) for y in rules.yearly)
    return sorted(change for change in changes if last is None or change[0] > last)


def _without_repeats(first: int, changes: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The changes at which the offset differs from that before."""
    before = first
    for at, offset in changes:
        if offset != before:
            yield at, offset
        before = offset
