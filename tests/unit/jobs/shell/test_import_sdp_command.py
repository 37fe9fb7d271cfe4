"""`tussock import sdp`, as far as it needs no Spark."""

from pathlib import Path

import pytest

from tussock.jobs import cli
from tussock.jobs.spark import session


def test_an_invalid_project_is_an_error_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "build_spark", lambda *_, **__: pytest.fail("Spark was started"))
    assert cli.main(["import", "sdp", str(tmp_path)]) == 1
    assert "found no SQL or Python file" in capsys.readouterr().err


def test_a_source_without_a_path_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import", "sdp", str(tmp_path), "--source", "orders"]) == 1
    assert "expected NAME=PATH" in capsys.readouterr().err
