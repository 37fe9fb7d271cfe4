"""The publish job, which updates tables outside of the store. A DAG submits it if Spark writes the tables.

    python -m tussock.jobs.submitted.publish --pipeline FOLDER [--env NAME] [--epoch N | --tidy]

Safe to kill at any point, and to run twice concurrently (jobs/sinks/publication.py). Under spark-submit, the session
must have the settings of jobs/delta/delta_packages.py when it starts.
"""

import argparse
import sys
from collections.abc import Sequence

from tussock.jobs.operations.store import open_pipeline
from tussock.jobs.shell.command import publish, publish_arguments
from tussock.jobs.submitted.exits import exit_code
from tussock.jobs.submitted.which_pipeline import given_pipeline, pipeline_arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. Exit code 0: success; 1: error, with one message."""
    parser = argparse.ArgumentParser(
        prog="python -m tussock.jobs.submitted.publish", description="Update a pipeline's tables to a published epoch."
    )
    pipeline_arguments(parser)
    publish_arguments(parser)
    chosen = parser.parse_args(arguments)

    def job() -> None:
        publish(open_pipeline(given_pipeline(chosen)), chosen)

    return exit_code(job, chosen)


if __name__ == "__main__":
    sys.exit(main())
