"""The epoch job: finish the open barrier or inject one, run its actors, seal, and commit.

    python -m tussock.jobs.submitted.epoch --pipeline FOLDER [--env NAME] [--interval START END] [--moment TIME]

Safe to kill at any point, and to run twice concurrently: all work before the commit can be repeated with the same
result, and only one of two commits succeeds. Under spark-submit, spark-submit sets the master and the memory; otherwise
the job runs locally.
"""

import argparse
import sys
from collections.abc import Sequence

from tussock.jobs.driver.summary import show_summary
from tussock.jobs.operations.epochs import Where, advance, interval_of, wish_of
from tussock.jobs.operations.store import open_pipeline
from tussock.jobs.settings.printed_commands import addressed
from tussock.jobs.submitted.exits import exit_code, say
from tussock.jobs.submitted.which_pipeline import given_pipeline, pipeline_arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job.

    Exit code 0: success, also if a source is held or a view paused, which the output lists; 1: error, with one message;
    3: another run committed first, and nothing of this run is visible.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tussock.jobs.submitted.epoch",
        description="Update all views of a pipeline with the waiting input.",
    )
    pipeline_arguments(parser)
    parser.add_argument(
        "--interval", nargs=2, metavar=("START", "END"), help="take only this data interval's files (ISO 8601)"
    )
    parser.add_argument(
        "--run", nargs="+", type=_named_text, default=[], metavar="NAME=TEXT", help="store with the injected barriers"
    )
    parser.add_argument("--moment", metavar="TIME", help="the value of now() in views (ISO 8601), or now for the clock")
    parser.add_argument("--scheduled", action="store_true", help="the scheduler chose the interval")
    chosen = parser.parse_args(arguments)
    return exit_code(lambda: _advance(chosen), chosen)


def _advance(chosen: argparse.Namespace) -> None:
    at = open_pipeline(given_pipeline(chosen))
    interval = None if chosen.interval is None else interval_of(at, *chosen.interval)
    done = advance(
        at, wish_of(at, interval, chosen.moment, dict(chosen.run), is_scheduled=chosen.scheduled), Where.SPARK, say
    )
    for summary in done.summaries:
        say(addressed(show_summary(summary), pipeline=at.pipeline.argument))
    if not done.summaries:
        say(f"no new input; the store is at epoch {done.epoch}")


def _named_text(argument: str) -> tuple[str, str]:
    name, equals, text = argument.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"found {argument!r}, expected NAME=TEXT")
    return name, text


if __name__ == "__main__":
    sys.exit(main())
