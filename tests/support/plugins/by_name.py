"""Operations on a pipeline by its name. Each opens the store, as Airflow's tasks do."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from tussock_steps import opened, pipeline_of

from tussock.jobs.driver.summary import show_summary
from tussock.jobs.operations import alerts, compaction, epochs, news, publication, quality, restate, tables, upkeep
from tussock.jobs.operations import publish as publishing
from tussock.jobs.operations.epochs import Wish
from tussock.jobs.operations.runners import Where
from tussock.jobs.quality.record import GateVerdict, QualityRecord
from tussock.jobs.settings.tables import Runner
from tussock.jobs.sinks.manifest import TableState
from tussock.jobs.sources.base import Restated
from tussock.jobs.texts.restatement import begun_lines
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.version import HummockVersion

Run = Mapping[str, str]
Moment = datetime | None


def _wish(at: epochs.PipelineStore, start: Moment, end: Moment, run: Run) -> Wish:
    return Wish(epochs.interval_between(at, None if start is None or end is None else (start, end)), run=run)


def inject(name: str, start: Moment, end: Moment, run: Run) -> Barrier | None:
    return epochs.inject(at := opened(name), _wish(at, start, end, run))


def advance(name: str, start: Moment, end: Moment, run: Run, say: Callable[[str], None] = print) -> epochs.Advanced:
    """Run the part of the task before the submission of a job."""
    done = epochs.advance(at := opened(name), _wish(at, start, end, run), Where.SMALL_HERE, say)
    for summary in done.summaries:
        say(show_summary(summary))
    return done


def runs_small_epochs_here(name: str) -> bool:
    return pipeline_of(name).epoch.runner is Runner.AUTO


def spark_must_ask(name: str) -> bool:
    return epochs.spark_must_ask(opened(name))


def require_not_held(name: str, start: Moment, end: Moment) -> None:
    epochs.require_interval_not_held(at := opened(name), _wish(at, start, end, {}).interval)


def require_none_paused(name: str, run: Run) -> None:
    epochs.require_none_paused_by_run(opened(name), run)


def pause(name: str, views: Sequence[str], run: Run) -> None:
    epochs.pause(opened(name), views, run)


def holder(name: str, dag: str) -> str | None:
    return epochs.holder(opened(name), dag)


def commit(name: str) -> HummockVersion:
    return epochs.commit(opened(name))


def begin_restating(
    name: str, source: str, file: str, interval: tuple[datetime, datetime] | None, run: Run
) -> tuple[str, ...]:
    at = opened(name)
    asked = Restated(file) if file else Restated(interval=epochs.interval_between(at, interval))
    return tuple(begun_lines(restate.begin(at, source, asked, run)))


def publish(name: str, epoch: int) -> publication.Publication:
    return publishing.publish(opened(name), epoch)


def publish_tables(name: str, epoch: int) -> None:
    tables.publish_tables(opened(name), epoch)


def tables_at(name: str, epoch: int) -> Mapping[str, TableState]:
    return tables.tables_at(opened(name), epoch)


def source_news(name: str, told: news.Asked, run: Run) -> tuple[news.SourceNews, ...]:
    return news.source_news(opened(name), told, run)


def view_news(name: str, told: news.Asked) -> publication.Publication:
    return news.view_news(opened(name), told)


def verdict(name: str, epoch: int) -> GateVerdict:
    return quality.verdict(opened(name), epoch)


def judge(name: str, epoch: int) -> QualityRecord:
    return quality.check_here(opened(name), epoch)


def require_none_held_back(name: str, epoch: int) -> None:
    quality.require_none_held_back(opened(name), epoch)


def gate_failure(name: str, epoch: int) -> str | None:
    return quality.failure(opened(name), epoch)


def retain(name: str) -> HummockVersion:
    return upkeep.retain(opened(name))


def compaction_due(name: str) -> tuple[str, ...]:
    return tuple(pick.reason for pick in compaction.due(opened(name)))


def vacuum(name: str) -> upkeep.Cleaning:
    return upkeep.vacuum(opened(name))


def say_if_stale(name: str, view: str) -> alerts.AgeLook:
    return alerts.say_if_stale(opened(name), view)


def let_go_of_alerts(name: str) -> None:
    alerts.let_go(opened(name))
