"""Every conversion by a time zone, from 1900 to 2100, against Spark; and the list of the modules that convert.

Spark converts by the JVM's rules, which the test records. CI takes one zone in 40, the deep run takes all.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.end_to_end.zone_conversions import by_python, probes, wrong_conversions
from tests.support.zone_rules import rules_of_python
from tussock.statestore.zones import RuledZone, zone_rules

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).parents[3]


def test_converters_follow_the_recorded_rules_and_no_database() -> None:
    """The rules of St John's, recorded as those of Berlin. Python's zoneinfo of St John's is the judge."""
    there = rules_of_python("America/St_Johns")
    zone = zone_rules("Europe/Berlin", "a test", there.first, there.changes).ruled_zone
    rows = [row for row in probes(there) if row % 4 == 0]
    assert wrong_conversions("recorded", rows, *by_python(rows, RuledZone("America/St_Johns")), zone) == []


#: Ways to convert between instants and local times, or to get the local time of the process.
CONVERTS = re.compile(
    r"ZoneInfo\(|assume_timezone|local_timestamp|tz_localize|tz_convert|\bpytz\b|(?:from|import) pendulum|\bdateutil\b"
    r"|croniter\(|\.astimezone\(|timezone\(|SET TimeZone|getZoneId|zone_in_jvm|time\.localtime|mktime|strftime\("
    r"|tzinfo_of\(|local_micros|instant_micros"
)
#: Each module that converts, with the owner of the rules by which it does. docs/design/time.md describes them.
MODULES = {
    "the recorded rules": """
        statestore/zones.py jobs/kernels/zones.py jobs/sources/plain_values.py jobs/facts/rows.py
        jobs/quality/arrival.py jobs/driver/epoch.py jobs/operations/epochs.py jobs/reading/moment.py
        jobs/texts/table.py jobs/compare/compare.py jobs/viewtests/values.py jobs/viewtests/first_test.py""",
    "the JVM, whose rules must be the recorded ones": """
        jobs/spark/zones.py jobs/sql/plan_nodes/temporal_filter.py jobs/sql/spark_text.py""",
    "DuckDB, which is refused if its rules are not the recorded ones": """
        jobs/reading/duck_query.py jobs/reading/duck_zones.py""",
    "Airflow's database: the times at which it starts runs": """
        jobs/settings/ticks.py jobs/settings/pipeline.py jobs/settings/schedule.py jobs/settings/values.py
        plugins/tussock_timetable.py plugins/tussock_events.py""",
    "none: the times are in UTC, or have no zone": """
        jobs/facts/runs.py jobs/facts/status_reader.py
        jobs/kernels/kernel.py jobs/kernels/cast.py jobs/kernels/datetime.py jobs/sources/preview.py
        jobs/sources/listing.py jobs/quality/index.py jobs/shell/care_commands.py plugins/tussock_pages/page.py""",
    "the process, as in pyspark's collect()": """
        jobs/quality/measured.py""",
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
