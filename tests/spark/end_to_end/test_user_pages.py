"""docs/tutorial.md and docs/sql.md are true.

Their commands run in order and print the output on the page. Their statements are accepted.

`pytest tests/spark/end_to_end/test_user_pages.py --update-cases` (`make tutorial`) rewrites the tutorial's outputs.
"""

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tussock.jobs import cli
from tussock.jobs.session import Session

DOCS = Path(__file__).resolve().parents[3] / "docs"
FOLDER = "/home/you/first"  # the tutorial's name for its first folder
VARIES = [
    (r"(?m)^epoch \d+: \d+ of \d+ tasks done after .*\n", ""),  # only on a slow machine
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r"\b\d{17,}\b", "EPOCH"),
    (r"\d+\.\d+ s\b", "TIME"),
    (r"[\d,]+ bytes", "BYTES"),
]
pytestmark = pytest.mark.spark


def run(command: str) -> str:
    """The output of a command, both streams. `tussock` runs in this process and uses its Spark session."""
    if not command.startswith("tussock "):
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        cli.main([word.replace("$PWD", str(Path.cwd())) for word in shlex.split(command)[1:]])
    printed.seek(0)
    return printed.read()


def console(text: str) -> Iterator[tuple[str, str]]:
    """Each command in a console block, with its output."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        yield from re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)


def without_what_varies(text: str) -> str:
    for pattern, word in VARIES:
        text = re.sub(pattern, word, text)
    return re.sub(" +", " ", text)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("TUSSOCK_STORE", "TUSSOCK_PIPELINES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.usefixtures("spark")
def test_the_tutorials_commands_print_its_output(begun: Path, request: pytest.FixtureRequest) -> None:
    page = DOCS / "tutorial.md"
    text = page.read_text()
    wanted = list(console(text))
    assert len(wanted) > 10
    written = ""
    for command, output in wanted:
        found = run(command).replace(str(begun), FOLDER)
        if request.config.getoption("--update-cases"):
            before, _, text = text.partition(f"$ {command}\n{output}")
            written += f"{before}$ {command}\n{found}"
        else:
            assert without_what_varies(found) == without_what_varies(output), command
    if written:
        page.write_text(written + text)


def test_the_statements_of_the_sql_page_are_accepted(begun: Path, spark: SparkSession) -> None:
    statements = [
        s.strip()
        for block in re.findall(r"```sql\n(.*?)```", (DOCS / "sql.md").read_text(), re.DOTALL)
        for s in block.split(";\n")
        if "example.org" not in s  # a server that does not exist
    ]
    (begun / "orders").mkdir()
    (begun / "orders/2026-01-01.csv").write_text("id,at,product,quantity\n1,2026-01-01 08:00:00,apple,3\n")
    with Session(str(begun / "store"), spark, runner="local") as session:
        for statement in filter(None, statements):
            session.execute(statement.replace("${data}", str(begun)))
        session.flush()
        assert sorted(session.read("products").column("product").to_pylist()) == ["apple", "pear", "plum"]
