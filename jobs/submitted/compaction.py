"""The compaction job: a stand-alone compactor, or rounds of tasks that Spark runs in parallel.

    python -m tussock.jobs.submitted.compaction (--pipeline FOLDER | --store URI) [--once] [--full]
    spark-submit jobs/submitted/compaction.py --pipeline FOLDER --spark [--full]

jobs/upkeep/compaction.py describes a round. Any number of compactors can run concurrently.
"""

import argparse
import signal
import sys
from collections.abc import Sequence

from tussock.jobs.operations.compaction import compact_forever
from tussock.jobs.operations.store import open_pipeline, open_store
from tussock.jobs.shell.command import compact, compact_arguments
from tussock.jobs.submitted.exits import exit_code, say
from tussock.jobs.submitted.which_pipeline import given_pipeline, pipeline_arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. Exit code 0: success; 1: error, with one message; 130, 143: stopped."""
    about = "Compact a store. Safe while other processes use the store."
    parser = argparse.ArgumentParser(prog="python -m tussock.jobs.submitted.compaction", description=about)
    pipeline_arguments(parser, or_store=True)
    parser.add_argument("--once", action="store_true", help="exit when nothing is due, instead of waiting")
    parser.add_argument(
        "--spark", action="store_true", help="merge pieces as tasks of a Spark application until nothing is due"
    )
    parser.add_argument("--pause", type=float, default=30.0, metavar="SECONDS", help="time between rounds (default 30)")
    compact_arguments(parser)
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # raises, so that open tasks are closed

    def job() -> None:
        at = open_pipeline(given_pipeline(chosen)) if chosen.pipeline else open_store(chosen.store)
        if chosen.once or chosen.full or chosen.dry_run or chosen.spark:
            compact(at, chosen, on_spark=chosen.spark)
        else:
            compact_forever(at, chosen.pause, say)

    try:
        return exit_code(job)
    except KeyboardInterrupt:
        print("stopped; uncommitted tasks were closed, and the store is consistent", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
