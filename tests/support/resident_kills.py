"""Resident processes that are killed while files arrive, for tests of their rows."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.jobs.driver.embedded import open_store, rows
from tests.support.waiting import eventually
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.meta.store import MetaStore

PATIENCE_S = 120.0
PAUSE_S = 0.05
COMPACT_EPOCHS = 250
"""Epochs between two compactions, as the documentation asks for; without them, a version keeps each epoch's SSTs."""


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


def assert_counted_once(meta: MetaStore, folder: Folder) -> None:
    eventually(
        "all files are taken",
        lambda: dict(rows(meta, "per_g")) == folder.counts,
        PATIENCE_S,
    )
    assert dict(rows(meta, "per_g")) == folder.counts
    assert rows(meta, "sizes") == sorted(Counter(folder.counts.values()).items(), key=repr)


def publish_next(meta: MetaStore, folder: Folder, draw: random.Random) -> None:
    """Let a file arrive, and wait until readers see rows of it. Files never come faster than epochs take them."""
    seen = newest_published(meta)
    folder.add_file(draw)
    eventually("the file is published", lambda: newest_published(meta) > seen, PATIENCE_S)


def newest_published(meta: MetaStore) -> int:
    """The newest epoch that readers see."""
    return meta.read_latest().published


def kill_two_processes(meta: MetaStore, files: Path, store: Path, epochs: int, chance: float) -> int:
    """Let two processes run epochs while files arrive, and kill one now and then. Returns the number of kills.

    Args:
        chance: of a kill, per epoch, at a random moment of it.

    Raises AssertionError if a row is lost or counted twice.
    """
    draw, folder, pause = random.Random(1), Folder(files), Event()
    running, kills, done = [start(store) for _ in range(2)], 0, 0
    try:
        while done < epochs or not kills:
            if draw.random() < chance:
                folder.add_file(draw)
                pause.wait(draw.uniform(0, 0.4))  # an epoch takes a tenth of a second, or longer on a busy machine
                at = draw.randrange(2)
                running[at].kill()
                running[at].communicate()
                kills += 1
                running[at] = start(store)
                if kills % 10 == 0:
                    assert_counted_once(open_store(store, "reader"), folder)
            publish_next(meta, folder, draw)
            done += 1
            if done % COMPACT_EPOCHS == 0:
                list(compact_store(meta, CompactionOptions()))
        assert_counted_once(open_store(store, "reader"), folder)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return kills
