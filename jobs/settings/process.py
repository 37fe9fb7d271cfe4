"""Values that a process creates once and passes down: its writer name, its clock, its opened store."""

import os
import re
import secrets
import socket
import time
from pathlib import Path

from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.logs import configure_logging
from tussock.statestore.meta.errors import NotInitialisedError
from tussock.statestore.meta.settings import StoreSettings
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def new_writer() -> str:
    """Return a name that is unique for all time. It is readable, because errors print the winner of a race."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(6)}"


def clock_ms() -> int:
    """Return the current time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def store_address(store: str, base: Path = Path()) -> str:
    """Return a store's address that other processes can use: directories below `base` are made absolute."""
    if _SCHEME.match(store):
        return store
    return os.path.abspath(base / Path(store).expanduser())  # noqa: PTH100  keeps links


def create_store(store: str, *, units: int, time_zone: str, vnode_count: int = 256) -> StoreSettings:
    """Create an empty store, and bind its identity to this address. Raises as `MetaStore.init`."""
    objects = open_object_store(store_address(store))
    settings = MetaStore.init(objects, vnode_count=vnode_count, units=units, time_zone=time_zone)
    home_of(objects)
    return settings


def open_meta(store: str) -> MetaStore:
    """Open the meta store at an address, with this process as a new writer. Configures logging from TUSSOCK_LOG.

    Raises: BadLogLevelError. The first use of the result raises NotInitialisedError if there is no store.
    """
    configure_logging()
    return MetaStore(open_object_store(store_address(store)), new_writer(), clock_ms)


def store_exists(store: str) -> bool:
    """Return whether there is a store at an address. Raises as `open_meta`, and errors of the object store."""
    try:
        _ = open_meta(store).settings
    except NotInitialisedError:
        return False
    return True
