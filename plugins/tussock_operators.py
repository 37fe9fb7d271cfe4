"""The tasks of an epoch DAG. Parsing this imports no Spark and reads nothing; a task imports the engine when it runs.

    inject_barrier >> run_actors >> commit_version >> validate_views >> publish_views [>> publish_tables…] >> health
                                                                        publish_views [>> owed_events]

Runs of all types (scheduled, triggered, backfills) take turns; see tussock_turn.py. They need no pool, and no
connection except Spark's. The store makes them safe: for any order of the tasks of two runs, an open barrier is
finished before another is injected, and an epoch is committed once.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import tussock_metrics as metrics
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, BaseOperator, Param, TaskGroup
from tussock_airflow import HAS_PARTITIONS, AirflowException, AirflowFailException
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
    task_states,
    wait_for_those_who_speak,
)
from tussock_notify import on_failure, sends_no_message
from tussock_steps import airflow_home, open_pipeline_store, pipelines_folder
from tussock_turn import IN_ORDER, RunPublished, run_ahead, run_of

from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.operations.code_archive import PACKAGE, build_archive
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.printed_commands import address_commands, in_commands
from tussock.jobs.settings.publishing import AIRFLOW_CONNECTION, PublishSettings, writes_with_spark
from tussock.jobs.settings.row_values import printed_error, prints_rows
from tussock.jobs.settings.tables import NoticeEvent, Runner, is_local_master
from tussock.jobs.spark.class_archive import submit_options
from tussock.statestore.errors import DamagedError, InputError
from tussock.statestore.meta.catalog import RelationKind

if TYPE_CHECKING:
    from tussock.jobs.operations.epochs import Where, Wish
    from tussock.jobs.operations.publication import Publication
    from tussock.jobs.operations.store import PipelineStore
    from tussock.jobs.sinks.manifest import TableState
    from tussock.statestore.meta.barrier import Barrier

HEALTH = "health"
PUBLISH_TABLES = "publish_tables"
SPARK_CONNECTION = "spark_default"
BIN = Path(sys.executable).parent

QUIET = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}  # keeps task logs readable

PARAMS: Mapping[str, Param] = {
    "start": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Interval start",
        description="Process the files of this interval. If empty in a manual run, the form's data interval applies. "
        "Without either, the run processes all waiting files.",
    ),
    "end": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Interval end",
        description="The first moment after the interval (exclusive end).",
    ),
    "moment": Param(
        None,
        type=["null", "string"],
        title="Value of now()",
        description="The value of now() in views: an ISO 8601 time, or now for the clock. If empty, it is the end of "
        "the interval. It allows the run to pass over intervals that have not run. now() never goes back.",
    ),
    "pause": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Pause views",
        description="These views, and the views that read them, keep their rows. All others are updated as usual.",
    ),
    "restate": Param(
        None,
        type=["null", "string"],
        title="Restate a source",
        description="Remove the rows that this source took for the interval or the file below, and insert the current "
        "rows of its files. Then the run continues as usual.",
    ),
    "file": Param(
        None,
        type=["null", "string"],
        format="multiline",
        title="Files to restate",
        description="Paths of files, as recorded when they were taken, one per line. A folder or a glob stands for all "
        "its files. One epoch restates all of them. If empty, the interval applies.",
    ),
}
"""The fields of the trigger form."""


def run_interval(context: Mapping[str, Any]) -> tuple[datetime, datetime] | None:
    """Return the interval whose files a run processes; None: all waiting files.

    It is the interval of the params, or else the run's data interval. A manual run has a data interval only if a user
    set one in the trigger form or through the API. Otherwise Airflow uses the timetable's, and both of ours
    (IntervalsUntil, or no timetable) return an empty one.

    Raises AirflowFailException: half an interval, an empty interval in the params, or params that contradict a data
    interval that a user set.
    """
    asked = _params_interval(context["params"])
    run = context["dag_run"]
    own = (run.data_interval_start, run.data_interval_end)
    if own[0] is None or own[1] is None or own[0] >= own[1]:
        return asked
    if asked is not None and asked != own and run.run_type not in IN_ORDER:
        raise AirflowFailException(
            f"The params set {_span(asked)}, but the data interval of this manual run is {_span(own)}. "
            "Set only one of them."
        )
    return own if asked is None else asked


def _params_interval(params: Mapping[str, Any]) -> tuple[datetime, datetime] | None:
    start, end = params.get("start"), params.get("end")
    if (start is None) != (end is None):
        raise AirflowFailException(
            f"Params start={start!r} and end={end!r}: set both ends of the interval, or neither."
        )
    if start is None or end is None:
        return None
    interval = (_moment(start), _moment(end))
    if interval[0] >= interval[1]:
        raise AirflowFailException(f"Params start={start!r} and end={end!r}: the end must be after the start.")
    return interval


def inject_barrier(pipeline: Pipeline) -> "InjectBarrier":
    """Wait for the run's turn, then pin the files of its interval and the end of the statement log."""
    return InjectBarrier(pipeline=pipeline, task_id="inject_barrier")


