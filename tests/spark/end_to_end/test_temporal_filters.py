"""Views that compare rows with now() and current_date(), through epochs at given moments, compared with Spark at that
moment.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.truth.compare import assert_same_answer
from tests.support.truth.judge import at_moment, judge_session
from tussock.jobs.logical.errors import UnsupportedQueryError
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

EVENTS = "k int, ts timestamp, day date, local timestamp_ntz, ms bigint, g int"
VIEWS = {
    "yet_to_come": "SELECT k, ts FROM events WHERE ts > now()",
    "come": "SELECT k, ts FROM events WHERE ts <= current_timestamp()",
    "last_day": "SELECT g, count(*) AS n, max(k) AS top FROM events WHERE ts BETWEEN now() - INTERVAL 1 "
    "DAY AND now() GROUP BY g",
    "today": "SELECT k, day FROM events WHERE day = current_date()",
    "last_week": "SELECT k FROM events WHERE current_date() - 7 < day AND g > 1",
    "by_local_time": "SELECT k, local FROM events WHERE local < CAST(now() AS timestamp_ntz)",
    "by_milliseconds": "SELECT k FROM events WHERE ms >= unix_millis(now()) - 7200000",
    "this_month": "SELECT k FROM events WHERE date_trunc('MONTH', ts) = date_trunc('MONTH', now())",
    "of_a_month": "SELECT k FROM events WHERE ts > now() - INTERVAL 1 MONTH AND day < add_months(current_date(), 1)",
    "silent_groups": "SELECT g, max(ts) AS last FROM events GROUP BY g HAVING max(ts) < now() - INTERVAL 12 HOURS",
    "pairs": "SELECT a.k, b.k AS other FROM events a JOIN events b ON a.g = b.g AND a.ts + INTERVAL 6 "
    "HOURS > now() AND b.ts < a.ts",
    "with_or_without": "SELECT a.k, b.k AS other FROM events a LEFT JOIN events b ON a.g = b.g "
    "AND b.day >= current_date()",
    "before_it": "SELECT k, lag(k) OVER (PARTITION BY g ORDER BY ts, k) AS p FROM events WHERE ts < now()",
    "by_text": "SELECT k FROM events WHERE date_format(ts, 'yyyy-MM-dd') = date_format(now(), 'yyyy-MM-dd')",
    "by_age": "SELECT k FROM events WHERE datediff(current_date(), day) < 7 AND datediff(day, current_date()) <= g",
    "by_distance": "SELECT k FROM events WHERE now() - ts < INTERVAL 30 HOURS AND ts - now() <= INTERVAL 1 DAY",
    "by_days_between": "SELECT k FROM events WHERE current_date() - day >= INTERVAL 1 DAY",
    "by_hours": "SELECT k FROM events WHERE timestampdiff(HOUR, ts, now()) < 20 AND timestampdiff(MINUTE, "
    "now(), ts) > -300",
    "in_hours_to_come": "SELECT k FROM events WHERE timestampdiff(HOUR, ts, now()) <= 0 OR k = 1",
    "by_whole_hours": "SELECT k FROM events WHERE timestampdiff(HOUR, ts, now()) BETWEEN -3 AND 12",
    "by_seconds": "SELECT k FROM events WHERE unix_timestamp() - unix_timestamp(ts) < 3600 * g",
    "by_numbers": "SELECT k FROM events WHERE unix_millis(now()) - coalesce(ms, 9223372036854775807) < 36000000",
    "by_years": "SELECT k FROM events WHERE year(current_date()) - year(day) = 1",
    "open_or_to_come": "SELECT k FROM events WHERE ts IS NULL OR ts > now()",
    "of_a_group_or_today": "SELECT k FROM events WHERE g = 2 OR (g > 2 AND day = current_date() "
    "AND ts <= now()) OR k = 8",
    "of_named": "SELECT k FROM named WHERE ts < n",
    "above": "SELECT n, count(*) AS groups FROM last_day GROUP BY n",
}
NAMED = "SELECT k, ts, now() - INTERVAL 2 HOURS AS n FROM events"


def row(k: int, ts: str | None, g: int) -> str:
    """An event at a time in UTC."""
    if ts is None:
        return f"({k}, NULL, NULL, NULL, NULL, {g})"
    at = f"timestamp '{ts}Z'"
    return f"({k}, {at}, date '{ts[:10]}', timestamp_ntz '{ts}', unix_millis({at}), {g})"


def rows(*given: tuple[int, str | None, int]) -> str:
    return f"INSERT INTO events VALUES {', '.join(row(*one) for one in given)}"


#: Epochs: the moment, and the statements before it. In Berlin, clocks went back an hour on 2024-10-27 at 01:00 UTC.
STEPS = [
    (
        "2024-10-25 22:30:00",
        rows((1, "2024-10-25 22:00:00", 1), (2, "2024-10-26 12:00:00", 1), (3, "2024-10-27 00:30:00", 2), (4, None, 2))
        + "; "
        + rows((5, "2024-09-26 00:10:00", 2), (6, "2024-10-25 22:30:00", 3), (7, "2024-11-20 09:00:00", 3)),
    ),
    ("2024-10-25 22:30:00", rows((8, "2024-10-25 22:29:59.999999", 3))),  # the moment does not advance
    ("2024-10-26 12:00:00", ""),  # rows appear without input
    ("2024-10-27 00:15:00", "DELETE FROM events WHERE k = 3"),  # a row that has not appeared yet
    (
        "2024-10-27 00:45:00",
        rows((9, "2024-10-27 00:40:00", 2), (10, "2024-10-27 01:20:00", 2)),
    ),  # 02:45 in Berlin, for the first time
    (
        "2024-10-27 01:30:00",
        "UPDATE events SET ts = ts + INTERVAL 3 HOURS WHERE k IN (1, 2)",
    ),  # 02:30 in Berlin, after 02:45
    ("2024-10-27 23:30:00", "DELETE FROM events WHERE k IN (1, 8)"),  # rows that some views have already dropped
    (
        "2024-11-21 10:00:00",
        rows((11, "2024-11-21 10:00:00", 1), (12, "2025-01-01 00:00:00", 1)),
    ),  # rows that appear and disappear between two epochs
    ("2024-11-21 10:00:00.000001", "UPDATE events SET g = 3 WHERE k > 8"),
    ("2026-01-01 00:00:00", ""),
]


@pytest.mark.parametrize("zone", [pytest.param("UTC", marks=pytest.mark.deep), "Europe/Berlin"])
@pytest.mark.sampled(2)
def test_views_equal_their_select_at_each_moment(zone: str, spark: SparkSession, tmp_path: Path) -> None:
    judge = judge_session(spark)
    judge.conf.set("spark.sql.session.timeZone", zone)
    with Session(str(tmp_path / "store"), spark, units=3, time_zone=zone, runner="local") as session:
        session.execute(f"CREATE TABLE events ({EVENTS}, PRIMARY KEY (k)); CREATE VIEW named AS {NAMED}")
        early = [name for name in VIEWS if name != "above"]
        session.execute("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}" for name in early))
        for number, (text, statements) in enumerate(STEPS):
            moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
            if statements:
                session.execute(statements)
            if number == 2:
                session.execute(f"CREATE MATERIALIZED VIEW above AS {VIEWS['above']}")
            before = session.meta.read_latest().epoch
            session.flush(moment=moment)
            assert session.meta.read_latest().epoch > before, "there was nothing to do"
            judge.createDataFrame(session.read("events"), EVENTS).createOrReplaceTempView("events")
            judge.sql(at_moment(NAMED, moment)).createOrReplaceTempView("named")
            for name in VIEWS if number >= 2 else early:
                expected = judge.sql(at_moment(VIEWS[name], moment))
                expected.createOrReplaceTempView(name)
                assert_same_answer(session.read(name), expected.toArrow(), f"{name} in {zone} at {text}")
        with pytest.raises(UnsupportedQueryError, match="the epoch's moment"):
            session.execute("CREATE MATERIALIZED VIEW v AS SELECT k, n FROM named")
        (explained,) = session.execute("EXPLAIN SELECT k FROM events WHERE ts > now() - INTERVAL 1 DAY")
        assert explained.table is not None
        lines = explained.table.column(0).to_pylist()
        assert (
            "      an epoch costs changed rows + rows that appear or disappear as the moment passes, also without input"
            in lines
        )
