"""Each contract of rooms rejects the import that it forbids."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
REFUSED = {
    "package": ("jobs/operations/publish.py", "import tussock_steps"),
    "jobs": ("jobs/logical/nodes.py", "def f():\n    from tussock.jobs.catalog import definition"),
    "statestore": ("statestore/errors.py", "from tussock.statestore.table import state_table"),
    "cycles": ("jobs/logical/statements.py", "if TYPE_CHECKING:\n    from tussock.jobs.logical import script"),
    "statestore-alone": ("statestore/vnode.py", "import duckdb"),
    "jobs-without-airflow": ("jobs/session.py", "def f():\n    from airflow.sdk import dag"),
    "plans-without-jvm": ("jobs/logical/nodes.py", "if TYPE_CHECKING:\n    from pyspark.sql import SparkSession"),
}
CHECK = """
import sys
from pathlib import Path
from scripts.rooms import ROOT, check, copy_rooms

folder = Path(sys.argv[1])
copy_rooms(ROOT, folder)
for file, line in zip(sys.argv[2::2], sys.argv[3::2]):
    path = folder / "tussock" / file
    path.write_text(path.read_text() + line + "\\n")
sys.exit(check(folder))
"""


def contracts() -> dict[str, str]:
    """Names of the contracts by their ids."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {contract["id"]: contract["name"] for contract in found}


def test_every_contract_has_an_import_that_it_refuses() -> None:
    assert contracts().keys() == REFUSED.keys()


def test_each_contract_refuses_an_import(tmp_path: Path) -> None:
    added = [text for case in REFUSED.values() for text in case]
    run = subprocess.run([sys.executable, "-c", CHECK, str(tmp_path), *added], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    report = re.sub(r"\s+", " ", run.stdout)
    assert [name for name in contracts().values() if f"{name} BROKEN" not in report] == []


@pytest.mark.parametrize("place", ["jobs", "statestore"])
def test_the_page_of_a_place_names_each_of_its_rooms_once(place: str) -> None:
    page = ROOT / place / "README.md"
    named = re.findall(r"`(\w+)/`", page.read_text())
    rooms = [folder.name for folder in (ROOT / place).iterdir() if (folder / "__init__.py").exists()]
    assert sorted(named) == sorted(rooms), f"name each room of {place} once in {page}"
