"""A view over Avro files through two epochs, compared with Spark's own read.

Runs in a separate Spark session, because Spark's jars do not include the Avro module.

python -m tests.support.jobs.sources.avro_alone <empty directory>
"""

import sys
from pathlib import Path

import pyspark

from tussock.jobs.session import Session
from tussock.jobs.spark.session import spark_session

PACKAGE = f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"


def main(root: Path) -> None:
    with (
        spark_session(settings={"spark.jars.packages": PACKAGE}) as spark,
        Session(str(root / "store"), spark) as session,
    ):
        for epoch, ids in enumerate(("1, 3", "3, 5")):
            rows = (
                f"SELECT id, IF(id = 2, NULL, CAST(id AS decimal(10,2))) AS m, "
                f"TIMESTAMP '2013-01-01 05:00:00' AS at FROM range({ids})"
            )
            spark.sql(rows).write.mode("append").format("avro").save(str(root / "in"))
            if epoch == 0:
                session.execute(f"CREATE SOURCE files USING avro OPTIONS (path '{root}/in')")
                session.execute("CREATE MATERIALIZED VIEW copy AS SELECT * FROM files")
            session.flush()
            ours, theirs = (
                session.query("SELECT * FROM copy").to_pylist(),
                spark.read.format("avro").load(str(root / "in")).toArrow(),
            )
            assert sorted(map(repr, ours)) == sorted(map(repr, theirs.to_pylist())) != []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
