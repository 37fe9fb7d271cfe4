"""Deadlines: a scheduled run must publish a view within a time after its interval's end, as set in `[freshness]`.

Airflow attaches a deadline to each run, and calls back if the run has not succeeded by then. The callback reads the
store, since the view may be fresh although the run is late. It reports a stale view once, however many runs are late.

Limit of Airflow 3.3: a deadline belongs to a run. Without a run (a paused DAG, no schedule, a stopped scheduler) there
is no alert. `tussock status` and the pages read only the store, and show stale views in every case. The triggerer runs
the callback.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tussock_airflow import HAS_DEADLINES, NAMES_DEADLINES
from tussock_notify import send_late
from tussock_steps import open_pipeline_store, pipeline_of

from tussock.jobs.settings.pipeline import Pipeline

if TYPE_CHECKING:
    from airflow.sdk.definitions.deadline import DeadlineAlert

    from tussock.jobs.operations.alerts import AgeLook

log = logging.getLogger(__name__)


def view_deadlines(pipeline: Pipeline) -> "list[DeadlineAlert]":
    """One deadline per view with a freshness. Airflow 3.1 does not support them; see `missing_deadlines`."""
    if not HAS_DEADLINES:
        return []
    from airflow.sdk.definitions.callback import AsyncCallback
    from airflow.sdk.definitions.deadline import DeadlineAlert
    from tussock_deadline import IntervalEnd

    return [
        DeadlineAlert(
            reference=IntervalEnd(),
            interval=timedelta(milliseconds=wanted_ms),
            callback=AsyncCallback(say_if_stale, {"pipeline": pipeline.name, "view": view}),
            **({"name": f"{view} is published"} if NAMES_DEADLINES else {}),
        )
        for view, wanted_ms in pipeline.freshness.items()
    ]


def missing_deadlines(pipeline: Pipeline) -> str:
    """The note for a DAG whose deadlines the installed Airflow does not support; empty if it does."""
    if HAS_DEADLINES or not pipeline.freshness:
        return ""
    return (
        "\n\nThe deadlines of `[freshness]` need Airflow 3.2 or later: no alert is sent when a view is stale. "
        f"`tussock status {pipeline.argument}` and the pages show stale views."
    )


async def say_if_stale(
    pipeline: str,
    view: str,
    context: Mapping[str, Any] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Report a stale view, unless it was reported before. Return the finding, which Airflow stores with the callback.

    If the oldest unseen change arrived late in the interval, wait until the view is stale or readers see the change.
    """
    while True:
        staleness = await asyncio.to_thread(_look_at_age, pipeline, view)
        if staleness.is_news:
            await send_late(pipeline_of(pipeline), view, staleness.said, context or {})
        if staleness.wait_s is None:
            return staleness.said
        log.info("%s; next check in %.0f s", staleness.said, staleness.wait_s)
        await sleep(staleness.wait_s)


def _look_at_age(pipeline: str, view: str) -> "AgeLook":
    from tussock.jobs.operations.alerts import say_if_stale as report

    return report(open_pipeline_store(pipeline), view)
