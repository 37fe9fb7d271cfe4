"""The tasks of an epoch DAG. Parsing this imports no Spark and reads nothing; a task imports the engine when it runs.

    inject_barrier >> run_actors >> commit_version >> validate_views >> publish_views [>> publish_tables, owed_events]
                      run_actors >> held_sources [, paused_views]
                      validate_views [>> held_views]

Runs of all kinds (scheduled, triggered, backfills) take turns: tussock_turn.py. They need nothing that an Airflow does not have by itself:
no pool, and of connections only Spark's. What makes them safe is the store: whichever order tasks of two runs come in, an open barrier is
finished before another is injected, and an epoch is committed once.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import tussock_metrics as metrics
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, Param
from tussock_airflow import HAS_PARTITIONS, AirflowException, AirflowFailException, DownstreamTasksSkipped
from tussock_events import (
    ONE_AT_A_TIME,
    OWED_EVENTS,
    SOURCES,
    TABLES,
    VIEWS,
    RunInterval,
    alias_of,
    announce,
    day_of,
    named_assets,
    subjects_of,
    wait_for_those_who_speak,
)
from tussock_steps import airflow_home, opened, pipelines_folder
from tussock_turn import IN_ORDER, RunPublished, run_ahead, run_of

from tussock.jobs.lake.delta_packages import with_delta
from tussock.jobs.operations.code_archive import PACKAGE, build_archive
from tussock.jobs.settings.pipeline import GateScope, OnError, Pipeline, Runner, TableEngine
from tussock.jobs.spark.class_archive import submit_options
from tussock.statestore.errors import DamagedError, InputError
from tussock.statestore.meta.catalog import RelationKind

if TYPE_CHECKING:
    from tussock.jobs.operations.epochs import Wish
    from tussock.jobs.operations.publication import Publication
    from tussock.jobs.operations.store import PipelineStore
    from tussock.jobs.sinks.manifest import TableState
    from tussock.statestore.meta.barrier import Barrier

HELD_SOURCES, PAUSED_VIEWS, HELD_VIEWS = "held_sources", "paused_views", "held_views"
SPARK_CONNECTION = "spark_default"
BIN = Path(sys.executable).parent

QUIET = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}  # a task's log is for people

PARAMS: Mapping[str, Param] = {
    "start": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Interval start",
        description="Take in the files of this interval. Empty in a run by hand: the form's own data interval; where that is empty too, "
        "whatever waits, of any interval.",
    ),
    "end": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Interval end",
        description="The first moment after the interval.",
    ),
    "pause": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Pause views",
        description="These, and the views over them, keep the rows that they have; what waits is taken in without them.",
    ),
    "restate": Param(
        None,
        type=["null", "string"],
        title="Restate a source",
        description="Its rows that were taken of the interval, or of the file below, go, and those that its files have now come; then "
        "the run goes on as any other.",
    ),
    "file": Param(
        None,
        type=["null", "string"],
        title="File to restate",
        description="By its path, as it was taken. Empty: the interval.",
    ),
}
"""The fields of the trigger form."""


def spark_writes_tables(pipeline: Pipeline) -> bool:
    """Whether the pipeline publishes to tables that Spark writes."""
    return pipeline.publish is not None and pipeline.publish.engine is TableEngine.SPARK


def run_interval(context: Mapping[str, Any]) -> tuple[datetime, datetime] | None:
    """The interval whose files a run takes in: that of its params, else its data interval, else none: whatever waits.

    A run by hand has a data interval where somebody gave it one, in the trigger form or through the API. Else Airflow asks the timetable
    for one, and both of ours (IntervalsUntil; none at all) answer with an empty one.

    Raises AirflowFailException: half an interval, an empty one in the params, or params that say something else than the data interval.
    """
    asked = _params_interval(context["params"])
    run = context["dag_run"]
    own = (run.data_interval_start, run.data_interval_end)
    if own[0] is None or own[1] is None or own[0] >= own[1]:
        return asked
    if asked is not None and asked != own and run.run_type not in IN_ORDER:
        raise AirflowFailException(
            f"params say {_span(asked)}, the data interval of this run is {_span(own)}, and both were given by hand. Give one of them"
        )
    return own if asked is None else asked


def _params_interval(params: Mapping[str, Any]) -> tuple[datetime, datetime] | None:
    start, end = params.get("start"), params.get("end")
    if (start is None) != (end is None):
        raise AirflowFailException(
            f"params start={start!r} and end={end!r}: give both ends of the interval, or neither"
        )
    if start is None or end is None:
        return None
    interval = (_moment(start), _moment(end))
    if interval[0] >= interval[1]:
        raise AirflowFailException(f"params start={start!r} and end={end!r}: the end is not after the start")
    return interval


def inject_barrier(pipeline: Pipeline) -> "InjectBarrier":
    """Wait for the run's turn, then pin the files of its interval and the end of the statement log."""
    return InjectBarrier(pipeline=pipeline, task_id="inject_barrier")


