"""The edge of a process: what it draws once and passes down, so that everything below is a function of its arguments."""

import os
import re
import secrets
import socket
import time
from pathlib import Path

from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.logs import configure_logging
from tussock.statestore.meta.settings import StoreSettings
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def new_writer() -> str:
    """A name that no other process has or ever had; readable, so that a lost race can say who won."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(6)}"


def clock_ms() -> int:
    """Unix milliseconds now."""
    return time.time_ns() // 1_000_000


def store_address(store: str) -> str:
    """A store's address as other processes may use it: a relative directory starts at this process's working directory."""
    return store if _SCHEME.match(store) else os.path.abspath(Path(store).expanduser())  # noqa: PTH100  `..` goes, links stay


def create_store(store: str, *, units: int, time_zone: str, vnode_count: int = 256) -> StoreSettings:
    """Create an empty store at an address, with an identity that is bound to that place. Raises as `MetaStore.init`."""
    objects = open_object_store(store_address(store))
    settings = MetaStore.init(objects, vnode_count=vnode_count, units=units, time_zone=time_zone)
    home_of(objects)
    return settings


def open_meta(store: str) -> MetaStore:
    """The meta store at a store's address, with this process as a new writer; turns the process's log on, where it is asked for.

    Raises: NotInitialisedError when the store is first used; BadLogLevelError.
    """
    configure_logging()
    return MetaStore(open_object_store(store_address(store)), new_writer(), clock_ms)
