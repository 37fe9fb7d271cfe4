"""Airflow connections for code below Airflow, which reads them from variables of the environment, as Airflow does."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from tussock_airflow import AirflowException

from tussock.jobs.settings.connections import connection_variable
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.publishing import AIRFLOW_CONNECTION, PublishSettings

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore


def set_connection_of_sink(sink: PublishSettings) -> None:
    """Set the variable of the connection that a sink names."""
    if sink.to.startswith(AIRFLOW_CONNECTION):
        _set_connections([sink.to.removeprefix(AIRFLOW_CONNECTION)])


def set_connections_of_sources(store: "PipelineStore") -> None:
    """Set the variables of the connections that a store's sources refer to. Cost: reads the newest version."""
    from tussock.jobs.catalog.definition import source_of
    from tussock.jobs.sources.credentials import connections_named

    for relation in store.meta.read_latest().catalog.live_relations():
        if (source := source_of(relation)) is not None:
            _set_connections(connections_named(source.options))


def set_connections_of_files(pipeline: Pipeline) -> None:
    """Set the variables of the connections that a pipeline's SQL files refer to."""
    from tussock.jobs.sources.credentials import connections_named

    for path, text in pipeline.read_scripts():
        _set_connections(connections_named({str(path): text}))


def _set_connections(names: Iterable[str]) -> None:
    """Set the variables of connections. The user of a connection reports one that Airflow does not have."""
    for name in names:
        try:
            os.environ[connection_variable(name)] = BaseHook.get_connection(name).get_uri()
        except AirflowException:
            continue
