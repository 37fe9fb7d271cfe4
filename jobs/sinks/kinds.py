"""The registry of sinks: opens the place of a sink by its kind."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.sinks.base import OpenPlace, Publisher, SinkPlace
from tussock.statestore.extras import extras_named

_MODULES: Mapping[str, str] = {
    "delta": "tussock.jobs.sinks.delta",
    "iceberg": "tussock.jobs.sinks.iceberg",
    "parquet": "tussock.jobs.sinks.parquet",
    "postgres": "tussock.jobs.sinks.postgres",
    "kafka": "tussock.jobs.sinks.kafka",
}
"""The module of each kind. Its `open_place` is an OpenPlace. It is imported when a sink of the kind is opened, since it
may need an extra."""


@contextmanager
def open_place(settings: PublishSettings, publisher: Publisher) -> Iterator[SinkPlace]:
    """Open the place of a sink. Raises BadStoreError, MissingExtraError, and the errors of its kind."""
    with extras_named():
        opener: OpenPlace = import_module(_MODULES[settings.kind]).open_place
        with opener(settings, publisher) as place:
            yield place
