"""Airflow assets and their events: one asset for each source, view and published table, and an event for each change.

**Airflow stores the state.** It writes a task's events in the transaction that marks the task as successful. The newest
event of an asset therefore names the last reported epoch, and the next event continues from there (`since`), whatever
failed, was retried, was cleared or never ran in between. Only two tasks that run at the same moment could report an
epoch twice; `ONE_AT_A_TIME` prevents that.

**Backfills report at their end.** A run of a backfill emits no events while another run of a backfill is pending; the
last run emits them all. Events with partitions are the exception: DAGs that depend on them would never run for the
missing days.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from pydantic import JsonValue
from tussock_airflow import newest_events
from tussock_assets import asset_of, table_asset
from tussock_steps import open_pipeline_store
from tussock_turn import FINISHED, LAST, branch_in, run_of, runs_before

from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.publishing import PublishSettings
from tussock.statestore.meta.catalog import RelationKind

if TYPE_CHECKING:
    from tussock.jobs.operations.news import LastEvent

log = logging.getLogger(__name__)

OWED_EVENTS = "owed_events"
ONE_AT_A_TIME = 1
"""`max_active_tis_per_dag` of the tasks that emit events."""

BACKFILL = "backfill"
_AFTER_ALL = datetime(9999, 1, 1, tzinfo=UTC)
_LOOK_BACK = 4  # events of an asset to read: the newest may have been created manually
_LOOK_BACK_FOR_PARTITION = 64
_WAIT_S = 60

Extra = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class RunInterval:
    """The interval that the run processes, and the day that partitions its events; None: they have no partition."""

    span: tuple[datetime, datetime] | None
    day: str | None


@dataclass(frozen=True, slots=True)
class Subject:
    """One kind of assets. `news` yields the asset and extra of each event to emit."""

    name: str
    news: "Callable[[Pipeline, Mapping[str, Any], RunInterval], Iterator[tuple[Asset, Extra]]]"


def alias_of(pipeline: str, subject: Subject) -> AssetAlias:
    """The alias of all assets of a kind. Events of assets that the SQL files do not create are emitted through it."""
    return AssetAlias(name=f"{pipeline}.{subject.name}", group="tussock")


def named_assets(pipeline: Pipeline, kind: RelationKind) -> list[Asset]:
    """The assets of the sources or views that the SQL files create.

    Tasks declare them as inlets and outlets, since Airflow draws lines and accepts partitions only for declared assets.
    """
    from tussock.jobs.operations.files import created_in_files

    return [asset_of(pipeline.name, relation) for relation in created_in_files(pipeline, kind)]


def day_of(pipeline: Pipeline, start: datetime | None, end: datetime | None) -> str | None:
    """The day that contains an interval, in the pipeline's time zone; None without an interval or if it spans days."""
    if start is None or end is None:
        return None
    zone = ZoneInfo(pipeline.time_zone)
    day = start.astimezone(zone).date()
    return day.isoformat() if (end.astimezone(zone) - timedelta(microseconds=1)).date() == day else None


def announce_changes(
    pipeline: Pipeline, context: Mapping[str, Any], interval: RunInterval, subjects: Sequence[Subject]
) -> None:
    """Emit an event for each asset that has changed, when this task succeeds.

    Requires: the task's outlets are the aliases of `subjects`, and assets. Unchanged assets are removed from the
    outlets, since Airflow emits an event for each asset that is in the list when the task ends. A run on a branch emits
    none, because the assets are the parent's.
    """
    if branch_in(context) or pipeline.branch:
        announce_nothing(context)
        return
    aliases = {subject: alias_of(pipeline.name, subject) for subject in subjects}
    named = [outlet for outlet in context["ti"].task.outlets if isinstance(outlet, Asset)]
    said: list[Asset] = []
    if interval.day is None and (other := still_to_come(context)) is not None:
        log.info("No events from this run: run %s of the backfill is pending, and the last run emits them all.", other)
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


def announce_nothing(context: Mapping[str, Any]) -> None:
    """Emit no event when this task succeeds. Otherwise Airflow emits one for each declared asset."""
    context["ti"].task.outlets = []


def still_to_come(context: Mapping[str, Any]) -> str | None:
    """Return another run of a backfill that will emit this run's events.

    None: this run is the last one, or does not belong to a backfill. A run that has published does not count: it has
    looked before this run changed anything, and its OWED_EVENTS does nothing. Nor does a run whose OWED_EVENTS, its
    last task, is running or has ended. Workers do not receive the id of a run's backfill, but Airflow allows only one
    backfill per DAG at a time.

    Cost: usually two requests to the API server; two per unfinished run if this run is the last one.
    """
    me = context["dag_run"]
    if me.run_type != BACKFILL:
        return None
    for run in _unfinished_runs(me.dag_id):
        if run.run_id == me.run_id:
            continue
        states = task_states(me.dag_id, run.run_id, (LAST, OWED_EVENTS))
        if states.get(LAST) != "success" and states.get(OWED_EVENTS) not in FINISHED | {"running"}:
            return str(run.run_id)
    return None


