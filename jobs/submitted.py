"""The script of Spark jobs, for spark-submit or `python -m`: runs one operation and prints the result.

    spark-submit jobs/submitted.py JOB --pipeline FOLDER [--env NAME] [options]
    python -m tussock.jobs.submitted JOB --pipeline FOLDER [--env NAME] [options]

Airflow's tasks submit it. Safe to kill at any point, and to run twice concurrently. Under spark-submit, spark-submit
sets the master and the memory; otherwise a job runs locally.
"""
# ruff: noqa: E402  the path must be right before the first import

import sys
from pathlib import Path

# spark-submit puts the script's folder first on the path, where `sql` or `quality` would hide a team's own modules.
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != Path(__file__).resolve().parent]

import argparse
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tussock.jobs.driver.summary import show_summary
from tussock.jobs.operations import quality
from tussock.jobs.operations.class_archive import create_archive
from tussock.jobs.operations.compaction import compact_forever
from tussock.jobs.operations.epochs import Where, input_request_of, interval_of, run_pipeline_epochs
from tussock.jobs.operations.store import PipelineStore, open_pipeline, open_store
from tussock.jobs.operations.verify import verify_views
from tussock.jobs.quality.record import HeldViewsError
from tussock.jobs.settings.branches import at_its_store
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.printed_commands import address_commands, in_commands
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.settings.row_values import printed_error, prints_for_airflow
from tussock.jobs.shell.command import compact, compact_arguments, publish, publish_arguments, say
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.jobs.texts.verification import verification_text
from tussock.statestore.errors import MustStopError, TussockError
from tussock.statestore.extras import extras_named


