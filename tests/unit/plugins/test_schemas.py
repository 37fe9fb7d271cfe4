"""Two schemas share all names: suites, held views, lineage, exposures and metrics of one never count for the other.

`sizes` reads the view `per_g` of the other schema in both schemas.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tussock_lineage import tables_published, views_published

from tests.support.jobs.driver.embedded import append, insert, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.plugins import by_name as steps
from tests.support.plugins.quality_scope import FAILED
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.metrics import view_metrics
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSchema, Statement
from tussock.jobs.quality.record import QualityRecord, ViewQuality, write_record
from tussock.jobs.quality.suite import read_suites
from tussock.jobs.settings.pipeline import find_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.jobs.shell.command import pipelines_folder
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

VIEWS = ("per_g", "north.per_g", "sizes", "north.sizes")
EXPOSURES = '[[exposures]]\nname = "board"\ntype = "dashboard"\nreads = ["north.sizes"]\n'
SUITE = '{"expectations": [{"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": %s}}]}'


def statements() -> list[Statement]:
    sizes = Field("g", "int"), Field("size", "bigint")
    return [
        CreateSchema("north"),
        *(table(name) for name in ("t", "north.t")),
        view("per_g", counted(scan("t"), 1)),
        view("north.per_g", counted(scan("north.t"), 1)),
        view("sizes", counted(Scan("north.per_g", (0, 1), sizes), 1)),
        view("north.sizes", counted(Scan("per_g", (0, 1), sizes), 1)),
    ]


@pytest.fixture
def meta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetaStore:
    """The store of a pipeline `shop`, whose first epoch is not committed yet."""
    folder = tmp_path / "pipelines/shop"
    (folder / "quality").mkdir(parents=True)
    (folder / "quality/per_g.json").write_text(SUITE % 10)
    (folder / "quality/north.per_g.json").write_text(SUITE % 20)
    (folder / "exposures.toml").write_text(EXPOSURES)
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["v.sql"]\n[publish]\nto = "{tmp_path}/lake"\n'
        '[quality]\nscope = "view"\n[freshness]\n"north.per_g" = "1h"\n'
    )
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    MetaStore.init(open_object_store(f"{tmp_path}/store"))
    made = open_meta(f"{tmp_path}/store")
    append(made, *statements())
    insert(made, "t", (1, 1, 0), (2, 1, 0), (3, 2, 0))
    insert(made, "north.t", (1, 5, 0))
    return made


def commit(meta: MetaStore, *failed: str) -> int:
    """Commit an epoch, whose suites failed for these views."""
    (*_, done) = advance_store(LocalRunner(), meta)
    checked = (ViewQuality(name, 3, 1, FAILED if name in failed else ()) for name in VIEWS[:2])
    write_record(meta.objects, QualityRecord(done.epoch, tuple(checked)))
    return done.epoch


def test_a_failed_suite_holds_back_the_view_of_its_schema_and_the_readers_of_that_view(
    meta: MetaStore,
) -> None:
    suites = read_suites(find_pipeline("shop", pipelines_folder()).quality)
    assert [suite.view for suite in suites] == ["north.per_g", "per_g"]
    first = commit(meta)
    steps.publish("shop", first)
    insert(meta, "t", (4, 2, 0))
    insert(meta, "north.t", (2, 5, 0), (3, 6, 0))
    done = steps.publish("shop", commit(meta, "north.per_g"))
    assert done.held == {"north.per_g": first, "sizes": first}
    assert sorted(one.name for one in done.views) == ["north.sizes", "per_g"]
    assert {one.view: (one.quality.verdict.name, one.rows) for one in views_of(meta)} == {
        "per_g": ("PASSED", 2),
        "north.per_g": ("FAILED", 2),
        "sizes": ("NOT_CHECKED", 2),
        "north.sizes": ("NOT_CHECKED", 1),
    }


def views_of(meta: MetaStore) -> list[Any]:
    status = read_status(meta, datetime.now(UTC), find_pipeline("shop", pipelines_folder()))
    return [one for one in status.views if one.view in VIEWS]


def test_metrics_have_the_schema_of_each_view(meta: MetaStore) -> None:
    steps.publish("shop", commit(meta))
    sent = {one.name: one.value for one in view_metrics(views_of(meta))}
    assert {name: sent[f"view.{name}.rows"] for name in ("per_g", "north-per_g", "sizes", "north-sizes")} == {
        name.replace(".", "-"): len(rows(meta, name)) for name in VIEWS
    }


def origins(fields: dict[str, Any]) -> dict[str, set[str]]:
    return {name: {f"{one.name}.{one.field}" for one in field.inputFields} for name, field in fields.items()}


def test_lineage_names_each_relation_with_its_schema(meta: MetaStore, tmp_path: Path) -> None:
    published = steps.publish("shop", commit(meta))
    inputs, outputs = views_published("shop", published)
    assert {one.name for one in inputs} == {"t", "north.t"}
    found = {one.name: one.facets["columnLineage"] for one in outputs}
    assert {name: origins(facet.fields) for name, facet in found.items() if name in VIEWS} == {
        "per_g": {"c1": {"t.g"}},
        "north.per_g": {"c1": {"north.t.g"}},
        "sizes": {"size": {"north.per_g.n"}},
        "north.sizes": {"size": {"per_g.n"}},
    }
    assert {f"{one.name}.{one.field}" for one in found["exposures/board"].dataset} == {
        "north.sizes.size",
        "north.sizes.n",
    }
    steps.publish_tables("shop", published.epoch)
    copied, copies = tables_published("shop", published.epoch, steps.tables_at("shop", published.epoch))
    assert {one.name for one in copied} == set(VIEWS)
    assert {one.name for one in copies} == {f"{tmp_path}/lake/{name}" for name in VIEWS}
