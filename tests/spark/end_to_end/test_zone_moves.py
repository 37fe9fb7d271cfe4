"""A store whose rules of a time zone differ from the JVM's, and its move to the JVM's rules."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.zone_rules import rules_of_python
from tussock.jobs.session import Session
from tussock.jobs.settings.java_zones import java_zones
from tussock.jobs.settings.zone_errors import ZoneRulesDifferError
from tussock.jobs.spark import zones
from tussock.jobs.statements.deployment import Deployment, DeployOptions, StepAction
from tussock.jobs.verify.record import Verdict
from tussock.statestore.zones import ZoneRules, digest_of, rules_of, zone_rules

ZONE = "Europe/Berlin"
END_OF_SUMMER = 1_792_890_000  # 2026-10-25 01:00 UTC
SQL = """
CREATE TABLE t (k int, at timestamp, PRIMARY KEY (k));
CREATE SOURCE s (k int, at timestamp) USING csv OPTIONS (path '{files}');
CREATE MATERIALIZED VIEW days AS SELECT CAST(at AS date) AS day, count(*) AS n FROM s GROUP BY CAST(at AS date);
CREATE MATERIALIZED VIEW numbers AS SELECT count(*) AS n FROM days;
CREATE MATERIALIZED VIEW hours AS SELECT k, hour(at) AS h FROM t;
CREATE MATERIALIZED VIEW keys AS SELECT k FROM t;
"""


def rules_with_longer_summer() -> ZoneRules:
    """The rules of an earlier database, in which the summer time of 2026 does not end."""
    real = rules_of_python(ZONE)
    return zone_rules(ZONE, "Java 1, tz database 1970a", real.first, [c for c in real.changes if c[0] < END_OF_SUMMER])


@pytest.fixture
def earlier_database() -> Iterator[pytest.MonkeyPatch]:
    """The JVM has the earlier rules until `undo`."""
    with pytest.MonkeyPatch.context() as patch:
        zones._read.clear()
        patch.setattr(zones, "_rules_of_zone", lambda *_: rules_with_longer_summer())
        yield patch
    zones._read.clear()


def opened(folder: Path, spark: SparkSession, runner: Any = "local") -> Session:
    return Session(str(folder / "store"), spark, time_zone=ZONE, runner=runner, workers=1)


def rows(session: Session, view: str) -> set[tuple[object, ...]]:
    return {tuple(str(value) for value in row.values()) for row in session.read(view).to_pylist()}


def steps(found: Deployment) -> dict[str, StepAction]:
    return {step.what: step.action for step in found.steps if step.action is not StepAction.NONE}


@pytest.mark.spark
def test_a_store_keeps_its_rules_until_it_is_moved(
    spark: SparkSession, tmp_path: Path, earlier_database: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "0.csv").write_text("0,2027-01-15 00:30:00\n")
    scripts = [(tmp_path / "views.sql", SQL.format(files=files))]
    with opened(tmp_path, spark) as session:
        session.apply(scripts)
        session.insert("t", pa.table({"k": [0], "at": [datetime(2027, 1, 14, 22, 30, tzinfo=UTC)]}))
        session.flush()
        assert (rows(session, "days"), rows(session, "hours")) == ({("2027-01-15", "1")}, {("0", "0")})
        recorded = session.meta.read_latest().catalog.resolve_zone(ZONE)
        assert rules_of(recorded) == rules_with_longer_summer()
        before = session.meta.read_latest().epoch

    earlier_database.undo()
    zones._read.clear()
    with opened(tmp_path, spark) as session:  # a process with the newer database
        (files / "1.csv").write_text("1,2027-01-15 00:30:00\n")
        session.insert("t", pa.table({"k": [1], "at": [datetime(2027, 1, 14, 22, 30, tzinfo=UTC)]}))
        session.flush()
        assert (rows(session, "days"), rows(session, "hours")) == ({("2027-01-15", "2")}, {("0", "0"), ("1", "0")})
        planned = session.plan(scripts)
        assert not planned.pending
        (note,) = [step.note for step in planned.steps if step.what == f"time zone {ZONE}"]
        assert "from 2026-10-25 01:00 UTC" in note
        assert note.endswith("--zone-rules rebuilds days, numbers, hours")
        with pytest.raises(ZoneRulesDifferError, match="from 2026-10-25 01:00 UTC"):
            session.execute("CREATE MATERIALIZED VIEW late AS SELECT k FROM t")
        with pytest.raises(ZoneRulesDifferError):
            session.query("SELECT k FROM hours")
    with opened(tmp_path, spark, "spark") as session:
        session.insert("t", pa.table({"k": [2], "at": [datetime(2027, 1, 14, 23, 30, tzinfo=UTC)]}))
        with pytest.raises(ZoneRulesDifferError, match="differ from those that the store has recorded"):
            session.flush()

    with opened(tmp_path, spark) as session:
        session.flush()
        wanted = {f"time zone {ZONE}", "view days", "view numbers", "view hours"}
        assert steps(session.plan(scripts, DeployOptions(zone_rules=True))).keys() == wanted
        assert digest_of(session.meta.read_latest().catalog.resolve_zone(ZONE)) == digest_of(recorded), (
            "a plan changes nothing"
        )
        assert steps(session.apply(scripts, DeployOptions(zone_rules=True))).keys() == wanted
        session.flush()
        assert rows(session, "days") == {("2027-01-15", "2")}
        assert rows(session, "hours") == {("0", "23"), ("1", "23"), ("2", "0")}
        assert {check.verdict for check in session.verify().views} == {Verdict.EQUAL}
        assert not session.plan(scripts).pending
        assert {tuple(r.values()) for r in session.read("hours", epoch=before).to_pylist()} == {(0, 0)}
        (files / "0.csv").unlink()


TWO = "Europe/Chisinau"  # changed by release 2025c of the database
PIPELINE = f'name = "shop"\nstore = "store"\nsql = ["views.sql"]\ntime_zone = "{TWO}"\n'
VIEWS = """
CREATE SOURCE s (k int, at timestamp) USING csv OPTIONS (path 'files');
CREATE MATERIALIZED VIEW instants AS SELECT k, unix_seconds(at) AS s, hour(at) AS h FROM s;
"""


def javas() -> list[Path]:
    """Two Javas of this host with different rules of a zone, the earlier database first."""
    found = {}
    for home in sorted(Path("/usr/lib/jvm").glob("*")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_HOME", str(home))
            if (java := java_zones()) is not None and (rules := java.rules(TWO)) is not None:
                found.setdefault(rules.digest, (java.version, home))
    return [home for _, home in sorted(found.values())][:2]


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_a_store_moves_from_one_java_to_the_next(tmp_path: Path) -> None:
    """With the commands, and two Javas of this host."""
    if len(homes := javas()) < 2:
        pytest.skip("needs two Javas with different rules of a zone")
    folder = tmp_path / "pipelines" / "shop"
    (folder / "files").mkdir(parents=True)
    (folder / "pipeline.toml").write_text(PIPELINE)
    (folder / "views.sql").write_text(VIEWS)
    (folder / "files" / "0.csv").write_text("0,2026-03-29 02:30:00\n")

    def tussock(home: Path, *command: str, code: int = 0) -> str:
        environment = {**os.environ, "JAVA_HOME": str(home)}
        done = subprocess.run(
            [sys.executable, "-m", "tussock", *command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        print(f"$ tussock {' '.join(command)}   ({home.name})\n{done.stdout}{done.stderr}")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    old, new = homes
    tussock(old, "apply", "shop")
    tussock(old, "epoch", "--pipeline", "shop")
    assert "0,1774744200,3" in (before := tussock(old, "read", "--pipeline", "shop", "instants", "--csv"))
    assert "--zone-rules rebuilds instants" in tussock(new, "plan", "shop")
    assert "other rules from 2022-03-27 00:00 UTC" in tussock(new, "status", "shop")
    assert tussock(new, "read", "--pipeline", "shop", "instants", "--csv") == before
    tussock(new, "verify", "--pipeline", "shop", code=1)
    tussock(new, "plan", "shop", "--zone-rules", code=2)
    tussock(new, "apply", "shop", "--zone-rules")
    tussock(new, "epoch", "--pipeline", "shop")
    assert "0,1774744200,2" in tussock(new, "read", "--pipeline", "shop", "instants", "--csv")
    tussock(new, "verify", "--pipeline", "shop")
