"""What the deadlines of `[freshness]` count from. Airflow's scheduler reads it back from a DAG's stored form, by way of the plugin."""

from datetime import datetime
from typing import Any

from airflow.sdk.definitions.deadline import BaseDeadlineReference

SCHEDULED = "scheduled"
"""The kind of runs that have a deadline: intervals of a backfill were over long ago, and a run by hand is waited for by whoever made it."""


class IntervalEnd(BaseDeadlineReference):
    """The end of a scheduled run's data interval; no deadline for a run of another kind."""

    required_kwargs = frozenset({"dag_id", "run_id"})

    def _evaluate_with(self, *, session: Any, dag_id: str, run_id: str, **_: Any) -> datetime | None:
        from airflow.models import DagRun
        from sqlalchemy import select

        found = session.execute(
            select(DagRun.run_type, DagRun.data_interval_end).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        ).one_or_none()
        return None if found is None or found[0] != SCHEDULED else found[1]
