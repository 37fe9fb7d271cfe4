"""Two resident processes, of which one is killed now and then. tests/deep/resident has 10,000 epochs."""

from pathlib import Path

import pytest

from tests.support.resident_kills import kill_two_processes
from tests.unit.jobs.facts.test_status import files, shop
from tussock.statestore.meta.store import MetaStore

__all__ = ["files", "shop"]
pytestmark = pytest.mark.kill


def test_each_row_is_counted_once_under_kills_of_two_processes(shop: MetaStore, files: Path, tmp_path: Path) -> None:
    assert kill_two_processes(shop, files, tmp_path / "store", epochs=20, chance=0.1)
