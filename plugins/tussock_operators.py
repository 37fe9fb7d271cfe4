"""The tasks of an epoch DAG that take in input and run actors, and the last one, which reports the health.

    inject_barrier >> run_actors >> commit_version >> validate_views >> publish_views [>> publish_tables…] >> health
                                                                        publish_views [>> owed_events]

tussock_publishing.py has those in the middle. Parsing this imports no Spark and reads nothing; a task imports the
engine when it runs.

Runs of all types (scheduled, triggered, backfills) take turns; see tussock_turn.py. They need no pool, and no
connection except Spark's. The store makes them safe: for any order of the tasks of two runs, an open barrier is
finished before another is injected, and an epoch is committed once.
"""

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import tussock_metrics as metrics
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Param
from tussock_airflow import AirflowException, AirflowFailException
from tussock_connections import set_connections_of_sources
from tussock_defaults import list_field, text_field
from tussock_events import task_states
from tussock_notify import SendNotices, on_failure, sends_no_message
from tussock_steps import open_pipeline_store
from tussock_tasks import (
    SPARK_CONNECTION,
    PipelineTask,
    SubmitJob,
    argument_of,
    epoch_if_any,
    no_retry,
    run_interval,
    span_text,
)
from tussock_turn import RunPublished, branch_in, run_ahead, run_of

from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.printed_commands import address_commands
from tussock.jobs.settings.tables import NoticeEvent, Runner, is_local_master

if TYPE_CHECKING:
    from tussock.jobs.operations.epochs import InputRequest, Where
    from tussock.jobs.operations.store import PipelineStore
    from tussock.statestore.meta.barrier import Barrier

HEALTH = "health"

PARAMS: Mapping[str, Param] = {
    "start": text_field(
        "Interval start",
        "Process the files of this interval. If empty in a manual run, the form's data interval applies. "
        "Without either, the run processes all waiting files.",
        format="date-time",
    ),
    "end": text_field("Interval end", "The first moment after the interval (exclusive end).", format="date-time"),
    "moment": text_field(
        "Value of now()",
        "The value of now() in views: an ISO 8601 time, or now for the clock. If empty, it is the end of "
        "the interval. It allows the run to pass over intervals that have not run. now() never goes back.",
    ),
    "pause": list_field(
        "Pause views", "These views, and the views that read them, keep their rows. All others are updated as usual."
    ),
    "restate": text_field(
        "Restate a source",
        "Remove the rows that this source took for the interval or the file below, and insert the current "
        "rows of its files. Then the run continues as usual.",
    ),
    "file": text_field(
        "Files to restate",
        "Paths of files, as recorded when they were taken, one per line. A folder or a glob stands for all "
        "its files. `*` loads everything again, also a table of a database. One epoch restates all of them. If empty, "
        "the interval applies.",
        format="multiline",
    ),
    "branch": text_field(
        "Branch",
        "Work on this open branch of the store. Nothing is published outside of the branch, and no events "
        "are emitted. A branch that follows its parent takes the parent's epochs, whatever the interval is.",
    ),
}
"""The fields of the trigger form."""


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


class InjectBarrier(PipelineTask):
    """Pins the input of the run once no other run of the pipeline is ahead of it or in progress."""

    def execute(self, context: Any) -> dict[str, str] | None:
        self._wait_for_turn(context)
        interval = run_interval(context)
        self.log.info(
            "Input of this run: %s",
            span_text(interval) if interval else "all waiting files, since neither params nor a data interval are set",
        )
        self._begin(context, interval)
        barrier = _inject(self.opened(context), context)
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
        with no_retry(self.pipeline_name, context):
            if views := tuple(params.get("pause") or ()):
                epochs.pause_views(self.opened(context), views, run)
                self.log.info("paused: %s", ", ".join(views))
            if source := params.get("restate"):
                store = self.opened(context)
                span = epochs.interval_between(store, interval)
                asked = restate.restated_of_form(params.get("file") or "", span)
                for line in begun_lines(restate.begin_restatement(store, source, asked, run)):
                    self.log.info("%s", line)

    def resume(self, context: Any, event: object = None) -> dict[str, str] | None:
        """Continue after the deferral."""
        return self.execute(context)

    def _wait_for_turn(self, context: Any) -> None:
        from tussock.jobs.operations.epochs import holding_run

        with no_retry(self.pipeline_name, context):
            held_by = holding_run(self.opened(context), context["dag"].dag_id)
        if (other := run_ahead(context, held_by)) is not None:
            self.log.info(
                "Waiting for run %s, which is ahead. If that run is no longer being executed, mark it as failed.", other
            )
            self.defer(trigger=RunPublished(context["dag"].dag_id, other), method_name="resume")


