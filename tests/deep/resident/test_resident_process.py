"""Resident processes over many epochs: rows under random kills, and the memory and descriptors of one of them."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import open_store
from tests.support.resident_kills import (
    COMPACT_EPOCHS,
    Folder,
    assert_counted_once,
    kill_two_processes,
    publish_next,
    start,
)
from tests.unit.jobs.facts.test_status import files, shop
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.meta.store import MetaStore

__all__ = ["files", "shop"]
pytestmark = [pytest.mark.deep, pytest.mark.kill, pytest.mark.timeout(7200)]
EPOCHS = int(os.environ.get("RESIDENT_EPOCHS", "10000"))


def descriptors_and_mb(process: "subprocess.Popen[str]") -> tuple[int, float]:
    status = Path(f"/proc/{process.pid}/statm").read_text().split()
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir())), int(status[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_each_row_is_counted_once_under_kills_of_two_processes(shop: MetaStore, files: Path, tmp_path: Path) -> None:
    print(f"{kill_two_processes(shop, files, tmp_path / 'store', EPOCHS, 0.02)} kills")


def test_memory_and_descriptors_stay_flat(shop: MetaStore, files: Path, tmp_path: Path) -> None:
    draw, folder, sizes = random.Random(2), Folder(files), list[tuple[int, float]]()
    process = start(tmp_path / "store")
    try:
        for number in range(1, EPOCHS + 1):
            publish_next(shop, folder, draw)
            if number % COMPACT_EPOCHS == 0:
                list(compact_store(shop, CompactionOptions()))
            if number % (EPOCHS // 10) == 0:
                sizes.append(descriptors_and_mb(process))
        assert_counted_once(open_store(tmp_path / "store", "reader"), folder)
    finally:
        process.kill()
        process.communicate()
    print(sizes)
    assert max(count for count, _ in sizes[1:]) <= sizes[1][0] + 2
    assert sizes[-1][1] <= 1.2 * sizes[1][1] + 20
