"""The benchmark of large stores, with small ones."""

from itertools import chain
from pathlib import Path

import pytest

from benchmarks import scale
from benchmarks.scale import SST_BYTES, _new_store, measure_files, measure_ssts, measure_units, table_of
from tests.support.small_pages import small_pages
from tussock.statestore.meta.levels import order_objection


@pytest.fixture(autouse=True)
def _few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "TABLES", 5)


def test_a_version_has_the_ssts_that_were_asked_for_on_sorted_levels(tmp_path: Path) -> None:
    meta, objects = _new_store(tmp_path, 2_000)
    version = meta.read_latest()
    assert sum(map(len, version.levels)) >= 2_000
    assert all(order_objection(level) is None for level in version.levels[1:])
    assert {sst.size for sst in chain(*version.levels)} == {SST_BYTES}
    listed = [found.name for found in objects.list("data/")]
    assert {sst.name for sst in chain(*version.levels)} <= set(listed)
    assert len(listed) == len(set(listed))


def test_a_large_version_is_opened_without_its_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, page_ssts=16, paged_ssts=64)
    found = measure_ssts(tmp_path, 300)
    assert found["bytes read to open it"] < found["bytes of all pages"] / 2
    assert 0 < found["bytes of pages that it writes"] < found["bytes of all pages"] / 4


def test_each_step_is_measured(tmp_path: Path) -> None:
    found = measure_ssts(tmp_path / "ssts", 300)
    assert "open and commit a compaction" in found
    assert found["bytes read to open it"] > 300 * 200
    files = measure_files(tmp_path / "files", 20)
    assert files["bytes of a barrier"] > 20 * 100
    units = measure_units(tmp_path / "units", 3)
    assert units["SSTs of an epoch"] == 1
    text = table_of("files", {1: files, 20: files})
    assert "list the files and inject a barrier" in text
