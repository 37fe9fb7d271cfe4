"""README.md and the pages for newcomers: their examples run as pasted, and the code that they name exists."""

import contextlib
import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.front_pages import README, ROOT, blocks
from tussock.jobs.session import Session


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
