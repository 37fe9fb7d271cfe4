"""Rows and helpers of test_zone_conversions.py, which is in several lanes."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Call, Column
from tussock.jobs.settings.java_zones import java_zones
from tussock.jobs.sources.plain_values import NotPlain, TextForm, parse_texts
from tussock.statestore.types import arrow_type
from tussock.statestore.zones import RuledZone, ZoneRules, is_utc, rules_of, table_of, tzinfo_of

if TYPE_CHECKING:
    pass
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_S, END_S = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1900, 2100))
Micros = list[int]


def zones(step: int) -> list[str]:
    java = java_zones()
    assert java is not None
    return [name for name in sorted(java.names) if not is_utc(name)][::step]


def probes(rules: ZoneRules) -> Micros:
    """Times around each change, as instants and as local times, and others between them."""
    at = table_of(rules).at
    at = at[(at >= FIRST_S) & (at < END_S)]
    around = [at + by for by in (-7201, -1801, -1, 0, 1799, 3599, 7200)]
    return (np.unique(np.concatenate([*around, np.arange(FIRST_S, END_S, 40 * 86_400 + 7)])) * 1_000_000).tolist()


def by_kernels(rows: Micros, source: str, target: str, zone: RuledZone) -> Micros:
    """Casts of instants to local times, or the reverse."""
    kernel, kinds = Kernel(), {kind: arrow_type(kind) for kind in (source, target)}
    cast = Call("Cast", target, (Column(0, source),), "ANSI", (("timeZoneId", zone),))
    try:
        found = kernel.project_columns(
            pa.table({"c0": pa.array(rows, pa.int64()).cast(kinds[source])}), (cast,), (target,)
        )
        return found["c0"].cast(pa.int64()).to_pylist()
    finally:
        kernel.close()


def by_plain_files(rows: Micros, zone: RuledZone) -> list[int | None]:
    """The instants of texts in a plain file. None: Spark reads the file."""
    texts = pa.array(rows, pa.timestamp("us")).cast(pa.string())

    def one(text: pa.Array) -> int | None:
        try:
            return int(parse_texts(text, "timestamp", "t", TextForm(zone)).cast(pa.int64())[0].as_py())
        except NotPlain:
            return None

    try:
        return parse_texts(texts, "timestamp", "t", TextForm(zone)).cast(pa.int64()).to_pylist()
    except NotPlain:
        return [one(texts.slice(i, 1)) for i in range(len(texts))]


def by_python(rows: Micros, zone: RuledZone) -> tuple[Micros, Micros]:
    """The local times of instants, and the instants of local times."""
    there = tzinfo_of(zone)
    times = [EPOCH + timedelta(microseconds=row) for row in rows]

    def micros(at: datetime) -> int:
        return (at.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)

    return [micros(at.astimezone(there)) for at in times], [
        micros(at.replace(tzinfo=there).astimezone(UTC)) for at in times
    ]


def wrong_conversions(name: str, rows: Micros, to_local: Micros, to_instant: Micros, zone: RuledZone) -> list[str]:
    """The converters that differ from the judge."""
    python = by_python(rows, zone)
    found = {
        "kernels, to local times": (by_kernels(rows, "timestamp", "timestamp_ntz", zone), to_local),
        "kernels, to instants": (by_kernels(rows, "timestamp_ntz", "timestamp", zone), to_instant),
        "Python's datetimes, to local times": (python[0], to_local),
        "Python's datetimes, to instants": (python[1], to_instant),
    }
    wrong = [f"{name}: {converter}" for converter, (ours, judge) in found.items() if ours != judge]
    plain = by_plain_files(rows, zone)
    if any(ours not in (None, judge) for ours, judge in zip(plain, to_instant, strict=True)):
        wrong.append(f"{name}: plain files")
    if sum(ours is None for ours in plain) > 8 * len(table_of(rules_of(zone)).at):  # only skipped hours
        wrong.append(f"{name}: plain files are left to Spark")
    return wrong
