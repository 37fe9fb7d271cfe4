"""The store's time zone in every place that reads or computes with Spark. Python's zoneinfo gives the expected
values.

Wall clocks are of nights when clocks go forward or back, and of the nights next to them.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.reading.moment import epoch_at
from tussock.jobs.reading.written_rows import write_csv, write_json
from tussock.jobs.session import Session
from tussock.jobs.settings.zone_errors import UnknownZoneError
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.file_documents import document_of
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.spark.session import epoch_session

pytestmark = pytest.mark.spark

ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns")
#: In Berlin 02:30 does not exist on 29 March and occurs twice on 25 October; in St John's on 8 March and on 1
#: November.
WALL_CLOCKS = (
    "2026-01-02 23:30:00",
    "2026-03-08 02:30:00",
    "2026-03-29 02:30:00",
    "2026-07-01 00:10:00",
    "2026-10-25 02:30:00",
    "2026-11-01 01:30:00",
    "2026-11-01 03:30:00.123456",
    "2026-01-15 23:30:00Z",
    "2026-01-15 23:30:00+05:30",
)
OTHER = "America/New_York"  # the zone of the user's session


def instant(text: str, zone: str) -> datetime:
    """The instant of a text as Spark reads it. A skipped local time moves forward; a repeated one is the first."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)


def shown(at: datetime, zone: str) -> str:
    """The form of `date_format(…, 'yyyy-MM-dd HH:mm XXX')`."""
    local = at.astimezone(ZoneInfo(zone))
    offset = local.strftime("%z")
    return f"{local:%Y-%m-%d %H:%M} {'Z' if offset == '+0000' else f'{offset[:3]}:{offset[3:]}'}"


@pytest.fixture
def in_another_zone(spark: SparkSession) -> Iterator[SparkSession]:
    """The user's session, in a zone that no store has. It must not change."""
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    spark.conf.set(name, OTHER)
    try:
        yield spark
        assert spark.conf.get(name) == OTHER
        assert spark.sql("SELECT current_timezone()").collect()[0][0] == OTHER, "and it is the active one still"
    finally:
        spark.conf.set(name, before)


#: By format: the suffix of a file, a row as text, and options.
TEXTS = {
    "csv": (".csv", lambda k, text: f"{k},{text},[]", {}),
    "json": (".json", lambda k, text: f'{{"k": {k}, "at": "{text}", "n": {{"t": ["{text}"]}}}}', {}),
    "xml": (".xml", lambda k, text: f"<r><k>{k}</k><at>{text}</at><n><t>{text}</t></n></r>", {"rowTag": "r"}),
}


@pytest.mark.parametrize("format", TEXTS)
def test_texts_of_files_are_read_in_the_stores_zone(in_another_zone: SparkSession, tmp_path: Path, format: str) -> None:
    suffix, row, options = TEXTS[format]
    path = tmp_path / f"a{suffix}"
    rows = "\n".join(row(k, text) for k, text in enumerate(WALL_CLOCKS))
    path.write_text(f"<rows>{rows}</rows>" if format == "xml" else rows + "\n")
    nested = "string" if format == "csv" else "struct<t:array<timestamp>>"
    fields = (Field("k", "int"), Field("at", "timestamp"), Field("n", nested))
    asked = {zone: (zone, {}) for zone in ZONES} | {"option": ("Europe/Berlin", {"TIMEZONE": "Asia/Tokyo"})}
    for zone, more in asked.values():
        made = CreateSource("s", format, fields, {"path": str(tmp_path), **options, **more})
        files = document_of([pinned(path, 3)])
        frame = reader_of(made).frame(epoch_session(in_another_zone, zone), made, files, (0, 1, 2))
        assert frame is not None
        cells = frame.toArrow()
        assert not cells["failure"].drop_null()
        found = pa.concat_tables([pa.ipc.open_stream(c).read_all() for c in cells["chunk"].to_pylist()]).to_pylist()
        expected = [instant(text, more.get("TIMEZONE", zone)) for text in WALL_CLOCKS]
        assert [r["c1"] for r in found] == expected, zone
        if format != "csv":
            assert [r["c2"]["t"] for r in found] == [[at] for at in expected], zone


@contextmanager
def store(path: Path, spark: SparkSession, zone: str) -> Iterator[Session]:
    session = Session(str(path / "store"), spark, time_zone=zone, runner="spark")
    try:
        yield session
    finally:
        session.close()


