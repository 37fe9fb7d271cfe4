"""The commands that create a store, fill its log and advance it: their calls of the driver. Needs no Spark."""

from pathlib import Path

import pytest

from tussock.jobs import cli
from tussock.jobs.operations.deploy import OtherTimeZoneError, apply, plan
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

PIPELINE = 'name = "shop"\nstore = "{store}"\nsql = ["views.sql"]\n'


def test_an_epoch_takes_as_many_bytes_by_default_whether_a_pipeline_or_a_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = tmp_path / "store", tmp_path / "pipelines" / "shop"
    MetaStore.init(open_object_store(str(store)))
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(PIPELINE.format(store=store))
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder.parent))
    asked: list[int | None] = []
    monkeypatch.setattr(
        "tussock.jobs.barriers.barrier.inject_barrier", lambda meta, request, settings: asked.append(settings.max_bytes)
    )
    assert cli.main(["epoch", "--pipeline", "shop"]) == 0
    assert cli.main(["epoch", "--store", str(store)]) == 0
    assert asked == [load_pipeline(folder).epoch.max_bytes] * 2 == [256 << 20] * 2


def test_a_pipeline_and_its_store_have_one_time_zone(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    MetaStore.init(open_object_store(str(tmp_path / "store")), time_zone="Asia/Kolkata")
    (folder / "views.sql").write_text("")
    (folder / "pipeline.toml").write_text(PIPELINE.format(store=tmp_path / "store") + 'time_zone = "Europe/Berlin"\n')
    for command in (plan, apply):
        with pytest.raises(OtherTimeZoneError, match='Set time_zone = "Asia/Kolkata"'):
            command(load_pipeline(folder))


def test_suites_that_never_run_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shop"
    (folder / "quality").mkdir(parents=True)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path))
    (folder / "views.sql").write_text("")
    (folder / "quality/listed.sql").write_text("")
    settings = PIPELINE.format(store=tmp_path / "store").replace('"views.sql"', '"views.sql", "quality/listed.sql"')

    def reported(more: str) -> list[str]:
        (folder / "pipeline.toml").write_text(settings + more)
        lines: list[str] = []
        for command in (plan, apply):
            command(load_pipeline(folder), progress=lines.append)
        return [line for line in lines if "quality" in line]

    assert reported("") == []
    (folder / "quality/late.sql").write_text("SELECT 1 AS one WHERE false")
    (folder / "quality/sales.json").write_text('{"expectations": []}')
    expected = (
        f"{folder}/quality contains late.sql, sales.json, but nothing runs them. "
        f"Add a table [quality] to {folder}/pipeline.toml."
    )
    assert reported("") == [expected] * 2
    (folder / "checks").mkdir()
    assert reported('[quality]\nfolder = "checks"\n') == []
    (folder / "pipeline.toml").write_text(settings.replace(str(tmp_path / "store"), str(tmp_path / "new")))
    lines: list[str] = []
    pipeline = load_pipeline(folder)
    apply(pipeline, approved=plan(pipeline).approval, progress=lines.append)
    assert lines.count(expected) == 1, "an approved plan of a new store is compared once more"