def has_announced(context: Mapping[str, Any]) -> bool:
    """Whether publish_views of this run has emitted its events or left them to a later run.

    False if the task failed, or if a person marked it as successful: then it has returned nothing. Cost: two requests.
    """
    run = context["dag_run"]
    succeeded = task_states(run.dag_id, run.run_id, (LAST,)).get(LAST) == "success"
    return succeeded and context["ti"].xcom_pull(task_ids=LAST) is not None


def wait_for_those_who_speak(context: Mapping[str, Any], tasks: Sequence[str]) -> None:
    """Wait until none of these tasks is running in another run of a backfill, which may leave events to this one."""
    me = context["dag_run"]
    for _ in range(_WAIT_S if me.run_type == BACKFILL else 0):
        others = [run.run_id for run in _unfinished_runs(me.dag_id) if run.run_id != me.run_id]
        if not any("running" in task_states(me.dag_id, other, tasks).values() for other in others):
            return
        time.sleep(1)


def _unfinished_runs(dag_id: str) -> Iterator[Any]:
    """Unfinished runs of backfills: queued ones before running ones, each from the latest interval backwards."""
    for state in ("queued", "running"):
        yield from (run for run in runs_before(dag_id, _AFTER_ALL, state) if run.run_type == BACKFILL)


def task_states(dag_id: str, run_id: str, tasks: Sequence[str]) -> Mapping[str, str | None]:
    """The states of tasks of a run, in this order; a task without a state yet is omitted. Cost: one request."""
    states: Mapping[str, dict[str, str | None]] = RuntimeTaskInstance.get_task_states(
        dag_id, task_ids=list(tasks), run_ids=[run_id]
    )
    of_run = states.get(run_id, {})
    return {task: of_run[task] for task in tasks if task in of_run}


def _last_told(context: Mapping[str, Any], asset: Asset, day: str | None) -> "LastEvent":
    """The last epoch that Airflow has an event for.

    If events are partitioned by day, each run emits its own event, even if another run reported its rows.
    """
    from tussock.jobs.operations.news import LastEvent

    limit = _LOOK_BACK if day is None else _LOOK_BACK_FOR_PARTITION
    events = newest_events(asset, limit)
    told_epochs = [str((event.extra or {}).get("epoch", "")) for event in events]
    run = context["dag_run"].run_id
    mine = day is None or any(event.partition_key == day and event.source_run_id == run for event in events)
    return LastEvent(max((int(epoch) for epoch in told_epochs if epoch.isdecimal()), default=0), again=not mine)


def _changed_sources(
    pipeline: Pipeline, context: Mapping[str, Any], interval: RunInterval
) -> Iterator[tuple[Asset, Extra]]:
    from tussock.jobs.operations.news import source_news

    def last_told(source: str) -> "LastEvent":
        return _last_told(context, asset_of(pipeline.name, source), interval.day)

    for source in source_news(open_pipeline_store(pipeline.name), last_told, run_of(context)):
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
            **_known_numbers(numbers),
            **_known_numbers({"interval": span}),
        }
        yield asset_of(pipeline.name, source.name), extra


def _changed_views(
    pipeline: Pipeline, context: Mapping[str, Any], interval: RunInterval
) -> Iterator[tuple[Asset, Extra]]:
    from tussock.jobs.operations.news import view_news

    news = view_news(
        open_pipeline_store(pipeline.name),
        lambda view: _last_told(context, asset_of(pipeline.name, view), interval.day),
    )
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
            **_known_numbers(numbers),
        }
        yield asset_of(pipeline.name, view.name), extra


def _changed_tables(
    sink: PublishSettings, pipeline: Pipeline, context: Mapping[str, Any], interval: RunInterval
) -> Iterator[tuple[Asset, Extra]]:
    from tussock.jobs.operations.tables import tables_published

    def last_told(relation: str) -> int:
        return _last_told(context, table_asset(pipeline.name, relation, sink.title), None).epoch

    epoch, tables = tables_published(open_pipeline_store(pipeline.name), sink, last_told)
    for relation, state in tables.items():
        yield (
            table_asset(pipeline.name, relation, sink.title),
            {"epoch": str(epoch), "table": state.table, "version": state.version},
        )


def _known_numbers(numbers: Mapping[str, Any]) -> Extra:
    return {name: value for name, value in numbers.items() if value is not None}


SOURCES, VIEWS = Subject("sources", _changed_sources), Subject("views", _changed_views)


def tables_in(sink: PublishSettings) -> Subject:
    """The assets of a sink's tables."""
    return Subject(f"{sink.title}.tables", partial(_changed_tables, sink))


def subjects_of(pipeline: Pipeline) -> tuple[Subject, ...]:
    """All kinds of assets of a pipeline."""
    return (SOURCES, VIEWS, *map(tables_in, pipeline.publish))
