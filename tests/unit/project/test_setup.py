"""scripts/setup.sh: `make wheel` and `make site` install the packages that they need, and need no Java."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FAKE_UV = '#!/usr/bin/env bash\n[ "$1" = --version ] && echo "uv {version}" || echo "uv $*" >> installed.txt\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the script compares, and a .venv without packages whose uv only records its calls."""
    script = (ROOT / "scripts/setup.sh").read_text()
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/setup.sh", tmp_path / "scripts")
    (tmp_path / "requirements.lock").write_text("mkdocs==1.6.1\n")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text(f'#!/usr/bin/env bash\nexec {sys.executable} -I -S "$@"\n')
    version = re.search(r"^UV_VERSION=(\S+)$", script, re.MULTILINE)
    assert version is not None
    (tmp_path / ".venv/bin/uv").write_text(FAKE_UV.format(version=version[1]))
    for file in (tmp_path / ".venv/bin").iterdir():
        file.chmod(0o755)
    return tmp_path


def installs(checkout: Path, *modules: str) -> int:
    """The number of installs of a run of `setup.sh python`."""
    log = checkout / "installed.txt"
    log.unlink(missing_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "JAVA_HOME": "/nonexistent"}
    subprocess.run([str(checkout / "scripts/setup.sh"), "python", *modules], env=environment, check=True, timeout=60)
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_packages_are_installed_again_if_a_needed_one_is_missing_although_the_lock_is_unchanged(checkout: Path) -> None:
    assert installs(checkout) == 2, "the lock, and the checkout itself"
    assert installs(checkout) == 0
    assert installs(checkout, "json", "re") == 0
    assert installs(checkout, "json", "no_such_module") == 2


@pytest.mark.parametrize(("target", "modules"), [("wheel", {"hatchling", "twine"}), ("site", {"mkdocs", "material"})])
def test_a_target_names_the_modules_that_it_runs(target: str, modules: set[str]) -> None:
    lines = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    needs = re.search(r"scripts/setup\.sh python (.*)", lines)
    assert needs is not None, "and no Java"
    assert set(needs[1].split()) == modules
    assert set(re.findall(r"^(?:\w+=\S+ )*python -m (\w+)", lines, re.MULTILINE)) <= modules
