"""The tasks of an epoch DAG that commit, check and publish an epoch, and emit events.

Parsing this imports no Spark and reads nothing; a task imports the engine when it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, TaskGroup
from tussock_airflow import HAS_PARTITIONS, AirflowException, AirflowFailException, AirflowSkipException
from tussock_connections import set_connection_of_sink
from tussock_events import (
    ONE_AT_A_TIME,
    OWED_EVENTS,
    SOURCES,
    VIEWS,
    RunInterval,
    alias_of,
    announce_changes,
    announce_nothing,
    day_of,
    has_announced,
    named_assets,
    subjects_of,
    tables_in,
    wait_for_those_who_speak,
)
from tussock_notify import sends_no_message
from tussock_tasks import AnnouncingTask, SubmitJob, epoch_if_any, no_retry, open_of_task, run_interval
from tussock_turn import branch_in

from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.publishing import PublishSettings, writes_with_spark
from tussock.statestore.meta.catalog import RelationKind

if TYPE_CHECKING:
    from tussock.jobs.operations.publication import Publication
    from tussock.jobs.operations.store import PipelineStore
    from tussock.jobs.sinks.manifest import TableState

PUBLISH_TABLES = "publish_tables"


def commit_version(pipeline: Pipeline) -> "CommitVersion":
    """Commit the sealed epochs, return the last one, and emit an asset event for each source with new input."""
    return CommitVersion(
        pipeline=pipeline,
        task_id="commit_version",
        outlets=[alias_of(pipeline.name, SOURCES), *named_assets(pipeline, RelationKind.SOURCE)],
        max_active_tis_per_dag=ONE_AT_A_TIME,
    )


def validate_views(pipeline: Pipeline) -> SparkSubmitOperator:
    """Run the suites on the epoch that commit_version returned."""
    return ValidateViews(pipeline=pipeline, task_id="validate_views", job="quality")


def publish_views(pipeline: Pipeline) -> "PublishViews":
    """Publish that epoch, and emit an asset event for each view with changed rows.

    Airflow's asset graph shows the declared inlets and outlets: the sources, this task, and the views.
    """
    return PublishViews(
        pipeline=pipeline,
        task_id="publish_views",
        inlets=named_assets(pipeline, RelationKind.SOURCE),
        outlets=[alias_of(pipeline.name, VIEWS), *named_assets(pipeline, RelationKind.VIEW)],
        max_active_tis_per_dag=ONE_AT_A_TIME,
    )


def owed_events(pipeline: Pipeline) -> "OwedEvents":
    """Emit the events that earlier runs of a backfill left to a run that did not reach publish_views.

    Otherwise it has nothing to do. The task is a teardown: it runs in any state of the earlier tasks, and does not
    affect the state of the run.
    """
    task = OwedEvents(
        pipeline=pipeline,
        task_id=OWED_EVENTS,
        outlets=[
            *(alias_of(pipeline.name, subject) for subject in subjects_of(pipeline)),
            *(asset for kind in (RelationKind.SOURCE, RelationKind.VIEW) for asset in named_assets(pipeline, kind)),
        ],
        max_active_tis_per_dag=ONE_AT_A_TIME,
    )
    return cast("OwedEvents", task.as_teardown())


def can_be_backfilled(pipeline: Pipeline) -> bool:
    """Whether Airflow accepts a backfill of the pipeline's DAG."""
    return pipeline.schedule is not None or pipeline.triggers.every_ms is not None


def publish_tables(pipeline: Pipeline) -> BaseOperator | TaskGroup:
    """Update the tables of each sink to that epoch, and emit an asset event for each table.

    One task per sink, so that a sink that fails holds back no other.

    Requires: the pipeline has `[publish]`.
    """
    return for_each_sink(pipeline.publish, PUBLISH_TABLES, lambda sink, task_id: _publish_task(pipeline, sink, task_id))


def _publish_task(pipeline: Pipeline, sink: PublishSettings, task_id: str) -> BaseOperator:
    outlets = [alias_of(pipeline.name, tables_in(sink))]
    if writes_with_spark(sink):
        return PublishTables(pipeline=pipeline, sink=sink, task_id=task_id, job="publish", outlets=outlets)
    return PublishTablesHere(pipeline=pipeline, sink=sink, task_id=task_id, outlets=outlets)


