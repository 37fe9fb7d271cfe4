"""`--no-jvm`: collect the tests that need neither pyspark nor Java, and start nothing of either.

During collection, a module that imports pyspark is skipped as a whole, so the run works before Java is installed.
The marks alone would not do: pytest imports a module before it sees the marks in it.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest


class NeedsPyspark(MetaPathFinder):
    """Skips the test module that imports pyspark."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See MetaPathFinder."""
        if fullname.partition(".")[0] in ("pyspark", "py4j"):
            _forget_half_imported()
            pytest.skip(f"imports {fullname}", allow_module_level=True)
        return None


def _forget_half_imported() -> None:
    """pytest keeps a test module whose import ended early, and a test module that imports a name from it would fail."""
    frame = sys._getframe()
    while frame := frame.f_back:
        name = frame.f_globals["__name__"]
        if frame.f_code.co_name == "<module>" and name.startswith("tests."):
            sys.modules.pop(name, None)


class WithoutJvm:
    """The plugin of `--no-jvm`."""

    def __init__(self) -> None:
        self._finder = NeedsPyspark()
        sys.meta_path.insert(0, self._finder)

    def pytest_collection_finish(self) -> None:
        """From here on tests may import pyspark, for types and errors that need no Java."""
        sys.meta_path.remove(self._finder)
