"""Tables with deletion vectors, compacted and purged by Spark between epochs, and read equal by Spark and the package.

python -m tests.support.jobs.sinks.located_alone <empty directory> [<epochs>]
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.jobs.sinks.shop import Shop, in_order, read_back, sorted_rows
from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.sinks.publication import tidy_tables
from tussock.jobs.spark.session import spark_session

NAMES = ("orders", "by_shop", "ratios", "events", "shops")


def compact(spark: SparkSession, place: str, number: int) -> None:
    """Rewrite the files of a table without changing rows, as another team's maintenance does."""
    spark.sql(f"OPTIMIZE delta.`{place}`")
    if number % 4 == 3:
        spark.sql(f"REORG TABLE delta.`{place}` APPLY (PURGE)")


def main(root: Path, epochs: int) -> None:
    """Run epochs, and compare every table after each."""
    shop = Shop(root)
    with spark_session(settings=with_delta({})) as spark:
        for number in range(epochs):
            if number % 2:
                for name in NAMES:
                    compact(spark, f"{root}/tables/{name}", number)
            if number % 10 == 9:
                tidy_tables(shop.meta, shop.settings, 0)
            shop.change()
            epoch = shop.commit()
            shop.publish()
            for name, rows in shop.model().items():
                place, expected = f"{root}/tables/{name}", in_order(rows)
                assert read_back(place) == expected, (epoch, name)
                assert sorted_rows(spark.read.format("delta").load(place).toArrow()) == expected, (epoch, name)
            print(f"{number + 1} epochs", flush=True)
        writers = {row.operation for row in spark.sql(f"DESCRIBE HISTORY delta.`{root}/tables/orders`").collect()}
        assert {"MERGE", "OPTIMIZE"} <= writers, writers


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50)