def for_each_sink(
    sinks: Sequence[PublishSettings], name: str, make_task: Callable[[PublishSettings, str], BaseOperator]
) -> BaseOperator | TaskGroup:
    """Return a task with this name for a single sink; for several, a group with a task per sink, named after it."""
    if len(sinks) == 1:
        return make_task(sinks[0], name)
    with TaskGroup(name) as group:
        for sink in sinks:
            make_task(sink, sink.title)
    return group


def sink_tasks(pipeline: Pipeline) -> tuple[str, ...]:
    """The ids of the tasks that `publish_tables` returns."""
    if len(pipeline.publish) == 1:
        return (PUBLISH_TABLES,)
    return tuple(f"{PUBLISH_TABLES}.{sink.title}" for sink in pipeline.publish)


class ValidateViews(SubmitJob):
    """Runs the suites on the committed epoch.

    They run in this process or, if a suite needs Spark, in the job `quality`. Fails without a retry if a suite fails,
    since the same rows would fail again. If the quality check judges each view separately, `health` fails instead.
    """

    def execute(self, context: Any) -> None:
        self._judge(context, _committed_epoch(context))

    def _judge(self, context: Any, epoch: int) -> None:
        from tussock.jobs.operations import quality
        from tussock.jobs.quality.record import QualityVerdict

        store = open_of_task(self.pipeline_name, context)
        with no_retry(self.pipeline_name, context):
            if not quality.has_suites(store):
                self.log.info("Pipeline %s has no suites; epoch %d is not checked.", self.pipeline_name, epoch)
                return
            known = quality.verdict(store, epoch)
        if known is not QualityVerdict.NONE:
            self.log.info("The current suites have already judged epoch %d: %s", epoch, known.value)
            if known is QualityVerdict.FAILED and not quality.checks_each_view(store):
                raise AirflowFailException(quality.failure(store, epoch))
            return
        if self._judged_here(store, epoch, context):
            return
        try:
            self.submit(context, ["--epoch", str(epoch)])
        except AirflowException:
            if (failure := quality.failure(store, epoch)) is not None:
                raise AirflowFailException(failure) from None
            raise

    def _judged_here(self, store: "PipelineStore", epoch: int, context: Any) -> bool:
        """Whether this process could judge the epoch and it passed. Raises AirflowFailException if it failed."""
        from tussock.jobs.operations import quality
        from tussock.jobs.quality.epoch_check import SparkNeededError
        from tussock.jobs.quality.record import HeldViewsError

        with no_retry(self.pipeline_name, context):
            try:
                record = quality.check_here(store, epoch, self.log.info)
            except SparkNeededError as err:
                self.log.info("%s", err)
                return False
            for line in quality.record_news(store, record):
                self.log.info("%s", line)
            quality.require_passed(store, record)
            if not record.passed:
                self.log.warning("%s", HeldViewsError(record))
        return True


class CommitVersion(AnnouncingTask):
    """Commits the sealed epochs and emits events of sources with new input.

    The input counts as taken from here on, whether the epoch is published or not.
    """

    def execute(self, context: Any) -> dict[str, str]:
        from tussock.jobs.operations.epochs import commit_sealed

        with no_retry(self.pipeline_name, context):
            version = commit_sealed(self.opened(context))
            announce_changes(self.pipeline, context, _interval(self.pipeline, context), [SOURCES])
        return {"epoch": str(version.epoch), "version": str(version.id)}


class PublishViews(AnnouncingTask):
    """Publishes the committed epoch, as far as the quality check passed it.

    Reports changed views to Airflow and OpenLineage.
    """

    published: "Publication | None" = None  # set by `execute`, except on a branch

    def execute(self, context: Any) -> dict[str, str]:
        from tussock.jobs.operations.publish import publish_checked_epoch

        with no_retry(self.pipeline_name, context):
            published = publish_checked_epoch(self.opened(context), _committed_epoch(context))
            announce_changes(self.pipeline, context, _interval(self.pipeline, context), [VIEWS])
        self.published = None if branch_in(context) or self.pipeline.branch else published
        held_views = {f"{view} seen as of": str(at) for view, at in published.held.items()}
        return {"epoch": str(published.epoch), "version": str(published.version), **held_views}

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Files and tables as inputs, views as outputs, for Airflow's OpenLineage provider if it is installed."""
        from tussock_lineage import lineage, views_published

        return None if self.published is None else lineage(*views_published(self.pipeline_name, self.published))


