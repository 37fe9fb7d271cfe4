"""Java's rules of time zones, read from the bytes in which Java serializes them.

A running JVM serializes the rules of a zone (`jobs/spark/zones.py`), and the file `lib/tzdb.dat` of a Java contains the
same form for all zones, so that no JVM need start. The form is part of Java's specification of `java.time.zone`:

    rules         count i32 | standard offsets' changes | their offsets, one more
                  count i32 | changes of the local offset | the offsets, one more
                  count i8  | yearly changes
    change        24 bits: quarters of an hour since 1825; or 255 and the Unix seconds as i64
    offset        i8: quarters of an hour; or 127 and seconds as i32
"""

import os
import shutil
import struct
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from tussock.statestore.zones import YearlyChange, ZoneRules, zone_rules

_ZONE_RULES = 1  # the kind of a serialized object
_FIRST_CHANGE_S, _QUARTER_S = -4_575_744_000, 900
_COUNTED = ("utc", "local", "standard")
_STREAM_HEADER = b"\xac\xed\x00\x05"
_BLOCK, _LONG_BLOCK, _END_OF_CLASS = 0x77, 0x7A, b"\x78\x70"  # in a stream of serialized objects
_FILE = Path("lib") / "tzdb.dat"


class JavaZonesError(ValueError):
    """Bytes are not Java's rules of time zones."""


@dataclass(frozen=True, slots=True)
class JavaZones:
    """The rules of all zones in a Java's file. `version`: of the tz database, such as 2026a."""

    version: str
    _rules: dict[str, bytes]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the zones."""
        return tuple(self._rules)

    def rules(self, name: str) -> ZoneRules | None:
        """The rules of a zone; None if this Java does not know it."""
        data = self._rules.get(name)
        return None if data is None else rules_in(data, name, f"Java's tz database {self.version}")


def java_home() -> Path | None:
    """The folder of the Java that Spark starts: JAVA_HOME, else the one of `java`. None without Java."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    java = shutil.which("java")
    return None if java is None else Path(java).resolve().parent.parent


def java_zones() -> JavaZones | None:
    """The zones of the Java that Spark starts. None without Java, or if its zones are elsewhere.

    Cost: a read of 100 KB, once per process and file.
    """
    home = java_home()
    if home is None:
        return None
    file = home / _FILE
    try:
        return _zones_in(file, file.stat().st_mtime_ns)
    except (OSError, JavaZonesError):
        return None


@lru_cache(maxsize=4)
def _zones_in(file: Path, changed_ns: int) -> JavaZones:
    """Read a file `tzdb.dat`. Raises JavaZonesError, OSError."""
    data = _Bytes(file.read_bytes())
    if data.read_number("b") != 1 or data.read_text() != "TZDB":
        raise JavaZonesError(str(file))
    versions = [data.read_text() for _ in range(data.read_number("h"))]
    names = [data.read_text() for _ in range(data.read_number("h"))]
    rules = [data.read_bytes(data.read_number("h")) for _ in range(data.read_number("h"))]
    pairs = [(data.read_number("h"), data.read_number("h")) for _ in range(data.read_number("h"))]
    return JavaZones(versions[0], {names[name]: rules[which] for name, which in pairs})


def serialized_rules(stream: bytes) -> bytes:
    """The rules in the bytes that an ObjectOutputStream wrote. Raises JavaZonesError."""
    if not stream.startswith(_STREAM_HEADER):
        raise JavaZonesError("not a stream of serialized objects")
    data = _Bytes(stream[stream.index(_END_OF_CLASS) + len(_END_OF_CLASS) :])
    content = b""
    while (kind := data.read_number("B")) in (_BLOCK, _LONG_BLOCK):
        content += data.read_bytes(data.read_number("B" if kind == _BLOCK else "i"))
    return content


def rules_in(data: bytes, name: str, origin: str) -> ZoneRules:
    """Parse the rules of a zone. Raises JavaZonesError."""
    reader = _Bytes(data)
    try:
        if reader.read_number("b") != _ZONE_RULES:
            raise JavaZonesError(name)
        reader.read_changes()  # of the standard offset alone
        first, changes = reader.read_changes()
        yearly = tuple(reader.yearly_change() for _ in range(reader.read_number("b")))
    except (struct.error, IndexError) as err:
        raise JavaZonesError(name) from err
    return zone_rules(name, origin, first, changes, yearly)


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = BytesIO(data)

    def read_bytes(self, count: int) -> bytes:
        return self._data.read(count)

    def read_number(self, code: str) -> int:
        return int(struct.unpack(f">{code}", self.read_bytes(struct.calcsize(f">{code}")))[0])

    def read_text(self) -> str:
        return self.read_bytes(self.read_number("H")).decode()

    def read_changes(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The first offset, and changes with their offsets."""
        at = [self._read_change() for _ in range(self.read_number("i"))]
        first, *offsets = [self._read_offset() for _ in range(len(at) + 1)]
        return first, tuple(zip(at, offsets, strict=True))

    def _read_change(self) -> int:
        high = self.read_number("B")
        if high == 255:
            return self.read_number("q")
        return ((high << 16) + self.read_number("H")) * _QUARTER_S + _FIRST_CHANGE_S

    def _read_offset(self) -> int:
        quarters = self.read_number("b")
        return self.read_number("i") if quarters == 127 else quarters * _QUARTER_S

    def yearly_change(self) -> YearlyChange:
        """A change of each year: one packed number, and others if they do not fit it."""
        packed = self.read_number("I")
        hour, standard, before, after = packed >> 14 & 31, packed >> 4 & 255, packed >> 2 & 3, packed & 3
        seconds = self.read_number("i") if hour == 31 else hour * 3600
        offset = self.read_number("i") if standard == 255 else (standard - 128) * _QUARTER_S
        offsets = [self.read_number("i") if half == 3 else offset + half * 1800 for half in (before, after)]
        month, day, weekday = packed >> 28, (packed >> 22 & 63) - 32, packed >> 19 & 7
        return YearlyChange(month, day, weekday, seconds, _COUNTED[packed >> 12 & 3], offset, *offsets)
