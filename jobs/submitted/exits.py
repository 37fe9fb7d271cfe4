"""The exit codes and error messages of jobs."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tussock.jobs.settings.printed_commands import addressed, in_commands
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.settings.row_values import printed_error
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.statestore.errors import MustStopError, TussockError
from tussock.statestore.extras import extras_named


def exit_code(job: Callable[[], int | None], chosen: argparse.Namespace | None = None) -> int:
    """Run a job and return its exit code. 0 or the job's result: success; 1: error; 3: another run committed first.

    `chosen`: the options of the job, which commands in messages get, so that they work as printed.
    """
    try:
        with jvm_errors_as_ours(), extras_named():
            return job() or 0
    except MustStopError as err:
        print(without_secrets(f"lost: {err}"), file=sys.stderr, flush=True)
        return 3
    except TussockError as err:
        message = without_secrets("\n  ".join((f"error: {printed_error(err)}", *getattr(err, "__notes__", ()))))
        folder, environment = (getattr(chosen, name, None) or "" for name in ("pipeline", "env"))
        print(addressed(message, pipeline=in_commands(Path(folder).name, environment)), file=sys.stderr, flush=True)
        return 1


def say(line: str) -> None:
    """Print a progress line and flush it."""
    print(line, flush=True)
