"""The recorded rules of time zones, and the databases of time zones on this host."""

import zoneinfo
from importlib import metadata
from pathlib import Path

import msgspec

from tussock.jobs.settings.java_zones import java_zones
from tussock.jobs.settings.zone_errors import spans_text
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.zones import ZoneRules

_VERSION_FILES = ("tzdata.zi", "+VERSION")  # of a system's database; the first line has the version


class ZoneFacts(msgspec.Struct, frozen=True):
    """A time zone with recorded rules.

    Args:
        origin: the database from which they were recorded.
        differs: when this host's Java has other rules; empty: never, or the host has no Java.
    """

    name: str
    origin: str
    differs: str = ""


class ZoneDatabases(msgspec.Struct, frozen=True):
    """The versions of the databases of time zones on this host; empty if unknown. DuckDB's has DuckDB's rules."""

    java: str = ""
    system: str = ""
    python: str = ""
    duckdb: str = ""


def list_zones(version: HummockVersion) -> tuple[ZoneFacts, ...]:
    """The zones whose rules are recorded. Starts no JVM."""
    java = java_zones()
    return tuple(
        ZoneFacts(zone.name, zone.origin, _describe_difference(zone, None if java is None else java.rules(zone.name)))
        for zone in version.catalog.zones
    )


def zone_databases() -> ZoneDatabases:
    """The databases of this host. Cost: reads of two small files, and of 100 KB of Java's."""
    java = java_zones()
    return ZoneDatabases(
        "" if java is None else java.version, _of_system(), _package_version("tzdata"), _package_version("duckdb")
    )


def _describe_difference(recorded: ZoneRules, current: ZoneRules | None) -> str:
    return "" if current is None or current.digest == recorded.digest else spans_text(recorded, current)


def _package_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _of_system() -> str:
    """The version of the files that Python and Arrow read, such as 2025b."""
    for file in (Path(folder) / name for folder in zoneinfo.TZPATH for name in _VERSION_FILES):
        if file.is_file():
            with file.open(encoding="utf-8") as lines:
                return lines.readline().removeprefix("# version").strip()
    return ""
