"""The case files of kernels: SQL expressions over columns of edge values."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Case:
    """Expressions over one table of edge values.

    `close` allows the last bits of a transcendental function to differ. `declines` allows the kernel to raise "not
    supported" on rows that Spark accepts. An epoch then stops with that reason, which is not a wrong answer.
    """

    file: str
    columns: tuple[str, ...]
    exprs: tuple[str, ...]
    zone: str
    close: bool
    declines: bool
    first: bool

    def __str__(self) -> str:
        return f"{self.file}({', '.join(self.columns)}){'' if self.zone == 'UTC' else ' in ' + self.zone}"


def load_cases() -> Iterator[Case]:
    """All case files. `also` repeats a case's expressions over other columns, `zones` in other time zones."""
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text()):
            for columns in [entry["columns"], *entry.get("also", [])]:
                for zone in ["UTC", *entry.get("zones", [])]:
                    allowed = entry.get("close", False), entry.get("declines", False)
                    first = (columns, zone) == (entry["columns"], "UTC")
                    yield Case(path.stem, tuple(columns), tuple(entry["exprs"]), zone, *allowed, first)


CASES = list(load_cases())
