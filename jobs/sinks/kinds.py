"""Which sink a pipeline's settings ask for."""

from typing import TYPE_CHECKING

from jobs.settings.pipeline import PublishSettings
from jobs.sinks.base import Outline, Sink
from jobs.sinks.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.sinks.publication import SinkOf


def needs_spark(settings: PublishSettings) -> bool:
    """Whether publishing runs in a Spark application."""
    return settings.engine == "spark"


def sinks_without_spark(settings: PublishSettings) -> "SinkOf":
    """Makes the sinks of settings that need no Spark."""

    def sink_of(location: Location, outline: Outline) -> Sink:
        if settings.kind == "parquet":
            from jobs.sinks.parquet import ParquetSink

            return ParquetSink(location, outline)
        from jobs.sinks.delta_rs import DeltaRsSink

        return DeltaRsSink(location, outline)

    return sink_of


def sinks_on_spark(spark: "SparkSession") -> "SinkOf":
    """Makes the sinks of settings that need Spark."""
    from jobs.sinks.delta_spark import DeltaSparkSink

    return lambda location, outline: DeltaSparkSink(spark, location, outline)
