"""The files of an imported pipeline: their bytes, their owner, and the difference from the project."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import msgspec
import pytest

from tussock.jobs.importing.errors import EditedFileError, ProjectError
from tussock.jobs.importing.imports import ImportOutcome, import_project, watch_project
from tussock.jobs.importing.judge import StatementVerdict, Verdicts
from tussock.jobs.importing.pipeline_files import texts_of
from tussock.jobs.importing.project import (
    ForeignProject,
    Model,
    ProjectPlace,
    ProjectTest,
    Script,
    Severity,
    UnitTest,
    file_of,
    models_in_order,
)
from tussock.jobs.quality.assertions import read_assertions
from tussock.jobs.settings.exposures import Exposure, read_exposures
from tussock.jobs.settings.pipeline import load_pipeline

PLACE = ProjectPlace("models/a.sql", 3)
SOURCE = Model(
    "orders", "source", PLACE, "CREATE SOURCE orders USING parquet OPTIONS (path '${data}/o')", Script.SOURCES
)
TOTAL = Model(
    "total", "model", PLACE, "CREATE MATERIALIZED VIEW total AS\nSELECT 1 AS n FROM orders  ", reads=("orders",)
)
PYTHON = Model("scores", "model", PLACE, "", refusal="it is Python")
READER = Model("best", "model", PLACE, "CREATE VIEW best AS SELECT * FROM scores", reads=("scores",))
ASSERTION = ProjectTest("Total is 1?", "test", PLACE, "SELECT n FROM total WHERE n <> 1", ("total",), Severity.WARNING)
UNIT = UnitTest("one row", PLACE, "total", {"orders": [{"id": 1, "name": "a: b", "day": None}]}, [{"n": 1}])
PROJECT = ForeignProject(
    "dbt", "shop", Path("shop"), (Path("shop/manifest.json"),), "A shop.", (TOTAL, READER, PYTHON, SOURCE),
    (ASSERTION,), (UNIT,),
)  # fmt: skip
COMMAND = "tussock import dbt shop/target/manifest.json"


def judge_by_refusals(project: ForeignProject) -> Verdicts:
    """Accept every statement that the front end accepts and whose inputs are accepted."""
    verdicts: dict[str, StatementVerdict] = {}
    for model in models_in_order(project.models):
        lost = [name for name in model.reads if not verdicts[name].accepted]
        reason = model.refusal or (f"it reads {lost[0]}, which was not taken" if lost else "")
        verdicts[model.name] = StatementVerdict(reason, stores=not reason and "MATERIALIZED" in model.statement)
    return verdicts | {file_of(one): StatementVerdict(one.refusal, stores=True) for one in project.assertions}


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    return tmp_path / "pipelines"


def run_import(pipelines: Path, project: ForeignProject = PROJECT, check: bool = False):  # type: ignore[no-untyped-def]
    return import_project(project, pipelines, COMMAND, judge_by_refusals, check=check)


def test_exposures_of_accepted_relations_are_a_file_of_the_pipeline(pipelines: Path) -> None:
    report = Exposure("board", ("total", "scores"), "dashboard", 'A "title"', "https://a.example/1", "Ada")
    exposures = report, Exposure("lost", ("scores",))
    run_import(pipelines, replace(PROJECT, exposures=exposures))
    assert read_exposures(pipelines / "shop") == (msgspec.structs.replace(report, reads=("total",)),)
    drifted = run_import(pipelines, replace(PROJECT, exposures=(Exposure("board", ("total",)),)), check=True)
    assert [str(drift.path) for drift in drifted.drift] == ["exposures.toml"]
    run_import(pipelines)
    assert not (pipelines / "shop" / "exposures.toml").exists()


def test_a_schema_without_an_accepted_relation_is_not_created(pipelines: Path) -> None:
    models = replace(TOTAL, name="silver.total"), replace(PYTHON, name="gold.scores"), SOURCE
    run_import(pipelines, replace(PROJECT, models=models, assertions=(), unit_tests=()))
    text = (pipelines / "shop" / "sources.sql").read_text()
    assert re.findall(r"CREATE SCHEMA (\w+);", text) == ["silver"]


def test_an_imported_pipeline_loads_with_its_files(pipelines: Path) -> None:
    report = run_import(pipelines)
    pipeline = load_pipeline(pipelines / "shop")
    assert [path.name for path, _ in pipeline.read_scripts()] == ["sources.sql", "views.sql"]
    assert [path.name for path, _ in pipeline.read_assertions()] == ["total_is_1.sql"]
    assert [one.severity for one in read_assertions(pipeline)] == ["warning"]
    assert sorted(report.changed) == sorted(
        Path(name)
        for name in ("pipeline.toml", "sources.sql", "views.sql", "quality/total_is_1.sql", "tests/imported.yaml")
    )


def test_equal_projects_give_equal_bytes(pipelines: Path) -> None:
    run_import(pipelines)
    before = {path: path.read_bytes() for path in pipelines.rglob("*.*")}
    shuffled = replace(PROJECT, models=tuple(reversed(PROJECT.models)))
    assert run_import(pipelines, shuffled).changed == ()
    assert {path: path.read_bytes() for path in pipelines.rglob("*.*")} == before


def test_each_statement_follows_the_relations_that_it_reads() -> None:
    first = Model("b_first", "model", PLACE, "")
    second = Model("a_second", "model", PLACE, "", reads=("b_first",))
    assert [model.name for model in models_in_order([second, first, SOURCE])] == ["orders", "b_first", "a_second"]


def test_a_cycle_of_models_comes_last() -> None:
    left = Model("left", "model", PLACE, "", reads=("right",))
    right = Model("right", "model", PLACE, "", reads=("left",))
    assert [model.name for model in models_in_order([left, right, SOURCE])] == ["orders", "left", "right"]


def test_a_refused_model_and_its_readers_are_comments_with_the_reason(pipelines: Path) -> None:
    report = run_import(pipelines)
    views = (pipelines / "shop" / "views.sql").read_text()
    assert "-- Not taken: model scores (models/a.sql:3): it is Python" in views
    assert "it reads scores, which was not taken" in " ".join(views.replace("--", " ").split())
    assert "CREATE VIEW best" not in views
    assert [line.name for line in report.refused] == ["scores", "best"]


def test_the_report_has_the_outcome_of_every_part(pipelines: Path) -> None:
    outcomes = {line.name: line.outcome for line in run_import(pipelines).lines}
    assert outcomes == {
        "orders": ImportOutcome.SOURCE,
        "total": ImportOutcome.INCREMENTAL,
        "scores": ImportOutcome.NOT_TAKEN,
        "best": ImportOutcome.NOT_TAKEN,
        "Total is 1?": ImportOutcome.TEST,
        "one row": ImportOutcome.TEST,
    }


@pytest.mark.parametrize("text", ["SELECT 1;\n", None])
def test_a_file_of_the_user_is_never_overwritten(pipelines: Path, text: str | None) -> None:
    if text is None:
        run_import(pipelines)
    views = pipelines / "shop" / "views.sql"
    views.parent.mkdir(parents=True, exist_ok=True)
    text = text or views.read_text() + "-- mine\n"
    views.write_text(text)
    changed = replace(TOTAL, statement=TOTAL.statement.replace("1", "2"))
    with pytest.raises(EditedFileError, match=r"views.sql was .* and was not changed"):
        run_import(pipelines, replace(PROJECT, models=(SOURCE, changed)))
    assert views.read_text() == text


def test_a_settings_file_belongs_to_its_user_after_an_edit(pipelines: Path) -> None:
    run_import(pipelines)
    settings = pipelines / "shop" / "pipeline.toml"
    edited = settings.read_text().replace("\n[quality]", '\n[schedule]\ncron = "@daily"\nstart = 2026-01-01')
    settings.write_text(edited)
    report = run_import(pipelines, replace(PROJECT, description="Another."))
    assert settings.read_text() == edited
    assert report.changed == ()
    assert [note for note in report.notes if "[quality]" in note] == [
        f"{settings} has no table [quality], so no assertion runs: add it"
    ]


def test_a_check_lists_changed_missing_and_superfluous_files(pipelines: Path) -> None:
    run_import(pipelines)
    assert run_import(pipelines, check=True).drift == ()
    (pipelines / "shop" / "sources.sql").unlink()
    changed = replace(TOTAL, statement=TOTAL.statement.replace("SELECT 1", "SELECT 2"))
    project = replace(PROJECT, models=(SOURCE, changed, PYTHON, READER), assertions=())
    drift = {str(one.path): one for one in run_import(pipelines, project, check=True).drift}
    assert {path: one.finding for path, one in drift.items()} == {
        "pipeline.toml": "differs",
        "quality/total_is_1.sql": "has no counterpart in the project",
        "sources.sql": "is missing",
        "views.sql": "differs",
    }
    assert {"-SELECT 1 AS n FROM orders;", "+SELECT 2 AS n FROM orders;"} <= set(drift["views.sql"].lines)


def test_a_file_without_a_counterpart_is_removed(pipelines: Path) -> None:
    run_import(pipelines)
    report = run_import(pipelines, replace(PROJECT, assertions=()))
    assert Path("quality/total_is_1.sql") in report.changed
    assert not (pipelines / "shop" / "quality" / "total_is_1.sql").exists()


def test_rows_of_tests_keep_nulls_and_signs() -> None:
    texts = texts_of(PROJECT, judge_by_refusals(PROJECT), COMMAND, "shop")
    assert '      - {"id": 1, "name": "a: b", "day": null}\n' in texts[Path("tests/imported.yaml")]


def test_long_names_of_assertions_stay_different() -> None:
    files = {file_of(replace(ASSERTION, name="x" * 90 + end)) for end in "ab"}
    assert len(files) == 2
    assert max(map(len, files)) <= 84


class ScriptedStop(Event):
    """An event whose waits run one step each, and which is set after the last one."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        self.steps.pop(0)()
        if not self.steps:
            self.set()
        return self.is_set()


