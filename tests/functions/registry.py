"""docs/functions.md from docs/functions.yaml: every function that Spark lists, and who computes it in a view. `make docs` runs this."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"
REGISTRY, PAGE = DOCS / "functions.yaml", DOCS / "functions.md"

_HEAD = """\
# Every function that SHOW FUNCTIONS of Spark lists, by group: an example over the columns of tests/functions/edges.py, who computes it.
# `how` and `why` are checked, and with --update-cases written, by tests/functions/test_functions.py. `make docs` makes functions.md of it.
"""
KERNEL, SPARK, KEPT, REFUSED = "kernel", "Spark", "kept", "refused"
#: Groups of functions that no row has a value of by itself.
OF_ROWS = ("aggregate", "window", "generator", "table")
_MEANS = {
    KERNEL: "computed where the rows are, by a kernel that is compared with Spark over edge values",
    SPARK: "computed by Spark itself between two levels of an epoch, in one pass (design/operators.md); EXPLAIN names it",
    KEPT: "no function of one row: an aggregate, one over a window, one that makes rows; EXPLAIN says what an epoch of it reads",
    REFUSED: "not in a view, for the reason given",
}


@dataclass(frozen=True)
class Function:
    """One function: its group, an example, who computes it, and why not."""

    group: str
    name: str
    call: str
    how: str
    why: str | None = None

    @property
    def select(self) -> str:
        """The example as a query over the table `t` of `edges`."""
        if self.call.startswith("SELECT "):
            return self.call
        if self.group in ("window", "generator"):
            return f"SELECT id, {self.call} FROM t"
        by = "ROLLUP (b)" if self.name.startswith("grouping") else "b"
        return f"SELECT b, {self.call} AS x FROM t GROUP BY {by}"

    def judged(self, how: str, why: str | None = None) -> "Function":
        """The function with another judgement."""
        return replace(self, how=how, why=why)


def load() -> list[Function]:
    """The registry."""
    groups = yaml.safe_load(REGISTRY.read_text())
    rows = ((group, name, row) for group, listed in groups.items() for name, row in listed.items())
    return [Function(group, name, row["call"], row["how"], row.get("why")) for group, name, row in rows]


def save(functions: list[Function]) -> None:
    """Write the registry."""
    lines, group = [_HEAD], None
    for one in functions:
        if one.group != group:
            lines.append(f"{one.group}:")
            group = one.group
        row = {"call": one.call, "how": one.how, "why": one.why}
        shown = ", ".join(
            f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in row.items() if value is not None
        )
        lines.append(f"  {json.dumps(one.name)}: {{{shown}}}")
    REGISTRY.write_text("\n".join(lines) + "\n")


def page(functions: list[Function]) -> str:
    """The reference page."""
    counts = Counter(one.how for one in functions)
    lines = [
        "# Functions",
        "",
        "Every function of Spark 4.2, and who computes it in a materialized view; made by `make docs` from functions.yaml. Who computes it",
        "is said of the example: with arguments of other types it may be the other one. EXPLAIN says who, of any query. Those of a time of",
        "day need Spark's setting for that type ([sql.md](sql.md#types)).",
        "",
        "| | means | functions |",
        "|---|---|---|",
        *(f"| {how} | {means} | {counts[how]} |" for how, means in _MEANS.items()),
    ]
    group = None
    for one in functions:
        if one.group != group:
            group = one.group
            lines += ["", f"## {group}", "", "| function | computed by | example |", "|---|---|---|"]
        how = one.how if one.why is None else f"{one.how}: {one.why}"
        lines.append(f"| {_cell(one.name)} | {how} | {_cell(one.call)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


if __name__ == "__main__":
    PAGE.write_text(page(load()))