def run_actors(pipeline: Pipeline) -> SparkSubmitOperator:
    """Finish the open barrier, then process the whole interval of the run, in one Spark application."""
    return RunActors(pipeline=pipeline, task_id="run_actors", job="epoch")


def health(pipeline: Pipeline) -> "Health":
    """Report the health of the pipeline, and fail if this run failed or left something undone. The last task of a run.

    It runs in any state of the earlier tasks.
    """
    return Health(pipeline=pipeline, task_id=HEALTH, trigger_rule="all_done", **on_failure(pipeline))


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
    """Whether the pipeline has intervals to backfill."""
    return pipeline.schedule is not None


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


class PipelineTask(BaseOperator):
    """A task of one pipeline, which it opens when it runs."""

    def __init__(self, *, pipeline: Pipeline, **more: Any) -> None:
        super().__init__(**more)
        self.pipeline_name = pipeline.name

    def opened(self) -> "PipelineStore":
        """The pipeline with its store."""
        return _opened(self.pipeline_name)


class AnnouncingTask(PipelineTask):
    """A task that emits asset events of the pipeline, as defined when the DAG was parsed."""

    def __init__(self, *, pipeline: Pipeline, **more: Any) -> None:
        super().__init__(pipeline=pipeline, **more)
        self.pipeline = pipeline


class InjectBarrier(PipelineTask):
    """Pins the input of the run once no other run of the pipeline is ahead of it or in progress."""

    def execute(self, context: Any) -> dict[str, str] | None:
        self._wait_for_turn(context)
        interval = run_interval(context)
        self.log.info(
            "Input of this run: %s",
            _span(interval) if interval else "all waiting files, since neither params nor a data interval are set",
        )
        self._begin(context, interval)
        barrier = _inject(self.opened(), context)
        self._wait_for_turn(
            context
        )  # two runs may look at the same moment; the store decides whose barrier is in force
        return (
            None
            if barrier is None
            else {"barrier": f"{barrier.prev_epoch}/{barrier.attempt}", "epoch": str(barrier.epoch)}
        )

    def _begin(self, context: Any, interval: tuple[datetime, datetime] | None) -> None:
        """Apply the other params of this run: pause and restate."""
        from tussock.jobs.operations import epochs, restate
        from tussock.jobs.texts.restatement import begun_lines

        params, run = context["params"], run_of(context)
        with no_retry(self.pipeline_name):
            if views := tuple(params.get("pause") or ()):
                epochs.pause_views(self.opened(), views, run)
                self.log.info("paused: %s", ", ".join(views))
            if source := params.get("restate"):
                at = self.opened()
                span = epochs.interval_between(at, interval)
                asked = restate.restated_of_form(params.get("file") or "", span)
                for line in begun_lines(restate.begin_restatement(at, source, asked, run)):
                    self.log.info("%s", line)

    def resume(self, context: Any, event: object = None) -> dict[str, str] | None:
        """Continue after the deferral."""
        return self.execute(context)

    def _wait_for_turn(self, context: Any) -> None:
        from tussock.jobs.operations.epochs import holding_run

        with no_retry(self.pipeline_name):
            held_by = holding_run(self.opened(), context["dag"].dag_id)
        if (other := run_ahead(context, held_by)) is not None:
            self.log.info(
                "Waiting for run %s, which is ahead. If that run is no longer being executed, mark it as failed.", other
            )
            self.defer(trigger=RunPublished(context["dag"].dag_id, other), method_name="resume")


