"""Operations on a pipeline by its name. Each opens the store, as Airflow's tasks do."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from tussock_steps import open_pipeline_store, pipeline_of

from tussock.jobs.driver.summary import show_summary
from tussock.jobs.operations import alerts, compaction, epochs, news, publication, quality, restate, tables, upkeep
from tussock.jobs.operations import publish as publishing
from tussock.jobs.operations.epochs import InputRequest
from tussock.jobs.operations.runners import Where
from tussock.jobs.quality.record import QualityRecord, QualityVerdict
from tussock.jobs.settings.tables import Runner
from tussock.jobs.sinks.manifest import TableState
from tussock.jobs.texts.restatement import begun_lines
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.version import HummockVersion

Run = Mapping[str, str]
Moment = datetime | None


def _input_request(at: epochs.PipelineStore, start: Moment, end: Moment, run: Run) -> InputRequest:
    return InputRequest(epochs.interval_between(at, None if start is None or end is None else (start, end)), run=run)


def inject(name: str, start: Moment, end: Moment, run: Run) -> Barrier | None:
    return epochs.inject_barrier(at := open_pipeline_store(name), _input_request(at, start, end, run))


def advance(name: str, start: Moment, end: Moment, run: Run, say: Callable[[str], None] = print) -> epochs.RunResult:
    """Run the part of the task before the submission of a job."""
    opened = open_pipeline_store(name)
    done = epochs.run_pipeline_epochs(opened, _input_request(opened, start, end, run), Where.SMALL_HERE, say)
    for summary in done.summaries:
        say(show_summary(summary))
    return done


def runs_small_epochs_here(name: str) -> bool:
    return pipeline_of(name).epoch.runner is Runner.AUTO


def spark_must_ask(name: str) -> bool:
    return epochs.spark_must_ask(open_pipeline_store(name))


def require_not_held(name: str, start: Moment, end: Moment) -> None:
    epochs.require_interval_not_held(at := open_pipeline_store(name), _input_request(at, start, end, {}).interval)


def require_none_paused(name: str, run: Run) -> None:
    epochs.require_none_paused_by_run(open_pipeline_store(name), run)


def pause(name: str, views: Sequence[str], run: Run) -> None:
    epochs.pause_views(open_pipeline_store(name), views, run)


def holder(name: str, dag: str) -> str | None:
    return epochs.holding_run(open_pipeline_store(name), dag)


def commit(name: str) -> HummockVersion:
    return epochs.commit_sealed(open_pipeline_store(name))


def begin_restating(
    name: str, source: str, file: str, interval: tuple[datetime, datetime] | None, run: Run
) -> tuple[str, ...]:
    store = open_pipeline_store(name)
    asked = restate.restated_of_form(file, epochs.interval_between(store, interval))
    return tuple(begun_lines(restate.begin_restatement(store, source, asked, run)))


def publish(name: str, epoch: int) -> publication.Publication:
    return publishing.publish_checked_epoch(open_pipeline_store(name), epoch)


def publish_tables(name: str, epoch: int) -> None:
    tables.publish_tables(open_pipeline_store(name), epoch)


def tables_at(name: str, epoch: int) -> Mapping[str, TableState]:
    store = open_pipeline_store(name)
    return tables.tables_at(store, store.pipeline.publish[0], epoch)


def source_news(name: str, told: news.FindLastEvent, run: Run) -> tuple[news.SourceNews, ...]:
    return news.source_news(open_pipeline_store(name), told, run)


def view_news(name: str, told: news.FindLastEvent) -> publication.Publication:
    return news.view_news(open_pipeline_store(name), told)


def verdict(name: str, epoch: int) -> QualityVerdict:
    return quality.verdict(open_pipeline_store(name), epoch)


def judge(name: str, epoch: int) -> QualityRecord:
    return quality.check_here(open_pipeline_store(name), epoch)


def require_none_held_back(name: str, epoch: int) -> None:
    quality.require_none_held_back(open_pipeline_store(name), epoch)


def failure_of_check(name: str, epoch: int) -> str | None:
    return quality.failure(open_pipeline_store(name), epoch)


def retain(name: str) -> HummockVersion:
    return upkeep.raise_floor(open_pipeline_store(name))


def compaction_due(name: str) -> tuple[str, ...]:
    return tuple(pick.reason for pick in compaction.due_picks(open_pipeline_store(name)))


def vacuum(name: str) -> upkeep.VacuumResult:
    return upkeep.vacuum_store(open_pipeline_store(name))


def say_if_stale(name: str, view: str) -> alerts.AgeLook:
    return alerts.say_if_stale(open_pipeline_store(name), view)


def let_go_of_alerts(name: str) -> None:
    alerts.end_past_alerts(open_pipeline_store(name))
