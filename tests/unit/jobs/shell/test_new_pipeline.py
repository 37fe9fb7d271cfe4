"""`tussock new` writes a pipeline that works unchanged, and never changes existing files."""

from pathlib import Path

import pytest

from tests.support.jobs.shell import new_pipeline as shared
from tussock.jobs import cli
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.shell.command import pipelines_folder

elsewhere = shared.elsewhere

FILES = {
    "pipeline.toml",
    "sources.sql",
    "tables.sql",
    "views.sql",
    "quality/daily_sales.json",
    "tests/daily_sales.yaml",
    *(f"data/orders/2026-01-0{day}.csv" for day in (1, 2, 3)),
}


def test_a_new_pipeline_bears_its_name_wherever_pipelines_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "deep" / "down"))
    assert cli.main(["new", "corner_shop"]) == 0
    folder = tmp_path / "deep" / "down" / "corner_shop"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == FILES
    made = load_pipeline(folder)
    assert made.name == "corner_shop"
    assert made.store == str(tmp_path / "deep" / ".tussock/corner_shop/store")
    assert not any("@name@" in path.read_text().lower() for path in folder.rglob("*.*") if path.is_file())
    columns = {line.index("  # ") for line in (folder / "pipeline.toml").read_text().splitlines() if "  # " in line}
    assert len(columns) == 1, "comments are aligned"
    said = capsys.readouterr().out
    assert "tussock apply corner_shop" in said
    assert f"TUSSOCK_PIPELINES is {folder.parent}" in said
    assert [path.name for path in folder.parent.iterdir()] == ["corner_shop"]


def test_pipelines_are_found_from_any_folder_below_the_one_that_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["new", "shop"]) == 0
    export = f"export TUSSOCK_PIPELINES={tmp_path}/pipelines"
    assert f"Next, in {tmp_path} (in another folder, first run: {export}):" in capsys.readouterr().out
    for below in ("pipelines", "pipelines/shop/data/orders"):
        monkeypatch.chdir(tmp_path / below)
        assert pipelines_folder() == tmp_path / "pipelines"
    (tmp_path / "pipelines/shop/pipelines").mkdir()
    monkeypatch.chdir(tmp_path / "pipelines/shop")
    assert pipelines_folder() == Path("pipelines"), "the one right here, though it is empty"


def test_without_a_folder_of_pipelines_the_error_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere/pipelines").mkdir(parents=True)  # of another program: no pipeline.toml
    (tmp_path / "elsewhere/down").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere/down")
    assert cli.main(["read", "--pipeline", "shop", "daily_sales"]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path}/elsewhere/down/pipelines contains no pipeline" in said
    assert "or set TUSSOCK_PIPELINES" in said


@pytest.mark.parametrize(
    ("name", "says"),
    [("Shop-1", "such as shop_1"), ("../shop", "such as shop"), ("1", "a lower-case letter"), ("", "''")],
)
def test_an_invalid_name_creates_nothing(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["new", name]) == 1
    assert says in capsys.readouterr().err
    assert list(tmp_path.rglob("*")) == []


def test_existing_files_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "pipelines" / "shop" / "mine.sql"
    mine.parent.mkdir(parents=True)
    mine.write_text("SELECT 1")
    assert cli.main(["new", "shop"]) == 1
    assert "pipelines/shop already exists" in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
