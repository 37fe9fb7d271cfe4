"""Delta tables as a kind of sink: one folder per relation, written by one of two engines."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tussock.jobs.delta.location import location_of
from tussock.jobs.settings.publishing import DeltaSettings, PublishSettings, writes_with_spark
from tussock.jobs.sinks.base import Publisher, SinkPlace
from tussock.jobs.sinks.folder import FolderPlace


@contextmanager
def open_place(settings: PublishSettings, publisher: Publisher) -> Iterator[SinkPlace]:
    """See OpenPlace."""
    location = location_of(settings.to)
    if not writes_with_spark(settings):
        from tussock.jobs.sinks.delta_located import DeltaLocatedSink
        from tussock.jobs.sinks.delta_rs import DeltaRsSink

        store = publisher.meta.objects
        by_vectors = isinstance(settings, DeltaSettings) and settings.deletion_vectors
        yield FolderPlace(location, partial(DeltaLocatedSink, store=store) if by_vectors else DeltaRsSink)
        return
    from tussock.jobs.sinks.delta_spark import DeltaSparkSink

    spark = publisher.spark
    assert spark is not None, "tussock.jobs.operations.tables starts Spark for such a sink"
    yield FolderPlace(location, lambda at, outline: DeltaSparkSink(spark, at, outline))