@dataclass(frozen=True, slots=True)
class Job:
    """A job of this script. `run`: returns the exit code; None means 0."""

    about: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job. Exit code 0: success; 1: error, with one message; 3: another run committed first; 130, 143: stopped.

    Exit code 0 also if an epoch holds a source or pauses a view, which the output lists.
    """
    parser = argparse.ArgumentParser("python -m tussock.jobs.submitted", description="Run a job of a pipeline.")
    jobs = parser.add_subparsers(title="jobs", metavar="JOB", dest="job", required=True)
    for name, job in JOBS.items():
        job.add_arguments(jobs.add_parser(name, help=job.about, description=job.about))
    chosen = parser.parse_args(arguments)
    try:
        with jvm_errors_as_ours(), extras_named():
            return JOBS[chosen.job].run(chosen) or 0
    except MustStopError as err:
        _print_error(f"lost: {err}")
        return 3
    except TussockError as err:
        message = "\n  ".join((f"error: {printed_error(err)}", *getattr(err, "__notes__", ())))
        folder, *where = (getattr(chosen, name, None) or "" for name in ("pipeline", "env", "branch"))
        _print_error(address_commands(message, pipeline=in_commands(Path(folder).name, *where)))
        return 1


def _print_error(text: str) -> None:
    print(without_secrets(text), file=sys.stderr, flush=True)


def _pipeline_arguments(parser: argparse.ArgumentParser, *, or_store: bool = False) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--pipeline", metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml")
    if or_store:
        which.add_argument("--store", metavar="URI")
    parser.add_argument("--env", metavar="NAME", help="environment of the pipeline (default: $TUSSOCK_ENV)")
    parser.add_argument("--branch", metavar="NAME", help="work on this branch of the store")


def _open_pipeline(chosen: argparse.Namespace) -> PipelineStore:
    """Open the pipeline of the options.

    The job's output is a log of Airflow, so it contains rows only if all readers of the DAG may see them.
    """
    pipeline = load_pipeline(Path(chosen.pipeline), chosen.env)
    prints_for_airflow(pipeline.pages.rows)
    return open_pipeline(at_its_store(pipeline, chosen.branch or ""))


# --- epoch ------------------------------------------------------------------------------------------------------------


def _add_epoch_arguments(parser: argparse.ArgumentParser) -> None:
    _pipeline_arguments(parser)
    interval = "take only this data interval's files (ISO 8601)"
    parser.add_argument("--interval", nargs=2, metavar=("START", "END"), help=interval)
    run = "store with the injected barriers"
    parser.add_argument("--run", nargs="+", type=_named_text, default=[], metavar="NAME=TEXT", help=run)
    parser.add_argument("--moment", metavar="TIME", help="the value of now() in views (ISO 8601), or now for the clock")
    parser.add_argument("--scheduled", action="store_true", help="the scheduler chose the interval")


def _named_text(argument: str) -> tuple[str, str]:
    name, equals, text = argument.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"found {argument!r}, expected NAME=TEXT")
    return name, text


def _run_epoch(chosen: argparse.Namespace) -> None:
    store = _open_pipeline(chosen)
    interval = None if chosen.interval is None else interval_of(store, *chosen.interval)
    request = input_request_of(store, interval, chosen.moment, dict(chosen.run), is_scheduled=chosen.scheduled)
    done = run_pipeline_epochs(store, request, Where.SPARK, say)
    for summary in done.summaries:
        say(address_commands(show_summary(summary), pipeline=store.pipeline.argument))
    if not done.summaries:
        say(f"no new input; the store is at epoch {done.epoch}")


# --- quality, verify, publish -----------------------------------------------------------------------------------------


def _add_quality_arguments(parser: argparse.ArgumentParser) -> None:
    _pipeline_arguments(parser)
    parser.add_argument("--epoch", required=True, type=int, help="a committed epoch")


def _judge_epoch(chosen: argparse.Namespace) -> None:
    """The result is a record in the store, which `publish_views` reads, and Data Docs in a folder outside of it."""
    store = _open_pipeline(chosen)
    record = quality.check_once(store, chosen.epoch, say, say)
    for line in quality.record_news(store, record):
        say(line)
    quality.require_passed(store, record)
    if not record.passed:
        say(str(HeldViewsError(record)))


def _add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    _pipeline_arguments(parser)
    parser.add_argument("--percent", type=int, default=100, help="percentage of each view's keys to compare")
    parser.add_argument("--repair", action="store_true", help="rebuild the views that differ with the next epoch")


def _verify_views(chosen: argparse.Namespace) -> int:
    result = verify_views(_open_pipeline(chosen), percent=chosen.percent, repair=chosen.repair, progress=say)
    say(verification_text(result))
    if result.different:
        _print_error(f"error: these views differ from Spark's result: {', '.join(result.different)}")
        return 1
    return 0


def _add_publish_arguments(parser: argparse.ArgumentParser) -> None:
    _pipeline_arguments(parser)
    publish_arguments(parser)


def _publish_tables(chosen: argparse.Namespace) -> None:
    """Requires: the Spark session has the settings of jobs/delta/delta_packages.py when it starts."""
    publish(_open_pipeline(chosen), chosen)


# --- compact, class-archive -------------------------------------------------------------------------------------------


def _add_compact_arguments(parser: argparse.ArgumentParser) -> None:
    _pipeline_arguments(parser, or_store=True)
    spark = "merge pieces as tasks of a Spark application until nothing is due, instead of waiting for more"
    parser.add_argument("--spark", action="store_true", help=spark)
    parser.add_argument("--pause", type=float, default=30.0, metavar="SECONDS", help="time between rounds (default 30)")
    compact_arguments(parser)


def _compact_store(chosen: argparse.Namespace) -> int | None:
    """Any number of compactors can run concurrently (jobs/upkeep/compaction.py)."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # raises, so that open tasks are closed
    store = _open_pipeline(chosen) if chosen.pipeline else open_store(chosen.store)
    try:
        if chosen.spark or chosen.full or chosen.dry_run:
            compact(store, chosen, on_spark=chosen.spark)
        else:
            compact_forever(store, chosen.pause, say)
    except KeyboardInterrupt:
        _print_error("stopped; uncommitted tasks were closed, and the store is consistent")
        return 130
    return None


def _add_archive_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--missing", action="store_true", help="only if none fits the installed Java and Spark")


def _create_archive(chosen: argparse.Namespace) -> int:
    return 0 if create_archive(only_missing=chosen.missing, progress=say) else 1


JOBS = {
    "epoch": Job("finish the open barrier or inject one, run its actors, and commit", _add_epoch_arguments, _run_epoch),
    "quality": Job("run a pipeline's suites on a committed epoch", _add_quality_arguments, _judge_epoch),
    "verify": Job("compare a pipeline's views with Spark's results", _add_verify_arguments, _verify_views),
    "publish": Job("update a pipeline's tables to a published epoch", _add_publish_arguments, _publish_tables),
    "compact": Job("compact a store, now and whenever it is due", _add_compact_arguments, _compact_store),
    "class-archive": Job("create the archive of Spark's classes", _add_archive_arguments, _create_archive),
}


if __name__ == "__main__":
    sys.exit(main())