class SubmitJob(SparkSubmitOperator):
    """Submits a job of `jobs/submitted.py` with the installed code, through the connection `spark_default`."""

    def __init__(self, *, pipeline: Pipeline, task_id: str, job: str, **more: Any) -> None:
        super().__init__(
            task_id=task_id,
            conn_id=SPARK_CONNECTION,
            name=f"{pipeline.name}.{task_id}",
            application=str(PACKAGE / "jobs" / "submitted.py"),
            conf={**QUIET, **(with_delta(pipeline.spark) if job == "publish" else pipeline.spark)},
            **more,
        )
        self.pipeline, self.pipeline_name, self.job = pipeline, pipeline.name, job

    def submit(self, context: Any, arguments: list[str]) -> None:
        """Run the job to its end.

        Raises AirflowException if it fails. The task's log contains the job's command and its last lines. The error
        itself contains neither, since notifiers send it and the command may contain credentials.
        """
        self.py_files = str(build_archive(airflow_home() / ".airflow" / "code"))
        log_level = os.environ.get(
            "TUSSOCK_LOG", "INFO"
        )  # passed on to driver and workers (tussock.jobs.settings.logs)
        self.conf = {"spark.executorEnv.TUSSOCK_LOG": log_level, **(self.conf or {})}
        # spark-submit and the driver use this process's Python. Workers do too, unless the cluster sets its own.
        self.env_vars = {
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "TUSSOCK_LOG": log_level,
            **submit_options(),
        }
        environment = ["--env", self.pipeline.environment] if self.pipeline.environment else []
        folder = str(pipelines_folder() / self.pipeline.name)
        self.application_args = [self.job, "--pipeline", folder, *environment, *arguments]
        try:
            super().execute(context)
        except AirflowException as err:
            code = re.search(r"Error code is: (-?\d+)", str(err))
            ended = f"ended with exit code {code[1]}" if code else "failed"
            raise AirflowException(f"The Spark job {ended}. The log of this task has the reason.") from err


class RunActors(SubmitJob):
    """Runs the job `epoch` over the run's interval.

    Submits no job if nothing waits, as in a cleared run that had finished. With `[epoch] runner = "auto"`, this host
    runs epochs that do not need Spark or its machines, and the job runs the rest.
    """

    def execute(self, context: Any) -> None:
        with metrics.sends_epochs(self.pipeline_name):
            self._take_in(context)

    def _take_in(self, context: Any) -> None:
        from tussock.jobs.operations.epochs import ended_without_input, recorded_in_job, spark_must_ask

        at = _opened(self.pipeline_name)
        # Checked again: since inject_barrier, files may have arrived or another run may have finished.
        if _inject(at, context) is None and not spark_must_ask(at):
            ended_without_input(at, _wish(at, context))
            self.log.info("No input is waiting.")
            return
        if at.pipeline.epoch.runner is Runner.AUTO and self._ran_here(at, context):
            return
        run, interval = run_of(context), run_interval(context)
        arguments = ["--run", *(f"{name}={value}" for name, value in run.items())]
        if interval is not None:
            arguments += ["--interval", *(moment.isoformat() for moment in interval)]
        if (asked := _moment_param(context)) is not None:
            arguments += ["--moment", asked]
        if _is_scheduled(context):
            arguments += ["--scheduled"]
        with recorded_in_job(at, run):
            self.submit(context, arguments)

    def _ran_here(self, at: "PipelineStore", context: Any) -> bool:
        """Whether this process ran all epochs; False: an epoch needs Spark."""
        from tussock.jobs.driver.runner import SparkWantedError
        from tussock.jobs.driver.summary import show_summary
        from tussock.jobs.operations.epochs import run_pipeline_epochs

        with no_retry(self.pipeline_name):
            done = run_pipeline_epochs(at, _wish(at, context), _where(), self.log.info)
        for summary in done.summaries:
            self.log.info("%s", address_commands(show_summary(summary), pipeline=_argument(self.pipeline_name)))
        if done.needs_spark:
            self.log.info("%s", SparkWantedError(done.why_spark))
        return not done.needs_spark


