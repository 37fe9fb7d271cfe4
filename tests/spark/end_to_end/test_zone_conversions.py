"""Every conversion by a time zone, from 1900 to 2100, against Spark; and the list of the modules that convert.

Spark converts by the JVM's rules, which the test records. CI takes one zone in 40, the deep run takes all.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.support.end_to_end.zone_conversions import probes, wrong_conversions, zones
from tussock.jobs.settings.java_zones import java_zones

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _compare(spark: "SparkSession", names: list[str]) -> list[str]:
    """The wrong conversions of zones. Spark computes its side of all zones in one query."""
    from tussock.jobs.spark.session import sql_session
    from tussock.jobs.spark.zones import rules_of_jvm

    asked = {name: probes(rules_of_jvm(spark, name)) for name in names}
    session = sql_session(spark, "UTC")
    rows = [(name, n, micros) for name, times in asked.items() for n, micros in enumerate(times)]
    table = pa.table(dict(zip(("zone", "n", "us"), map(list, zip(*rows, strict=True)), strict=True)))
    answers = (
        session.createDataFrame(table)
        .selectExpr(
            "zone",
            "n",
            "unix_micros(from_utc_timestamp(timestamp_micros(us), zone)) AS to_local",
            "unix_micros(to_utc_timestamp(timestamp_micros(us), zone)) AS to_instant",
        )
        .toArrow()
        .sort_by([("zone", "ascending"), ("n", "ascending")])
    )
    found: list[str] = []
    for name, times in asked.items():
        mine = answers.filter(pa.compute.equal(answers["zone"], name))
        sides = mine["to_local"].to_pylist(), mine["to_instant"].to_pylist()
        found += wrong_conversions(name, times, *sides, rules_of_jvm(spark, name).ruled_zone)
    return found


@pytest.mark.spark
def test_every_converter_equals_spark(spark: "SparkSession") -> None:
    assert _compare(spark, [*zones(40), "America/Vancouver", "Africa/Casablanca", "Europe/Oslo"]) == []


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_every_converter_equals_spark_in_all_zones(spark: "SparkSession") -> None:
    assert _compare(spark, zones(1)) == []


@pytest.mark.spark
def test_the_file_of_java_has_the_rules_of_the_jvm(spark: "SparkSession") -> None:
    """Of the Java that Spark runs in."""
    from tussock.jobs.spark.zones import rules_of_jvm

    java = java_zones()
    assert java is not None
    for name in zones(20):
        rules = java.rules(name)
        assert rules is not None
        assert rules.digest == rules_of_jvm(spark, name).digest, name
