"""Alerts: a view that is older than the pipeline wants it is reported once, until it is fresh again."""

import logging
from dataclasses import dataclass
from importlib import import_module

from tussock.jobs.facts import staleness as facts
from tussock.jobs.operations.store import PipelineStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgeLook:
    """What came of a look at a view's age. `wait_s`: after so long it would be too old; None: there is nothing to wait for."""

    said: str
    wait_s: float | None = None


def say_if_stale(at: PipelineStore, view: str) -> AgeLook:
    """Report that a view is older than the pipeline wants it, once since it got so: in the log, and to the function of `[alerts] call`.

    Raises what that function raises, after it was noted that it was called: the report is not repeated.
    """
    pipeline, meta, now = at.pipeline, at.meta, at.now
    if (wanted_ms := pipeline.freshness.get(view)) is None:
        return AgeLook(f"view {view} has no freshness any more")
    if (found := facts.staleness(meta, view, wanted_ms, now)) is None:
        return AgeLook(f"pipeline {pipeline.name} has no view {view}")
    if not found.too_old:
        facts.let_go(meta, {view: wanted_ms}, now)
    if not found.behind:
        return AgeLook(f"view {view} is up to date")
    if not found.too_old:
        return AgeLook(str(found), found.wanted_s - (found.age_s or 0.0) + 1.0)
    if not facts.first_to_say(meta, found, now):
        return AgeLook(f"{found}; it has been said")
    log.error("pipeline %s: %s", pipeline.name, found)
    if pipeline.alerts.call is not None:
        module, _, function = pipeline.alerts.call.rpartition(".")
        getattr(import_module(module), function)(pipeline.name, view, str(found))
    return AgeLook(str(found))


def let_go(at: PipelineStore) -> None:
    """Forget the reports of views that are not too old any more. Cost: a HEAD for each view with a freshness."""
    if at.pipeline.freshness:
        facts.let_go(at.meta, at.pipeline.freshness, at.now)