def test_a_watch_imports_again_after_a_change_and_after_a_corrected_error(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text("1")
    imported: list[str] = []
    errors: list[str] = []

    def read_project() -> ForeignProject:
        if manifest.read_text() == "broken":
            raise ProjectError("manifest.json", "a word", "a manifest")
        return replace(PROJECT, inputs=(manifest,), description=manifest.read_text())

    stop = ScriptedStop(
        lambda: None,
        lambda: manifest.write_text("broken"),
        lambda: None,
        lambda: manifest.write_text("other content"),
        lambda: None,
    )
    watch_project(
        read_project,
        lambda one: imported.append(one.description),
        lambda err: errors.append(str(err)),
        stop,
        manifest,
    )
    assert imported == ["1", "other content"]
    assert len(errors) == 1


def test_a_watch_begins_before_the_project_can_be_read(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    imported: list[str] = []
    errors: list[str] = []

    def read_project() -> ForeignProject:
        if not manifest.exists():
            raise ProjectError("manifest.json", "no such file", "a manifest")
        return replace(PROJECT, inputs=(manifest,), description=manifest.read_text())

    stop = ScriptedStop(lambda: None, lambda: manifest.write_text("1"), lambda: None, lambda: None)
    watch_project(
        read_project,
        lambda one: imported.append(one.description),
        lambda err: errors.append(str(err)),
        stop,
        manifest,
    )
    assert imported == ["1"]
    assert len(errors) == 1, "the same error is printed once"


def test_texts_in_quotes_stay_as_they_are_written(pipelines: Path) -> None:
    text = "SELECT 'two  \n\n\n\nlines' AS a,   \n\n\n\n  n -- why\\ \nFROM orders -- the end"
    model = replace(TOTAL, statement=f"CREATE MATERIALIZED VIEW total AS\n{text}")
    run_import(pipelines, replace(PROJECT, models=(model, SOURCE)))
    written = (pipelines / "shop" / "views.sql").read_text()
    assert written.endswith("SELECT 'two  \n\n\n\nlines' AS a,\n\n  n -- why\\ \nFROM orders;\n")
