"""Names of three parts lose their catalog, and nothing else in a script changes."""

from pathlib import Path

import pytest

from tests.unit.jobs.settings.test_pipeline import MINIMAL, write
from tussock.jobs.operations.files import created_in_files
from tussock.jobs.settings.catalogs import without_catalogs
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.meta.catalog import RelationKind

CATALOGS = {"main": "{schema}", "lake": "lake_{schema}"}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("SELECT * FROM main.staging.orders", "SELECT * FROM staging.orders"),
        ("SELECT Main.staging.orders.id FROM `main`.`Staging`.orders", "SELECT staging.orders.id FROM staging.orders"),
        ("SELECT * FROM lake.raw.orders o", "SELECT * FROM lake_raw.orders o"),
        ("SELECT main.orders, 'main.a.b', x.main.a.b, -- main.a.b\n main.a FROM main", None),
        ("SELECT 'open FROM main.a.b", None),
    ],
)
def test_a_catalog_in_a_name_of_three_parts_becomes_blanks(script: str, expected: str | None) -> None:
    changed = without_catalogs(script, CATALOGS)
    assert " ".join(changed.split()) == " ".join((expected or script).split())
    if "lake" not in script:
        assert len(changed) == len(script), "places in errors stay"


def test_the_scripts_of_a_pipeline_have_the_schemas_of_its_setting(tmp_path: Path) -> None:
    folder = write(tmp_path, MINIMAL + '\n[catalogs]\nMain = "{schema}"')
    (folder / "views.sql").write_text("CREATE VIEW main.a.v AS SELECT 1")
    ((_, text),) = load_pipeline(folder).read_scripts()
    assert "".join(text.split(" ")) == "CREATEVIEWa.vASSELECT1"
    write(tmp_path, MINIMAL + '\n[catalogs]\nmain = "other"')
    with pytest.raises(PipelineError, match=r"catalogs.main: found string 'other'.*main_\{schema\}"):
        load_pipeline(folder)


def test_the_schema_of_a_pipeline_is_created_and_holds_in_its_files(tmp_path: Path) -> None:
    folder = write(tmp_path, MINIMAL + '\nschema = "staging"')
    (folder / "views.sql").write_text("CREATE MATERIALIZED VIEW a AS SELECT 1; USE other; CREATE SOURCE b USING csv")
    pipeline = load_pipeline(folder)
    assert pipeline.schema == "staging"
    assert pipeline.read_scripts()[0] == (folder / "pipeline.toml", "CREATE SCHEMA IF NOT EXISTS staging")
    assert created_in_files(pipeline, RelationKind.VIEW) == ("staging.a",)
    assert created_in_files(pipeline, RelationKind.SOURCE) == ("other.b",)


def test_a_schema_has_the_name_of_a_schema(tmp_path: Path) -> None:
    folder = write(tmp_path, MINIMAL + '\nschema = "Main Lake"')
    with pytest.raises(PipelineError, match=r"schema: found string 'Main Lake'.*a schema: lower-case letters"):
        load_pipeline(folder)