def run_actors(pipeline: Pipeline) -> SparkSubmitOperator:
    """Finish the open barrier, then take in the run's interval, to the last file: one Spark application."""
    return RunActors(pipeline=pipeline, task_id="run_actors", application="epoch.py")


def held_sources(pipeline: Pipeline) -> "HeldSources":
    """Fail where a source in trouble kept files from the run; skipped, at no cost, where none did."""
    return HeldSources(pipeline=pipeline, task_id=HELD_SOURCES)


def paused_views(pipeline: Pipeline) -> "PausedViews":
    """Fail where the run paused a view; skipped, at no cost, where it did not. Requires: the pipeline has `on_error = "pause"`."""
    return PausedViews(pipeline=pipeline, task_id=PAUSED_VIEWS)


def pauses_views(pipeline: Pipeline) -> bool:
    """Whether the pipeline's runs pause a view whose rows raise."""
    return pipeline.epoch.on_error is OnError.PAUSE


def commit_version(pipeline: Pipeline) -> "CommitVersion":
    """Commit what is sealed, name the committed epoch, and emit an asset event for each source of which something was taken in."""
    return CommitVersion(
        pipeline=pipeline,
        task_id="commit_version",
        outlets=[alias_of(pipeline.name, SOURCES), *named_assets(pipeline, RelationKind.SOURCE)],
        max_active_tis_per_dag=ONE_AT_A_TIME,
    )


def validate_views(pipeline: Pipeline) -> SparkSubmitOperator:
    """Run the suites on the epoch that commit_version named."""
    return ValidateViews(pipeline=pipeline, task_id="validate_views", application="quality.py")


def held_views(pipeline: Pipeline) -> "HeldViews":
    """Fail where a suite did, and its view is held back; skipped, at no cost, where none did. Requires: `[quality] scope = "view"`."""
    return HeldViews(pipeline=pipeline, task_id=HELD_VIEWS)


def holds_views_back(pipeline: Pipeline) -> bool:
    """Whether a suite that fails holds its view back, and not the epoch."""
    return pipeline.quality is not None and pipeline.quality.scope is GateScope.VIEW


def publish_views(pipeline: Pipeline) -> "PublishViews":
    """Let readers see that epoch, and emit an asset event for each view of which they see other rows.

    Airflow draws its graph from what a task names: from the sources to this task, and on to the views.
    """
    return PublishViews(
        pipeline=pipeline,
        task_id="publish_views",
        inlets=named_assets(pipeline, RelationKind.SOURCE),
        outlets=[alias_of(pipeline.name, VIEWS), *named_assets(pipeline, RelationKind.VIEW)],
        max_active_tis_per_dag=ONE_AT_A_TIME,
    )


def owed_events(pipeline: Pipeline) -> "OwedEvents":
    """Where a run did not get to publish_views: the events that runs of a backfill before it left to it. Else skipped, at no cost.

    A teardown: it runs whatever became of the tasks before it, and says nothing about how the run ended.
    """
    task = OwedEvents(
        pipeline=pipeline,
        task_id=OWED_EVENTS,
        outlets=[
            *(
                alias_of(pipeline.name, subject)
                for subject in (SOURCES, VIEWS, *([TABLES] if pipeline.publish is not None else []))
            ),
            *(asset for kind in (RelationKind.SOURCE, RelationKind.VIEW) for asset in named_assets(pipeline, kind)),
        ],
        max_active_tis_per_dag=ONE_AT_A_TIME,
    )
    return cast("OwedEvents", task.as_teardown())