class RunActors(SubmitJob):
    """Runs the job `epoch` over the run's interval.

    Submits no job if nothing waits, as in a cleared run that had finished. With `[epoch] runner = "auto"`, this host
    runs epochs that do not need Spark or its machines, and the job runs the rest.
    """

    opens = staticmethod(open_pipeline_store)

    def execute(self, context: Any) -> None:
        if branch_in(context):  # the metrics are those of the store
            self._take_in(context)
            return
        with metrics.sends_epochs(self.pipeline_name):
            self._take_in(context)

    def _take_in(self, context: Any) -> None:
        from tussock.jobs.operations.epochs import ended_without_input, recorded_in_job, spark_must_ask

        with no_retry(self.pipeline_name, context):
            store = self.opens(self.pipeline_name, branch_in(context))
        # Checked again: since inject_barrier, files may have arrived or another run may have finished.
        if _inject(store, context) is None and not spark_must_ask(store):
            ended_without_input(store, _input_request(store, context))
            self.log.info("No input is waiting.")
            return
        if store.pipeline.epoch.runner is Runner.AUTO and self._ran_here(store, context):
            return
        run, interval = run_of(context), run_interval(context)
        arguments = ["--run", *(f"{name}={value}" for name, value in run.items())]
        if interval is not None:
            arguments += ["--interval", *(moment.isoformat() for moment in interval)]
        if (asked := _moment_param(context)) is not None:
            arguments += ["--moment", asked]
        if _is_scheduled(context):
            arguments += ["--scheduled"]
        with recorded_in_job(store, run):
            self.submit(context, arguments)

    def _ran_here(self, store: "PipelineStore", context: Any) -> bool:
        """Whether this process ran all epochs; False: an epoch needs Spark."""
        from tussock.jobs.driver.runner import SparkWantedError
        from tussock.jobs.driver.summary import show_summary
        from tussock.jobs.operations.epochs import run_pipeline_epochs

        with no_retry(self.pipeline_name, context):
            done = run_pipeline_epochs(store, _input_request(store, context), _where(), self.log.info)
        for summary in done.summaries:
            self.log.info(
                "%s", address_commands(show_summary(summary), pipeline=argument_of(self.pipeline_name, context))
            )
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

        store = self.opened(context)
        undone = tuple((event, self._to_run(text, context)) for event, text in self._left_undone(store, context))
        with no_retry(self.pipeline_name, context):
            status = health_after_run(
                store,
                run_of(context),
                context["dag_run"].start_date,
                "".join(failed),
                epoch_if_any(context),
                [text for _, text in undone],
            )
        if not branch_in(context):
            metrics.send_health(self.pipeline_name, status)
        for trouble in status.troubles:
            self.log.log(logging.ERROR if trouble.wrong else logging.WARNING, "%s", health_line(trouble))
        self.log.info("pipeline %s: %s", self.pipeline_name, status.verdict)
        self._tell_of_columns(store, context)
        if reasons := [*failed, *(text for _, text in undone)]:
            raise UndoneError("\n".join(reasons), undone)
        return {"health": status.verdict}

    def _tell_of_columns(self, store: "PipelineStore", context: Any) -> None:
        """Log and send the columns that files brought to sources in the epochs of this run."""
        from tussock.jobs.operations.health import columns_of_run

        if (epoch := epoch_if_any(context)) is None:
            return
        with no_retry(self.pipeline_name, context):
            brought = columns_of_run(store, run_of(context), epoch)
        if brought:
            self.log.warning("%s", "\n".join(brought))
            SendNotices(store.pipeline).send(context, NoticeEvent.EVOLVED, "\n".join(brought))

    def _to_run(self, text: str, context: Any) -> str:
        return address_commands(text, pipeline=argument_of(self.pipeline_name, context))

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

    def _left_undone(self, store: "PipelineStore", context: Any) -> Iterator[tuple[NoticeEvent, str]]:
        from tussock.jobs.barriers.source_holds import HeldSourcesError
        from tussock.jobs.driver.pauses import PausedViewsError
        from tussock.jobs.quality.arrival import MissingFilesError
        from tussock.jobs.quality.record import HeldViewsError

        checks = (_require_not_held, _require_arrived, _require_none_paused, _require_none_held_back)
        for require in checks:
            with no_retry(self.pipeline_name, context):
                try:
                    require(store, context)
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


def _input_request(store: "PipelineStore", context: Any) -> "InputRequest":
    """The input that the run requests."""
    from tussock.jobs.operations.epochs import input_request_of, interval_between

    interval = interval_between(store, run_interval(context))
    return input_request_of(
        store, interval, _moment_param(context), run_of(context), is_scheduled=_is_scheduled(context)
    )


def _moment_param(context: Any) -> str | None:
    """The value of now() in views that a user set in the trigger form."""
    return context["params"].get("moment") or None


def _is_scheduled(context: Any) -> bool:
    """Whether the scheduler chose the run's interval. With `catchup = false`, it leaves out intervals."""
    return bool(context["dag_run"].run_type == "scheduled")


def _inject(store: "PipelineStore", context: Any) -> "Barrier | None":
    from tussock.jobs.operations.epochs import inject_barrier

    with no_retry(store.pipeline.name, context):
        set_connections_of_sources(store)
        return inject_barrier(store, _input_request(store, context))


def _require_not_held(store: "PipelineStore", context: Any) -> None:
    from tussock.jobs.operations.epochs import interval_between, require_interval_not_held

    require_interval_not_held(store, interval_between(store, run_interval(context)))


def _require_arrived(store: "PipelineStore", context: Any) -> None:
    from tussock.jobs.operations.epochs import interval_between, require_arrived

    require_arrived(store, interval_between(store, run_interval(context)))


def _require_none_paused(store: "PipelineStore", context: Any) -> None:
    from tussock.jobs.operations.epochs import require_none_paused_by_run

    require_none_paused_by_run(store, run_of(context))


def _require_none_held_back(store: "PipelineStore", context: Any) -> None:
    """Without a committed epoch, the run has failed before. With the scope `pipeline`, `validate_views` fails."""
    from tussock.jobs.operations.quality import checks_each_view, require_none_held_back

    epoch = epoch_if_any(context)
    if epoch is not None and checks_each_view(store):
        require_none_held_back(store, epoch)
