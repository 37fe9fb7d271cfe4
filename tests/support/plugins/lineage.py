"""Rows and helpers of test_lineage.py, which is in several lanes."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.support.jobs.driver.embedded import append, insert, new_store
from tests.support.jobs.plan.catalogs import counted, joined, view
from tests.support.plugins import by_name as steps
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Call, Column, Field, Filter, Literal, Project, Scan
from tussock.jobs.logical.statements import CreateSource, CreateTable
from tussock.jobs.operations.publication import Publication
from tussock.statestore.meta.store import MetaStore

SCHEMAS = [json.loads(file.read_text()) for file in sorted((Path(__file__).parent / "openlineage").glob("*.json"))]
REGISTRY: Any = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS)
FIELDS = (Field("k", "int"), Field("g", "int"), Field("a", "int"))


def write(folder: Path, name: str, *rows: tuple[int, int, int]) -> None:
    columns = {f.name: pa.array([row[i] for row in rows], pa.int32()) for i, f in enumerate(FIELDS)}
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetaStore:
    """A pipeline `shop` with two published epochs: a file source, a table, a view over both and one over that view."""
    (tmp_path / "pipelines/shop").mkdir(parents=True)
    toml = f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["v.sql"]\n[publish]\nto = "{tmp_path}/lake"\n'
    (tmp_path / "pipelines/shop/pipeline.toml").write_text(toml)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    (data := tmp_path / "data").mkdir()
    meta = new_store(tmp_path / "store")
    sales = Scan("sales", (0, 1, 2), FIELDS)
    recent = Filter(sales, Call("GreaterThan", "boolean", (Column(2, "int"), Literal(0, "int"))))
    both = joined(recent, Scan("shops", (0, 2), (FIELDS[0], FIELDS[2])), 1, 0)
    dearer = Call("Add", "int", (Column(2, "int"), Column(4, "int")), "ANSI")
    priced = Project(both, (Column(0, "int"), Column(1, "int"), dearer), (FIELDS[0], FIELDS[1], Field("price", "int")))
    append(meta, CreateSource("sales", "parquet", FIELDS, {"path": str(data)}), CreateTable("shops", FIELDS, (0,)))
    append(meta, view("priced", priced), view("by_g", counted(Scan("priced", (1,), (Field("g", "int"),)), 0)))
    insert(meta, "shops", (1, 1, 10), (2, 2, 20))
    write(data, "one", (1, 1, 5), (2, 2, 0))
    publish(meta)
    write(data, "two", (3, 1, 7))
    write(data, "three", (4, 2, 7))
    return meta


def publish(meta: MetaStore) -> Publication:
    (done,) = advance_store(LocalRunner(), meta)
    return steps.publish("shop", done.epoch)


def check(document: Any, schema: str) -> None:
    Draft202012Validator(
        {"$ref": schema}, registry=REGISTRY, format_checker=Draft202012Validator.FORMAT_CHECKER
    ).validate(document)
