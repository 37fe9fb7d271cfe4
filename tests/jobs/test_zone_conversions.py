"""Every conversion by a time zone, from 1900 to 2100, against Spark; and the list of the modules that convert.

Spark converts by the JVM's rules, which the test records. CI takes one zone in 40, the deep run takes all.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from tests.zone_rules import rules_of_python
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Call, Column
from tussock.jobs.settings.java_zones import java_zones
from tussock.jobs.sources.plain_values import NotPlain, TextForm, typed
from tussock.statestore.types import arrow_type
from tussock.statestore.zones import RuledZone, ZoneRules, is_utc, rules_of, table_of, tzinfo_of, zone_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
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
        found = kernel.project(pa.table({"c0": pa.array(rows, pa.int64()).cast(kinds[source])}), (cast,), (target,))
        return found["c0"].cast(pa.int64()).to_pylist()
    finally:
        kernel.close()


def by_plain_files(rows: Micros, zone: RuledZone) -> list[int | None]:
    """The instants of texts in a plain file. None: Spark reads the file."""
    texts = pa.array(rows, pa.timestamp("us")).cast(pa.string())

    def one(text: pa.Array) -> int | None:
        try:
            return int(typed(text, "timestamp", "t", TextForm(zone)).cast(pa.int64())[0].as_py())
        except NotPlain:
            return None

    try:
        return typed(texts, "timestamp", "t", TextForm(zone)).cast(pa.int64()).to_pylist()
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


def _compare(spark: "SparkSession", names: list[str]) -> list[str]:
    """The wrong conversions of zones. Spark computes its side of all zones in one query."""
    from tussock.jobs.spark.session import sql_session
    from tussock.jobs.spark.zones import rules_of_jvm

    asked = {name: probes(rules_of_jvm(spark, name)) for name in names}
    session = sql_session(spark, "UTC")
    rows = [(name, n, micros) for name, times in asked.items() for n, micros in enumerate(times)]
    table = pa.table(dict(zip(("zone", "n", "us"), map(list, zip(*rows, strict=True)), strict=True)))
    answers = (
        session.createDataFrame(table)
        .selectExpr(
            "zone",
            "n",
            "unix_micros(from_utc_timestamp(timestamp_micros(us), zone)) AS to_local",
            "unix_micros(to_utc_timestamp(timestamp_micros(us), zone)) AS to_instant",
        )
        .toArrow()
        .sort_by([("zone", "ascending"), ("n", "ascending")])
    )
    found: list[str] = []
    for name, times in asked.items():
        mine = answers.filter(pa.compute.equal(answers["zone"], name))
        sides = mine["to_local"].to_pylist(), mine["to_instant"].to_pylist()
        found += wrong_conversions(name, times, *sides, rules_of_jvm(spark, name).ruled)
    return found


@pytest.mark.spark
def test_every_converter_equals_spark(spark: "SparkSession") -> None:
    assert _compare(spark, [*zones(40), "America/Vancouver", "Africa/Casablanca", "Europe/Oslo"]) == []


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_every_converter_equals_spark_in_all_zones(spark: "SparkSession") -> None:
    assert _compare(spark, zones(1)) == []


def test_converters_follow_the_recorded_rules_and_no_database() -> None:
    """The rules of St John's, recorded as those of Berlin. Python's zoneinfo of St John's is the judge."""
    there = rules_of_python("America/St_Johns")
    zone = zone_rules("Europe/Berlin", "a test", there.first, there.changes).ruled
    rows = [row for row in probes(there) if row % 4 == 0]
    assert wrong_conversions("recorded", rows, *by_python(rows, RuledZone("America/St_Johns")), zone) == []


@pytest.mark.spark
def test_the_file_of_java_has_the_rules_of_the_jvm(spark: "SparkSession") -> None:
    """Of the Java that Spark runs in."""
    from tussock.jobs.spark.zones import rules_of_jvm

    java = java_zones()
    assert java is not None
    for name in zones(20):
        rules = java.rules(name)
        assert rules is not None
        assert rules.digest == rules_of_jvm(spark, name).digest, name


#: Ways to convert between instants and local times, or to get the local time of the process.
CONVERTS = re.compile(
    r"ZoneInfo\(|assume_timezone|local_timestamp|tz_localize|tz_convert|\bpytz\b|(?:from|import) pendulum|\bdateutil\b"
    r"|croniter\(|\.astimezone\(|timezone\(|SET TimeZone|getZoneId|time\.localtime|mktime|strftime\("
    r"|tzinfo_of\(|local_micros|instant_micros"
)
#: Each module that converts, with the owner of the rules by which it does. docs/design/time.md describes them.
MODULES = {
    "the recorded rules": """
        statestore/zones.py jobs/kernels/zones.py jobs/sources/plain_values.py jobs/facts/rows.py
        jobs/quality/arrival.py jobs/driver/epoch.py jobs/operations/epochs.py jobs/reading/moment.py
        jobs/texts/table.py jobs/viewtests/values.py jobs/viewtests/first_test.py""",
    "the JVM, whose rules must be the recorded ones": """
        jobs/spark/zones.py jobs/sql/plan_nodes/temporal_filter.py""",
    "DuckDB, which is refused if its rules are not the recorded ones": """
        jobs/reading/duck_query.py jobs/reading/duck_zones.py""",
    "Airflow's database: the times at which it starts runs": """
        jobs/settings/ticks.py jobs/settings/pipeline.py jobs/settings/values.py
        plugins/tussock_timetable.py plugins/tussock_events.py""",
    "none: the times are in UTC, or have no zone": """
        jobs/kernels/kernel.py jobs/kernels/cast.py jobs/kernels/datetime.py jobs/sources/preview.py
        jobs/sources/listing.py jobs/quality/index.py jobs/shell/care_commands.py plugins/tussock_pages/page.py""",
    "the process, as in pyspark's collect()": """
        jobs/quality/row_metrics.py""",
    "only the name is checked": """
        statestore/meta/settings.py""",
}


def test_each_module_that_converts_by_a_zone_is_on_the_list() -> None:
    rooms = ("jobs", "statestore", "plugins", "dags")
    files = (file for room in rooms for file in (ROOT / room).rglob("*.py"))
    found = {str(file.relative_to(ROOT)) for file in files if CONVERTS.search(_code(file))}
    listed = {module for modules in MODULES.values() for module in modules.split()}
    assert sorted(found - listed) == [], "convert by tussock.statestore.zones, and add the module with its owner here"
    assert sorted(listed - found) == [], "remove modules that convert no more"


def _code(file: Path) -> str:
    """A module without its comments."""
    return "\n".join(
        line.partition("  # ")[0] for line in file.read_text().splitlines() if not line.lstrip().startswith("#")
    )
