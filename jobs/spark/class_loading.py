"""Loads the classes of Spark that commands need into a JVM that writes them to its archive (class_archive.py)."""

import pyarrow as pa
from pyspark.sql import SparkSession

from tussock.jobs.settings.tables import is_local_master
from tussock.jobs.spark.collected import collect_rows, frame_of

QUERIES = (
    """
    SELECT k, g, sum(a) AS a, avg(a) AS b, count(DISTINCT t) AS n, max(d) AS d, min(s) AS s, collect_list(a) AS l,
        first(m) AS m
    FROM r WHERE a > 0 OR s LIKE 'x%' OR s IN ('y', 'z') GROUP BY k, g HAVING count(*) > 0 ORDER BY a DESC, k LIMIT 5
    """,
    """
    SELECT x.k, coalesce(y.s, 'none') AS s, CASE WHEN x.a > 1 THEN upper(x.s) ELSE substring(x.s, 1, 2) END AS c,
        date_trunc('day', x.d) AS day, cast(x.m AS double) * 2 AS m,
        row_number() OVER (PARTITION BY x.g ORDER BY x.a) AS n
    FROM r x LEFT JOIN r y ON x.k = y.a AND x.d <= y.d
    WHERE x.k IN (SELECT k FROM r) AND NOT EXISTS (SELECT 1 FROM r z WHERE z.k = x.a AND z.g = 'no')
    """,
    "SELECT DISTINCT k FROM r UNION ALL SELECT max(a) FROM (SELECT k, sum(a) AS a FROM r GROUP BY ROLLUP (k))",
)
"""Queries of the common kinds over one relation `r`."""


def load_classes(session: SparkSession) -> None:
    """Run QUERIES over two rows, in a session of their own. Without effect if the tasks run on other machines.

    Cost: some CPU seconds, in the JVM of one command per user and release.
    """
    if not is_local_master(str(session.sparkContext.master)):
        return
    frame_of(session, _sample_rows()).createOrReplaceTempView("r")
    for query in QUERIES:
        collect_rows(session.sql(query))


def _sample_rows() -> pa.Table:
    return pa.table(
        {
            "k": pa.array([1, 2], pa.int32()),
            "g": ["one", "two"],
            "a": pa.array([1, 2], pa.int64()),
            "s": ["x", None],
            "t": [0.5, 1.5],
            "d": pa.array([0, 1], pa.timestamp("us", "UTC")),
            "m": pa.array([1, 2], pa.int64()).cast(pa.decimal128(20, 0)).cast(pa.decimal128(20, 2)),
        }
    )
