"""Alerts: report a stale view once, until it is fresh again."""

import logging
from dataclasses import dataclass
from importlib import import_module

from tussock.jobs.facts import staleness as facts
from tussock.jobs.operations.store import PipelineStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgeLook:
    """The result of an age check.

    Args:
        wait_s: seconds until the view becomes stale; None if that cannot happen.
        is_news: the view is stale, and no earlier check reported it.
    """

    said: str
    wait_s: float | None = None
    is_news: bool = False


def say_if_stale(store: PipelineStore, view: str) -> AgeLook:
    """Report a view that is stale, once per staleness: in the log, and with the function of `[alerts] call`.

    Raises the errors of that function. The call is recorded before it is made, so the report is not repeated.
    """
    pipeline, meta, now = store.pipeline, store.meta, store.now
    if (wanted_ms := pipeline.freshness.get(view)) is None:
        return AgeLook(f"view {view} no longer has a freshness")
    if (staleness := facts.measure_staleness(meta, view, wanted_ms, now)) is None:
        return AgeLook(f"pipeline {pipeline.name} has no view {view}")
    if not staleness.too_old:
        facts.delete_past_alerts(meta, {view: wanted_ms}, now)
    if not staleness.behind:
        return AgeLook(f"view {view} is up to date")
    if not staleness.too_old:
        return AgeLook(str(staleness), staleness.wanted_s - (staleness.age_s or 0.0) + 1.0)
    if not facts.first_to_say(meta, staleness, now):
        return AgeLook(f"{staleness}; already reported")
    log.error("pipeline %s: %s", pipeline.name, staleness)
    if pipeline.alerts.call is not None:
        module, _, function = pipeline.alerts.call.rpartition(".")
        getattr(import_module(module), function)(pipeline.name, view, str(staleness))
    return AgeLook(str(staleness), is_news=True)


def end_past_alerts(store: PipelineStore) -> None:
    """Delete the reports of views that are no longer stale. Cost: a HEAD per view with a freshness."""
    if store.pipeline.freshness:
        facts.delete_past_alerts(store.meta, store.pipeline.freshness, store.now)