def _where() -> "Where":
    """Where epochs run that do not need Spark: large ones on its machines, if the connection's master has any."""
    from tussock.jobs.operations.epochs import Where

    try:
        master = BaseHook.get_connection(SPARK_CONNECTION).host or ""
    except AirflowException:  # the job reports it, if there is a large epoch
        return Where.SMALL_HERE
    return Where.HERE if is_local_master(master) else Where.SMALL_HERE


class Health(PipelineTask):
    """Logs everything that is wrong with the pipeline, as `tussock status` does, and sends it as metrics.

    Fails, with the reasons, if another task of the run failed, if a held source kept files from this run, if its
    interval lacks files that pipeline.toml expects, if this run paused a view, or if a view is held back at its epoch.
    Everything else is published by then. Trouble of other runs is only logged. So a red run is one that a person should
    look at, and a later run is green again.
    """

    def execute(self, context: Any) -> dict[str, str]:
        failed = [*self._failed_tasks(context)]
        try:
            return self._report(context, failed)
        except UndoneError:
            raise
        except Exception as err:  # of a store that cannot be read: the health is unknown
            metrics.send_unreadable(self.pipeline_name, err.__cause__ if isinstance(err.__cause__, Exception) else err)
            if failed:
                sends_no_message(err)
            raise

    def _report(self, context: Any, failed: list[str]) -> dict[str, str]:
        from tussock.jobs.operations.health import health_after_run
        from tussock.jobs.texts.status import health_line

        at = self.opened()
        undone = tuple((event, self._to_run(text)) for event, text in self._left_undone(at, context))
        with no_retry(self.pipeline_name):
            status = health_after_run(
                at,
                run_of(context),
                context["dag_run"].start_date,
                "".join(failed),
                _epoch_if_any(context),
                [text for _, text in undone],
            )
        metrics.send_health(self.pipeline_name, status)
        for trouble in status.troubles:
            self.log.log(logging.ERROR if trouble.wrong else logging.WARNING, "%s", health_line(trouble))
        self.log.info("pipeline %s: %s", self.pipeline_name, status.verdict)
        if reasons := [*failed, *(text for _, text in undone)]:
            raise UndoneError("\n".join(reasons), undone)
        return {"health": status.verdict}

    def _to_run(self, text: str) -> str:
        return address_commands(text, pipeline=_argument(self.pipeline_name))

    def _failed_tasks(self, context: Any) -> Iterator[str]:
        """A task that runs in any state would make a failed run green, because it is the last one.

        The failed task has sent the message, so this sends none.
        """
        run = context["dag_run"]
        states = task_states(run.dag_id, run.run_id, sorted(self.get_flat_relative_ids(upstream=True)))
        if failed := [task for task, state in states.items() if state == "failed"]:
            yield f"This run failed in Airflow. The log of {', '.join(failed)} has the reason."
        elif "upstream_failed" in states.values():
            yield "This run failed in Airflow. The log of its first red task has the reason."

    def _left_undone(self, at: "PipelineStore", context: Any) -> Iterator[tuple[NoticeEvent, str]]:
        from tussock.jobs.barriers.source_holds import HeldSourcesError
        from tussock.jobs.driver.pauses import PausedViewsError
        from tussock.jobs.quality.arrival import MissingFilesError
        from tussock.jobs.quality.record import HeldViewsError

        checks = (_require_not_held, _require_arrived, _require_none_paused, _require_none_held_back)
        for require in checks:
            with no_retry(self.pipeline_name):
                try:
                    require(at, context)
                except HeldSourcesError as err:
                    do = (
                        "Once the cause is gone, clear this run from inject_barrier on: it processes the waiting files."
                    )
                    yield NoticeEvent.HELD, f"{err}\n{do}"
                except MissingFilesError as err:
                    yield NoticeEvent.HELD, str(err)
                except PausedViewsError as err:
                    yield NoticeEvent.PAUSED, str(err)
                except HeldViewsError as err:
                    yield NoticeEvent.HELD, str(err)


