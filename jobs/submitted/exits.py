"""How a job ends: its exit code, and its error as one message on standard error."""

import sys
from collections.abc import Callable

from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.statestore.errors import MustStopError, TussockError
from tussock.statestore.extras import extras_named


def exit_code(job: Callable[[], int | None]) -> int:
    """Run a job to its end. 0, or what it returns: done; 1: an error; 3: another run was first, and nothing of this one is visible."""
    try:
        with jvm_errors_as_ours(), extras_named():
            return job() or 0
    except MustStopError as err:
        print(f"lost: {err}", file=sys.stderr, flush=True)
        return 3
    except TussockError as err:
        print(f"error: {err}", *getattr(err, "__notes__", ()), sep="\n  ", file=sys.stderr, flush=True)
        return 1


def say(line: str) -> None:
    """A line of progress."""
    print(line, flush=True)
