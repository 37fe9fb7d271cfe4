"""The plugin of pytest: each test of a view is an item, in `tests/*.yaml` of a folder with a `pipeline.toml`.

pytest loads this module in each of its runs, so it imports the engine only when such a file is collected.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tussock.jobs.viewtests.document import ViewTest
    from tussock.jobs.viewtests.pipeline_tests import ViewTests

_NAME = "tussock-views"


def pytest_configure(config: pytest.Config) -> None:
    """Register the collector for one run of pytest."""
    config.pluginmanager.register(ViewTestsPlugin(), _NAME)


class ViewTestsPlugin:
    """The tests of views of one run of pytest. Each pipeline is bound once."""

    def __init__(self) -> None:
        self._running: dict[Path, ViewTests] = {}  # by folder

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> "ViewTestsFile | None":
        """Collect a file of tests of views."""
        folder = file_path.parent
        if file_path.suffix == ".yaml" and folder.name == "tests" and (folder.parent / "pipeline.toml").is_file():
            return ViewTestsFile.from_parent(parent, path=file_path)
        return None

    def pytest_sessionfinish(self) -> None:
        """Stop Spark if a test started it."""
        for running in self._running.values():
            running.__exit__(None, None, None)

    def load_tests(self, folder: Path) -> "ViewTests":
        """The tests of the pipeline in a folder. Raises PipelineError."""
        from tussock.jobs.settings.pipeline import load_pipeline
        from tussock.jobs.viewtests.pipeline_tests import ViewTests

        if folder not in self._running:
            self._running[folder] = ViewTests(load_pipeline(folder))
        return self._running[folder]


class FailedViewTestError(Exception):
    """A test of a view did not pass. `text` is the reason."""

    text: str


class ViewTestsFile(pytest.File):
    """A file of tests of views."""

    def collect(self) -> "Iterator[ViewTestItem]":
        """One item per test. An invalid file is an error of its collection."""
        from tussock.statestore.errors import InputError

        try:  # the import raises MissingExtraError without a YAML library
            from tussock.jobs.viewtests.document import read_tests

            tests = read_tests(self.path)
        except InputError as err:
            raise self.CollectError(str(err)) from err
        for test in tests:
            yield ViewTestItem.from_parent(self, name=test.name, test=test)


class ViewTestItem(pytest.Item):
    """One test of a view."""

    def __init__(self, *, test: "ViewTest", **given: Any) -> None:
        super().__init__(**given)
        self.test = test

    def runtest(self) -> None:
        """Run the test. Raises FailedViewTestError."""
        from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
        from tussock.jobs.viewtests.trial import TrialVerdict
        from tussock.statestore.extras import extras_named

        plugin = self.config.pluginmanager.get_plugin(_NAME)
        assert isinstance(plugin, ViewTestsPlugin)
        with jvm_errors_as_ours(), extras_named():
            trial = plugin.load_tests(self.path.parent.parent).run(self.test)
        if trial.verdict is not TrialVerdict.PASSED:
            raise FailedViewTestError(trial.text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The differences as `tussock test` prints them, and the message of an error without its traceback."""
        from tussock.statestore.errors import TussockError

        if isinstance(excinfo.value, FailedViewTestError | TussockError):
            return "\n".join([str(excinfo.value), *getattr(excinfo.value, "__notes__", ())])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The place of the test, and its name in reports."""
        return self.path, self.test.place.line - 1, f"{self.test.view}: {self.test.name}"
