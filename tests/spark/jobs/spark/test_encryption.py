"""The settings with which Spark encrypts, read as Spark reads them."""

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from tests.support.jobs.spark.encryption import BLANKS, TEXTS
from tussock.jobs.spark.encryption import FILES, TRAFFIC, is_on


@pytest.mark.spark
@pytest.mark.parametrize("name", [*TRAFFIC, *FILES])
def test_spark_reads_the_settings_in_the_same_way(name: str, spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    entry = jvm.org.apache.spark.internal.config.ConfigEntry.findEntry(name)
    for text in TEXTS:
        conf = jvm.org.apache.spark.SparkConf(False).set(name, text)
        ours = is_on(SparkConf(loadDefaults=False).set(name, text), name)
        assert conf.getBoolean(name, False) is ours, text
    for text in BLANKS if entry is not None else ():
        conf = jvm.org.apache.spark.SparkConf(False).set(name, text)
        assert conf.get(entry) is is_on(SparkConf(loadDefaults=False).set(name, text), name), text
