"""Which sinks a pipeline's settings ask for, and what they run on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.settings.pipeline import PublishSettings, TableEngine, TableKind
from jobs.sinks.base import Outline, Sink
from jobs.sinks.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.sinks.publication import SinkOf


def needs_spark(settings: PublishSettings) -> bool:
    """Whether publishing runs in a Spark application."""
    return settings.engine is TableEngine.SPARK


@contextmanager
def opened_sinks(settings: PublishSettings, application: str, spark_settings: Mapping[str, str]) -> Iterator["SinkOf"]:
    """What makes the sinks of a pipeline, while the block runs; a Spark application where they need one."""
    if not needs_spark(settings):
        yield sinks_without_spark(settings)
        return
    from jobs.settings.jvm_errors import jvm_errors_as_ours
    from jobs.sinks.delta_packages import with_delta
    from jobs.spark import spark_session

    with jvm_errors_as_ours(), spark_session(application, with_delta(spark_settings)) as spark:
        yield sinks_on_spark(spark)


def sinks_without_spark(settings: PublishSettings) -> "SinkOf":
    """Makes the sinks of settings that need no Spark."""

    def sink_of(location: Location, outline: Outline) -> Sink:
        if settings.kind is TableKind.PARQUET:
            from jobs.sinks.parquet import ParquetSink

            return ParquetSink(location, outline)
        from jobs.sinks.delta_rs import DeltaRsSink

        return DeltaRsSink(location, outline)

    return sink_of


def sinks_on_spark(spark: "SparkSession") -> "SinkOf":
    """Makes the sinks of settings that need Spark. Requires: a session with delta_packages.with_delta."""
    from jobs.sinks.delta_spark import DeltaSparkSink

    return lambda location, outline: DeltaSparkSink(spark, location, outline)
