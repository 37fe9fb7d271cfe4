"""Rows and helpers of test_cli.py, which is in several lanes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tussock.jobs import cli

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Answer:
    """The output of one command."""

    code: int
    out: str
    err: str


Tussock = Callable[..., Answer]


@pytest.fixture
def tussock(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tussock:
    """Run a command in this process, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("TUSSOCK_STORE", "TUSSOCK_PIPELINES", "TUSSOCK_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        code = cli.main(arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Answer(code, said.out, said.err)

    return run


def write_pipeline(folder: Path, text: str = "", views: str = "") -> None:
    """A pipeline `days`: one Parquet source with a file per day, one view."""
    home = folder / "pipelines" / "days"
    home.mkdir(parents=True)
    (home / "pipeline.toml").write_text(
        text or 'name = "days"\nstore = "store"\ndata = "data"\nsql = ["views.sql"]\n[epoch]\nunits = 3\n'
    )
    (home / "views.sql").write_text(
        views
        or "CREATE SOURCE IF NOT EXISTS clicks (id int, "
        "who string) USING parquet OPTIONS (path '${data}/{start:%Y-%m-%d}.parquet');\n"
        "CREATE MATERIALIZED VIEW IF NOT EXISTS people AS SELECT who, count(*) AS clicks FROM clicks GROUP BY who;\n"
    )


# --- as it is not meant -------------------------------------------------------------------------


def failed(answer: Answer, *says: str, code: int = 1) -> None:
    """The command failed with one readable message and printed nothing else."""
    assert answer.code == code
    assert answer.err.startswith(("error: ", "lost: "))
    assert [part for part in says if part not in answer.err] == [], answer.err
