"""The OpenLineage events of publish_views and publish_tables, validated against its schemas (openlineage/).

The schemas are OpenLineage's own (https://github.com/OpenLineage/OpenLineage, folder spec, Apache License 2.0).
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError
from openlineage.client.event_v2 import Dataset, Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde
from tussock_lineage import tables_published, views_published

from tests.support.jobs.driver.embedded import append
from tests.support.plugins import by_name as steps
from tests.support.plugins import lineage as shared
from tests.support.plugins.lineage import check, publish
from tussock.jobs.facts.lineage import DataSet, data_set_at, data_set_of_path
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreatePlainView
from tussock.jobs.settings.exposures import read_exposures
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.meta.store import MetaStore

meta = shared.meta


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


EXPOSURES = """
[[exposures]]
name = "board"
type = "dashboard"
label = "Prices"
url = "https://reports.example.com/3"
owner = "Ada"
reads = ["shown", "priced"]
[[exposures]]
name = "other"
reads = ["shops"]
"""


def test_an_event_has_the_exposures_that_read_a_published_view(meta: MetaStore, tmp_path: Path) -> None:
    append(meta, CreatePlainView("named", "SELECT g FROM by_g", (Field("g", "int"),), ("g",), ("by_g",)))
    append(meta, CreatePlainView("shown", "SELECT g FROM named", (Field("g", "int"),), ("g",), ("named",)))
    (tmp_path / "pipelines/shop/exposures.toml").write_text(EXPOSURES)
    _, outputs = views_published("shop", publish(meta))
    (exposure,) = (output for output in outputs if "/" in output.name)
    board = json.loads(Serde.to_json(exposure))
    assert (board["namespace"], board["name"]) == ("tussock://shop", "exposures/board")
    facets = board["facets"]
    assert facets["documentation"]["description"] == "dashboard Prices, https://reports.example.com/3"
    assert facets["ownership"]["owners"] == [{"name": "Ada"}]
    assert facets["datasetType"]["datasetType"] == "DASHBOARD"
    check(facets["columnLineage"], facets["columnLineage"]["_schemaURL"])
    assert origins({"inputFields": facets["columnLineage"]["dataset"]}) == {
        *(f"tussock://shop/by_g.{column} IDENTITY" for column in ("g", "n")),
        *(f"tussock://shop/priced.{column} IDENTITY" for column in ("k", "g", "price")),
    }


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("[[exposures]]", "missing required field `name`"),
        ('[[exposures]]\nname = "a"\nreads = "b"', "Expected `array`, got `str`"),
        ("[exposures", "an error of syntax"),
    ],
)
def test_a_wrong_file_of_exposures_names_the_file(tmp_path: Path, text: str, finding: str) -> None:
    (tmp_path / "exposures.toml").write_text(text)
    with pytest.raises(PipelineError, match=re.escape(finding)) as caught:
        read_exposures(tmp_path)
    assert str(tmp_path / "exposures.toml") in str(caught.value)


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
