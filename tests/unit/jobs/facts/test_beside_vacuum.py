"""Whatever reads a whole store finds it whole, while epochs, compaction and vacuum of another host run."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, open_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.barriers.barrier import take_in
from tussock.jobs.catalog.statement_log import PendingCatalog
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.facts.size import measure_size
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import compact_store
from tussock.jobs.upkeep.rebalance import measure_loads
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.scrub import scrub_store
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.store import MetaStore

KEEP = Retention(keep_epochs=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def scrubbed(meta: MetaStore) -> None:
    report = scrub_store(meta.objects, threads=1)
    assert report.is_whole, (report.meta, report.ssts)


def read(meta: MetaStore) -> None:
    assert StoredRows(meta, PendingCatalog(meta)).read("v").num_rows


def intake(meta: MetaStore) -> None:
    with suppress(LostRaceError):  # the epoch of the other host
        take_in(meta)


READERS: dict[str, Callable[[MetaStore], object]] = {
    "scrub": scrubbed,
    "size": measure_size,
    "status": lambda meta: read_status(meta, NOW, everything=True),
    "rebalance": measure_loads,
    "vacuum of another host": lambda meta: clean_store(meta, KEEP),
    "a dry vacuum": lambda meta: clean_store(meta, KEEP, dry_run=True),
    "a read": read,
    "the input of an epoch": intake,
}
EACH = 4  # the quick run interferes at one request in so many


def change(folder: Path) -> None:
    """The end of a reader, an epoch, compaction and vacuum, as another host."""
    meta = open_store(folder, "another host")
    for pin in meta.all_pins():
        if not pin.holder.startswith("reader/"):
            meta.unpin(pin)
    insert(meta, "t", (5, 5, 5))
    publish_epoch(meta, epoch(meta).epoch)
    meta.apply_retention(1)
    compact_store(meta, full=True)
    clean_store(meta, KEEP)


class Beside:
    """The objects of a store. Before request number `at`, another host changes the store."""

    def __init__(self, folder: Path, at: int) -> None:
        self._folder, self._at = folder, at
        self._objects = open_store(folder).objects
        self.uri, self.requests, self.asked = self._objects.uri, self._objects.requests, 0

    def __getattr__(self, name: str) -> Any:
        if name not in ("get", "get_ranges", "head", "list"):
            return getattr(self._objects, name)

        def request(*args: Any) -> Any:
            self.asked += 1
            if self.asked == self._at:
                change(self._folder)
            found = getattr(self._objects, name)(*args)
            return iter(list(found)) if name == "list" else found  # a listing shows one moment

        return request


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "template"
    meta = new_store(folder, units=2)
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    for n in range(4):
        insert(meta, "t", *((k, k % 5, n) for k in range(20)))
        publish_epoch(meta, epoch(meta).epoch)
    meta.pin_epoch(meta.read_latest().epoch)
    return folder


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.deep] if part else []) for part in range(EACH)])
def test_a_reader_finds_a_whole_store_beside_a_change(reader: str, part: int, template: Path, tmp_path: Path) -> None:
    for at in range(1 + part, 10_000, EACH):
        folder = Path(shutil.copytree(template, tmp_path / str(at)))
        objects: Any = Beside(folder, at)
        meta = MetaStore(objects, "reader", lambda: 1_900_000_000_000)
        process_cache().clear()
        READERS[reader](meta)
        assert scrub_store(open_store(folder).objects).is_whole
        shutil.rmtree(folder)
        if objects.asked < at:
            break
    assert at > EACH or reader in ("a read", "the input of an epoch")
