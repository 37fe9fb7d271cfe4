"""Tables that delta-spark writes, as sources.

At every epoch each view equals Spark's read of the version that was taken. Runs in a separate Spark session, because
Spark's jars do not include Delta.

python -m tests.support.jobs.sources.delta_alone <empty directory>
"""

import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.reading.reader import open_table
from tussock.jobs.session import Session
from tussock.jobs.sources.delta_taken import TAKEN_VERSIONS
from tussock.jobs.spark.session import spark_session

COLUMNS = (
    "id BIGINT, v DOUBLE, m DECIMAL(12,2), p STRING, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, "
    "b BINARY, a ARRAY<INT>, s STRUCT<x: INT>"
)
FLAT = COLUMNS.partition(", a ARRAY")[0]  # of mapped names, only those of top-level columns
ROW = """SELECT CAST(id % 40 AS BIGINT), IF(id % 5 = 0, NULL, IF(id % 7 = 0, -0D, id / 4)),
    CAST(id / 3 AS DECIMAL(12,2)),
    element_at(ARRAY('a', 'b %/c', NULL), CAST(id % 3 + 1 AS INT)), DATE'2020-01-31' + CAST(id % 2 AS INT),
    TIMESTAMP'1969-12-31 23:59:59.999999' + make_interval(0, 0, 0, CAST(id % 2 AS INT)),
        TIMESTAMP_NTZ'2020-02-29 01:02:03.4', X'00FF'"""
TABLES = {  # properties, partitions, options of the source
    "plain": ("", "", ""),
    "feed": ("'delta.enableChangeDataFeed' = 'true'", "PARTITIONED BY (p, d, t)", ""),
    "vectors": ("'delta.enableDeletionVectors' = 'true'", "PARTITIONED BY (d)", ""),
    "both": ("'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'", "", ""),
    "mapped": ("'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true'", "PARTITIONED BY (p)", ""),
    "keyed": ("'delta.enableChangeDataFeed' = 'true'", "", ", key 'id'"),
}


