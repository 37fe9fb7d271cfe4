"""Assets, and what Airflow is told of them: an asset for each source, view and table outside of the store, an event when there is something
new of it.

**What was said is kept by Airflow**, in the events themselves: it stores a task's events in the transaction that marks the task as
successful. So the newest event of an asset says how far Airflow was told, and the next one goes on from there (`since`), whatever failed,
was retried, cleared or never ran in between. Nothing is said twice but where two tasks ask at the same moment, which `ONE_AT_A_TIME` keeps
them from.

**Backfills are quiet**: a run of one says nothing while another run of a backfill is still to come, and the last says all of it. Not where
events carry partitions: DAGs that go by them would never run for the days that are not named.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.comms import GetPreviousDagRun
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from pydantic import JsonValue
from tussock_airflow import newest_events
from tussock_steps import opened
from tussock_turn import FINISHED, run_of

from tussock.jobs.settings.pipeline import Pipeline
from tussock.statestore.meta.catalog import RelationKind

if TYPE_CHECKING:
    from tussock.jobs.operations.news import Told

log = logging.getLogger(__name__)

OWED_EVENTS = "owed_events"
ONE_AT_A_TIME = 1
"""`max_active_tis_per_dag` of the tasks that say something."""

BACKFILL = "backfill"
_AFTER_ALL = datetime(9999, 1, 1, tzinfo=UTC)
_LOOK_BACK = 4  # events of an asset that are looked at: the newest may be one that somebody made by hand
_LOOK_BACK_FOR_PARTITION = 64
_WAIT_S = 60

Extra = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class RunInterval:
    """What the run that says something took in, and the day that its events are of; None: they carry none."""

    span: tuple[datetime, datetime] | None
    day: str | None


@dataclass(frozen=True, slots=True)
class Subject:
    """One kind of assets. `news`: asset and extra of each event that is due."""

    name: str
    news: "Callable[[Pipeline, Mapping[str, Any], RunInterval], Iterator[tuple[Asset, Extra]]]"


def asset_of(pipeline: str, relation: str) -> Asset:
    """The asset that stands for a source or a view; other DAGs may be scheduled on it. Named as OpenLineage names the view."""
    return Asset(name=f"{pipeline}.{relation}", uri=f"tussock://{pipeline}/{relation}", group="tussock")


def table_asset(pipeline: str, relation: str) -> Asset:
    """The asset that stands for the copy of a relation outside of the store."""
    return Asset(name=f"{pipeline}.{relation}.table", uri=f"tussock://{pipeline}/{relation}/table", group="tussock")


def alias_of(pipeline: str, subject: Subject) -> AssetAlias:
    """Stands for all assets of a kind while a DAG is parsed; events of those that the SQL files do not create come by it."""
    return AssetAlias(name=f"{pipeline}.{subject.name}", group="tussock")


def named_assets(pipeline: Pipeline, kind: RelationKind) -> list[Asset]:
    """The assets of the views or sources that the SQL files create, which a task names as its inlets and outlets: only then Airflow draws
    a line to them, and only then an event can carry a partition."""
    from tussock.jobs.operations.files import created_in_files

    return [asset_of(pipeline.name, relation) for relation in created_in_files(pipeline, kind)]


def day_of(pipeline: Pipeline, start: datetime | None, end: datetime | None) -> str | None:
    """The day that an interval lies in, by the pipeline's clock; None for no interval, and for one of more than a day."""
    if start is None or end is None:
        return None
    zone = ZoneInfo(pipeline.time_zone)
    day = start.astimezone(zone).date()
    return day.isoformat() if (end.astimezone(zone) - timedelta(microseconds=1)).date() == day else None


def announce(
    pipeline: Pipeline, context: Mapping[str, Any], interval: RunInterval, subjects: Sequence[Subject]
) -> None:
    """Have Airflow emit an event, when this task succeeds, for each asset of which there is something new.

    Requires: the task's outlets are the aliases of `subjects`, and assets; those without news are taken off its list, since Airflow has an
    event for each that stands there in the end.
    """
    aliases = {subject: alias_of(pipeline.name, subject) for subject in subjects}
    named = [outlet for outlet in context["ti"].task.outlets if isinstance(outlet, Asset)]
    said: list[Asset] = []
    if interval.day is None and (other := still_to_come(context)) is not None:
        log.info("no events: run %s of the backfill is still to come, and the last one emits them", other)
    else:
        for subject, alias in aliases.items():
            for asset, extra in subject.news(pipeline, context, interval):
                if interval.day is not None and asset in named:
                    event = context["outlet_events"][asset]
                    event.extra = extra
                    event.add_partitions(interval.day)
                    said.append(asset)
                else:
                    context["outlet_events"][alias].add(asset, extra=extra)
    context["ti"].task.outlets = [*aliases.values(), *said]


