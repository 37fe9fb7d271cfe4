"""Tests without a JVM: `--no-jvm` collects them without pyspark, and a JVM that one of them starts is an error.

During collection with `--no-jvm`, a module that imports pyspark is skipped as a whole, so the run works before Java is
installed. The marks alone would not do: pytest imports a module before it sees the marks in it.
"""

import sys
from collections.abc import Generator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

MARKS = ("deep", "spark", "airflow", "kill", "cluster")
"""The marks of tests that may start a JVM."""
JAVA = """#!/bin/sh
echo "$PYTEST_CURRENT_TEST starts Java without a mark: add @pytest.mark.spark" >&2
exit 1
"""


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


class RefusesJava:
    """Replaces Java, during each test without a mark, by a script that fails.

    It also reaches the processes that a test starts, but not a JVM that an earlier test of the same process has
    started. So only a run without marked tests (`make unit`, the group `unit` of `make test`) finds every such test.
    """

    def __init__(self, folder: Path) -> None:
        """`folder`: a new folder for the script."""
        self._folder = folder
        java = folder / "bin/java"
        java.parent.mkdir()
        java.write_text(JAVA)
        java.chmod(0o755)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """See pytest. Covers the fixtures of the test."""
        if any(item.get_closest_marker(mark) for mark in MARKS):
            return (yield)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_HOME", str(self._folder))  # which pyspark prefers to the PATH
            return (yield)
