"""The messages for damaged Avro files, as JSON by damage.

Runs in a separate Spark session, because Spark's jars do not include the Avro module.

python -m tests.support.end_to_end.avro_damages_alone <empty directory>
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.deep.end_to_end.test_damages import OF_BYTES, damaged, spoilt_bytes
from tussock.jobs.spark.session import spark_session

PACKAGE = f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"
OF_TYPES = {
    "column a is a string": "SELECT '1' AS a, 'x' AS s",
    "column a is wider": "SELECT 1L AS a, 'x' AS s",
    "column a is missing": "SELECT 'x' AS s",
    "column s is a list": "SELECT 1 AS a, array('x') AS s",
}


def made(spark: SparkSession, folder: Path, query: str) -> bytes:
    """An Avro file of a query's rows."""
    spark.sql(query).coalesce(1).write.mode("overwrite").format("avro").save(str(folder))
    (file,) = folder.glob("*.avro")
    return file.read_bytes()


def main(root: Path) -> None:
    with spark_session(settings={"spark.jars.packages": PACKAGE}) as spark:
        whole = made(spark, root / "made", "SELECT CAST(id AS int) AS a, 'x' AS s FROM range(1, 4)")
        damages: dict[str, Callable[[Path], object]] = {}
        for what, change in spoilt_bytes().items():
            damages[what] = lambda folder, change=change: (  # type: ignore[misc]
                (folder / "b.avro").write_bytes(change(bytearray(whole)))
            )
        damages["a name that is not UTF-8"] = OF_BYTES["a name that is not UTF-8"]
        for what, query in OF_TYPES.items():
            data = made(spark, root / "made", query)
            damages[what] = lambda folder, data=data: (folder / "b.avro").write_bytes(data)  # type: ignore[misc]
        found = {
            what: damaged(spark, root / f"avro{n}", "avro", what, damage)
            for n, (what, damage) in enumerate(damages.items())
        }
    (root / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
