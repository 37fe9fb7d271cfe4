"""Environment variables: every one that the code reads or sets stands in the README's table, and the table names no other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("statestore", "jobs", "plugins", "dags", "scripts", "benchmarks")


def test_the_readme_lists_the_variables_that_there_are() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*") if file.suffix in (".py", ".sh")]
    named = {name for file in files for name in re.findall(r"TUSSOCK_[A-Z_]*[A-Z]", file.read_text())}
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `TUSSOCK_")]
    assert {name for line in table for name in re.findall(r"TUSSOCK_[A-Z_]+", line.split("|")[1])} == named
