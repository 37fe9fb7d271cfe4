"""The epoch job: take the barrier that is in force, or inject one, run its actors, seal, commit.

    python -m tussock.jobs.submitted.epoch --pipeline FOLDER [--interval START END]

Safe to kill at any point and to run twice at once: everything before the commit can be done again with the same result, and of two
commits one wins and the other says that it lost. Under spark-submit the master and the memory are spark-submit's; otherwise local.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tussock.jobs.driver.summary import show_summary
from tussock.jobs.operations.epochs import Where, Wish, advance, interval_of
from tussock.jobs.operations.store import open_pipeline
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.submitted.exits import exit_code, say


def main(arguments: Sequence[str] | None = None) -> int:
    """The job's entry. Exit code 0: done, and sources in trouble and paused views are named; 1: an error, in one message; 3: another run
    was first, nothing of this one is visible."""
    parser = argparse.ArgumentParser(
        prog="python -m tussock.jobs.submitted.epoch", description="Advance every view of a pipeline over what waits."
    )
    parser.add_argument(
        "--pipeline", required=True, metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml"
    )
    parser.add_argument(
        "--interval", nargs=2, metavar=("START", "END"), help="take in this data interval's files only (ISO 8601)"
    )
    parser.add_argument(
        "--run", nargs="+", type=_named_text, default=[], metavar="NAME=TEXT", help="kept with the barriers it injects"
    )
    chosen = parser.parse_args(arguments)
    return exit_code(lambda: _advance(chosen))


def _advance(chosen: argparse.Namespace) -> None:
    at = open_pipeline(load_pipeline(Path(chosen.pipeline)))
    interval = None if chosen.interval is None else interval_of(at, *chosen.interval)
    done = advance(at, Wish(interval, run=dict(chosen.run)), Where.SPARK, say)
    for summary in done.summaries:
        say(show_summary(summary))
    if not done.summaries:
        say(f"nothing waits; the store is at epoch {done.epoch}")


def _named_text(argument: str) -> tuple[str, str]:
    name, equals, text = argument.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"found {argument!r}, expected NAME=TEXT")
    return name, text


if __name__ == "__main__":
    sys.exit(main())
