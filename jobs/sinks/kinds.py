"""Select the sinks for a pipeline's settings, and start Spark if they need it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tussock.jobs.lake.location import Location
from tussock.jobs.settings.pipeline import PublishSettings, TableEngine, TableKind
from tussock.jobs.sinks.base import Outline, Sink
from tussock.statestore.extras import extras_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tussock.jobs.sinks.publication import SinkOf


def needs_spark(settings: PublishSettings) -> bool:
    """Return whether publishing runs in a Spark application."""
    return settings.engine is TableEngine.SPARK


@contextmanager
def opened_sinks(settings: PublishSettings, application: str, spark_settings: Mapping[str, str]) -> Iterator["SinkOf"]:
    """Yield a factory of the pipeline's sinks; a Spark application runs during the block if they need it."""
    if not needs_spark(settings):
        yield sinks_without_spark(settings)
        return
    from tussock.jobs.lake.delta_packages import require_delta_release, with_delta
    from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
    from tussock.jobs.spark.session import spark_session

    require_delta_release()
    with jvm_errors_as_ours(), spark_session(application, with_delta(spark_settings)) as spark:
        yield sinks_on_spark(spark)


def sinks_without_spark(settings: PublishSettings) -> "SinkOf":
    """Return a factory of sinks that need no Spark."""

    def sink_of(location: Location, outline: Outline) -> Sink:
        if settings.kind is TableKind.PARQUET:
            from tussock.jobs.sinks.parquet import ParquetSink

            return ParquetSink(location, outline)
        with extras_named():
            from tussock.jobs.sinks.delta_rs import DeltaRsSink

        return DeltaRsSink(location, outline)

    return sink_of


def sinks_on_spark(spark: "SparkSession") -> "SinkOf":
    """Return a factory of sinks that need Spark. Requires: a session with delta_packages.with_delta."""
    with extras_named():
        from tussock.jobs.sinks.delta_spark import DeltaSparkSink

    return lambda location, outline: DeltaSparkSink(spark, location, outline)
