"""The reference of the deadlines of `[freshness]`.

The plugin registers it, so that Airflow's scheduler can restore it from a stored DAG.
"""

from datetime import datetime
from typing import Any

from airflow.sdk.definitions.deadline import BaseDeadlineReference

SCHEDULED = "scheduled"
"""The only type of run with a deadline. Intervals of a backfill ended long ago, and a user watches a manual run."""


class IntervalEnd(BaseDeadlineReference):
    """The end of a scheduled run's data interval; runs of other types have no deadline."""

    required_kwargs = frozenset({"dag_id", "run_id"})

    def _evaluate_with(self, *, session: Any, dag_id: str, run_id: str, **_: Any) -> datetime | None:
        from airflow.models import DagRun
        from sqlalchemy import select

        run = session.execute(
            select(DagRun.run_type, DagRun.data_interval_end).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        ).one_or_none()
        return None if run is None or run[0] != SCHEDULED else run[1]
