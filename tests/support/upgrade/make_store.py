"""Write the archive that test_store_of_the_release_before.py reads, with the code of a release.

    in a checkout of release 0.1.0:
    python -m tests.support.upgrade.make_store tests/spark/upgrade/store_of_0_1_0.tar.xz

Run it by hand, once per release. When a release is published, its archive is never written again, because the code of
that release wrote it; the next release adds another one. The store has four epochs (the third is published), a
committed, a closed and an open compaction, a move, a floor, a pin, a changed mapping, a dropped and a paused view, an
open barrier that superseded another, and waiting statements and files after it. Every operator has state in it.
"""

import io
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.upgrade import story
from tussock.jobs import session as sessions
from tussock.jobs.barriers.barrier import InputRequest, inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.session import Session
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources.file_documents import files_of
from tussock.jobs.spark.session import build_spark
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.compaction_picker import full_compaction
from tussock.statestore.meta.compaction import CompactionPlan
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import LevelInput
from tussock.statestore.objectstore.open import open_object_store


def main(archive: Path) -> None:
    """Make the store below a temporary folder, then the archive: `store/…` and `sources/…`."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["TUSSOCK_DISK_CACHE"] = "off"
    shutil.rmtree(story.PLACE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        spark = build_spark("tussock store of a release")
        try:
            fill(spark, store)
        finally:
            spark.stop()
        pack(archive, {"store": store, "sources": story.PLACE})
    print(f"{archive}: {archive.stat().st_size:,} bytes")


def fill(spark: SparkSession, store: Path) -> None:
    """Run the story up to its open barrier."""
    now = story.START_MS

    def clock_ms() -> int:
        nonlocal now
        now += 1000
        return now

    MetaStore.init(open_object_store(str(store)), units=2, vnode_count=16)
    meta = MetaStore(open_object_store(str(store)), "release 0.1.0", clock_ms)
    sessions.open_meta = lambda _: meta  # type: ignore[attr-defined]
    with Session(str(store), spark, create=False, runner="local", workers=1) as session:
        for name in story.FIRST_FILES:
            story.write_file(name)
        session.execute(story.creations())
        session.flush()
        meta.move_ssts(CompactionPlan((LevelInput(0, (meta.read_latest().levels[0][-1].name,)),), 6))

        session.execute(story.SECOND)
        session.flush()
        compact_store(meta, full=True)
        task = meta.open_compaction(full_compaction(meta.read_latest()).plan)
        meta.renew_compactions([task], lease_ms=10**9)
        meta.close_compaction(task.id, "the story wants a closed one")

        session.execute(story.THIRD)
        try:
            session.flush()
        except InputError as err:
            print("stopped as the story has it:", err)
        else:
            raise AssertionError("the third epoch has a row that view `stuck` cannot take")
        abandon_barrier(meta, Detour(pause=(story.PAUSED,)))
        session.flush()
        meta.apply_retention(keep_epochs=1)
        meta.rescale(3)

        for name in story.FOURTH_FILES:
            story.write_file(name)
        session.execute(story.FOURTH)
        fourth = inject_barrier(meta, InputRequest(run={"interval": "the fourth"}))
        assert fourth is not None
        run_epoch(LocalRunner(), meta, fourth)  # committed, not published
        meta.pin_epoch(meta.read_latest().epoch)
        meta.open_compaction(full_compaction(meta.read_latest()).plan)

        for name in (story.BAD_FILE, *story.OPEN_FILES, *story.LAST_FILES):
            story.write_file(name)
        session.execute(f"{story.SKIPPED};\n{story.OPEN}")
        first = inject_barrier(
            meta, InputRequest(run={"interval": "the open one"}), EpochSettings(max_bytes=story.MAX_EPOCH_BYTES)
        )
        assert first is not None
        print("pinned at first:", sorted(f.path for pinned in first.splits.values() for f in files_of(pinned)))
        open_one = abandon_barrier(
            meta, Detour(skip_files=(str(story.PLACE / story.BAD_FILE),), skip_entries=(first.log_start,))
        )
        pinned = sorted(
            f.path.removeprefix(f"{story.PLACE}/") for pinned in open_one.splits.values() for f in files_of(pinned)
        )
        assert pinned == sorted(story.OPEN_FILES), pinned
        session.execute(story.waiting())
        version = meta.read_latest()
        assert version.published < version.epoch < open_one.epoch
        assert version.tasks
        print(
            f"version {version.id}, levels {[len(level) for level in version.levels]}, "
            f"open barrier attempt {open_one.attempt}"
        )


def pack(archive: Path, folders: dict[str, Path]) -> None:
    """A tar of the folders under their names, without anything of this host in it."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for top, folder in folders.items():
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                entry = tarfile.TarInfo(f"{top}/{path.relative_to(folder)}")
                data = path.read_bytes()
                entry.size, entry.mode, entry.mtime = len(data), 0o644, story.FILE_TIME_NS // 10**9
                tar.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