def can_be_backfilled(pipeline: Pipeline) -> bool:
    """Whether there are intervals that a backfill could be of."""
    return pipeline.schedule is not None


def publish_tables(pipeline: Pipeline) -> BaseOperator:
    """Bring the tables outside of the store to that epoch, and emit an asset event for each. Requires: the pipeline has `[publish]`."""
    outlets = [alias_of(pipeline.name, TABLES)]
    if spark_writes_tables(pipeline):
        return PublishTables(pipeline=pipeline, task_id="publish_tables", application="publish.py", outlets=outlets)
    return PublishTablesHere(pipeline=pipeline, task_id="publish_tables", outlets=outlets)


class PipelineTask(BaseOperator):
    """A task of one pipeline, which it opens when it runs."""

    def __init__(self, *, pipeline: Pipeline, **more: Any) -> None:
        super().__init__(**more)
        self.pipeline_name = pipeline.name

    def opened(self) -> "PipelineStore":
        """The pipeline with its store."""
        return _opened(self.pipeline_name)


class AnnouncingTask(PipelineTask):
    """A task that emits asset events, which are of the pipeline as it was parsed."""

    def __init__(self, *, pipeline: Pipeline, **more: Any) -> None:
        super().__init__(pipeline=pipeline, **more)
        self.pipeline = pipeline


class InjectBarrier(PipelineTask):
    """Pins what the run takes in, as soon as no other run of the pipeline is ahead of it or in the middle."""

    def execute(self, context: Any) -> dict[str, str] | None:
        self._wait_for_turn(context)
        interval = run_interval(context)
        self.log.info(
            "takes in %s",
            _span(interval) if interval else "whatever waits: neither params nor a data interval are given",
        )
        self._begin(context, interval)
        barrier = _inject(self.opened(), context)
        self._wait_for_turn(
            context
        )  # another run may have looked at the same moment; the store has decided whose barrier is in force
        return (
            None
            if barrier is None
            else {"barrier": f"{barrier.prev_epoch}/{barrier.attempt}", "epoch": str(barrier.epoch)}
        )

    def _begin(self, context: Any, interval: tuple[datetime, datetime] | None) -> None:
        """What a person wants of this run besides."""
        from tussock.jobs.operations import epochs, restate
        from tussock.jobs.sources.base import Restated
        from tussock.jobs.texts.restatement import begun_lines

        params, run = context["params"], run_of(context)
        with no_retry():
            if views := tuple(params.get("pause") or ()):
                epochs.pause(self.opened(), views, run)
                self.log.info("paused: %s", ", ".join(views))
            if source := params.get("restate"):
                at, file = self.opened(), params.get("file")
                asked = Restated(file) if file else Restated(interval=epochs.interval_between(at, interval))
                for line in begun_lines(restate.begin(at, source, asked, run)):
                    self.log.info("%s", line)

    def resume(self, context: Any, event: object = None) -> dict[str, str] | None:
        """After a wait."""
        return self.execute(context)

    def _wait_for_turn(self, context: Any) -> None:
        from tussock.jobs.operations.epochs import holder

        with no_retry():
            held_by = holder(self.opened(), context["dag"].dag_id)
        if (other := run_ahead(context, held_by)) is not None:
            self.log.info(
                "waits for run %s, which is ahead. If nothing works on that run any more, mark it as failed", other
            )
            self.defer(trigger=RunPublished(context["dag"].dag_id, other), method_name="resume")


