"""Pins of local files that were written a moment ago: later looks need not read them, and see each later write."""

from pathlib import Path

import pytest

from tussock.jobs.sources import pins
from tussock.jobs.sources.pins import is_as_recorded, recorded_etag
from tussock.statestore.objectstore.local import LocalObjectStore


def pin(path: Path) -> str:
    info = LocalObjectStore(path.parent).head(path.name)
    return recorded_etag(str(path), info.size, info.etag)


def has_bytes_of(path: Path, recorded: str) -> bool:
    info = LocalObjectStore(path.parent).head(path.name)
    return is_as_recorded(str(path), info.size, info.etag, info.size, recorded)


def test_a_file_that_was_just_written_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.csv"
    path.write_text("1,2")
    recorded = pin(path)

    def refuse(path: str) -> str:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(pins, "_read_content", refuse)
    assert has_bytes_of(path, recorded)


def test_each_write_after_the_pin_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    for content in range(10, 40):  # of one size
        path.write_text(str(content))
        recorded = pin(path)
        path.write_text(str(content + 50))
        assert not has_bytes_of(path, recorded)
