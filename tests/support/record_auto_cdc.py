"""Record the targets that Spark 4.3's own AUTO CDC makes of random changes, for tests/spark/jobs/sql/test_flows.py.

    python -m venv /tmp/spark43 && /tmp/spark43/bin/pip install pyspark==4.3.0 pyarrow
    /tmp/spark43/bin/python tests/support/record_auto_cdc.py tests/spark/jobs/sql/auto_cdc_of_spark.json

Spark's pipelines write a target by MERGE, which needs a catalog with row-level operations. This script calls the
classes behind the statement instead, with all changes in one micro-batch, so no stored row is merged.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

PACKAGE = "org.apache.spark.sql.pipelines.autocdc."
COLUMNS = "id bigint, at int, op string, name string, city string"
KEYS, MOST_CHANGES, SEED = 80, 12, 7
OWN = ("id", "name", "city")


def random_changes() -> Iterator[tuple[object, ...]]:
    """Changes of many keys in any order. The sequences of a key differ: Spark leaves the order of equal ones open."""
    chance = random.Random(SEED)
    changes = [
        (key, at, "D" if chance.random() < 0.25 else "U", chance.choice([None, "a", "b"]), chance.choice([None, "x"]))
        for key in range(KEYS)
        for at in chance.sample(range(40), chance.randrange(1, MOST_CHANGES))
    ]
    yield from chance.sample(changes, len(changes))


class AutoCdc:
    """Spark's classes, by Py4J."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._spark, self._jvm = spark, jvm
        self._classes = jvm.org.apache.spark.sql.pipelines.autocdc

    def rows_of_type_1(self, changes: DataFrame) -> list[list[object]]:
        """The current rows."""
        processor = self._classes.Scd1BatchProcessor(self._arguments("Type1"), self._type_of_sequence(changes))
        jdf = processor.deduplicateMicrobatch(changes._jdf)
        jdf = processor.extendMicrobatchRowsWithCdcMetadata(jdf)
        rows = DataFrame(processor.projectTargetColumnsOntoMicrobatch(jdf), self._spark)
        metadata = next(name for name in rows.columns if name not in (*OWN, "at", "op"))
        fields = rows.select(f"`{metadata}`.*").columns
        upsert = next(name for name in fields if "upsert" in name.lower())
        return _sorted_rows(rows.where(F.col(metadata)[upsert].isNotNull()).select(*OWN))

    def rows_of_type_2(self, changes: DataFrame, untracked: str | None) -> list[list[object]]:
        """The intervals."""
        processor = self._classes.Scd2BatchProcessor(
            self._arguments("Type2", untracked), self._type_of_sequence(changes)
        )
        shape = DataFrame(processor.preprocessMicrobatch(changes._jdf), self._spark).limit(0)
        marks = self._module("Scd2BatchProcessor")
        shape.write.mode("overwrite").saveAsTable("target")
        shape.withColumn(marks.deletedByBatchIdColName(), F.lit(None).cast("bigint")).write.mode(
            "overwrite"
        ).saveAsTable("auxiliary")
        names = [self._jvm.org.apache.spark.sql.catalyst.TableIdentifier(n) for n in ("auxiliary", "target")]
        handler = self._classes.Scd2ForeachBatchHandler(processor, *names)
        rows = DataFrame(handler.reconcileMicrobatch(changes._jdf, 0).reconciledAndRoutedDf(), self._spark)
        for_target = ~F.coalesce(F.col(marks.shouldRouteToAuxTableColName()), F.lit(False))
        return _sorted_rows(rows.where(for_target).select(*OWN, marks.startAtColName(), marks.endAtColName()))

    def _arguments(self, kind: str, untracked: str | None = None) -> Any:
        option = self._jvm.scala.Option
        track = option.empty() if untracked is None else option.apply(self._all_except(untracked))
        return self._classes.ChangeArgs(
            self._names("id"),
            F.col("at")._jc,
            self._module(f"ScdType${kind}"),
            option.apply((F.col("op") == "D")._jc),
            option.apply(self._all_except("op", "at")),
            track,
        )

    def _all_except(self, *names: str) -> Any:
        return getattr(self._classes, "ColumnSelection$ExcludeColumns")(self._names(*names))

    def _names(self, *names: str) -> Any:
        return self._jvm.PythonUtils.toSeq([self._classes.UnqualifiedColumnName(name) for name in names])

    def _module(self, name: str) -> Any:
        """A singleton object of Scala."""
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return loader.loadClass(f"{PACKAGE}{name}$").getField("MODULE$").get(None)

    @staticmethod
    def _type_of_sequence(changes: DataFrame) -> Any:
        return changes._jdf.schema().apply("at").dataType()


def _sorted_rows(rows: DataFrame) -> list[list[object]]:
    return sorted(map(list, rows.collect()), key=repr)


def main(path: str) -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", folder)
        spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.enabled", "false").getOrCreate()
        rows_of_changes = list(random_changes())
        changes, cdc = spark.createDataFrame(rows_of_changes, COLUMNS), AutoCdc(spark)
        recorded = {
            "spark": spark.version,
            "changes": rows_of_changes,
            "current": cdc.rows_of_type_1(changes),
            "history": cdc.rows_of_type_2(changes, None),
            "names": cdc.rows_of_type_2(changes, "city"),
        }
    lines = (f"{json.dumps(key)}: {_lines(value)}" for key, value in recorded.items())
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _lines(value: object) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n]"


if __name__ == "__main__":
    main(sys.argv[1])
