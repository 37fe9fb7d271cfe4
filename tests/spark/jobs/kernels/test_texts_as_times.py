"""The recorded answers to unusual texts are those of the installed Spark."""

from pyspark.sql import SparkSession

from tests.support.jobs.kernels.texts_as_times import TEXTS_AS_NUMBERS, TEXTS_AS_TIMES, TYPES


def test_the_record_of_texts_equals_spark(spark: SparkSession) -> None:
    casts = [f"CAST(try_cast(c0 AS {kind}) AS string) AS {kind}" for kind in TYPES]
    numbers = ["try_cast(c0 AS double) AS d", "CAST(try_cast(c0 AS decimal(5,1)) AS string) AS m"]
    times = spark.createDataFrame([(text,) for text in TEXTS_AS_TIMES], "c0 string").selectExpr("c0", *casts)
    assert {text: (*values,) for text, *values in times.collect()} == TEXTS_AS_TIMES
    found = spark.createDataFrame([(text,) for text in TEXTS_AS_NUMBERS], "c0 string").selectExpr("c0", *numbers)
    assert {text: (*values,) for text, *values in found.collect()} == TEXTS_AS_NUMBERS
