"""The OpenLineage events of publish_views and publish_tables, validated against its schemas (openlineage/).

The schemas are OpenLineage's own (https://github.com/OpenLineage/OpenLineage, folder spec, Apache License 2.0).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator, ValidationError
from openlineage.client.event_v2 import Dataset, Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde
from referencing import Registry, Resource
from tussock_lineage import tables_published, views_published

from scripts.airflow_home import airflow_environment
from tests.jobs.driver.embedded import append, insert, new_store
from tests.jobs.plan.catalogs import counted, joined, view
from tests.plugins import by_name as steps
from tussock.jobs.driver.epoch import advance
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.lineage import DataSet, data_set_at, data_set_of_path
from tussock.jobs.logical.nodes import Call, Column, Field, Filter, Literal, Project, Scan
from tussock.jobs.logical.statements import CreateSource, CreateTable
from tussock.jobs.operations.publication import Publication
from tussock.jobs.settings.pipeline import find_pipeline
from tussock.statestore.meta.store import MetaStore

ROOT = Path(__file__).resolve().parents[2]
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
    (done,) = advance(LocalRunner(), meta)
    return steps.publish("shop", done.epoch)


def validated(inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    """The event that a task sends for `outputs`, validated against the schemas of the event and of each facet."""
    run = Run("01941f29-7c00-7087-8906-40e512c257bd")
    job = Job("airflow", "epoch_shop.publish_views")
    event = RunEvent(
        eventTime="2026-01-01T00:00:00Z", run=run, job=job, eventType=RunState.COMPLETE, inputs=inputs, outputs=outputs
    )
    sent: dict[str, Any] = json.loads(Serde.to_json(event))
    check(sent, "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent")
    facets = 0
    for data_set in (*sent["inputs"], *sent["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            for facet in data_set.get(kind, {}).values():
                check(facet, facet["_schemaURL"])
                facets += 1
    assert facets
    return sent


def check(document: Any, schema: str) -> None:
    Draft202012Validator(
        {"$ref": schema}, registry=REGISTRY, format_checker=Draft202012Validator.FORMAT_CHECKER
    ).validate(document)


def origins(field: dict[str, Any]) -> set[str]:
    return {
        f"{o['namespace']}/{o['name']}.{o['field']} {o['transformations'][0]['subtype']}" for o in field["inputFields"]
    }


def test_an_event_of_published_views_has_the_input_files_and_the_lineage_of_each_column(
    meta: MetaStore, tmp_path: Path
) -> None:
    published = publish(meta)
    sent = validated(*views_published("shop", published))
    inputs = {i["name"]: i for i in sent["inputs"]}
    assert set(inputs) == {f"{tmp_path}/data", "shops"}
    sales = inputs[f"{tmp_path}/data"]
    assert sales["namespace"] == "file"
    read = sales["inputFacets"]["subset"]["inputCondition"]["locations"]
    assert sorted(read) == [f"file://{tmp_path}/data/three.parquet", f"file://{tmp_path}/data/two.parquet"], (
        "files of earlier epochs are not inputs"
    )
    size = sum((tmp_path / f"data/{name}.parquet").stat().st_size for name in ("two", "three"))
    assert (sales["inputFacets"]["inputStatistics"]["fileCount"], sales["inputFacets"]["inputStatistics"]["size"]) == (
        2,
        size,
    )
    outputs = {o["name"]: o for o in sent["outputs"]}
    assert set(outputs) == {"priced", "by_g"}
    assert {o["namespace"] for o in sent["outputs"]} == {"tussock://shop"}
    assert {o["facets"]["version"]["datasetVersion"] for o in sent["outputs"]} == {str(published.epoch)}
    assert outputs["by_g"]["outputFacets"]["outputStatistics"]["rowCount"] == 3, "an old count and two new ones"
    of_priced = outputs["priced"]["facets"]["columnLineage"]
    assert [c["name"] for c in outputs["priced"]["facets"]["schema"]["fields"]] == ["k", "g", "price"]
    assert origins(of_priced["fields"]["k"]) == {f"file/{tmp_path}/data.k IDENTITY"}
    assert origins(of_priced["fields"]["price"]) == {
        f"file/{tmp_path}/data.a TRANSFORMATION",
        "tussock://shop/shops.a TRANSFORMATION",
    }
    assert origins({"inputFields": of_priced["dataset"]}) == {
        f"file/{tmp_path}/data.a FILTER",
        f"file/{tmp_path}/data.g JOIN",
        "tussock://shop/shops.k JOIN",
    }
    of_by_g = outputs["by_g"]["facets"]["columnLineage"]
    assert origins(of_by_g["fields"]["g"]) == {"tussock://shop/priced.g IDENTITY"}
    assert list(of_by_g["fields"]) == ["g"], "a count of rows is made of no column"


def test_an_event_of_published_tables_has_each_copy_with_its_version(meta: MetaStore, tmp_path: Path) -> None:
    published = publish(meta)
    steps.publish_tables("shop", published.epoch)
    sent = validated(*tables_published("shop", published.epoch, steps.tables_at("shop", published.epoch)))
    assert {o["name"] for o in sent["outputs"]} == {f"{tmp_path}/lake/priced", f"{tmp_path}/lake/by_g"}
    assert {i["name"] for i in sent["inputs"]} == {"priced", "by_g"}
    by_g = next(o for o in sent["outputs"] if o["name"].endswith("by_g"))
    assert by_g["facets"]["version"]["datasetVersion"].isdigit()
    assert origins(by_g["facets"]["columnLineage"]["fields"]["n"]) == {"tussock://shop/by_g.n IDENTITY"}


def test_a_violation_of_the_schema_is_detected(meta: MetaStore) -> None:
    inputs, outputs = views_published("shop", publish(meta))
    outputs[0].facets["columnLineage"].fields["k"] = {"inputFields": [{"namespace": "file"}]}
    with pytest.raises(ValidationError):
        validated(inputs, outputs)
    with pytest.raises(ValidationError):
        validated(inputs, [Dataset("ns", None)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "data_set"),
    [
        ("/data/sales", DataSet("file", "/data/sales")),
        ("file:///data/sales/", DataSet("file", "/data/sales")),
        ("/data/{start:%Y}/{start:%m}.csv", DataSet("file", "/data")),
        ("s3://lake/sales/*.parquet", DataSet("s3://lake", "sales")),
        ("s3://lake/", DataSet("s3://lake", "/")),
    ],
)
def test_places_are_named_as_openlineage_names_them(address: str, data_set: DataSet) -> None:
    assert data_set_of_path(address) == data_set


def test_a_file_name_may_contain_any_character() -> None:
    assert data_set_at("s3://lake/a#b/100%25 [1]?.csv") == DataSet("s3://lake", "a#b/100%25 [1]?.csv")
    assert data_set_at("/data/a*b/{c}") == DataSet("file", "/data/a*b/{c}")


@pytest.mark.deep
@pytest.mark.airflow
def test_airflows_provider_sends_these_events_when_the_tasks_have_succeeded(meta: MetaStore, tmp_path: Path) -> None:
    """The provider is not in the tests' environment: it is in a separate folder on the path of the processes."""
    extra = tmp_path / "provider"
    provider = ["apache-airflow-providers-openlineage", "openlineage-integration-common", "openlineage-sql"]
    subprocess.run(["uv", "pip", "install", "-q", "--no-deps", "--target", str(extra), *provider], check=True)
    environment = {
        **airflow_environment(tmp_path / "home"),
        "TUSSOCK_PIPELINES": str(tmp_path / "pipelines"),
        "PYTHONPATH": f"{extra}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(tmp_path / "events")}),
    }
    toml = tmp_path / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text() + '[epoch]\nrunner = "auto"\n')
    assert find_pipeline("shop", toml.parents[1]).publish is not None
    command = [str(ROOT / "scripts/airflow.sh"), "dags", "test", "epoch_shop"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    events = [json.loads(line) for file in tmp_path.glob("events*") for line in file.read_text().splitlines()]
    done = {e["job"]["name"]: e for e in events if e["eventType"] == "COMPLETE"}
    assert {o["name"] for o in done["epoch_shop.publish_views"]["outputs"]} == {"priced", "by_g"}, sys.path
    assert f"{tmp_path}/data" in {i["name"] for i in done["epoch_shop.publish_views"]["inputs"]}
    assert {o["name"] for o in done["epoch_shop.publish_tables"]["outputs"]} == {
        f"{tmp_path}/lake/priced",
        f"{tmp_path}/lake/by_g",
    }
    for name in ("epoch_shop.publish_views", "epoch_shop.publish_tables"):
        check(done[name], "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent")