def test_spark_always_computes_in_the_stores_zone(in_another_zone: SparkSession, tmp_path: Path) -> None:
    zone, files = "Europe/Berlin", tmp_path / "js"
    files.mkdir()

    def arrives(k: int) -> None:
        (files / f"{k}.json").write_text(f'{{"k": {k}, "ts": "{WALL_CLOCKS[k]}"}}\n')

    arrives(0)
    with store(tmp_path, in_another_zone, zone) as session:
        shows = (
            "date_format(ts, 'yyyy-MM-dd HH:mm XXX') AS f, CAST(concat('2026-07-01 ', k, ':30') AS TIMESTAMP) AS late"
        )
        session.execute(
            f"""CREATE TABLE t (k int, ts timestamp);
            CREATE SOURCE s (k int, ts timestamp) USING json OPTIONS (path '{files}');
            CREATE MATERIALIZED VIEW vs AS SELECT k, {shows} FROM s;
            CREATE MATERIALIZED VIEW vt AS SELECT k, {shows} FROM t"""
        )
        session.execute(f"INSERT INTO t VALUES (0, '{WALL_CLOCKS[0]}')")
        session.flush()  # files and a table
        session.execute(f"INSERT INTO t VALUES (1, '{WALL_CLOCKS[1]}'), (2, '{WALL_CLOCKS[2]}')")
        session.flush()  # a table alone
        arrives(4)
        session.flush()  # files alone

        def expected(*numbers: int) -> list[tuple[int, str, datetime]]:
            return [
                (k, shown(instant(WALL_CLOCKS[k], zone), zone), instant(f"2026-07-01 0{k}:30", zone)) for k in numbers
            ]

        def found(view: str) -> list[tuple[object, ...]]:
            return sorted(tuple(row.values()) for row in session.read(view).to_pylist())

        assert found("vt") == expected(0, 1, 2)
        assert found("vs") == expected(0, 4)
        arrives(3)
        session.execute("DELETE FROM t WHERE date_format(ts, 'yyyy-MM-dd HH:mm XXX') <> '2026-03-29 03:30 +02:00'")
        session.restate("s", Restated(str(files / "0.json"), gone=True))
        session.flush()
        assert found("vt") == expected(2)
        assert found("vs") == expected(3, 4)