class UndoneError(AirflowFailException):
    """A run failed, or has left something undone. `notices`: one message per finding, for tussock_notify."""

    def __init__(self, text: str, notices: tuple[tuple[NoticeEvent, str], ...]) -> None:
        super().__init__(text)
        self.notices = notices


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

        at = _opened(self.pipeline_name)
        with no_retry(self.pipeline_name):
            if not quality.has_suites(at):
                self.log.info("Pipeline %s has no suites; epoch %d is not checked.", self.pipeline_name, epoch)
                return
            known = quality.verdict(at, epoch)
        if known is not QualityVerdict.NONE:
            self.log.info("The current suites have already judged epoch %d: %s", epoch, known.value)
            if known is QualityVerdict.FAILED and not quality.checks_each_view(at):
                raise AirflowFailException(quality.failure(at, epoch))
            return
        if self._judged_here(at, epoch):
            return
        try:
            self.submit(context, ["--epoch", str(epoch)])
        except AirflowException:
            if (failure := quality.failure(at, epoch)) is not None:
                raise AirflowFailException(failure) from None
            raise

    def _judged_here(self, at: "PipelineStore", epoch: int) -> bool:
        """Whether this process could judge the epoch and it passed. Raises AirflowFailException if it failed."""
        from tussock.jobs.operations import quality
        from tussock.jobs.quality.epoch_check import SparkNeededError
        from tussock.jobs.quality.record import HeldViewsError

        with no_retry(self.pipeline_name):
            try:
                record = quality.check_here(at, epoch, self.log.info)
            except SparkNeededError as err:
                self.log.info("%s", err)
                return False
            for line in quality.record_news(at, record):
                self.log.info("%s", line)
            quality.require_passed(at, record)
            if not record.passed:
                self.log.warning("%s", HeldViewsError(record))
        return True


class CommitVersion(AnnouncingTask):
    """Commits the sealed epochs and emits events of sources with new input.

    The input counts as taken from here on, whether the epoch is published or not.
    """

    def execute(self, context: Any) -> dict[str, str]:
        from tussock.jobs.operations.epochs import commit_sealed

        with no_retry(self.pipeline_name):
            version = commit_sealed(self.opened())
            announce_changes(self.pipeline, context, _interval(self.pipeline, context), [SOURCES])
        return {"epoch": str(version.epoch), "version": str(version.id)}


class PublishViews(AnnouncingTask):
    """Publishes the committed epoch, as far as the quality check passed it.

    Reports changed views to Airflow and OpenLineage.
    """

    published: "Publication | None" = None  # set by `execute`

    def execute(self, context: Any) -> dict[str, str]:
        from tussock.jobs.operations.publish import publish_checked_epoch

        with no_retry(self.pipeline_name):
            published = self.published = publish_checked_epoch(self.opened(), _committed_epoch(context))
            announce_changes(self.pipeline, context, _interval(self.pipeline, context), [VIEWS])
        held = {f"{view} seen as of": str(at) for view, at in published.held.items()}
        return {"epoch": str(published.epoch), "version": str(published.version), **held}

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
            with no_retry(self.pipeline_name):
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
        tables = tables_at(_opened(self.pipeline.name), self.sink, epoch)
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

        with no_retry(self.pipeline_name):
            set_connection(self.sink)
            publish_tables(self.opened(), _committed_epoch(context), self.log.info, self.sink.title)
        return self.emit(context)


def set_connection(sink: PublishSettings) -> None:
    """Set the variable AIRFLOW_CONN_… of the Airflow connection that a sink names, for the code below Airflow."""
    if sink.to.startswith(AIRFLOW_CONNECTION):
        name = sink.to.removeprefix(AIRFLOW_CONNECTION)
        try:
            os.environ[f"AIRFLOW_CONN_{name.upper()}"] = BaseHook.get_connection(name).get_uri()
        except AirflowException:  # it is reported by the sink
            return


