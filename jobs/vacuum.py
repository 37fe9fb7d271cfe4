"""Retention and vacuum of a store: `python -m jobs.vacuum --store URI`, what `tussock vacuum` runs, and what a DAG may submit.

First the floor rises to what retention keeps, pins whose lease is over go, and compaction tasks whose compactor is gone are closed; then
what nobody can read or commit any more is removed. Safe while epochs, compactions, readers and other vacuums run, and to stop anywhere.
"""

import argparse
import sys
from collections.abc import Sequence

from jobs.settings.process import open_meta
from jobs.settings.retention import Retention
from jobs.upkeep.vacuum import add_arguments, run_vacuum
from statestore.errors import TussockError


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's entry. Exit code 0: done; 1: an error, in one message."""
    parser = argparse.ArgumentParser("python -m jobs.vacuum", description="Apply a store's retention and remove what is of no use.")
    parser.add_argument("--store", required=True, metavar="URI")
    add_arguments(parser)
    chosen = parser.parse_args(arguments)
    try:
        run_vacuum(open_meta(chosen.store), chosen, Retention())
    except TussockError as err:
        print(f"error: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
