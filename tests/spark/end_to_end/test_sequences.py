"""`sequence` in views: its rows, and its errors for a step in the wrong direction, compared with Spark."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tussock.jobs.logical.errors import SqlError
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

COLUMNS = (
    "id int, a int, b int, c int, d date, e date, m interval month, n interval day, t timestamp, "
    "u timestamp, s interval day to second"
)
ROWS = {  # first a sequence of each kind, then start equal to stop
    "far": "1, 1, 5, {i}, DATE'2020-01-31', DATE'2020-03-01', INTERVAL '{i}' MONTH, INTERVAL '{i}' DAY, "
    "TIMESTAMP'2020-01-01', TIMESTAMP'2020-01-03', INTERVAL '{i} 00:00:00' DAY TO SECOND",
    "equal": "1, 2, 2, {i}, DATE'2020-01-31', DATE'2020-01-31', INTERVAL '{i}' MONTH, INTERVAL '{i}' DAY, "
    "TIMESTAMP'2020-01-01', TIMESTAMP'2020-01-01', INTERVAL '{i} 00:00:00' DAY TO SECOND",
}
ERRORS = re.compile(r"(?:Illegal sequence boundaries|sequence step must be).*")
CALLS = (
    "sequence(a, b, c)",
    "sequence(CAST(a AS bigint), b, 0)",
    "sequence(d, e, m)",
    "sequence(d, e, n)",
    "sequence(t, u, s)",
    "sequence(d, e, s)",
)
SELECTS = (
    *(f"SELECT id, to_json({call}) AS x FROM q" for call in CALLS),
    "SELECT id, explode(sequence(a, b, c)) AS x FROM q",
)


@pytest.mark.filterwarnings("ignore::tussock.jobs.reading.read.PausedViewWarning")
@pytest.mark.parametrize(
    ("ends", "step", "selects"),
    [
        ("far", 0, SELECTS[::6]),
        *(pytest.param(ends, step, SELECTS, marks=pytest.mark.deep) for ends in ROWS for step in (0, 1, -1)),
    ],
)
def test_a_sequence_has_spark_s_rows_or_raises_spark_s_error(
    ends: str, step: int, selects: Sequence[str], spark: SparkSession, tmp_path: Path
) -> None:
    beside, row = spark.newSession(), ROWS[ends].format(i=step)
    beside.conf.set("spark.sql.session.timeZone", "UTC")
    casts = ", ".join(
        f"CAST(c{n} AS {column.split(maxsplit=1)[1]}) AS {column.split()[0]}"
        for n, column in enumerate(COLUMNS.split(", "))
    )
    names = ", ".join(f"c{n}" for n in range(len(COLUMNS.split(", "))))
    beside.sql(f"SELECT {casts} FROM VALUES ({row}) AS v({names})").createOrReplaceTempView("q")
    with Session(str(tmp_path / "store"), spark, on_error="pause") as session:
        session.execute(f"CREATE TABLE q ({COLUMNS}, PRIMARY KEY (id))")
        for n, select in enumerate(selects):
            session.execute(f"CREATE MATERIALIZED VIEW v{n} AS {select}")
        session.flush()
        session.execute(f"INSERT INTO q SELECT {casts} FROM VALUES ({row}) AS v({names})")
        session.flush()
        paused = {
            r.name: r.paused_for for r in session.meta.read_latest().catalog.live_relations() if r.paused is not None
        }
        for n, select in enumerate(selects):
            try:
                expected = sorted(map(str, (tuple(r) for r in beside.sql(select).collect())))
            except Exception as err:
                (reason,) = set(ERRORS.findall(str(err)))
                assert reason in paused.get(f"v{n}", ""), f"{select}: {reason}"
            else:
                assert f"v{n}" not in paused, f"{select}: {paused.get(f'v{n}')}"
                assert sorted(str(tuple(r.values())) for r in session.read(f"v{n}").to_pylist()) == expected, select


@pytest.mark.parametrize(
    "select",
    ["SELECT sequence(1, 5, 0) AS x", "SELECT explode(sequence(1, 5, 0)) AS x", "SELECT id FROM range(1, 5, 0)"],
)
def test_a_constant_step_of_zero_is_refused_when_the_view_is_created(
    select: str, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"Illegal sequence boundaries|FAILED_FUNCTION_CALL"):
        spark.sql(select).collect()
    with (
        Session(str(tmp_path / "store"), spark, runner="local") as session,
        pytest.raises(SqlError, match=r"Illegal sequence|FAILED_FUNCTION"),
    ):
        session.execute(f"CREATE MATERIALIZED VIEW v AS {select}")
