"""The recorded rules of time zones in the status, and the databases of this host."""

from pathlib import Path

import pytest

from tests.support.zone_rules import rules_of_python
from tussock.jobs.facts import zones as facts
from tussock.jobs.facts.zones import zone_databases
from tussock.jobs.settings.java_zones import JavaZones
from tussock.statestore.zones import zone_rules


def test_the_version_of_the_systems_database_is_in_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoneinfo.TZPATH", (str(tmp_path),))
    assert zone_databases().system == ""
    (tmp_path / "+VERSION").write_text("2024a\n")
    assert zone_databases().system == "2024a"
    (tmp_path / "tzdata.zi").write_text("# version 2025b\n# This zic input file is in the public domain.\n")
    assert zone_databases().system == "2025b"


def test_a_java_with_other_rules_is_told_with_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = zone_rules("Europe/Oslo", "Java 17", 3600, ((100, 7200),))
    monkeypatch.setattr(JavaZones, "rules", lambda *_: zone_rules("Europe/Oslo", "Java 25", 3600, ((160, 7200),)))
    found = facts._describe_difference(recorded, JavaZones("2026a", {}).rules("Europe/Oslo"))
    assert found == "from 1970-01-01 00:01 UTC to 1970-01-01 00:02 UTC"
    assert facts._describe_difference(recorded, None) == facts._describe_difference(recorded, recorded) == ""
    assert rules_of_python("Europe/Oslo").digest != recorded.digest
