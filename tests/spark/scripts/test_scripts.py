"""Scripts in the form of sqllogictest, run by one session each: statements with their errors, queries with their rows.

statement ok | statement error REGEX     a statement in the lines below, up to an empty one; `FLUSH` runs epochs
query [rowsort]                          a query, a line `----`, and its rows: values separated by blanks, NULL for none
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tussock.jobs.session import Session
from tussock.statestore.errors import TussockError

pytestmark = pytest.mark.spark
SCRIPTS = sorted(Path(__file__).parent.glob("*.slt"))


@dataclass(frozen=True)
class Record:
    line: int
    head: str
    text: str
    expected: tuple[str, ...]


def records_of(script: str) -> Iterator[Record]:
    """The records of a script. Comments begin with `#`."""
    lines = [line.rstrip() for line in script.splitlines()]
    for number, line in enumerate(lines):
        if line.startswith(("statement ", "query")):
            end = next((i for i in range(number, len(lines)) if not lines[i]), len(lines))
            body = lines[number + 1 : end]
            cut = body.index("----") if "----" in body else len(body)
            yield Record(number + 1, line, "\n".join(body[:cut]), tuple(body[cut + 1 :]))


def shown(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_script(script: Path, spark: SparkSession, tmp_path: Path) -> None:
    found = list(records_of(script.read_text()))
    assert found
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        for record in found:
            where = f"{script.name}, line {record.line}"
            kind, _, rest = record.head.partition(" ")
            if kind == "query":
                answer = (
                    session.query(record.text)
                    if record.text.startswith("SELECT")
                    else session.execute(record.text)[-1].table
                )
                assert answer is not None, where
                rows = [" ".join(map(shown, row.values())) for row in answer.to_pylist()]
                expected = list(record.expected)
                assert (sorted(rows) if "rowsort" in rest else rows) == (
                    sorted(expected) if "rowsort" in rest else expected
                ), where
            elif rest == "ok":
                _ = session.flush() if record.text == "FLUSH" else session.execute(record.text)
            else:
                with pytest.raises(TussockError) as raised:
                    session.execute(record.text)
                assert re.search(rest.removeprefix("error "), str(raised.value)), f"{where}: {raised.value}"


def test_the_scripts_are_read() -> None:
    script = "# a comment\nstatement error no such\nSELECT\n1\n\nquery rowsort\nSELECT 2\n----\n2 NULL\n3 x\n"
    assert [(r.head, r.text, r.expected) for r in records_of(script)] == [
        ("statement error no such", "SELECT\n1", ()),
        ("query rowsort", "SELECT 2", ("2 NULL", "3 x")),
    ]
