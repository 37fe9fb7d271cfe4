"""A process that used Tussock ends without a word.

DuckDB prints a list on standard error if objects of its module still live at the end. msgspec's structs without
containers are unknown to Python's garbage collector, so one of them in a module keeps its class for ever, the class the
names of its module, and these the names of all modules that they import.
"""

import subprocess
import sys

import pytest

EVERY_MODULE = """
import importlib, pkgutil
import duckdb
import tussock.jobs, tussock.statestore
for package in (tussock.jobs, tussock.statestore):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


@pytest.mark.parametrize("code", [EVERY_MODULE, "import duckdb, tussock.jobs.sources.registry"])
def test_a_process_that_imported_modules_ends_silently(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
