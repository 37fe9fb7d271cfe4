"""Calls of the deltalake package, for whoever reads or writes a table with it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

from tussock.jobs.settings.cause import cause_of, is_panic
from tussock.statestore.objectstore.base import ObjectStoreUnavailableError

# Some calls of the package wait for its own threads and keep Python's lock meanwhile (set_table_properties, history); a write has those
# threads read batches from Python, for which they need that lock. Two threads of this process in such calls would wait for ever.
_ONE_CALL_AT_A_TIME = threading.Lock()


@contextmanager
def one_call(place: str, what: str) -> Iterator[None]:
    """Around every call of the package: one at a time in a process. Raises ObjectStoreUnavailableError, and errors of the package about the
    table."""
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
    """Of an error's text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
