"""Tables written by delta-spark and read by Spark and by the two libraries without Spark, and the reverse.

Runs in a separate Spark session, because Spark's jars do not include Delta.

python -m tests.support.jobs.sinks.delta_alone <empty directory>
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.sinks.shop import Rows, Shop, in_order, read_back, sorted_rows
from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.session import Session
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.publishing import DeltaSettings, TableEngine
from tussock.jobs.sinks.publication import TablesNotPublishedError, publish_tables, tidy_tables
from tussock.jobs.spark.session import spark_session


def by_spark(spark: SparkSession, place: str) -> Rows:
    return sorted_rows(spark.read.format("delta").load(place).toArrow())


def main(root: Path) -> None:
    shop = Shop(root)
    names = "orders", "events", "by_shop", "ratios"
    with_spark = DeltaSettings(str(root / "by_spark"), names, engine=TableEngine.SPARK)
    with spark_session(settings=with_delta({})) as spark:
        for number in range(4):
            shop.empty() if number == 2 else shop.change()
            epoch = shop.commit()
            shop.publish()
            for _ in range(2):  # the second time changes nothing
                publish_tables(shop.meta, with_spark, epoch, spark=spark)
                (root / "by_spark" / "_tussock" / f"{epoch:020}.json").unlink()
            model = shop.model()
            for name in names:
                expected = in_order(model[name])
                assert read_back(f"{root}/by_spark/{name}") == expected, (epoch, name)
                assert by_spark(spark, f"{root}/by_spark/{name}") == expected, (epoch, name)
                assert by_spark(spark, f"{root}/tables/{name}") == expected, (epoch, name)
        history = spark.sql(f"DESCRIBE HISTORY delta.`{root}/by_spark/orders`").collect()
        assert "MERGE" in {row.operation for row in history}, history
        assert len(history) <= 7, history  # one commit per epoch, and those for properties
        described = spark.sql(f"DESCRIBE DETAIL delta.`{root}/by_spark/orders`").collect()[0]
        assert described.properties["tussock.key"] == "id", described
        comments = {
            f.name: f.metadata.get("comment") for f in spark.read.format("delta").load(f"{root}/by_spark/orders").schema
        }
        assert comments["amount"] == "in euros", comments
        shop.change()
        shop.commit()
        for engine in ("deltalake", "spark"):
            crossed = replace(with_spark if engine == "deltalake" else shop.settings, engine=TableEngine(engine))
            with pytest.raises(TablesNotPublishedError, match="another engine writes"):
                publish_tables(shop.meta, crossed, spark=spark)
        tidy_tables(shop.meta, with_spark, 1 << 47, print, spark)
        publish_tables(shop.meta, with_spark, spark=spark)
        model = shop.model()
        for name in names:
            assert by_spark(spark, f"{root}/by_spark/{name}") == in_order(model[name]), name
        shutil.copytree(root / "store", root / "copy")
        shop.change()
        shop.commit()
        publish_tables(shop.meta, with_spark, spark=spark)
        shutil.rmtree(root / "store")
        (root / "copy").rename(root / "store")  # the store is restored: its tables return to an earlier epoch
        for _ in range(2):
            publish_tables(open_meta(shop.address), with_spark, spark=spark)
            for name in names:
                assert by_spark(spark, f"{root}/by_spark/{name}") == in_order(model[name]), name
        with Session(shop.address, create=False, runner="local") as session:
            session.insert("events", pa.table({"kind": ["again"], "n": pa.array([1], pa.int32())}))
            session.flush()
            publish_tables(session.meta, with_spark, spark=spark)
        assert by_spark(spark, f"{root}/by_spark/events") == in_order([*model["events"], ("again", 1)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