def still_to_come(context: Mapping[str, Any]) -> str | None:
    """Another run of a backfill that will say what this one does not; None: this is the last, or no run of a backfill.

    It does not count where its OWED_EVENTS, the last task of each run, has ended or is under way: that one may have looked before.
    Workers are not told which backfill a run belongs to, but Airflow lets a DAG have only one at a time.

    Cost: mostly two requests to the API server; two for each unfinished run where none is to come.
    """
    me = context["dag_run"]
    if me.run_type != BACKFILL:
        return None
    for run in _unfinished(me.dag_id):
        if run.run_id != me.run_id and _state(me.dag_id, run.run_id, OWED_EVENTS) not in FINISHED | {"running"}:
            return str(run.run_id)
    return None


def wait_for_those_who_speak(context: Mapping[str, Any], tasks: Sequence[str]) -> None:
    """Until none of these tasks is running in another run of a backfill: it may have left to this run what it had to say."""
    me = context["dag_run"]
    for _ in range(_WAIT_S if me.run_type == BACKFILL else 0):
        others = [run.run_id for run in _unfinished(me.dag_id) if run.run_id != me.run_id]
        if not any(_state(me.dag_id, other, task) == "running" for other in others for task in tasks):
            return
        time.sleep(1)


def _unfinished(dag_id: str) -> Iterator[Any]:
    """Runs of backfills that have not ended, the latest interval first, those that wait before those that run."""
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    for state in ("queued", "running"):
        before = _AFTER_ALL
        while True:
            answer: Any = SUPERVISOR_COMMS.send(GetPreviousDagRun(dag_id=dag_id, logical_date=before, state=state))
            if (run := answer.dag_run) is None:
                break
            if run.run_type == BACKFILL:
                yield run
            before = run.logical_date


def _state(dag_id: str, run_id: str, task_id: str) -> str | None:
    states: Mapping[str, dict[str, str | None]] = RuntimeTaskInstance.get_task_states(
        dag_id, task_ids=[task_id], run_ids=[run_id]
    )
    return states.get(run_id, {}).get(task_id)


def _told(context: Mapping[str, Any], asset: Asset, day: str | None) -> "Told":
    """What Airflow was told of an asset. Where events are of a day, each run says its own, though another may have told of its rows."""
    from tussock.jobs.operations.news import Told

    limit = _LOOK_BACK if day is None else _LOOK_BACK_FOR_PARTITION
    events = newest_events(asset, limit)
    told = [str((event.extra or {}).get("epoch", "")) for event in events]
    run = context["dag_run"].run_id
    mine = day is None or any(event.partition_key == day and event.source_run_id == run for event in events)
    return Told(max((int(epoch) for epoch in told if epoch.isdecimal()), default=0), again=not mine)


def _sources(pipeline: Pipeline, context: Mapping[str, Any], interval: RunInterval) -> Iterator[tuple[Asset, Extra]]:
    from tussock.jobs.operations.news import source_news

    def told(source: str) -> "Told":
        return _told(context, asset_of(pipeline.name, source), interval.day)

    for source in source_news(opened(pipeline.name), told, run_of(context)):
        span = [moment.isoformat() for moment in interval.span] if source.own and interval.span is not None else None
        numbers = {
            "since": str(source.since) if source.since else None,
            "files": source.files,
            "bytes": source.bytes,
            "rows": source.rows,
        }
        extra: Extra = {
            "epoch": str(source.epoch),
            "version": source.version,
            **_known(numbers),
            **_known({"interval": span}),
        }
        yield asset_of(pipeline.name, source.name), extra


def _views(pipeline: Pipeline, context: Mapping[str, Any], interval: RunInterval) -> Iterator[tuple[Asset, Extra]]:
    from tussock.jobs.operations.news import view_news

    news = view_news(opened(pipeline.name), lambda view: _told(context, asset_of(pipeline.name, view), interval.day))
    for view in news.views:
        numbers = {
            "since": str(view.since) if view.since else None,
            "changed_rows": view.changed_rows,
            "rows": view.rows,
            "warnings": view.warnings or None,
        }
        extra: Extra = {
            "epoch": str(news.epoch),
            "version": news.version,
            "quality": view.quality.value,
            **_known(numbers),
        }
        yield asset_of(pipeline.name, view.name), extra


def _tables(pipeline: Pipeline, context: Mapping[str, Any], interval: RunInterval) -> Iterator[tuple[Asset, Extra]]:
    from tussock.jobs.operations.tables import tables_published

    def told(relation: str) -> int:
        return _told(context, table_asset(pipeline.name, relation), None).epoch

    epoch, tables = tables_published(opened(pipeline.name), told)
    for relation, state in tables.items():
        yield (
            table_asset(pipeline.name, relation),
            {"epoch": str(epoch), "table": state.table, "version": state.version},
        )


def _known(numbers: Mapping[str, Any]) -> Extra:
    return {name: value for name, value in numbers.items() if value is not None}


SOURCES, VIEWS, TABLES = Subject("sources", _sources), Subject("views", _views), Subject("tables", _tables)


def subjects_of(outlets: Iterable[object], pipeline: str) -> tuple[Subject, ...]:
    """The kinds of assets that a task's outlets stand for."""
    names = {outlet.name for outlet in outlets if isinstance(outlet, AssetAlias)}
    return tuple(subject for subject in (SOURCES, VIEWS, TABLES) if alias_of(pipeline, subject).name in names)