#: Expressions over (k int, at timestamp, n timestamp_ntz, d date, s string): first with kernels, then computed by
#: Spark.
EXPRESSIONS = (
    "CAST(at AS STRING)",
    "CAST(at AS DATE)",
    "CAST(at AS TIMESTAMP_NTZ)",
    "CAST(n AS TIMESTAMP)",
    "CAST(d AS TIMESTAMP)",
    "CAST(s AS TIMESTAMP)",
    "hour(at) * 100 + minute(at)",
    "date_trunc('DAY', at)",
    "at + INTERVAL 1 DAY",
    "at + INTERVAL 2 MONTH",
    "date_add(CAST(at AS DATE), 1)",
    "current_timezone()",
    "date_format(at, 'yyyy-MM-dd HH:mm XXX')",
    "to_json(named_struct('at', at))",
    "from_json(concat('{\"at\": \"', s, '\"}'), 'at timestamp')",
    "to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')",
    "unix_timestamp(s, 'yyyy-MM-dd HH:mm:ss')",
    "from_unixtime(unix_timestamp(at))",
    "to_utc_timestamp(at, 'Asia/Tokyo')",
    "window(at, '1 day').start",
)
NIGHTS = tuple(
    text for text in WALL_CLOCKS if len(text) == 19
)  # without an offset, in whole seconds, as the formats above require


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("zone", ZONES)
def test_every_place_in_every_zone(in_another_zone: SparkSession, tmp_path: Path, zone: str) -> None:
    """Each place listed in docs/design/time.md, compared with Spark in that zone or with zoneinfo.

    Each command opens a new Session.
    """
    judge = in_another_zone.newSession()
    for name, value in (("session.timeZone", zone), ("ansi.enabled", "true")):
        judge.conf.set(f"spark.sql.{name}", value)
    values = ", ".join(
        f"({k}, TIMESTAMP '{text}', TIMESTAMP_NTZ '{text}', DATE '{text[:10]}', '{text}')"
        for k, text in enumerate(NIGHTS)
    )
    columns = "k, " + ", ".join(f"{text} AS e{i}" for i, text in enumerate(EXPRESSIONS))
    names = [f"e{i}" for i in range(len(EXPRESSIONS))]

    def told(frame: object) -> dict[int, tuple[object, ...]]:
        """Rows by k; instants as microseconds, nested values as JSON, so that Python's zone has no influence."""
        kinds = dict(frame.dtypes)  # type: ignore[attr-defined]
        texts = [
            f"unix_micros({n})" if kinds[n] == "timestamp" else f"unix_micros({n}.at)" if "struct" in kinds[n] else n
            for n in names
        ]
        return {
            row[0]: tuple(row)[1:] for row in frame.selectExpr("k", *(f"CAST({t} AS STRING)" for t in texts)).collect()
        }  # type: ignore[attr-defined]

    expected = told(judge.sql(f"SELECT {columns} FROM VALUES {values} AS v (k, at, n, d, s)"))

    def command(*statements: str, **flush: object) -> None:
        with store(tmp_path, in_another_zone, zone) as session:
            for statement in statements:
                session.execute(statement)
            session.flush(**flush)  # type: ignore[arg-type]

    def read(relation: str, *wanted: str) -> set[tuple[object, ...]]:
        with store(tmp_path, in_another_zone, zone) as session:
            return {tuple(row.values()) for row in session.read(relation, wanted or None).to_pylist()}

    def instants(*numbers: int) -> set[tuple[object, ...]]:
        return {(k, instant(NIGHTS[k], zone)) for k in numbers}

    texts = ", ".join(f"({k}, '{text}', '{text}', '{text[:10]}', '{text}')" for k, text in enumerate(NIGHTS))
    default = f"DEFAULT TIMESTAMP '{NIGHTS[2]}'"
    fields = f"(k int PRIMARY KEY, at timestamp {default}, n timestamp_ntz, d date, s string)"
    paths = tmp_path / "in"
    for day in ("2026-03-28", "2026-03-29"):
        (paths / day).mkdir(parents=True)
        (paths / day / "a.csv").write_text(f"1,{day} 23:30:00\n")
    command(
        f"CREATE TABLE t {fields}",
        f"CREATE SOURCE days (k int, at timestamp) USING csv OPTIONS (path '{paths}/{{start:%Y-%m-%d}}')",
        "CREATE MATERIALIZED VIEW of_days AS SELECT k, at FROM days",
        f"CREATE MATERIALIZED VIEW v AS SELECT {columns} FROM t",
        "CREATE MATERIALIZED VIEW today AS SELECT k FROM t WHERE CAST(at AS DATE) = current_date()",
        "CREATE MATERIALIZED VIEW local AS SELECT k FROM t WHERE n <= localtimestamp() AND n > "
        "localtimestamp() - INTERVAL 1 DAY",
        f"INSERT INTO t VALUES {texts}",  # text to a timestamp, by the binder
        interval=Interval(*(datetime(2026, 3, d, tzinfo=ZoneInfo(zone)) for d in (28, 29))),
    )
    assert read("t", "k", "at") == instants(*range(len(NIGHTS)))
    assert read("of_days") == {(1, instant("2026-03-28 23:30:00", zone))}, (
        "the path's day is of the zone, and so are the file's texts"
    )
    with store(tmp_path, in_another_zone, zone) as session:
        assert told(session.table("v")) == expected, "the view, as a DataFrame"
        assert session.execute("SELECT CAST(at AS STRING) AS s FROM t WHERE k = 3")[0].table.to_pylist() == [
            {"s": NIGHTS[3]}
        ]  # type: ignore[union-attr]
        first = session.meta.read_latest().epoch
    for k in (2, 4):  # dates and local times of now() depend on the zone; both nights
        at = instant(NIGHTS[k], zone)
        command(moment=at + (timedelta(hours=1) if k == 4 else timedelta(0)))
        shown_day = (at + (timedelta(hours=1) if k == 4 else timedelta(0))).astimezone(ZoneInfo(zone)).date()
        wanted = {
            (i,) for i, text in enumerate(NIGHTS) if instant(text, zone).astimezone(ZoneInfo(zone)).date() == shown_day
        }
        assert read("today") == wanted
        assert (k,) in read("local")
    command(
        "CREATE TABLE made AS SELECT k, CAST(s AS TIMESTAMP) AS at FROM t",
        "INSERT INTO t (k, at) SELECT k + 100, CAST(s AS TIMESTAMP) FROM t WHERE k < 2",
        "INSERT INTO t (k) VALUES (200)",  # the default
    )
    assert read("made") == instants(*range(len(NIGHTS)))
    more = {(100, instant(NIGHTS[0], zone)), (101, instant(NIGHTS[1], zone)), (200, instant(NIGHTS[2], zone))}
    assert read("t", "k", "at") == instants(*range(len(NIGHTS))) | more
    command(
        "DELETE FROM t WHERE k > 100 AND hour(at) <> 1",
        f"UPDATE t SET at = CAST('{NIGHTS[4]}' AS TIMESTAMP) WHERE date_format(at, 'HH:mm') = '23:30'",
    )
    command(
        f"MERGE INTO t USING (SELECT 3 AS k, '{NIGHTS[1]}' AS x) AS u ON t.k = u.k WHEN MATCHED THEN "
        f"UPDATE SET at = CAST(u.x AS TIMESTAMP)"
    )
    left = dict(read("t", "k", "at"))
    assert left[0] == left[100] == instant(NIGHTS[4], zone)
    assert left[3] == instant(NIGHTS[1], zone)
    assert not left.keys() & {101, 200}
    with store(tmp_path, in_another_zone, zone) as session:
        wall = (datetime.now(ZoneInfo(zone)) + timedelta(0)).strftime("%Y-%m-%d %H:%M:%S.%f")
        assert session.execute(f"SELECT count(*) AS n FROM t TIMESTAMP AS OF '{wall}'")[0].table.to_pylist()[0][
            "n"
        ] == len(left)  # type: ignore[union-attr]
        assert epoch_at(session.meta.read_latest(), datetime.fromisoformat(wall), zone, 2 << 42) >= first
        rows = session.read("t", ["k", "at"])
        out = BytesIO()
        write_csv(rows.to_reader(), out)
        stamps = {line.rpartition(",")[2].strip('"') for line in out.getvalue().decode().splitlines()[1:]}
        assert {datetime.fromisoformat(stamp) for stamp in stamps} == set(left.values()), (
            "in files instants are in UTC, with a Z"
        )
        assert all(stamp.endswith("Z") for stamp in stamps)
        out = BytesIO()
        write_json(rows.to_reader(), out)
        assert {datetime.fromisoformat(json.loads(line)["at"]) for line in out.getvalue().splitlines()} == set(
            left.values()
        )
    command("DELETE FROM t")
    assert not read("v"), "each row went as it had come"


