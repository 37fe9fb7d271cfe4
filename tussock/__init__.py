"""Incremental materialized views, written in SQL, kept in object storage.

    from tussock import Session

    with Session("my-store") as session:
        session.execute("CREATE TABLE t (k int, v int, PRIMARY KEY (k))")

The names in this module are the public API; `docs/python.md` describes them. The packages below (`tussock.jobs`,
`tussock.statestore`) change from release to release.
"""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tussock.jobs.session import Session
    from tussock.jobs.sources.base import Restated
    from tussock.jobs.sources.listing import Interval
    from tussock.jobs.statements.deployment import DeployOptions
    from tussock.statestore.errors import DamagedError, InputError, MustStopError, RetryableError, TussockError

__version__ = "0.1.0"

__all__ = [
    "DamagedError",
    "DeployOptions",
    "InputError",
    "Interval",
    "MustStopError",
    "Restated",
    "RetryableError",
    "Session",
    "TussockError",
    "__version__",
]

_HOMES = {
    "Session": "tussock.jobs.session",
    "Restated": "tussock.jobs.sources.base",
    "Interval": "tussock.jobs.sources.listing",
    "DeployOptions": "tussock.jobs.statements.deployment",
    "TussockError": "tussock.statestore.errors",
    "RetryableError": "tussock.statestore.errors",
    "MustStopError": "tussock.statestore.errors",
    "InputError": "tussock.statestore.errors",
    "DamagedError": "tussock.statestore.errors",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the program configures logging


def __getattr__(name: str) -> Any:
    """Import a public name on first access, so that `import tussock` alone is cheap."""
    from importlib import import_module

    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
