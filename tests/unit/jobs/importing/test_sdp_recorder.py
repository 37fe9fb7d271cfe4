"""Python files of declarative pipelines, run against a recorder."""

import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame

from tussock.jobs.importing.sdp_recorder import PythonFileError, Recorder, recording


def sql_of_column(column: Column) -> str:
    raise NotImplementedError


def read_table(name: str) -> DataFrame:
    raise NotImplementedError


def helpers_of(root: Path, text: str) -> set[str]:
    """The helper modules of a project with one file."""
    (root / "views.py").write_text(text)
    recorder = Recorder(root, sql_of_column)
    with recording(recorder, (root,), read_table):
        try:
            recorder.run_file(root / "views.py", {})
        except PythonFileError:
            recorder.helpers.add(root / "error")
    return {path.relative_to(root).as_posix() for path in recorder.helpers}


def test_modules_that_a_file_imports_are_helpers(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "prices.py").write_text("import helper_of_prices")
    (tmp_path / "helper_of_prices.py").write_text("")
    text = "import colorsys\nfrom pyspark import pipelines\nfrom shop import prices"
    assert helpers_of(tmp_path, text) == {"shop/__init__.py", "shop/prices.py", "helper_of_prices.py"}
    assert not {"shop", "shop.prices", "helper_of_prices"} & set(sys.modules), "the next import reads them again"


def test_a_helper_that_raises_an_error_is_a_helper(tmp_path: Path) -> None:
    (tmp_path / "rates.py").write_text("1 / 0")
    assert helpers_of(tmp_path, "import rates") == {"rates.py", "error"}


def test_packages_of_an_environment_in_the_folder_are_no_helpers(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "package_for_tests.py").write_text("")
    try:
        assert (
            helpers_of(tmp_path, f"import sys\nsys.path.append({str(packages)!r})\nimport package_for_tests") == set()
        )
        assert "package_for_tests" in sys.modules
    finally:
        sys.modules.pop("package_for_tests", None)
