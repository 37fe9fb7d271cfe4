"""Imports Great Expectations without its other engines and charts, which halves the import time.

GX imports Spark, SQLAlchemy and cloud clients if they are installed, and works without them otherwise. In a process
that judges rows with pandas, this module hides them.
"""

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader

from tussock.statestore.extras import extras_named
from tussock.statestore.forks import new_lock

_ENGINES = frozenset({"pyspark", "sqlalchemy", "boto3", "botocore", "google", "azure"})
_WHEN_USED = frozenset({"altair", "scipy", "scipy.stats"})
_GX = "great_expectations"
_spark_was_left_out = False
_importing = new_lock()


class _Finder(MetaPathFinder):
    """Hides modules from GX, and loads others on first use. Does not affect imports of other threads."""

    def __init__(self, without: frozenset[str]) -> None:
        self._without, self._thread = without, threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Implement importlib's finder protocol."""
        if threading.get_ident() != self._thread:
            return None
        if name in self._without:
            raise ModuleNotFoundError(f"{name} is hidden from Great Expectations", name=name)
        if name not in _WHEN_USED:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def import_gx(*, spark: bool) -> None:
    """Import Great Expectations with or without its Spark engine. Modules that are already loaded stay loaded.

    Raises RuntimeError if Spark is requested after an import without it, because GX cannot be imported twice. No
    process of Tussock does this.
    """
    with _importing:
        _import(spark)


def _import(spark: bool) -> None:
    global _spark_was_left_out
    if spark and _spark_was_left_out:
        raise RuntimeError(
            "Great Expectations was imported without Spark in this process; judge these suites in another process"
        )
    if _GX not in sys.modules:
        # If Spark is loaded, its later imports must work, or its own modules end the process.
        without = frozenset() if spark or "pyspark" in sys.modules else _ENGINES - sys.modules.keys()
        logging.getLogger(_GX).setLevel(logging.WARNING)  # otherwise GX logs some hundred lines about its decorators
        with _leaving_out(without), extras_named():
            import great_expectations  # noqa: F401
        _spark_was_left_out = "pyspark" in without


@contextmanager
def _leaving_out(names: frozenset[str]) -> Iterator[None]:
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
