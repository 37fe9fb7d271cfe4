"""Rows and helpers of test_clash.py, which is in several lanes."""

from pathlib import Path

NAMES = ("jobs", "sql", "plan", "settings", "spark", "statestore", "plugins")
THEIRS = f"""
import importlib

OWNERS = {{name: importlib.import_module(name).OWNER for name in {NAMES}}}
assert set(OWNERS.values()) == {{"the team"}}, OWNERS
"""


def write_packages(folder: Path) -> None:
    """The team's packages, each with one module in it."""
    for name in NAMES:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text('OWNER = "the team"\n')
        (package / "session.py").write_text('OWNER = "the team"\n')