class OwedEvents(AnnouncingTask):
    """Emits the missing events in any state of the run, since no later run may emit them."""

    def execute(self, context: Any) -> None:
        if has_announced(context):
            self.log.info("publish_views has emitted the events of this run, or left them to a later one.")
            announce_nothing(context)
            return
        wait_for_those_who_speak(context, ("commit_version", "publish_views", *sink_tasks(self.pipeline)))
        try:
            with no_retry(self.pipeline_name, context):
                announce_changes(self.pipeline, context, RunInterval(None, None), subjects_of(self.pipeline))
        except Exception as err:  # the task that kept the run from publish_views has sent the message
            sends_no_message(err)
            raise


class _WritesTables:
    """Shared code of the tasks that update a sink. Requires: an operator with the attributes `pipeline` and `sink`."""

    pipeline: Pipeline
    sink: PublishSettings
    written: "tuple[int, Mapping[str, TableState]] | None" = (
        None  # set by `execute`: the epoch, and the state of each table at it
    )

    def emit(self, context: Any) -> dict[str, str]:
        """Emit an asset event for each changed table. Return the version of each table at the epoch."""
        from tussock.jobs.operations.tables import tables_at

        epoch = _committed_epoch(context)
        tables = tables_at(open_of_task(self.pipeline.name, context), self.sink, epoch)
        self.written = epoch, tables
        announce_changes(self.pipeline, context, RunInterval(None, None), [tables_in(self.sink)])
        return {relation: state.version for relation, state in tables.items()}

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Relations as inputs, published tables as outputs, for Airflow's OpenLineage provider if it is installed."""
        from tussock_lineage import lineage, tables_published

        return None if self.written is None else lineage(*tables_published(self.pipeline.name, *self.written))


class PublishTablesHere(_WritesTables, AnnouncingTask):
    """Updates a sink, in this process, to the epoch that publish_views published."""

    def __init__(self, *, sink: PublishSettings, **more: Any) -> None:
        super().__init__(**more)
        self.sink = sink

    def execute(self, context: Any) -> dict[str, str]:
        from tussock.jobs.operations.tables import publish_tables

        _skip_branch(context)
        with no_retry(self.pipeline_name, context):
            set_connection_of_sink(self.sink)
            publish_tables(self.opened(context), _committed_epoch(context), self.log.info, self.sink.title)
        return self.emit(context)


class PublishTables(_WritesTables, SubmitJob):
    """Runs the job `publish` for a sink and the epoch that publish_views published."""

    def __init__(self, *, pipeline: Pipeline, sink: PublishSettings, **more: Any) -> None:
        super().__init__(pipeline=pipeline, **more)
        self.pipeline, self.sink = pipeline, sink

    def execute(self, context: Any) -> None:
        _skip_branch(context)
        self.submit(context, ["--epoch", str(_committed_epoch(context)), "--sink", self.sink.title])
        self.emit(context)


def _skip_branch(context: Any) -> None:
    """Skip the task if the run works on a branch, because tables outside of the store are the parent's."""
    if branch := branch_in(context):
        raise AirflowSkipException(f"Branch {branch} writes no tables outside of itself.")


def _interval(pipeline: Pipeline, context: Any) -> RunInterval:
    """The run's interval, and the day of its events if the pipeline partitions them by day."""
    span = run_interval(context)
    by_partition = pipeline.schedule is not None and pipeline.schedule.partitions
    return RunInterval(span, day_of(pipeline, *span) if HAS_PARTITIONS and by_partition and span is not None else None)


def _committed_epoch(context: Any) -> int:
    """Return the epoch of `commit_version`. Raises AirflowFailException if a person marked that task as succeeded."""
    if (epoch := epoch_if_any(context)) is None:
        raise AirflowFailException(
            "commit_version has returned no epoch, because it was marked as succeeded. Clear it, so that it runs: "
            "it commits what run_actors left, and these tasks follow."
        )
    return epoch
