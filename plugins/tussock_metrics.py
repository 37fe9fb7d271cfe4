"""The pipeline's metrics, sent at the end of tasks through Airflow's own metrics system.

The systems are StatsD, Datadog and OpenTelemetry. The task runner sets up Airflow's metrics facade in each task. If
Airflow sends no metrics, nothing is looked up. Errors here are logged and fail no task.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tussock_airflow import conf, metric_name, stats
from tussock_steps import open_pipeline_store

if TYPE_CHECKING:
    from tussock.jobs.facts.metrics import MetricFacts
    from tussock.jobs.facts.status import Status
    from tussock.statestore.meta.store import MetaStore

log = logging.getLogger(__name__)

_SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")  # in Airflow's section [metrics]


def sends_metrics() -> bool:
    """Whether Airflow sends metrics."""
    return any(conf.getboolean("metrics", switch, fallback=False) for switch in _SWITCHES)


def send_metrics(pipeline: str, metrics: "Iterable[MetricFacts]") -> None:
    """Send metrics with the pipeline as a tag; the name contains it too, for systems without tags."""
    from tussock.jobs.facts.metrics import MetricKind

    for metric in metrics:
        name = metric_name(f"tussock.{pipeline}.{metric.name}")
        tags = {"pipeline": pipeline}
        match metric.kind:
            case MetricKind.COUNT:
                stats.incr(name, int(metric.value), tags=tags)
            case MetricKind.GAUGE:
                stats.gauge(name, metric.value, tags=tags)
            case MetricKind.MS:
                stats.timing(name, metric.value, tags=tags)


@contextmanager
def sends_epochs(pipeline: str) -> Iterator[None]:
    """Send metrics of the epochs committed in the block, and of the store, when the block ends or raises."""
    before = None
    with _failing_nothing(pipeline):
        before = _open_meta(pipeline).read_latest().epoch if sends_metrics() else None
    try:
        yield
    finally:
        if before is not None:
            with _failing_nothing(pipeline):
                _send_epochs(pipeline, before)


def _send_epochs(pipeline: str, before: int) -> None:
    from tussock.jobs.facts.epochs import list_epochs
    from tussock.jobs.facts.metrics import epoch_metrics, store_metrics
    from tussock.jobs.facts.store import store_shape

    meta = _open_meta(pipeline)
    version = meta.read_latest()
    new = sum(epoch > before for epoch in version.epochs)
    send_metrics(pipeline, epoch_metrics(list_epochs(meta, new, version=version) if new else ()))
    send_metrics(pipeline, store_metrics(store_shape(version)))


def send_health(pipeline: str, status: "Status") -> None:
    """Send metrics of the health, the views and the sources. Cost: none beyond the status."""
    with _failing_nothing(pipeline):
        if not sends_metrics():
            return
        from tussock.jobs.facts.metrics import health_metrics, source_metrics, view_metrics

        send_metrics(pipeline, health_metrics(status.troubles))
        send_metrics(pipeline, source_metrics(status.sources))
        send_metrics(pipeline, view_metrics(status.views))


def send_unreadable(pipeline: str, err: Exception) -> None:
    """Send the health of a pipeline whose definition or store could not be read because of an error."""
    with _failing_nothing(pipeline):
        if not sends_metrics():
            return
        from tussock.jobs.facts.metrics import health_metrics
        from tussock.jobs.facts.unopened import trouble_of_unopened

        send_metrics(pipeline, health_metrics((trouble_of_unopened(err, None),)))


def send_upkeep(pipeline: str, removed: tuple[int, int] | None = None) -> None:
    """Send metrics of the store after a compaction or a vacuum. `removed`: objects and bytes removed by a vacuum."""
    with _failing_nothing(pipeline):
        if not sends_metrics():
            return
        from tussock.jobs.facts.metrics import store_metrics, vacuum_metrics
        from tussock.jobs.facts.store import VacuumFacts, store_shape

        send_metrics(pipeline, store_metrics(store_shape(_open_meta(pipeline).read_latest())))
        if removed is not None:
            send_metrics(pipeline, vacuum_metrics(VacuumFacts(*removed, kept_bytes=0)))


def _open_meta(pipeline: str) -> "MetaStore":
    return open_pipeline_store(pipeline).meta


@contextmanager
def _failing_nothing(pipeline: str) -> Iterator[None]:
    try:
        yield
    except Exception as err:  # the task's work is done, so metrics must not fail it
        log.warning("Could not send the metrics of pipeline %s: %s: %s", pipeline, type(err).__name__, err)