class SubmitJob(SparkSubmitOperator):
    """Submits one of `jobs/submitted/*.py` with the code that is installed here, through the connection `spark_default`."""

    def __init__(self, *, pipeline: Pipeline, task_id: str, application: str, **more: Any) -> None:
        super().__init__(
            task_id=task_id,
            conn_id=SPARK_CONNECTION,
            name=f"{pipeline.name}.{task_id}",
            application=str(PACKAGE / "jobs" / "submitted" / application),
            conf={**QUIET, **(with_delta(pipeline.spark) if application == "publish.py" else pipeline.spark)},
            **more,
        )
        self.pipeline_name = pipeline.name

    def submit(self, context: Any, arguments: list[str]) -> None:
        """Run the job with these arguments to its end. Raises AirflowException when it fails; its last lines are in the task's log."""
        self.py_files = str(build_archive(airflow_home() / ".airflow" / "code"))
        log_level = os.environ.get(
            "TUSSOCK_LOG", "INFO"
        )  # on in a task's log, for driver and workers (tussock.jobs.settings.logs)
        self.conf = {"spark.executorEnv.TUSSOCK_LOG": log_level, **(self.conf or {})}
        # spark-submit and the driver's Python are those of this process; the workers' too, unless a cluster has its own.
        self.env_vars = {
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "TUSSOCK_LOG": log_level,
            **submit_options(),
        }
        self.application_args = ["--pipeline", str(pipelines_folder() / self.pipeline_name), *arguments]
        super().execute(context)


class RunActors(SubmitJob):
    """`jobs/submitted/epoch.py` over the run's interval; no job where nothing waits, as in a finished run that is cleared.

    With `[epoch] runner = "auto"` this process runs small epochs, and the job what is left.
    """

    def execute(self, context: Any) -> None:
        from tussock.jobs.driver.pauses import PausedViewsError
        from tussock.jobs.driver.source_holds import HeldSourcesError

        with metrics.sends_epochs(self.pipeline_name):
            self._take_in(context)
        fine = []
        with no_retry():
            for task_id, require in ((HELD_SOURCES, _require_not_held), (PAUSED_VIEWS, _require_none_paused)):
                try:
                    if task_id in self.downstream_task_ids:
                        require(_opened(self.pipeline_name), context)
                        fine.append(task_id)
                except (HeldSourcesError, PausedViewsError) as err:
                    self.log.warning("%s", err)  # this task has done its work, and those after it are to publish it
        if fine:
            raise DownstreamTasksSkipped(tasks=fine)  # type: ignore[no-untyped-call]

    def _take_in(self, context: Any) -> None:
        from tussock.jobs.operations.epochs import spark_must_ask

        at = _opened(self.pipeline_name)
        # asked again: files may have come, or another run finished, since inject_barrier
        if _inject(at, context) is None and not spark_must_ask(at):
            self.log.info("nothing waits")
            return
        if at.pipeline.epoch.runner is Runner.AUTO and self._ran_here(at, context):
            return
        arguments = ["--run", *(f"{name}={value}" for name, value in run_of(context).items())]
        interval = run_interval(context)
        self.submit(
            context,
            arguments + ([] if interval is None else ["--interval", *(moment.isoformat() for moment in interval)]),
        )

    def _ran_here(self, at: "PipelineStore", context: Any) -> bool:
        """Whether this process took in all that waits; False: an epoch came up that Spark should run."""
        from tussock.jobs.driver.runner import SparkWantedError
        from tussock.jobs.driver.summary import show_summary
        from tussock.jobs.operations.epochs import Where, advance

        with no_retry():
            done = advance(at, _wish(at, context), Where.HERE, self.log.info)
        for summary in done.summaries:
            self.log.info("%s", show_summary(summary))
        if done.needs_spark:
            self.log.info("%s", SparkWantedError())
        return not done.needs_spark


class HeldSources(PipelineTask):
    """Fails the run, with the reason, where the files of a source in trouble wait that the run wanted; all else is published.

    It stands beside the tasks that publish, so that neither waits for the other.
    """

    def execute(self, context: Any) -> None:
        from tussock.jobs.driver.source_holds import HeldSourcesError

        with no_retry():
            try:
                _require_not_held(self.opened(), context)
            except HeldSourcesError as err:
                err.add_note("Once the cause is gone, clear this run, from inject_barrier on: it takes in what waits.")
                raise


class PausedViews(PipelineTask):
    """Fails the run, with the row, where it paused a view; all else is published. It says so until somebody has the view go on.

    Later runs do not fail for it: each view that is paused is one run's to report.
    """

    def execute(self, context: Any) -> None:
        with no_retry():
            _require_none_paused(self.opened(), context)


