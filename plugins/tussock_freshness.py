"""Deadlines: a scheduled run is to publish a view so long after its interval's end, as `[freshness]` of pipeline.toml says.

Airflow makes a deadline with each run, and calls when the run has not succeeded by then. What is called looks into the store, since a run
may be late and the view fresh, or nothing new there; and says once that a view is too old, however many runs are late.

What Airflow 3.3 cannot do: a deadline hangs on a run. Where none is made (a DAG that is paused, no schedule, a scheduler that is down)
there is no deadline, and nobody is called; `tussock status` and the pages look at the store alone, and say it. It is called by the
triggerer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tussock_airflow import HAS_DEADLINES
from tussock_steps import opened

from tussock.jobs.settings.pipeline import Pipeline

if TYPE_CHECKING:
    from airflow.sdk.definitions.deadline import DeadlineAlert

    from tussock.jobs.operations.alerts import AgeLook

log = logging.getLogger(__name__)


def deadlines(pipeline: Pipeline) -> "list[DeadlineAlert]":
    """One deadline per view that has a freshness. Airflow 3.1 has no such deadlines; see `missing_deadlines`."""
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
            name=f"{view} is published",
        )
        for view, wanted_ms in pipeline.freshness.items()
    ]


def missing_deadlines(pipeline: Pipeline) -> str:
    """The note of a DAG whose deadlines the installed Airflow cannot keep; empty if it can."""
    if HAS_DEADLINES or not pipeline.freshness:
        return ""
    return (
        "\n\nThe deadlines of `[freshness]` need Airflow 3.2 or later: no alert is sent when a view is stale. "
        f"`tussock status {pipeline.name}` and the pages show stale views."
    )


async def say_if_stale(
    pipeline: str,
    view: str,
    context: Mapping[str, Any] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Say that a view is too old, unless somebody has, or it is not. Returns what it found, which Airflow keeps with the callback.

    A change may have come late in the interval, so that it is not too old yet: then this waits until it is, or is seen by readers.
    """
    while True:
        found = await asyncio.to_thread(_look, pipeline, view)
        if found.wait_s is None:
            return found.said
        log.info("%s; looks again in %.0f s", found.said, found.wait_s)
        await sleep(found.wait_s)


def _look(pipeline: str, view: str) -> "AgeLook":
    from tussock.jobs.operations.alerts import say_if_stale as report

    return report(opened(pipeline), view)
