"""`python -m benchmarks idle-epochs`: CPU of an epoch without new files and of a status, by the files of the source.

The files are local, of one row each, so their listing is as fast as it can be. Figures are medians of a process that
has run an epoch. No JVM.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.support.jobs.driver.embedded import append, new_store, open_store
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.listing import list_files

_ROUNDS = 7
_FIELDS = (Field("id", "bigint"), Field("v", "bigint"))


def make_store(folder: Path, files: int) -> None:
    """Make a store whose source has taken as many files. No view reads them, since an idle epoch reads none either."""
    (folder / "in").mkdir(parents=True)
    for number in range(files):
        (folder / f"in/{number:06}.csv").write_text(f"{number},1\n")
    meta = new_store(folder / "store")
    append(meta, CreateSource("s", "csv", _FIELDS, {"path": f"{folder}/in", "retain": "none"}))
    advance_store(LocalRunner(), meta)


def measure(folder: Path) -> dict[str, float]:
    """Return CPU seconds by step."""
    meta = open_store(folder / "store")

    def look() -> None:
        for entry in os.scandir(folder / "in"):
            entry.stat()

    steps: dict[str, Callable[[], object]] = {
        "scandir and stat": look,
        "listing": lambda: list_files(f"{folder}/in", {}),
        "epoch": lambda: advance_store(LocalRunner(), meta),
        "status": lambda: read_status(meta, datetime.now(UTC)),
    }
    return {name: _median_s(step) for name, step in steps.items()}


def _median_s(step: Callable[[], object]) -> float:
    step()  # reads the tables of taken files
    seconds = []
    for _ in range(_ROUNDS):
        started = time.process_time()
        step()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks idle-epochs", description="Measure an epoch without new files."
    )
    parser.add_argument("--files", type=int, nargs="+", default=[20_000, 100_000], help="default: 20000 100000")
    chosen = parser.parse_args(arguments)
    for files in chosen.files:
        with tempfile.TemporaryDirectory(prefix="tussock-idle-") as folder:
            make_store(Path(folder), files)
            for name, seconds in measure(Path(folder)).items():
                print(f"{files:>8,} files: {name:<17} {seconds:.3f} CPU s, {seconds / files * 1e6:.1f} µs a file")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
