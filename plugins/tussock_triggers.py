"""The causes of a pipeline's runs in Airflow: its intervals or time spans, and events of assets."""

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset, AssetAll, AssetAny, AssetWatcher
from airflow.timetables.assets import AssetOrTimeSchedule
from tussock_assets import arrival_of, asset_of, messages_of, table_asset
from tussock_timetable import IntervalsUntil, RunsUntil

from tussock.jobs.operations.files import created_in_files
from tussock.jobs.operations.notifiers import class_at
from tussock.jobs.settings.pipeline import FILE, Pipeline
from tussock.jobs.settings.schedule import AssetsNeeded, WatchSettings
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.errors import did_you_mean
from tussock.statestore.meta.catalog import RelationKind


def schedule_of(pipeline: Pipeline) -> Any:
    """The `schedule` of the pipeline's epoch DAG; None if it runs only when a user triggers it.

    Raises: PipelineError for an asset of an unknown source, and for a trigger that cannot be built.
    """
    timed, assets = _timetable_of(pipeline), _assets_of(pipeline)
    if not assets:
        return timed
    condition: Any = (AssetAll if pipeline.triggers.needs is AssetsNeeded.ALL else AssetAny)(*assets)
    return condition if timed is None else AssetOrTimeSchedule(timetable=timed, assets=condition)


def _timetable_of(pipeline: Pipeline) -> IntervalsUntil | RunsUntil | None:
    schedule, triggers = pipeline.schedule, pipeline.triggers
    if schedule is not None:
        return IntervalsUntil(schedule.cron, pipeline.time_zone, schedule.end)
    return None if triggers.every_ms is None else RunsUntil(triggers.every_ms / 1000, triggers.end)


def _assets_of(pipeline: Pipeline) -> list[Any]:
    known = created_in_files(pipeline, RelationKind.SOURCE)
    for source in pipeline.triggers.sources:
        if known and source not in known:  # files that cannot be read are another error
            expected = f"a source that the SQL files create{did_you_mean(source, known).rstrip('?')}"
            raise PipelineError(str(pipeline.folder / FILE), "schedule.assets", repr(source), expected)
    return [_asset_at(pipeline, name) for name in pipeline.triggers.assets]


def _asset_at(pipeline: Pipeline, name: str) -> Any:
    if "://" in name:
        return Asset.ref(uri=name)  # another DAG defines it, possibly with a name
    match name.split("."):
        case [source]:
            arrival, watch = arrival_of(pipeline.name, source), pipeline.watch.get(source)
            if watch is None:
                return arrival
            return AssetAny(arrival, messages_of(pipeline.name, source, _watcher_of(pipeline, source, watch)))
        case [other, relation]:
            return asset_of(other, relation)
        case [other, relation, sink]:
            return table_asset(other, relation, sink)
    raise AssertionError(name)


def _watcher_of(pipeline: Pipeline, source: str, settings: WatchSettings) -> AssetWatcher:
    file, key = str(pipeline.folder / FILE), f"watch.{source}"
    trigger = class_at(file, f"{key}.trigger", settings.trigger)
    return AssetWatcher(
        name=f"{pipeline.name}.{source}", trigger=_build_trigger(file, key, trigger, settings.arguments)
    )


def _build_trigger(file: str, key: str, trigger: Any, arguments: Mapping[str, Any]) -> Any:
    from airflow.triggers.base import BaseEventTrigger

    if not (isinstance(trigger, type) and issubclass(trigger, BaseEventTrigger)):
        expected = "a subclass of Airflow's BaseEventTrigger, since other triggers would start runs without end"
        raise PipelineError(file, f"{key}.trigger", repr(trigger.__name__), expected)
    try:
        return trigger(**arguments)
    except Exception as err:  # of the class of a provider or a user
        finding = f"{type(err).__name__}: {err}"
        raise PipelineError(file, f"{key}.arguments", finding, f"arguments that {trigger.__name__} accepts") from err
