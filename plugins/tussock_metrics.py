"""The pipeline's numbers in Airflow's own metrics, at the end of its tasks: StatsD, Datadog or OpenTelemetry, as Airflow is set.

They go through the facade that Airflow's task runner sends its own numbers by, which it sets up in each task. Where Airflow sends none,
nothing is looked up. What goes wrong here is logged and fails no task.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tussock_airflow import conf, metric_name, stats
from tussock_steps import opened

if TYPE_CHECKING:
    from tussock.jobs.facts.metrics import MetricFacts
    from tussock.statestore.meta.store import MetaStore

log = logging.getLogger(__name__)

_SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")  # of Airflow's section [metrics]


def wanted() -> bool:
    """Whether Airflow sends metrics."""
    return any(conf.getboolean("metrics", switch, fallback=False) for switch in _SWITCHES)


def send(pipeline: str, found: "Iterable[MetricFacts]") -> None:
    """Hand numbers to Airflow, each with the pipeline as its tag; systems without tags have it in the name."""
    from tussock.jobs.facts.metrics import MetricKind

    for metric in found:
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
    """At the end of the block, however it ends: the epochs that were committed in it, and the store's shape."""
    before = None
    with _failing_nothing(pipeline):
        before = _open(pipeline).latest().epoch if wanted() else None
    try:
        yield
    finally:
        if before is not None:
            with _failing_nothing(pipeline):
                _send_epochs(pipeline, before)


def _send_epochs(pipeline: str, before: int) -> None:
    from tussock.jobs.facts.epochs import epochs
    from tussock.jobs.facts.metrics import epoch_metrics, store_metrics
    from tussock.jobs.facts.store import store

    meta = _open(pipeline)
    version = meta.latest()
    new = sum(epoch > before for epoch in version.epochs)
    send(pipeline, epoch_metrics(epochs(meta, new, version=version) if new else ()))
    send(pipeline, store_metrics(store(version)))


def send_views(pipeline: str) -> None:
    """The views and sources as they stand. Cost: as `tussock.jobs.facts.sources.sources` and `tussock.jobs.facts.views.views`."""
    with _failing_nothing(pipeline):
        if not wanted():
            return
        from tussock.jobs.facts.epochs import epochs
        from tussock.jobs.facts.metrics import source_metrics, view_metrics
        from tussock.jobs.facts.sources import sources
        from tussock.jobs.facts.status import now_of
        from tussock.jobs.facts.views import views
        from tussock.jobs.settings.process import clock_ms

        meta = _open(pipeline)
        version = meta.latest()
        waits, newest = sources(meta, version), epochs(meta, 1, version=version)
        send(pipeline, source_metrics(waits))
        send(
            pipeline,
            view_metrics(
                views(meta, now_of(clock_ms()), version, sources=waits, newest=newest[-1] if newest else None)
            ),
        )


def send_upkeep(pipeline: str, removed: tuple[int, int] | None = None) -> None:
    """The store's shape after a compaction or a vacuum. `removed`: objects and bytes that a vacuum has removed."""
    with _failing_nothing(pipeline):
        if not wanted():
            return
        from tussock.jobs.facts.metrics import store_metrics, vacuum_metrics
        from tussock.jobs.facts.store import VacuumFacts, store

        send(pipeline, store_metrics(store(_open(pipeline).latest())))
        if removed is not None:
            send(pipeline, vacuum_metrics(VacuumFacts(*removed, kept_bytes=0)))


def _open(pipeline: str) -> "MetaStore":
    return opened(pipeline).meta


@contextmanager
def _failing_nothing(pipeline: str) -> Iterator[None]:
    try:
        yield
    except Exception as err:  # the task has done its work, whatever becomes of its numbers
        log.warning("metrics of pipeline %s were not sent: %s: %s", pipeline, type(err).__name__, err)
