"""README.md and the pages for newcomers: their examples run as pasted, and the code that they name exists."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tussock.jobs.session import Session

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"


def blocks(page: Path, pattern: str) -> list[str]:
    return re.findall(pattern, page.read_text(), re.DOTALL)


@pytest.mark.usefixtures("spark")
def test_the_readmes_example_prints_the_output_in_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((code, shown),) = blocks(README, r"```python\n(.*?)```\n\n```\n(.*?)```")
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(README), "exec"), {})
    assert "".join(printed.getvalue().split()) == "".join(shown.split())
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 12, "the README promises a short example"


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


def test_the_journey_names_files_and_names_of_the_code() -> None:
    named = blocks(ROOT / "docs/one-rows-journey.md", r"`((?:jobs|statestore|dags|plugins)/[\w/]+\.py)(?::\s(\w+))?`")
    assert len(named) > 30
    for file, name in named:
        text = (ROOT / file).read_text()
        assert not name or re.search(rf"^\s*(?:class|def) {name}\b", text, re.MULTILINE), f"{file}: {name}"


def test_the_tussock_examples_of_coming_from_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    page = ROOT / "docs/coming-from.md"
    examples = blocks(page, r"In Tussock:\n\n```sql\n(.*?)```")
    assert len(examples) == len(blocks(page, r"\n(With [A-Z][^\n]*:|With dbt:)\n\n```"))
    monkeypatch.chdir(tmp_path)
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        for example in examples:
            session.execute(example)
        session.flush()
        assert session.read("customers").column_names == ["id", "name"]