class PublishTables(_WritesTables, SubmitJob):
    """Runs the job `publish` for a sink and the epoch that publish_views published."""

    def __init__(self, *, pipeline: Pipeline, sink: PublishSettings, **more: Any) -> None:
        super().__init__(pipeline=pipeline, **more)
        self.pipeline, self.sink = pipeline, sink

    def execute(self, context: Any) -> None:
        self.submit(context, ["--epoch", str(_committed_epoch(context)), "--sink", self.sink.title])
        self.emit(context)


@contextmanager
def no_retry(pipeline: str = "") -> Iterator[None]:
    """Fail without retries on errors that a user must correct. Lost races and unreachable servers are retried.

    `pipeline`: the name that commands in messages get, so that they work as printed.
    """
    try:
        yield
    except (InputError, DamagedError) as err:
        message = "\n  ".join([f"{type(err).__name__}: {printed_error(err)}", *getattr(err, "__notes__", ())])
        cause = err if prints_rows() else None  # Airflow's log also has the texts of causes
        raise AirflowFailException(address_commands(message, pipeline=pipeline and _argument(pipeline))) from cause


def _argument(name: str) -> str:
    """A pipeline as commands name it, in the environment of Airflow's processes."""
    return in_commands(name, os.environ.get("TUSSOCK_ENV", ""))


def _opened(name: str) -> "PipelineStore":
    with no_retry(name):
        return open_pipeline_store(name)


def _wish(at: "PipelineStore", context: Any) -> "Wish":
    """The input that the run requests."""
    from tussock.jobs.operations.epochs import interval_between, wish_of

    interval = interval_between(at, run_interval(context))
    return wish_of(at, interval, _moment_param(context), run_of(context), is_scheduled=_is_scheduled(context))


def _moment_param(context: Any) -> str | None:
    """The value of now() in views that a user set in the trigger form."""
    return context["params"].get("moment") or None


def _is_scheduled(context: Any) -> bool:
    """Whether the scheduler chose the run's interval. With `catchup = false`, it leaves out intervals."""
    return bool(context["dag_run"].run_type == "scheduled")


def _inject(at: "PipelineStore", context: Any) -> "Barrier | None":
    from tussock.jobs.operations.epochs import inject_barrier

    with no_retry(at.pipeline.name):
        return inject_barrier(at, _wish(at, context))


def _require_not_held(at: "PipelineStore", context: Any) -> None:
    from tussock.jobs.operations.epochs import interval_between, require_interval_not_held

    require_interval_not_held(at, interval_between(at, run_interval(context)))


def _require_arrived(at: "PipelineStore", context: Any) -> None:
    from tussock.jobs.operations.epochs import interval_between, require_arrived

    require_arrived(at, (), interval_between(at, run_interval(context)))


def _require_none_paused(at: "PipelineStore", context: Any) -> None:
    from tussock.jobs.operations.epochs import require_none_paused_by_run

    require_none_paused_by_run(at, run_of(context))


def _require_none_held_back(at: "PipelineStore", context: Any) -> None:
    """Without a committed epoch, the run has failed before. With the scope `pipeline`, `validate_views` fails."""
    from tussock.jobs.operations.quality import checks_each_view, require_none_held_back

    epoch = _epoch_if_any(context)
    if epoch is not None and checks_each_view(at):
        require_none_held_back(at, epoch)


def _interval(pipeline: Pipeline, context: Any) -> RunInterval:
    """The run's interval, and the day of its events if the pipeline partitions them by day."""
    span = run_interval(context)
    by_partition = pipeline.schedule is not None and pipeline.schedule.partitions
    return RunInterval(span, day_of(pipeline, *span) if HAS_PARTITIONS and by_partition and span is not None else None)


def _committed_epoch(context: Any) -> int:
    epoch = _epoch_if_any(context)
    assert epoch is not None, "a task after commit_version"
    return epoch


def _epoch_if_any(context: Any) -> int | None:
    """The epoch that the run committed; None if it has failed before."""
    committed = context["ti"].xcom_pull(task_ids="commit_version")
    return None if committed is None else int(committed["epoch"])


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise AirflowFailException(f"{text!r} has no time zone. Write, for example, {text}Z.")
    return moment


def _span(interval: tuple[datetime, datetime]) -> str:
    return f"the interval from {interval[0].isoformat()} to {interval[1].isoformat()}"
