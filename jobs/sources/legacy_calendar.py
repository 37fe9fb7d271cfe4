"""Dates and timestamps of files that were written in Spark's legacy calendar, as Spark reads them.

Spark before 3.0, and later ones by LEGACY modes, wrote days before 1582-10-15 by the Julian calendar, and times before about 1900 by the
fixed offsets that java.util.TimeZone knows where java.time knows local mean time. Such a day is read as the day of the same name in the
proleptic Gregorian calendar: year, month and day stay, the number of days since 1970 changes (1500-02-29, which that calendar lacks, is
1500-03-01). A file says by keys of its footer which calendar it has; the rule is that of Spark's DataSourceUtils.datetimeRebaseSpec:

    org.apache.spark.version          absent: the mode that the source's option names, CORRECTED unless it is there
    below 3.0.0 (INT96: 3.1.0)        legacy
    org.apache.spark.legacyDateTime   present: legacy dates and timestamps; of INT96 org.apache.spark.legacyINT96
    org.apache.spark.timeZone         the zone whose local times keep their names; absent: the option `timeZone`, UTC unless it is there

The differences by zone are Spark's own table, out of its jar: java.util.TimeZone's history is not to be had without a JVM.
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
}  # Spark's names; it compares without case
MODES = ("CORRECTED", "LEGACY")

_GREGORIAN_DAY = -141_427  # 1582-10-15: from here on both calendars agree
_JULIAN_ERA, _GREGORIAN_ERA = 719_470, 719_468  # days from 0000-03-01 to 1970-01-01 in either calendar
_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS
_TABLE = "julian-gregorian-rebase-micros.json"
_OFFSET = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d{2}))?")

Longs = npt.NDArray[np.int64]


class MissingCalendarError(TussockError):
    """Spark's table of calendar differences is not on this machine."""

    def __str__(self) -> str:
        return (
            f"a file in Spark's legacy calendar needs {_TABLE}, which is in Spark's spark-sql-api jar: that is neither in "
            "SPARK_HOME/jars nor beside the pyspark package of this machine. "
            "Install the pyspark of requirements.lock for the workers' Python."
        )


@dataclass(frozen=True, slots=True)
class LegacyZones:
    """The time zones by which a file's values are moved; None: they are in the calendar of today already."""

    datetime: str | None
    int96: str | None


def legacy_zones(footer: Mapping[bytes, bytes] | None, options: Mapping[str, str]) -> LegacyZones:
    """What a file's footer and the source's options say; see the module."""
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
    """A legacy column (date32, or timestamp in microseconds) in the calendar of today; types, order and NULLs stay.

    Cost: a minimum of the column, and nothing more where all values are of recent centuries; else a search per value in a short table.
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
    """Days since 1970 by the Julian calendar -> those of the day of the same name in the proleptic Gregorian one.

    Years are counted from March on, so that a leap day ends one: `year` has `day` = 0 .. 365 in both calendars.
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
    """(from which microsecond on, how many microseconds to add). A zone that Spark's table lacks is a fixed offset, as Java reads it:
    `GMT+8:00` by its hours, anything else as GMT."""
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
    """Spark's, at SPARK_HOME or beside its Python package, which workers find in an archive some folders below."""
    found = find_spec("pyspark")
    above = Path((found and found.origin) or "").parents
    homes = [*([Path(home)] if (home := os.environ.get("SPARK_HOME")) else []), *above]
    return [jar for home in homes for jar in sorted(home.glob("jars/spark-sql-api_*.jar"))]
