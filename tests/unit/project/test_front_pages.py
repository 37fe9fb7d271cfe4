"""README.md: its examples run as pasted, and its figures are those of other pages."""

import re

from tests.support.front_pages import README, ROOT, blocks


def test_the_readme_fits_on_two_screens() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 100] == []


def test_the_readme_lists_each_dag() -> None:
    dags = {file.stem for file in (ROOT / "dags").glob("*.py")} - {"broken_pipelines", "__init__"}
    assert set(re.findall(r"^- `(\w+)_<pipeline>`", README.read_text(), re.MULTILINE)) == dags


def test_the_readmes_ratios_are_those_of_the_performance_page() -> None:
    import yaml

    figures = {entry["benchmark"]: entry for entry in yaml.safe_load((ROOT / "docs/performance.yaml").read_text())}
    row = r"\n\| [^|\n]+ \| ([\d.]+)(?: s)? \| [^|\n]*: ([\d.]+)(?: s)? \| ([\d.]+)x \| `([\w-]+)` \|(?=\n)"
    rows = blocks(README, row)
    assert len(rows) >= 5
    for ours, theirs, ratio, benchmark in rows:
        entry = figures[benchmark]
        shown = (float(ours), float(theirs), float(ratio))
        assert shown == (entry["ours"]["value"], entry["theirs"]["value"], entry["ratio"]), benchmark
