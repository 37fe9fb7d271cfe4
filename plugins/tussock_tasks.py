"""The base of the tasks of a pipeline's DAGs. Parsing this imports no Spark and reads nothing.

A task opens its pipeline when it runs, and imports the engine then.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, BaseOperator
from tussock_airflow import AirflowException, AirflowFailException
from tussock_steps import airflow_home, open_pipeline_store, pipelines_folder
from tussock_turn import IN_ORDER, branch_in

from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.operations.code_archive import PACKAGE, archive_pipeline, build_archive
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.printed_commands import address_commands, in_commands
from tussock.jobs.settings.row_values import printed_error, prints_rows
from tussock.jobs.spark.class_archive import submit_options
from tussock.statestore.errors import DamagedError, InputError

if TYPE_CHECKING:
    from tussock.jobs.operations.store import PipelineStore

SPARK_CONNECTION = "spark_default"
_BROUGHT = "pipelines"  # the folder of a job's archives in a container
BIN = Path(sys.executable).parent

QUIET = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}  # keeps task logs readable


class PipelineTask(BaseOperator):
    """A task of one pipeline, which it opens when it runs."""

    def __init__(self, *, pipeline: Pipeline, **more: Any) -> None:
        super().__init__(**more)
        self.pipeline_name = pipeline.name

    def opened(self, context: Any) -> "PipelineStore":
        """The pipeline with its store, or with the branch that the run works on."""
        return open_of_task(self.pipeline_name, context)


class AnnouncingTask(PipelineTask):
    """A task that emits asset events of the pipeline, as defined when the DAG was parsed."""

    def __init__(self, *, pipeline: Pipeline, **more: Any) -> None:
        super().__init__(pipeline=pipeline, **more)
        self.pipeline = pipeline


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
        self.durable = False  # a retry submits the job again instead of following the first one: jobs may run twice
        self.folder: Path | None = None  # of the pipeline's files; None: the deployed ones

    def submit(self, context: Any, arguments: list[str]) -> None:
        """Run the job to its end.

        Raises AirflowException if it fails. The task's log contains the job's command and its last lines. The error
        itself contains neither, since notifiers send it and the command may contain credentials.
        """
        archives = airflow_home() / ".airflow" / "code"
        self.py_files = str(build_archive(archives))
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
        places = (("--env", self.pipeline.environment), ("--branch", branch_in(context)))
        where = [word for option, value in places if value for word in (option, value)]
        folder = self.folder or pipelines_folder() / self.pipeline.name
        if _has_remote_driver():  # the driver's host has no folder of the pipeline
            self._archives = f"{archive_pipeline(archives, folder)}#{_BROUGHT}"
            folder = Path(_BROUGHT) / folder.name
        self.application_args = [self.job, "--pipeline", str(folder), *where, *arguments]
        try:
            super().execute(context)
        except AirflowException as err:
            code = re.search(r"Error code is: (-?\d+)", str(err))
            ended = f"ended with exit code {code[1]}" if code else "failed"
            raise AirflowException(f"The Spark job {ended}. The log of this task has the reason.") from err


def _has_remote_driver() -> bool:
    """Return whether the connection's deploy mode is `cluster`."""
    try:
        extra = BaseHook.get_connection(SPARK_CONNECTION).extra_dejson
    except AirflowException:  # the operator reports it
        return False
    return bool(extra.get("deploy-mode") == "cluster")


@contextmanager
def no_retry(pipeline: str, context: Any = None) -> Iterator[None]:
    """Fail without retries on errors that a user must correct. Lost races and unreachable servers are retried.

    Args:
        pipeline: the name that commands in messages get, so that they work as printed.
        context: of a run that may work on a branch, which the commands name too.
    """
    try:
        yield
    except (InputError, DamagedError) as err:
        message = "\n  ".join([f"{type(err).__name__}: {printed_error(err)}", *getattr(err, "__notes__", ())])
        cause = err if prints_rows() else None  # Airflow's log also has the texts of causes
        raise AirflowFailException(address_commands(message, pipeline=argument_of(pipeline, context))) from cause


def argument_of(pipeline: str, context: Any = None) -> str:
    """A pipeline as commands name it, in the environment of Airflow's processes and on the branch of a run."""
    return in_commands(pipeline, os.environ.get("TUSSOCK_ENV", ""), branch_in(context or {}))


def open_of_task(pipeline: str, context: Any) -> "PipelineStore":
    """The pipeline with its store, or with the branch that the run works on. Fails the task as `no_retry`."""
    with no_retry(pipeline, context):
        return open_pipeline_store(pipeline, branch_in(context))


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
            f"The params set {span_text(asked)}, but the data interval of this manual run is {span_text(own)}. "
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


def epoch_if_any(context: Any) -> int | None:
    """The epoch that the run committed; None if it has failed before."""
    committed = context["ti"].xcom_pull(task_ids="commit_version")
    return None if committed is None else int(committed["epoch"])


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise AirflowFailException(f"{text!r} has no time zone. Write, for example, {text}Z.")
    return moment


def span_text(interval: tuple[datetime, datetime]) -> str:
    return f"the interval from {interval[0].isoformat()} to {interval[1].isoformat()}"
