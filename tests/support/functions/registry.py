"""Make docs/functions.md from docs/functions.yaml: every function of Spark, and how a view computes it.

`make docs` runs this.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from scripts.page_lines import wrapped
from tests.support.functions.edges import columns_text
from tests.support.release import installed

DOCS = Path(__file__).resolve().parents[3] / "docs"
REGISTRY, PAGE = DOCS / "functions.yaml", DOCS / "functions.md"

_HEAD = """\
# Every function that Spark's SHOW FUNCTIONS lists, by group: an example over the columns of
# tests/support/functions/edges.py, how a view computes it, and why a view refuses it.
# tests/spark/functions/test_functions.py checks `how` and `why`, and writes them with --update-cases.
# `make docs` makes functions.md from this file.
"""
KERNEL, SPARK, KEPT, REFUSED = "kernel", "Spark", "kept", "refused"
#: Groups of functions that need more than one row, or that make rows.
OF_ROWS = ("aggregate", "window", "generator", "table")
_MEANS = {
    KERNEL: "a compiled kernel computes it next to the rows. Tests compare the kernel with Spark over edge values.",
    SPARK: "Spark computes it between two levels of an epoch, in one pass ([Operators](design/operators.md)). "
    "EXPLAIN shows this.",
    KEPT: "an aggregate, a window function or a generator of rows. The view keeps state for it, and EXPLAIN shows "
    "the rows that an epoch reads.",
    REFUSED: "a view does not accept it, for the reason in the list.",
}


@dataclass(frozen=True)
class Function:
    """One function: its group, an example, how a view computes it, and the reason if a view refuses it."""

    group: str
    name: str
    call: str
    how: str
    why: str | None = None
    since: str | None = None  # the first release of Spark that has it; None: 4.0 has it

    @property
    def is_known(self) -> bool:
        """Whether the installed release of Spark has it."""
        return self.since is None or installed() >= tuple(int(part) for part in self.since.split("."))

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
    """Read docs/functions.yaml."""
    groups = yaml.safe_load(REGISTRY.read_text())
    rows = ((group, name, row) for group, listed in groups.items() for name, row in listed.items())
    return [
        Function(group, name, row["call"], row["how"], row.get("why"), row.get("since")) for group, name, row in rows
    ]


def save(functions: list[Function]) -> None:
    """Write docs/functions.yaml."""
    lines, group = [_HEAD], None
    for one in functions:
        if one.group != group:
            lines.append(f"{one.group}:")
            group = one.group
        row = {"call": one.call, "how": one.how, "why": one.why, "since": one.since}
        shown = ", ".join(
            f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in row.items() if value is not None
        )
        lines.append(f"  {json.dumps(one.name)}: {{{shown}}}")
    REGISTRY.write_text("\n".join(lines) + "\n")


def page(functions: list[Function]) -> str:
    """Return the text of docs/functions.md."""
    counts = Counter(one.how for one in functions)
    lines = [
        "# Check whether a view supports a function",
        "",
        *wrapped(
            "Search this page for the function. It lists every function of Spark 4.2, with an example and the way in "
            "which a materialized view computes the example:"
        ),
        "",
    ]
    for how, means in _MEANS.items():
        lines += wrapped(f"**{how}** ({counts[how]} functions): {means}", "- ", "  ")
    lines += [
        "",
        *wrapped(
            "With arguments of other types, a function of the first two kinds may belong to the other one. "
            "`EXPLAIN` shows the kind for any query. Functions of a time of day need Spark's setting for that "
            "type ([Types](sql.md#types))."
        ),
        "",
        *wrapped(f"The examples use these columns: {columns_text()}."),
        "",
        "`make docs` makes this page from `functions.yaml`.",
    ]
    group = None
    for one in functions:
        if one.group != group:
            group = one.group
            lines += ["", f"## {group}", ""]
        reason = "" if one.why is None else f". Reason: {one.why}"
        since = "" if one.since is None else f", from Spark {one.since}"
        lines += wrapped(f"`{one.name}` ({one.how}{since}): `{one.call}`{reason}", "- ", "  ")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(load()))