class ValidateViews(SubmitJob):
    """The suites at the committed epoch: in this process, or, where one of them needs Spark, by `jobs/submitted/quality.py`.

    Fails without a retry when a suite does: the same rows would fail again. Where the gate judges view by view, `held_views` fails instead.
    """

    def execute(self, context: Any) -> None:
        self._judge(context, epoch := _committed_epoch(context))
        if HELD_VIEWS in self.downstream_task_ids:
            self._decide_held_views(epoch)

    def _decide_held_views(self, epoch: int) -> None:
        """Raises DownstreamTasksSkipped where no view is held back."""
        from tussock.jobs.gate.record import HeldViewsError
        from tussock.jobs.operations.quality import require_none_held_back

        try:
            require_none_held_back(_opened(self.pipeline_name), epoch)
        except HeldViewsError as err:
            self.log.warning("%s", err)
            return
        raise DownstreamTasksSkipped(tasks=[HELD_VIEWS])  # type: ignore[no-untyped-call]

    def _judge(self, context: Any, epoch: int) -> None:
        from tussock.jobs.gate.record import GateVerdict
        from tussock.jobs.operations import quality

        at = _opened(self.pipeline_name)
        if not quality.has_suites(at):
            self.log.info("pipeline %s has no suites; nothing holds epoch %d", self.pipeline_name, epoch)
            return
        with no_retry():
            known = quality.verdict(at, epoch)
        if known is not GateVerdict.NONE:
            self.log.info("these suites have judged epoch %d before: %s", epoch, known.value)
            if known is GateVerdict.FAILED and not quality.judges_views(at):
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
        """Whether this process could judge the epoch, and it passed. Raises AirflowFailException where it did not."""
        from tussock.jobs.gate.gate import SparkNeededError
        from tussock.jobs.gate.record import record_lines
        from tussock.jobs.operations import quality

        with no_retry():
            try:
                record = quality.judge_here(at, epoch)
            except SparkNeededError as err:
                self.log.info("%s", err)
                return False
            for line in record_lines(record):
                self.log.info("%s", line)
            quality.require_passed(at, record)
        return True


class HeldViews(PipelineTask):
    """Fails the run, with the rows, where a suite failed and its view is held back; all else is published."""

    def execute(self, context: Any) -> None:
        from tussock.jobs.operations.quality import require_none_held_back

        with no_retry():
            require_none_held_back(self.opened(), _committed_epoch(context))


class CommitVersion(AnnouncingTask):
    """Commits what is sealed, and tells Airflow what was taken in of sources: that is true from here on, whether it is published or not."""

    def execute(self, context: Any) -> dict[str, str]:
        from tussock.jobs.operations.epochs import commit

        with no_retry():
            version = commit(self.opened())
            announce(self.pipeline, context, _interval(self.pipeline, context), [SOURCES])
        return {"epoch": str(version.epoch), "version": str(version.id)}


class PublishViews(AnnouncingTask):
    """Lets readers see the committed epoch, as far as the gate passed it, and tells Airflow and OpenLineage which views are new."""

    published: "Publication | None" = None  # by `execute`

    def execute(self, context: Any) -> dict[str, str]:
        from tussock.jobs.operations.publish import publish

        with no_retry():
            published = self.published = publish(self.opened(), _committed_epoch(context))
            announce(self.pipeline, context, _interval(self.pipeline, context), [VIEWS])
        metrics.send_views(self.pipeline_name)
        held = {f"{view} seen as of": str(at) for view, at in published.held.items()}
        done = {"epoch": str(published.epoch), "version": str(published.version), **held}
        if OWED_EVENTS in self.downstream_task_ids:
            context["ti"].xcom_push("return_value", done)
            raise DownstreamTasksSkipped(tasks=[OWED_EVENTS])  # type: ignore[no-untyped-call]
        return done

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Files and tables in, views out, for Airflow's provider for OpenLineage, where it is installed."""
        from tussock_lineage import lineage, views_published

        return None if self.published is None else lineage(*views_published(self.pipeline_name, self.published))


