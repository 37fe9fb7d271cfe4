"""The reference of the deadlines of `[freshness]`.

The plugin registers it, so that Airflow's scheduler can restore it from a stored DAG.
"""

from datetime import datetime
from typing import Any

from airflow.sdk.definitions.deadline import BaseDeadlineReference

SCHEDULED, BY_ASSETS = "scheduled", "asset_triggered"
"""The types of runs with a deadline. Intervals of a backfill ended long ago, and a user watches a manual run."""


class IntervalEnd(BaseDeadlineReference):
    """The end of a scheduled run's data interval, or the events that started a run; other runs have no deadline."""

    required_kwargs = frozenset({"dag_id", "run_id"})

    def _evaluate_with(self, *, session: Any, dag_id: str, run_id: str, **_: Any) -> datetime | None:
        from airflow.models import DagRun
        from sqlalchemy import select

        run = session.execute(
            select(DagRun.run_type, DagRun.data_interval_end, DagRun.run_after).where(
                DagRun.dag_id == dag_id, DagRun.run_id == run_id
            )
        ).one_or_none()
        if run is None or run[0] not in (SCHEDULED, BY_ASSETS):
            return None
        deadline: datetime | None = run[1] if run[0] == SCHEDULED else run[2]
        return deadline
