"""Compaction of a store: a stand-alone compactor, and rounds of tasks that Spark runs in parallel.

    python -m tussock.jobs.submitted.compaction (--pipeline FOLDER | --store URI) [--once] [--full]
    spark-submit jobs/submitted/compaction.py --pipeline FOLDER --spark [--full]

A round: look at the newest version, take what is due by opening tasks, merge them piece by piece, commit each. Any number of compactors may
run at once, while epochs, readers and vacuum run: the version log decides which takes what, and a loser picks again. A task that fails is
closed; one whose compactor was killed is closed by others when its lease is over, and until then its SSTs stay as they are. While merges
get on, the round renews its leases.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tussock.jobs.operations.compaction import compact_forever
from tussock.jobs.operations.store import open_pipeline, open_store
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.shell.command import compact, compact_arguments
from tussock.jobs.submitted.exits import exit_code, say


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's entry. Exit code 0: done; 1: an error, in one message; 130, 143: stopped."""
    about = "Compact a store, whatever else is at work on it."
    parser = argparse.ArgumentParser(prog="python -m tussock.jobs.submitted.compaction", description=about)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--pipeline", metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml")
    where.add_argument("--store", metavar="URI")
    parser.add_argument("--once", action="store_true", help="end when nothing is due, instead of looking again")
    parser.add_argument(
        "--spark", action="store_true", help="merge pieces as the tasks of a Spark application, until nothing is due"
    )
    parser.add_argument("--pause", type=float, default=30.0, metavar="SECONDS", help="between looks (default 30)")
    compact_arguments(parser)
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of an exception, so that open tasks are closed

    def job() -> None:
        at = open_pipeline(load_pipeline(Path(chosen.pipeline))) if chosen.pipeline else open_store(chosen.store)
        if chosen.once or chosen.full or chosen.dry_run or chosen.spark:
            compact(at, chosen, on_spark=chosen.spark)
        else:
            compact_forever(at, chosen.pause, say)

    try:
        return exit_code(job)
    except KeyboardInterrupt:
        print("stopped; what was not committed is closed, and the store is whole", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
