"""The parts of Airflow whose place or form differs between the supported releases: 3.1, 3.2 and 3.3.

Airflow 3.1 lacks two features that `HAS_DEADLINES` and `HAS_PARTITIONS` stand for. Without them a DAG has no deadlines
for `[freshness]`, and events carry no day; `tussock status` and the pages show stale views in every release.
"""

from collections.abc import Sequence
from inspect import signature
from typing import Any

from airflow.sdk import Asset

try:
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
    from airflow.sdk.observability import stats

    if not hasattr(stats, "incr"):  # Airflow 3.2
        from airflow.sdk.observability.stats import Stats as stats  # type: ignore[no-redef]
except ImportError:  # Airflow 3.1
    from airflow.configuration import conf
    from airflow.exceptions import (  # type: ignore[attr-defined,no-redef] # isort: skip
        AirflowException,
        AirflowFailException,
        AirflowSkipException,
    )
    from airflow.stats import Stats as stats  # type: ignore[no-redef]

try:
    from airflow.sdk.definitions.deadline import BaseDeadlineReference, DeadlineAlert  # noqa: F401

    HAS_DEADLINES = True  # deadlines with a reference of our own
    NAMES_DEADLINES = "name" in signature(DeadlineAlert).parameters  # not in Airflow 3.2
except ImportError:
    HAS_DEADLINES = NAMES_DEADLINES = False

try:
    from airflow.sdk.execution_time.context import InletEventsAccessor

    HAS_PARTITIONS = True
except ImportError:
    HAS_PARTITIONS = False

__all__ = [
    "HAS_DEADLINES",
    "HAS_PARTITIONS",
    "NAMES_DEADLINES",
    "AirflowException",
    "AirflowFailException",
    "AirflowSkipException",
    "conf",
    "metric_name",
    "newest_events",
    "stats",
]


def newest_events(asset: Asset, limit: int) -> Sequence[Any]:
    """At most `limit` events of an asset, the newest first.

    Cost: one request to the API server. Airflow 3.1 answers with all events of the asset.
    """
    if HAS_PARTITIONS:
        return list(InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).ascending(False).limit(limit))
    from airflow.sdk.execution_time.context import InletEventsAccessors

    events = InletEventsAccessors([asset])[asset]
    return sorted(events, key=lambda event: event.timestamp, reverse=True)[:limit]


def metric_name(name: str) -> str:
    """The name as Airflow's metrics systems accept it."""
    if hasattr(stats, "normalize_name_for_stats"):
        return str(stats.normalize_name_for_stats(name, log_warning=False))
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.-/") else "_" for c in name)