def test_stores_of_one_process_whose_zones_have_equal_rules_lose_no_statement(
    spark: SparkSession, tmp_path: Path
) -> None:
    for zone in ("Asia/Kolkata", "Asia/Calcutta"):
        with Session(str(tmp_path / zone), spark, time_zone=zone) as session:
            session.execute("CREATE TABLE t (k int, PRIMARY KEY (k))")
            session.execute("INSERT INTO t VALUES (1)")
            session.execute("CREATE TABLE IF NOT EXISTS t (k int, PRIMARY KEY (k)); INSERT INTO t VALUES (2)")
            session.flush()
            assert sorted(session.read("t")["k"].to_pylist()) == [1, 2]
            assert [rules.name for rules in session.meta.read_latest().catalog.zones] == [zone]


def test_sessions_are_made_in_one_place() -> None:
    """A session made elsewhere has the time zone of the application, or of the JVM."""
    root = Path(__file__).parents[3]
    own = root / "jobs" / "spark" / "session.py"
    makes = re.compile(r"\.newSession\(|session\.timeZone|cloneSession\(")
    for folder in ("jobs", "plugins", "dags", "statestore"):
        found = {
            str(p.relative_to(root)) for p in (root / folder).rglob("*.py") if p != own and makes.search(p.read_text())
        }
        assert not found, f"{found}: make the session by tussock.jobs.spark.session.sql_session"


def test_a_text_with_a_slash_is_no_zone(spark: SparkSession, tmp_path: Path) -> None:
    columns = {
        "day": "to_date(text, 'd/M/yyyy')",
        "at": "try_to_timestamp(text, 'd/M/yyyy')",
        "shown": "date_format(moment, 'd/M/yyyy')",
        "document": "to_json(struct(moment), map('timestampFormat', 'd/M/yyyy'))",
        "parsed": "from_csv(text, 'x date', map('dateFormat', 'd/M/yyyy')).x",
        "local": "from_utc_timestamp(moment, 'Europe/Berlin')",
    }
    select = f"SELECT id, {', '.join(f'{text} AS {name}' for name, text in columns.items())} FROM given"
    given = "VALUES (1, '3/11/2026', TIMESTAMP '2026-01-02 23:30:00'), (2, NULL, NULL)"
    with Session(str(tmp_path), spark) as session:
        session.execute("CREATE TABLE given (id int, text string, moment timestamp, PRIMARY KEY (id))")
        session.execute(f"INSERT INTO given {given}; CREATE MATERIALIZED VIEW v AS {select}")
        session.flush()
        judge = epoch_session(spark, "UTC")
        judge.sql(f"SELECT * FROM {given} AS given(id, text, moment)").createOrReplaceTempView("given")
        truth = judge.sql(select).sort("id").toArrow().to_pylist()
        assert session.query("SELECT * FROM v ORDER BY id").to_pylist() == truth


@pytest.mark.parametrize("call", ["to_utc_timestamp(at, 'd/M/yyyy')", "convert_timezone('Mars/Base', 'UTC', at)"])
def test_a_constant_that_is_no_zone_is_refused_before_an_epoch(spark: SparkSession, tmp_path: Path, call: str) -> None:
    with Session(str(tmp_path), spark) as session:
        session.execute("CREATE TABLE given (id int, at timestamp_ntz, PRIMARY KEY (id))")
        with pytest.raises(UnknownZoneError, match=r"does not know the time zone '(d/M/yyyy|Mars/Base)'"):
            session.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id, {call} AS x FROM given")
