"""Each test is in a lane that has what it needs, and all imports between test files lead to a file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lanes import Lane, lane_objection

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests"


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("tests/unit/jobs/plan/test_plan.py::test_a", ["spark"]),
        ("tests/unit/jobs/plan/test_plan.py::test_a", ["spark", "deep"]),
        ("tests/spark/jobs/sql/test_binder.py::test_a", []),
        ("tests/spark/jobs/sql/test_binder.py::test_a", ["spark", "kill"]),
        ("tests/airflow/dags/test_up.py::test_a", ["spark"]),
        ("tests/processes/jobs/test_kill.py::test_a", ["spark"]),
        ("tests/deep/cluster/test_flights.py::test_a", ["spark"]),
        ("tests/jobs/plan/test_plan.py::test_a", []),
    ],
)
def test_a_test_in_a_folder_that_lacks_its_needs_is_refused(name: str, marks: list[str]) -> None:
    assert lane_objection(name, marks) is not None


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("tests/unit/jobs/plan/test_plan.py::test_a", ["parametrize", "deep"]),
        ("tests/spark/jobs/sql/test_binder.py::test_a", ["spark"]),
        ("tests/airflow/dags/test_up.py::test_a", ["airflow", "spark"]),
        ("tests/processes/jobs/test_kill.py::test_a", ["cluster", "spark"]),
        ("tests/deep/cluster/test_flights.py::test_a", ["cluster", "deep"]),
    ],
)
def test_a_test_in_the_folder_of_its_needs_is_collected(name: str, marks: list[str]) -> None:
    assert lane_objection(name, marks) is None


def test_all_test_files_are_in_lanes() -> None:
    files = {file.relative_to(TESTS) for file in TESTS.rglob("test_*.py")}
    assert {str(file) for file in files if file.parts[0] not in set(Lane)} == set()


def test_every_import_of_a_test_file_leads_to_a_file() -> None:
    files = [*TESTS.rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    lost = {f"{file.relative_to(ROOT)}: {module}" for file in files for module in lost_imports(file.read_text())}
    assert lost == set()


def lost_imports(text: str) -> Iterator[str]:
    """The modules of `tests` that a text imports and that have no file."""
    if "tests" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("tests"):
                path = ROOT / module.replace(".", "/")
                if not path.with_suffix(".py").exists() and not path.is_dir():
                    yield module
                elif path.is_dir() and not path.with_suffix(".py").exists():
                    names = (alias.name for alias in node.names)
                    yield from (f"{module}.{n}" for n in names if not _has_module(path, n))
            case ast.Import(names=names):
                for alias in names:
                    if (
                        alias.name.startswith("tests.")
                        and not (ROOT / alias.name.replace(".", "/")).with_suffix(".py").exists()
                    ):
                        yield alias.name


def _has_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").exists() or (folder / name).is_dir()


def test_an_import_of_a_moved_file_is_noticed() -> None:
    assert list(lost_imports("from tests.jobs.driver.embedded import epoch")) == ["tests.jobs.driver.embedded"]
    assert list(lost_imports("from tests.support import nothing")) == ["tests.support.nothing"]
    assert list(lost_imports("from tests.support.lanes import Lane")) == []
