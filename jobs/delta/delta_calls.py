"""Calls of the deltalake package, for sources and sinks."""

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

from tussock.jobs.settings.cause import cause_of, is_panic
from tussock.statestore.forks import FirstUse, new_lock
from tussock.statestore.objectstore.base import ObjectStoreUnavailableError

# Some calls of the package wait for its own threads while they hold Python's lock (set_table_properties, history).
# During a write, those threads read batches from Python and need that lock. Two threads of this process in such calls
# would deadlock.
_ONE_CALL_AT_A_TIME = new_lock()


_use = FirstUse()  # of the package


@contextmanager
def one_call(place: str, what: str) -> Iterator[None]:
    """Run a call of the package; only one runs in a process at a time.

    Raises ObjectStoreUnavailableError, and the package's errors about the table; InheritedError in a forked child of a
    process that has used the package.
    """
    _use.require_here("The parent process used Delta tables", "Use them only in the children")
    try:
        with _ONE_CALL_AT_A_TIME:
            yield
    except OSError as err:
        raise ObjectStoreUnavailableError(place, what, first_line(err)) from err
    except BaseException as err:
        if is_panic(err):
            raise DeltaError(cause_of(err)) from err
        raise


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
