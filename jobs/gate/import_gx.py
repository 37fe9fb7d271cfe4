"""Great Expectations, imported without what it only needs for other engines and charts: half of its time.

GX imports Spark, SQLAlchemy and clouds' clients where they are installed, and goes on without them where they are not. A process that
looks at rows over pandas says that they are not.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader

_ENGINES = frozenset({"pyspark", "sqlalchemy", "boto3", "botocore", "google", "azure"})
_WHEN_USED = frozenset({"altair", "scipy", "scipy.stats"})
_GX = "great_expectations"
_imported_without_spark = False


class _Finder(MetaPathFinder):
    """Modules that GX is to go without, or that are loaded when first used."""

    def __init__(self, without: frozenset[str]) -> None:
        self._without = without

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """As importlib asks for it."""
        if name in self._without:
            raise ModuleNotFoundError(f"{name} is left out here", name=name)
        if name not in _WHEN_USED:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def import_gx(*, spark: bool) -> None:
    """Import Great Expectations, with its engine for Spark or without. What the process has loaded already stays as it is.

    Where it was imported without Spark before, and Spark is wanted now, it is imported anew; contexts made before stay as they are.
    """
    global _imported_without_spark
    if spark and _imported_without_spark:
        for name in [name for name in sys.modules if name.partition(".")[0] == _GX]:
            del sys.modules[name]
    if _GX not in sys.modules:
        with _leaving_out(frozenset() if spark else _ENGINES - sys.modules.keys()):
            import great_expectations  # noqa: F401
        _imported_without_spark = not spark


@contextmanager
def _leaving_out(names: frozenset[str]) -> Iterator[None]:
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
