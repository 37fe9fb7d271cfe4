"""The code that Spark's workers get."""

import subprocess
import sys
from pathlib import Path

from tussock.jobs.operations.code_archive import build_archive

FILES = {
    "__init__.py": "",
    "jobs/__init__.py": "",
    "jobs/submitted.py": "ANSWER = 42\n",
    "statestore/__init__.py": "",
    "x/y.py": "no",
}


def package(root: Path) -> Path:
    """A package whose rooms are links, as in a checkout."""
    for name, text in FILES.items():
        file = root / ("tussock" if name == "__init__.py" else "rooms") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for room in ("jobs", "statestore", "x"):
        (root / "tussock" / room).symlink_to(f"../rooms/{room}")
    return root / "tussock"


def test_the_same_code_makes_the_same_archive_and_other_code_another(tmp_path: Path) -> None:
    packages = [package(tmp_path / root) for root in "ab"]
    first, second = (build_archive(of.parent / "out", of) for of in packages)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    (packages[1] / "jobs/submitted.py").write_text("ANSWER = 43\n")
    assert build_archive(tmp_path / "b/out", packages[1]).name != first.name
    assert build_archive(tmp_path / "a/out", packages[0]) == first
    assert [path.name for path in (tmp_path / "a/out").iterdir()] == [first.name]


def test_python_imports_the_package_from_it_and_nothing_else(tmp_path: Path) -> None:
    archive = build_archive(tmp_path / "out", package(tmp_path))
    code = (
        "import sys; sys.path = [sys.argv[1], *sys.path];"
        "from tussock.jobs import submitted; print(submitted.ANSWER); import tussock.x"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code, str(archive)], capture_output=True, text=True, check=False)
    assert run.stdout == "42\n"
    assert "No module named 'tussock.x'" in run.stderr
