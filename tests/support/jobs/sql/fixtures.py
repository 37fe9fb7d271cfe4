"""A binder over a few relations, and case files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.support.release import needs_spark
from tests.support.spark_types import SparkSession
from tussock.jobs.logical.hidden_columns import OF_FILES, HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.sql.binder import Binder
from tussock.jobs.sql.catalyst import relation_of_ddl
from tussock.jobs.sql.sandbox import Sandbox
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind

FORMATS = ("parquet", "csv")
CASES = Path(__file__).parent / "cases"

ACCOUNTS = CreateTable(
    "accounts",
    (
        Field("id", "bigint"),
        Field("owner", "string"),
        Field("balance", "decimal(10,2)"),
        Field("opened", "timestamp"),
        Field("rate", "double"),
    ),
    (0,),
)
RELATIONS = (
    relation_of_ddl(
        1, "orders (id BIGINT, shop INT, item STRING, amount DECIMAL(10,2), price DOUBLE, at TIMESTAMP, day DATE)"
    ),
    relation_of_ddl(2, "shops (id INT, name STRING, city STRING)"),
    relation_of_ddl(3, "cities (name STRING, country STRING, people INT)"),
    Relation(
        4,
        "accounts",
        RelationKind.TABLE,
        tuple(ColumnSpec(f.name, f.type) for f in ACCOUNTS.fields),
        msgspec.Raw(msgspec.json.encode({"statement": ACCOUNTS})),
    ),
)


def hidden(relation: Relation) -> tuple[HiddenColumn, ...]:
    """The hidden columns of a relation: `shops` stands for a source of files, `cities` for one of another kind."""
    return OF_FILES if relation.name == "shops" else ()


@pytest.fixture(scope="session")
def binder(spark: SparkSession) -> Binder:
    return Binder(spark, RELATIONS, "UTC", FORMATS, hidden=hidden)


@pytest.fixture(scope="session")
def sandbox(spark: SparkSession) -> Sandbox:
    return Sandbox(spark, RELATIONS, "UTC", hidden=hidden)


@dataclass(frozen=True)
class Case:
    """One entry of a case file."""

    file: str
    name: str
    sql: str
    expected: str


def load_cases(file: str, key: str) -> list[Any]:
    """The cases of a file as pytest parameters; `key` names the expected side.

    A case whose `spark` is a release needs that release or a later one.
    """
    entries = yaml.safe_load((CASES / file).read_text())
    return [
        pytest.param(
            Case(file, e["name"], e["sql"], e.get(key, "")),
            id=e["name"],
            marks=[needs_spark(e["spark"])] if "spark" in e else [],
        )
        for e in entries
    ]


def _text(dumper: yaml.Dumper, data: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


@pytest.fixture(scope="module")
def expect(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Compare a case with the actual result; with `--update-cases` write the result into the case file instead."""
    update = bool(request.config.getoption("--update-cases"))
    found: dict[tuple[str, str], dict[str, str]] = {}

    def check(case: Case, key: str, text: str) -> None:
        if update:
            found.setdefault((case.file, key), {})[case.name] = text
        else:
            assert text == case.expected.rstrip("\n")

    yield check
    for (file, key), texts in found.items():
        entries = yaml.safe_load((CASES / file).read_text())
        for entry in entries:
            if entry["name"] in texts:
                entry[key] = texts[entry["name"]]
        dumper = type("CaseDumper", (yaml.SafeDumper,), {})
        dumper.add_representer(str, _text)
        blocks = [yaml.dump([e], Dumper=dumper, sort_keys=False, width=1000, allow_unicode=True) for e in entries]
        (CASES / file).write_text("\n".join(blocks))