class Story:
    """Tables, a source over each, and the changes to them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.random, self.next = spark, root, random.Random(11), 0
        for name, (properties, partitions, _) in TABLES.items():
            columns = FLAT if name == "mapped" else COLUMNS
            settings = f"TBLPROPERTIES ({properties})" if properties else ""
            spark.sql(f"CREATE TABLE {self.of(name)} ({columns}) USING delta {partitions} {settings}")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.insert, TABLES))

    def of(self, name: str) -> str:
        return f"delta.`{self.root}/{name}`"

    def insert(self, name: str, into: str = "INTO") -> None:
        rows = f"range({self.next}, {self.next + 30}, 1, 2)"
        again = "" if name == "keyed" else f" UNION ALL {self.rows(name)} FROM range(3)"
        if name == "keyed":  # keys stay unique
            rows = f"(SELECT id FROM range(40) WHERE id NOT IN (SELECT id FROM {self.of(name)}) LIMIT 15)"
        self.spark.sql(f"INSERT {into} {self.of(name)} {self.rows(name)} FROM {rows}{again}")
        self.next += 17

    @staticmethod
    def rows(name: str) -> str:
        return ROW if name == "mapped" else f"{ROW}, ARRAY(CAST(id AS INT), NULL), STRUCT(CAST(id % 2 AS INT))"

    def change(self, name: str, seed: float) -> None:
        draw = random.Random(seed)
        table, at, spark = self.of(name), draw.randrange(40), self.spark
        match draw.choice(("insert", "update", "delete", "merge", "optimize", "overwrite", "restore", "part")):
            case "insert":
                self.insert(name)
            case "update":
                spark.sql(f"UPDATE {table} SET v = coalesce(v, 0) + 1, p = 'moved' WHERE id BETWEEN {at} AND {at + 4}")
            case "delete":
                spark.sql(f"DELETE FROM {table} WHERE id BETWEEN {at} AND {at + 2}")
            case "part":
                spark.sql(f"DELETE FROM {table} WHERE d = DATE'2020-01-31'")
            case "merge":
                spark.sql(
                    f"MERGE INTO {table} t USING (SELECT DISTINCT id FROM {table} WHERE id % 3 = "
                    f"{at % 3}) s ON t.id = s.id "
                    f"WHEN MATCHED AND t.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET m = t.m + 1"
                )
            case "optimize":
                spark.sql(f"OPTIMIZE {table}")
            case "overwrite":
                if name == "keyed":
                    spark.sql(f"DELETE FROM {table}")
                self.insert(name, "INTO" if name == "keyed" else "OVERWRITE")
            case "restore":
                last = spark.sql(f"DESCRIBE HISTORY {table}").count() - 1
                spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {draw.randrange(last)}")


def counted(rows: list[dict[str, object]]) -> Counter[str]:
    return Counter(map(repr, rows))


def require_equal(session: Session, story: Story) -> None:
    version = session.meta.read_latest()
    for name in TABLES:
        (relation,) = [r for r in version.catalog.live_relations() if r.name == f"s_{name}"]
        taken = TAKEN_VERSIONS.read_newest(open_table(session.meta.objects, version, relation.state_tables[0]))
        assert taken is not None
        newest = story.spark.sql(f"DESCRIBE HISTORY {story.of(name)}").count() - 1
        assert taken.version == newest, (name, taken, newest)
        now = story.spark.read.format("delta").option("versionAsOf", taken.version).load(f"{story.root}/{name}")
        theirs, ours = (
            now.select(*[f.name for f in now.schema if f.name != "later"]).toArrow(),
            session.query(f"SELECT * FROM copy_{name}"),
        )
        assert counted(ours.to_pylist()) == counted(theirs.to_pylist()), (name, taken)
        groups = now.groupBy("p").agg({"m": "sum", "*": "count"}).toArrow()
        by_p = session.query(f"SELECT p, total AS `sum(m)`, n AS `count(1)` FROM by_p_{name}")
        assert counted(by_p.to_pylist()) == counted(groups.select(["p", "sum(m)", "count(1)"]).to_pylist()), (
            name,
            taken,
        )


def main(root: Path) -> None:
    settings = with_delta(
        {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.retentionDurationCheck.enabled": "false"}
    )
    with spark_session(settings=settings) as spark, Session(str(root / "store"), spark) as session:
        story = Story(spark, root / "lake")
        for name, (_, _, options) in TABLES.items():
            session.execute(f"CREATE SOURCE s_{name} USING delta OPTIONS (path '{root}/lake/{name}'{options})")
            session.execute(f"CREATE MATERIALIZED VIEW copy_{name} AS SELECT * FROM s_{name}")
        for turn in range(4):
            if turn == 1:  # later views begin with the taken version
                for name in TABLES:
                    session.execute(
                        f"CREATE MATERIALIZED VIEW by_p_{name} AS SELECT p, count(*) n, "
                        f"sum(m) total FROM s_{name} GROUP BY p"
                    )
            if turn:
                with ThreadPoolExecutor(4) as pool:
                    list(pool.map(story.change, TABLES, [story.random.random() for _ in TABLES]))
            if turn == 2:
                spark.sql(f"ALTER TABLE {story.of('mapped')} ADD COLUMNS (later INT)")
            session.flush()
            assert not held_sources(session.meta.read_latest().catalog), held_sources(
                session.meta.read_latest().catalog
            )
            if turn >= 1:
                require_equal(session, story)
            if turn == 2:
                spark.sql(f"VACUUM {story.of('feed')} RETAIN 0 HOURS")
        before = {name: counted(session.query(f"SELECT * FROM copy_{name}").to_pylist()) for name in TABLES}
        spark.sql(f"UPDATE {story.of('plain')} SET v = 1")
        spark.sql(f"ALTER TABLE {story.of('mapped')} RENAME COLUMN m TO other")
        spark.sql(f"VACUUM {story.of('plain')} RETAIN 0 HOURS")
        session.flush()
        held = held_sources(session.meta.read_latest().catalog)
        assert set(held) == {"s_plain", "s_mapped"}, held
        assert "is gone, because of VACUUM" in held["s_plain"], held
        assert "column 'm': found no such column" in held["s_mapped"], held
        assert before == {name: counted(session.query(f"SELECT * FROM copy_{name}").to_pylist()) for name in TABLES}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
