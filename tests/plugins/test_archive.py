"""The code that Spark's workers get."""

import subprocess
import sys
from pathlib import Path

from tussock_archive import build_archive


def packages(root: Path) -> None:
    for name, text in {"jobs/__init__.py": "", "jobs/epoch.py": "ANSWER = 42\n", "statestore/__init__.py": "", "other/x.py": "no"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_same_code_makes_the_same_archive_and_other_code_another(tmp_path: Path) -> None:
    packages(tmp_path / "a")
    packages(tmp_path / "b")
    first, second = (build_archive(tmp_path / root, tmp_path / root / "out") for root in "ab")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    (tmp_path / "b/jobs/epoch.py").write_text("ANSWER = 43\n")
    assert build_archive(tmp_path / "b", tmp_path / "b/out").name != first.name
    assert build_archive(tmp_path / "a", tmp_path / "a/out") == first
    assert [path.name for path in (tmp_path / "a/out").iterdir()] == [first.name]


def test_python_imports_the_packages_from_it_and_nothing_else(tmp_path: Path) -> None:
    packages(tmp_path)
    archive = build_archive(tmp_path, tmp_path / "out")
    code = "import sys; sys.path = [sys.argv[1], *sys.path]; import jobs.epoch; print(jobs.epoch.ANSWER); import other"
    run = subprocess.run([sys.executable, "-c", code, str(archive)], capture_output=True, text=True, check=False)
    assert run.stdout == "42\n"
    assert "No module named 'other'" in run.stderr
