"""Retention and vacuum of a store, as `tussock vacuum` and DAGs run them.

    python -m tussock.jobs.submitted.vacuum --store URI

First the floor rises to what retention keeps, pins whose lease is over go, and compaction tasks whose compactor is gone are closed; then
what nobody can read or commit any more is removed. Safe while epochs, compactions, readers and other vacuums run, and to stop anywhere.
"""

import argparse
import sys
from collections.abc import Sequence

from tussock.jobs.operations.store import open_store
from tussock.jobs.shell.command import vacuum, vacuum_arguments
from tussock.jobs.submitted.exits import exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's entry. Exit code 0: done; 1: an error, in one message."""
    parser = argparse.ArgumentParser(
        "python -m tussock.jobs.submitted.vacuum", description="Apply a store's retention and remove what is of no use."
    )
    parser.add_argument("--store", required=True, metavar="URI")
    vacuum_arguments(parser)
    chosen = parser.parse_args(arguments)
    return exit_code(lambda: vacuum(open_store(chosen.store), chosen))


if __name__ == "__main__":
    sys.exit(main())
