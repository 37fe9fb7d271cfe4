"""docs/environment.md lists every environment variable that the code reads or sets, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("statestore", "jobs", "plugins", "dags", "scripts", "benchmarks")


def test_the_page_lists_each_variable_of_the_code() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*") if file.suffix in (".py", ".sh")]
    named = {name for file in files for name in re.findall(r"TUSSOCK_[A-Z_]*[A-Z]", file.read_text())}
    lines = (ROOT / "docs/environment.md").read_text().splitlines()
    entries = [line.partition(":")[0] for line in lines if line.startswith("- `TUSSOCK_")]
    assert {name for entry in entries for name in re.findall(r"TUSSOCK_[A-Z_]+", entry)} == named
