"""Figures of a benchmark: seconds of every run as median, min and max, and the ratio of two sides' medians."""

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds of one side's runs."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ratio of the medians, `theirs` / `ours`, and its budget."""

    what: str
    ours: Series
    theirs: Series
    budget: float | None = None  # minimum of the ratio
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.theirs.median / self.ours.median

    @property
    def verdict(self) -> str:
        return "" if self.budget is None else "ok" if self.ratio >= self.budget else "MISSED"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value that is not a comparison of seconds."""

    what: str
    value: float
    unit: str
    at_least: float | None = None  # budget: minimum
    facts: Mapping[str, object] = field(default_factory=dict)
    at_most: float | None = None  # budget: maximum

    @property
    def budget(self) -> str:
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return " ".join(f"{sign} {bound:g} {self.unit}".rstrip() for sign, bound in bounds if bound is not None)

    @property
    def verdict(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return "ok" if above and below else "MISSED"


def figures_of(figures: Iterable[Figure]) -> str:
    """The figures as a text table, one line per figure."""
    return "\n".join(f"{f.what:82}{f.value:>14,.2f} {f.unit:8}{f.budget:>14} {f.verdict}".rstrip() for f in figures)


def table_of(comparisons: Iterable[Comparison]) -> str:
    """The comparisons as a text table, two lines per comparison."""
    lines = [f"{'':58}{'median s':>10}{'min':>9}{'max':>9}{'runs':>6}{'ratio':>8}{'budget':>9}"]
    for c in comparisons:
        lines.append(c.what)
        for side in (c.ours, c.theirs):
            figures = f"{side.median:>10.3f}{min(side.seconds):>9.3f}{max(side.seconds):>9.3f}{len(side.seconds):>6}"
            ratio = (
                f"{c.ratio:>7.2f}x {'' if c.budget is None else f'>= {c.budget:.2g}x':>8} {c.verdict}"
                if side is c.ours
                else ""
            )
            lines.append(f"  {side.name:56}{figures}{ratio}".rstrip())
    return "\n".join(lines)


def machine() -> dict[str, str | int | None]:
    """The machine that runs a benchmark."""
    return {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def write_json(
    path: Path, comparisons: Iterable[Comparison], settings: Mapping[str, object], figures: Iterable[Figure] = ()
) -> None:
    """Write all results as JSON, with the machine and the settings."""
    made = {
        "machine": machine(),
        "settings": dict(settings),
        "comparisons": [
            {
                "what": c.what,
                "ratio": round(c.ratio, 3),
                "budget": c.budget,
                "verdict": c.verdict,
                "facts": dict(c.facts),
                "sides": [
                    {
                        "name": s.name,
                        "median": s.median,
                        "min": min(s.seconds),
                        "max": max(s.seconds),
                        "seconds": list(s.seconds),
                    }
                    for s in (c.ours, c.theirs)
                ],
            }
            for c in comparisons
        ],
        "figures": [
            {
                "what": f.what,
                "value": f.value,
                "unit": f.unit,
                "at_least": f.at_least,
                "at_most": f.at_most,
                "verdict": f.verdict,
                "facts": dict(f.facts),
            }
            for f in figures
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=2) + "\n")
