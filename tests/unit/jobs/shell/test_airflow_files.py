"""`tussock airflow-files` writes files that define DAGs in Airflow, and changes nothing else.

tests/unit/project/test_package.py covers the whole path.
"""

from pathlib import Path

import pytest

from tussock.jobs import cli

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel's package `tussock_dags`, which is the folder dags/."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/tussock_dags").symlink_to(ROOT / "dags")
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.mark.usefixtures("installed")
def test_a_second_write_gives_the_same_files_and_prints_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = []
    for _ in range(2):
        assert cli.main(["airflow-files", str(tmp_path)]) == 0
        written.append({path.name: path.read_text() for path in tmp_path.glob("*.py")})
    assert written[0] == written[1]
    assert sorted(written[0]) == ["tussock_broken_pipelines.py", "tussock_pipelines.py"]
    for text in written[0].values():  # Airflow reads only files with both words
        assert "airflow" in text
        assert "dag" in text
    said = capsys.readouterr().out
    assert "export TUSSOCK_PIPELINES=/" in said
    assert "export AIRFLOW_CONN_SPARK_DEFAULT=" in said
    kinds = [path.stem for path in (ROOT / "dags").glob("*.py") if path.stem != "broken_pipelines"]
    assert [kind for kind in kinds if f"  {kind}_<pipeline> " not in said] == []


@pytest.mark.usefixtures("installed")
def test_a_foreign_file_remains_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "tussock_broken_pipelines.py"
    mine.write_text("print('mine')")
    assert cli.main(["airflow-files", str(tmp_path)]) == 1
    assert "was not written by this command" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.glob("*.py")] == ["print('mine')"]


@pytest.mark.usefixtures("installed")
def test_a_missing_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["airflow-files", str(tmp_path / "dags")]) == 1
    assert (
        f"The folder {tmp_path}/dags does not exist. `airflow config get-value core dags_folder`"
        in capsys.readouterr().err
    )


def test_in_a_checkout_it_explains_that_airflow_reads_the_dags_in_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["airflow-files", str(tmp_path)]) == 1
    assert f"Tussock runs from the checkout {ROOT}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
