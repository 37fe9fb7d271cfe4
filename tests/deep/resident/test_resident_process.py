"""A resident process under random kills, beside a second one, while files arrive: each row is counted once."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import open_store, rows
from tests.support.waiting import eventually
from tests.unit.jobs.facts.test_status import files, shop
from tussock.statestore.meta.store import MetaStore

__all__ = ["files", "shop"]
pytestmark = [pytest.mark.deep, pytest.mark.kill, pytest.mark.timeout(7200)]
EPOCHS = int(os.environ.get("RESIDENT_EPOCHS", "10000"))
PATIENCE_S = 120.0
PAUSE_S = 0.01


class Folder:
    """The folder of the source, and the number of its rows by group."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts = Counter(pq.read_table(folder)["g"].to_pylist())
        self._files = 1

    def add_file(self, draw: random.Random) -> None:
        groups = [draw.randrange(50) for _ in range(draw.randrange(1, 40))]
        keys = range(self._files * 1000, self._files * 1000 + len(groups))
        table = pa.table({"k": pa.array(keys, pa.int64()), "g": pa.array(groups, pa.int32())})
        self._files += 1
        hidden = self.folder / f".{self._files}.tmp"
        pq.write_table(table, hidden)
        hidden.rename(self.folder / f"{self._files:08}.parquet")
        self.counts.update(groups)


def start(store: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.support.resident_process", str(store), str(PAUSE_S)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def descriptors_and_mb(process: "subprocess.Popen[str]") -> tuple[int, float]:
    status = Path(f"/proc/{process.pid}/statm").read_text().split()
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir())), int(status[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def assert_counted_once(meta: MetaStore, folder: Folder) -> None:
    eventually(
        "all files are taken",
        lambda: dict(rows(meta, "per_g")) == folder.counts,
        PATIENCE_S,
    )
    assert dict(rows(meta, "per_g")) == folder.counts
    assert rows(meta, "sizes") == sorted(Counter(folder.counts.values()).items(), key=repr)


def test_each_row_is_counted_once_under_kills_of_two_processes(shop: MetaStore, files: Path, tmp_path: Path) -> None:
    draw, folder, pause = random.Random(1), Folder(files), Event()
    running = [start(tmp_path / "store") for _ in range(2)]
    first, kills = shop.read_latest().id, 0
    try:
        while shop.read_latest().id - first < EPOCHS // 2:
            folder.add_file(draw)
            pause.wait(draw.uniform(0, 0.1))
            if draw.random() < 0.02:
                at = draw.randrange(2)
                running[at].kill()
                running[at].communicate()
                kills += 1
                running[at] = start(tmp_path / "store")
                if kills % 10 == 0:
                    assert_counted_once(open_store(tmp_path / "store", "reader"), folder)
        assert_counted_once(open_store(tmp_path / "store", "reader"), folder)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    print(f"{kills} kills")


def test_memory_and_descriptors_stay_flat(shop: MetaStore, files: Path, tmp_path: Path) -> None:
    draw, folder, pause = random.Random(2), Folder(files), Event()
    process = start(tmp_path / "store")
    first, sizes = shop.read_latest().id, list[tuple[int, float]]()
    try:
        for tenth in range(1, 11):
            while shop.read_latest().id - first < tenth * EPOCHS // 20:
                folder.add_file(draw)
                pause.wait(0.02)
            sizes.append(descriptors_and_mb(process))
        assert_counted_once(open_store(tmp_path / "store", "reader"), folder)
    finally:
        process.kill()
        process.communicate()
    print(sizes)
    assert max(count for count, _ in sizes[1:]) <= sizes[1][0] + 2
    assert sizes[-1][1] <= 1.2 * sizes[1][1] + 20
