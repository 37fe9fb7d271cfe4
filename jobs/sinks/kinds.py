"""Select the sinks for a pipeline's settings."""

from typing import TYPE_CHECKING, assert_never

from tussock.jobs.delta.location import Location
from tussock.jobs.settings.tables import PublishSettings, TableEngine, TableKind
from tussock.jobs.sinks.base import Outline, Sink
from tussock.statestore.extras import extras_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tussock.jobs.sinks.publication import SinkOf


def needs_spark(settings: PublishSettings) -> bool:
    """Return whether publishing runs in a Spark application."""
    return settings.engine is TableEngine.SPARK


def sinks_without_spark(settings: PublishSettings) -> "SinkOf":
    """Return a factory of sinks that need no Spark."""

    def sink_of(location: Location, outline: Outline) -> Sink:
        match settings.kind:
            case TableKind.PARQUET:
                from tussock.jobs.sinks.parquet import ParquetSink

                return ParquetSink(location, outline)
            case TableKind.DELTA:
                with extras_named():
                    from tussock.jobs.sinks.delta_rs import DeltaRsSink

                return DeltaRsSink(location, outline)
            case _:
                assert_never(settings.kind)

    return sink_of


def sinks_on_spark(spark: "SparkSession") -> "SinkOf":
    """Return a factory of sinks that need Spark. Requires: a session with delta_packages.with_delta."""
    with extras_named():
        from tussock.jobs.sinks.delta_spark import DeltaSparkSink

    return lambda location, outline: DeltaSparkSink(spark, location, outline)
