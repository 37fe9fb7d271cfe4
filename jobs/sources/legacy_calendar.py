"""Read dates and timestamps of files in Spark's legacy calendar as Spark does.

Spark before 3.0, and later releases in LEGACY modes, wrote days before 1582-10-15 in the Julian calendar. They wrote
times before about 1900 with the fixed offsets of java.util.TimeZone; java.time uses local mean time there. Such a day
is read as the day of the same name in the proleptic Gregorian calendar: year, month and day stay, and the number of
days since 1970 changes. 1500-02-29, which that calendar lacks, becomes 1500-03-01. Keys in a file's footer determine
its calendar, by the rule of Spark's DataSourceUtils.datetimeRebaseSpec:

    org.apache.spark.version          absent: the mode of the source's option, CORRECTED by default
    below 3.0.0 (INT96: 3.1.0)        legacy
    org.apache.spark.legacyDateTime   present: legacy dates and timestamps; for INT96 org.apache.spark.legacyINT96
    org.apache.spark.timeZone         the zone whose local times keep their names; absent: the option `timeZone`, or UTC

The differences per zone are Spark's own table, from its jar: the history of java.util.TimeZone is not available without
a JVM.
"""

import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.decoding import decoded
from tussock.statestore.errors import TussockError

OPTIONS = {
    "datetimerebasemode": "datetimeRebaseMode",
    "int96rebasemode": "int96RebaseMode",
}  # Spark's names, compared without case
MODES = ("CORRECTED", "LEGACY")

_GREGORIAN_DAY = -141_427  # 1582-10-15: from this day both calendars agree
_JULIAN_ERA, _GREGORIAN_ERA = 719_470, 719_468  # days from 0000-03-01 to 1970-01-01 in each calendar
_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS
_TABLE = "julian-gregorian-rebase-micros.json"
_OFFSET = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d{2}))?")

Longs = npt.NDArray[np.int64]


class MissingCalendarError(TussockError):
    """Spark's table of calendar differences is not on this machine."""

    def __str__(self) -> str:
        return (
            f"a file in Spark's legacy calendar needs {_TABLE} of Spark's spark-sql-api jar, which is neither in "
            "SPARK_HOME/jars nor next to this machine's pyspark package. "
            "Install the pyspark of requirements.lock for the workers' Python."
        )


@dataclass(frozen=True, slots=True)
class LegacyZones:
    """The time zones by which a file's values are moved; None: the values are already in the modern calendar."""

    datetime: str | None
    int96: str | None


def legacy_zones(footer: Mapping[bytes, bytes] | None, options: Mapping[str, str]) -> LegacyZones:
    """Return the zones that a file's footer and the source's options imply; see the module."""
    keys = footer or {}
    given = {OPTIONS[k.lower()]: v.upper() for k, v in options.items() if k.lower() in OPTIONS}
    zone = (
        keys[b"org.apache.spark.timeZone"].decode()
        if b"org.apache.spark.timeZone" in keys
        else options.get("timeZone", "UTC")
    )

    def is_legacy(first_version: str, key: bytes, mode: str) -> bool:
        if (version := keys.get(b"org.apache.spark.version")) is None:
            return given.get(mode) == "LEGACY"
        return version.decode() < first_version or key in keys

    return LegacyZones(
        zone if is_legacy("3.0.0", b"org.apache.spark.legacyDateTime", "datetimeRebaseMode") else None,
        zone if is_legacy("3.1.0", b"org.apache.spark.legacyINT96", "int96RebaseMode") else None,
    )


def rebased(column: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """Convert a legacy column (date32, or timestamp in microseconds) to the modern calendar.

    Cost: one minimum of the column; for columns with old values, also one binary search per value in a short table.
    """
    if pa.types.is_date32(column.type):
        return _mapped(column, pa.int32(), _GREGORIAN_DAY, _gregorian_days)
    switches, differences = _table_of(zone)
    return _mapped(column, pa.int64(), int(switches[-1]), lambda micros: _moved(micros, switches, differences))


def _mapped(
    column: pa.ChunkedArray, storage: pa.DataType, unchanged_from: int, moved: Callable[[Longs], Longs]
) -> pa.ChunkedArray:
    numbers = column.cast(storage)
    least = pc.min(numbers).as_py()
    if least is None or least >= unchanged_from:
        return column
    chunks = []
    for chunk in numbers.chunks:
        values = chunk.fill_null(unchanged_from).to_numpy(zero_copy_only=False).astype(np.int64)
        after = np.where(values < unchanged_from, moved(values), values)
        chunks.append(
            pa.array(after, pa.int64(), mask=chunk.is_null().to_numpy(zero_copy_only=False))
            .cast(storage)
            .cast(column.type)
        )
    return pa.chunked_array(chunks, column.type)


def _gregorian_days(days: Longs) -> Longs:
    """Convert days since 1970 from the Julian to the proleptic Gregorian calendar, by the name of the day.

    Years are counted from March, so that a leap day ends one: `year` has `day` = 0 .. 365 in both calendars.
    """
    since = days + _JULIAN_ERA
    cycle, rest = np.divmod(since, 1461)
    year_of_cycle = (rest - rest // 1460) // 365
    year, day = 4 * cycle + year_of_cycle, rest - 365 * year_of_cycle
    return np.asarray(365 * year + year // 4 - year // 100 + year // 400 + day - _GREGORIAN_ERA)


def _moved(micros: Longs, switches: Longs, differences: Longs) -> Longs:
    at = np.maximum(np.searchsorted(switches, micros, side="right") - 1, 0)
    return np.asarray(micros + differences[at])


@lru_cache(maxsize=64)
def _table_of(zone: str) -> tuple[Longs, Longs]:
    """Return (first microsecond of each range, microseconds to add).

    A zone that Spark's table lacks is a fixed offset, as in Java: `GMT+8:00` means its hours, any other name means GMT.
    """
    table = _tables()
    if zone in table:
        return table[zone]
    match = _OFFSET.fullmatch(zone)
    seconds = (int(match[1] + "1") * (int(match[2]) * 3600 + int(match[3] or 0) * 60)) if match else 0
    switches, differences = table["UTC"]
    return switches - seconds * _MICROS, differences


class _Zone(msgspec.Struct):
    tz: str
    switches: list[int]
    diffs: list[int]


@lru_cache(maxsize=1)
def _tables() -> dict[str, tuple[Longs, Longs]]:
    for jar in _jars():
        with zipfile.ZipFile(jar) as files:
            if _TABLE in files.namelist():
                zones = decoded(files.read(_TABLE), list[_Zone])
                return {
                    z.tz: (np.array(z.switches, np.int64) * _MICROS, np.array(z.diffs, np.int64) * _MICROS)
                    for z in zones
                }
    raise MissingCalendarError()


def _jars() -> list[Path]:
    """Return Spark's jars, from SPARK_HOME or the folders above the Python package, which workers get in an archive."""
    found = find_spec("pyspark")
    above = Path((found and found.origin) or "").parents
    homes = [*([Path(home)] if (home := os.environ.get("SPARK_HOME")) else []), *above]
    return [jar for home in homes for jar in sorted(home.glob("jars/spark-sql-api_*.jar"))]
