"""DAGs and runs, read from Airflow's database."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

LAST_TASK = "health"
"""The last task of a run of epochs. If only this one failed, the epochs are published, except for what it names."""


@dataclass(frozen=True, slots=True)
class Run:
    """The fields of a run that pages show."""

    dag_id: str
    run_id: str
    state: str
    begun: datetime | None
    ended: datetime | None
    interval: tuple[datetime, datetime] | None
    branch: str = ""  # of the store, on which it worked; empty: the store itself


def paused_dags(session: Session, dag_ids: Collection[str]) -> Mapping[str, bool]:
    """Map each of these DAGs to whether it is paused; DAGs that Airflow no longer has are omitted."""
    states = session.execute(
        select(DagModel.dag_id, DagModel.is_paused).where(DagModel.dag_id.in_(dag_ids), ~DagModel.is_stale)
    )
    return {dag_id: bool(paused) for dag_id, paused in states}


def last_runs(session: Session, dag_ids: Collection[str]) -> Mapping[str, Run]:
    """The most recently created run of each of these DAGs."""
    newest = select(func.max(DagRun.id)).where(DagRun.dag_id.in_(dag_ids)).group_by(DagRun.dag_id)
    return {run.dag_id: _run_facts(run) for run in session.scalars(select(DagRun).where(DagRun.id.in_(newest)))}


def find_run(session: Session, dag_id: str, run_id: str) -> Run | None:
    """One run; None if it does not exist."""
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    return None if run is None else _run_facts(run)


def failed_tasks(session: Session, runs: Collection[Run]) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Map each failed run, by DAG and run, to its failed tasks in the order of their ends. Cost: one query."""
    failed = [(run.dag_id, run.run_id) for run in runs if run.state == "failed"]
    tasks_by_run: dict[tuple[str, str], tuple[str, ...]] = dict.fromkeys(failed, ())
    asked = select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id).where(
        tuple_(TaskInstance.dag_id, TaskInstance.run_id).in_(failed), TaskInstance.state == "failed"
    )
    for dag_id, run_id, task in session.execute(asked.order_by(TaskInstance.end_date)) if failed else ():
        tasks_by_run[dag_id, run_id] += (task,)
    return tasks_by_run


def committed_epoch(session: Session, dag_id: str, run_id: str) -> int | None:
    """The epoch that a run's `commit_version` returned; None if that task has not finished."""
    asked = XComModel.get_many(run_id=run_id, key="return_value", task_ids="commit_version", dag_ids=dag_id, limit=1)
    stored_value = session.scalars(asked).first()
    value = None if stored_value is None else XComModel.deserialize_value(stored_value)
    return int(value["epoch"]) if isinstance(value, dict) and "epoch" in value else None


def _interval_of(conf: object) -> tuple[datetime, datetime] | None:
    """The interval in the params of a manual run; None if they set none, or not a valid one."""
    asked = conf if isinstance(conf, dict) else {}
    try:
        start, end = (datetime.fromisoformat(str(asked[name])) for name in ("start", "end"))
    except (KeyError, ValueError):
        return None
    return start, end


def _run_facts(run: DagRun) -> Run:
    start, end = run.data_interval_start, run.data_interval_end
    interval = (start, end) if start is not None and end is not None and start < end else _interval_of(run.conf)
    branch = str(run.conf.get("branch") or "") if isinstance(run.conf, dict) else ""
    return Run(run.dag_id, run.run_id, str(run.state), run.start_date, run.end_date, interval, branch)