class OwedEvents(AnnouncingTask):
    """Tells Airflow what it has not been told, whatever became of the run: nobody else may come who would."""

    def execute(self, context: Any) -> None:
        wait_for_those_who_speak(context, ("commit_version", "publish_views", "publish_tables"))
        with no_retry():
            announce(self.pipeline, context, RunInterval(None, None), subjects_of(self.outlets, self.pipeline.name))


class _WritesTables:
    """What the tasks that publish to tables outside of the store have in common. Requires: an operator, with the pipeline."""

    pipeline: Pipeline
    written: "tuple[int, Mapping[str, TableState]] | None" = (
        None  # by `execute`: the epoch, and the state of each table at it
    )

    def emit(self, context: Any) -> dict[str, str]:
        """An asset event for each table whose rows have changed. Returns the version of each table at the epoch."""
        from tussock.jobs.operations.tables import tables_at

        epoch = _committed_epoch(context)
        tables = tables_at(_opened(self.pipeline.name), epoch)
        self.written = epoch, tables
        announce(self.pipeline, context, RunInterval(None, None), [TABLES])
        return {relation: state.version for relation, state in tables.items()}

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Views and tables in, their copies out, for Airflow's provider for OpenLineage, where it is installed."""
        from tussock_lineage import lineage, tables_published

        return None if self.written is None else lineage(*tables_published(self.pipeline.name, *self.written))


class PublishTablesHere(_WritesTables, AnnouncingTask):
    """Brings the tables to the epoch that publish_views let readers see, in this process."""

    def execute(self, context: Any) -> dict[str, str]:
        from tussock.jobs.operations.tables import publish_tables

        with no_retry():
            publish_tables(self.opened(), _committed_epoch(context), self.log.info)
        return self.emit(context)


class PublishTables(_WritesTables, SubmitJob):
    """`jobs/submitted/publish.py` at the epoch that publish_views let readers see."""

    def __init__(self, *, pipeline: Pipeline, **more: Any) -> None:
        super().__init__(pipeline=pipeline, **more)
        self.pipeline = pipeline

    def execute(self, context: Any) -> None:
        self.submit(context, ["--epoch", str(_committed_epoch(context))])
        self.emit(context)


@contextmanager
def no_retry() -> Iterator[None]:
    """What the user has to correct fails at once: another try would meet it again. Lost races and servers that are away are tried again."""
    try:
        yield
    except (InputError, DamagedError) as err:
        raise AirflowFailException(
            "\n  ".join([f"{type(err).__name__}: {err}", *getattr(err, "__notes__", ())])
        ) from err


def _opened(name: str) -> "PipelineStore":
    with no_retry():
        return opened(name)


def _wish(at: "PipelineStore", context: Any) -> "Wish":
    """What the run takes in."""
    from tussock.jobs.operations.epochs import Wish, interval_between

    return Wish(interval_between(at, run_interval(context)), run=run_of(context))


def _inject(at: "PipelineStore", context: Any) -> "Barrier | None":
    from tussock.jobs.operations.epochs import inject

    with no_retry():
        return inject(at, _wish(at, context))


def _require_not_held(at: "PipelineStore", context: Any) -> None:
    from tussock.jobs.operations.epochs import interval_between, require_interval_not_held

    require_interval_not_held(at, interval_between(at, run_interval(context)))


def _require_none_paused(at: "PipelineStore", context: Any) -> None:
    from tussock.jobs.operations.epochs import require_none_paused_by_run

    require_none_paused_by_run(at, run_of(context))


def _interval(pipeline: Pipeline, context: Any) -> RunInterval:
    """What the run takes in, and the day of its events, where the pipeline wants them to be of one."""
    span = run_interval(context)
    by_partition = pipeline.schedule is not None and pipeline.schedule.partitions
    return RunInterval(span, day_of(pipeline, *span) if HAS_PARTITIONS and by_partition and span is not None else None)


def _committed_epoch(context: Any) -> int:
    return int(context["ti"].xcom_pull(task_ids="commit_version")["epoch"])


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise AirflowFailException(f"{text!r} has no time zone; write e.g. {text}Z")
    return moment


def _span(interval: tuple[datetime, datetime]) -> str:
    return f"the interval from {interval[0].isoformat()} to {interval[1].isoformat()}"
