"""The quality job: runs a pipeline's suites on the views of one committed epoch. Starts Spark only if a suite needs it.

Suites are files `<view>.json` in the pipeline's quality folder; quality/suite.py defines their format. The result is
a record in the store (jobs/quality/record.py), which `publish_views` checks, and Data Docs in a folder outside of the
store. If the current suites have already judged the epoch, they do not run again.

    spark-submit jobs/submitted/quality.py --pipeline FOLDER [--env NAME] --epoch N
    python -m tussock.jobs.submitted.quality --pipeline FOLDER --epoch N
"""

import argparse
import sys
from collections.abc import Sequence

from tussock.jobs.operations import quality
from tussock.jobs.operations.store import open_pipeline
from tussock.jobs.quality.record import HeldViewsError
from tussock.jobs.submitted.exits import exit_code, say
from tussock.jobs.submitted.which_pipeline import given_pipeline, pipeline_arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job.

    Exit code 0: the epoch passed, or the gate judges view by view; 1: the epoch failed, or the suites could not run,
    with the reason on standard error.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tussock.jobs.submitted.quality",
        description="Run a pipeline's quality suites on a committed epoch.",
    )
    pipeline_arguments(parser)
    parser.add_argument("--epoch", required=True, type=int, help="a committed epoch")
    chosen = parser.parse_args(arguments)

    def job() -> None:
        at = open_pipeline(given_pipeline(chosen))
        record = quality.judge_once(at, chosen.epoch, say, say)
        for line in quality.record_news(at, record):
            say(line)
        quality.require_passed(at, record)
        if not record.passed:
            say(str(HeldViewsError(record)))

    return exit_code(job, chosen)


if __name__ == "__main__":
    sys.exit(main())
