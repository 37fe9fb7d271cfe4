"""The vacuum job: retention and vacuum of a store, as in `tussock vacuum`.

    python -m tussock.jobs.submitted.vacuum --store URI

jobs/upkeep/vacuum.py describes the steps. Safe while other processes use the store, and safe to stop at any point.
"""

import argparse
import sys
from collections.abc import Sequence

from tussock.jobs.operations.store import open_store
from tussock.jobs.shell.command import vacuum, vacuum_arguments
from tussock.jobs.submitted.exits import exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. Exit code 0: success; 1: error, with one message."""
    parser = argparse.ArgumentParser(
        "python -m tussock.jobs.submitted.vacuum",
        description="Apply a store's retention and remove unreferenced objects.",
    )
    parser.add_argument("--store", required=True, metavar="URI")
    vacuum_arguments(parser)
    chosen = parser.parse_args(arguments)
    return exit_code(lambda: vacuum(open_store(chosen.store), chosen))


if __name__ == "__main__":
    sys.exit(main())
