"""Windows over long partitions that are computed whole.

Their changes pass through the fragment in pieces and are compared with Spark.
"""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.truth.compare import assert_same_answer
from tussock.jobs.executors import over_window
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int32()), ("g", pa.int32()), ("v", pa.int32())])
WINDOW = "WINDOW w AS (PARTITION BY g ORDER BY v, k)"
VIEWS = {
    "kept": f"SELECT k, ntile(3) OVER w AS n, percent_rank() OVER w AS p FROM t {WINDOW}",
    "filtered": f"SELECT k, n FROM (SELECT k, v, ntile(3) OVER w AS n FROM t {WINDOW}) WHERE n > 1 AND v % 3 > 0",
    "counted": f"SELECT n, count(*) AS rows, sum(v) AS total FROM (SELECT v, "
    f"ntile(3) OVER w AS n FROM t {WINDOW}) GROUP BY n",
    "twice": f"SELECT k, n, cume_dist() OVER (PARTITION BY n ORDER BY k) AS c FROM (SELECT k, "
    f"ntile(3) OVER w AS n FROM t {WINDOW})",
    "apart": "SELECT k, ntile(3) OVER w AS n, rank() OVER w AS r, ntile(2) OVER w AS two, lag(v) OVER w AS l, "
    f"sum(v) OVER w AS total FROM t {WINDOW}",
    "read_on": "SELECT n, max(p) AS most FROM kept GROUP BY n",
}


def test_pieces_of_a_partition_keep_views_equal_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows arrive, leave and change their place, so that a row may leave in another piece than it arrived in.

    A second view reads the first.
    """
    monkeypatch.setattr(over_window, "PIECE_ROWS", 8)
    rng, judge, rows = random.Random(3), spark.newSession(), dict[int, dict[str, Any]]()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    judge.conf.set("spark.sql.shuffle.partitions", "1")
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        session.execute("CREATE TABLE t (k int, g int, v int, PRIMARY KEY (k))")
        for name, sql in VIEWS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        for epoch in range(6):
            gone = [k for k in rows if rng.random() < (0.1 if epoch < 5 else 0.9)]
            for k in gone:
                del rows[k]
            if gone:
                session.execute(f"DELETE FROM t WHERE k IN ({', '.join(map(str, gone))})")
            touched = rng.sample(range(120), 90 if epoch == 0 else 6)
            changed = [{"k": k, "g": rng.choice((0, 0, 0, 1)), "v": rng.randrange(40)} for k in touched]
            rows |= {row["k"]: row for row in changed}
            session.insert("t", pa.Table.from_pylist(changed, SCHEMA))
            session.flush()
            judge.createDataFrame(pa.Table.from_pylist(list(rows.values()), SCHEMA)).createOrReplaceTempView("t")
            for name, sql in VIEWS.items():
                expected = judge.sql(sql)
                expected.createOrReplaceTempView(name)
                assert_same_answer(session.read(name), expected.toArrow(), f"{name} at {epoch}")
