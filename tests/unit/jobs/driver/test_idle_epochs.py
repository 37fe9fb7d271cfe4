"""An epoch and a status without new files cost the listing of a source's files, and little more. No Spark."""

import cProfile
import pstats
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tests.support.jobs.driver.embedded import append, new_store
from tests.unit.jobs.barriers.test_source_holds import FILE_FIELDS, over, write
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.listing import list_files
from tussock.statestore.meta.store import MetaStore

FEW, MANY = 50, 550
MOST_CALLS = 1.2
"""Calls of functions per file, as a multiple of a listing's calls."""


def taken(folder: Path, files: int) -> MetaStore:
    """A store whose source has taken this number of files."""
    meta = new_store(folder / "store")
    for n in range(files):
        write(folder / f"in/{n}.parquet", n)
    append(meta, CreateSource("s", "parquet", FILE_FIELDS, {"path": f"{folder}/in", "retain": "none"}), over("s"))
    advance_store(LocalRunner(), meta)
    return meta


def calls_of(step: Callable[[], object]) -> int:
    step()  # fills caches
    with cProfile.Profile() as profile:
        step()
    return int(vars(pstats.Stats(profile))["total_calls"])


def test_an_epoch_and_a_status_without_new_files_cost_the_listing(tmp_path: Path) -> None:
    stores = {files: taken(tmp_path / f"{files}", files) for files in (FEW, MANY)}

    def calls_per_file(step: Callable[[int], object]) -> float:
        few, many = (calls_of(lambda files=files: step(files)) for files in stores)
        return (many - few) / (MANY - FEW)

    listing = calls_per_file(lambda files: list_files(f"{tmp_path}/{files}/in", {}))
    assert listing <= 13
    assert calls_per_file(lambda files: inject_barrier(stores[files])) <= MOST_CALLS * listing
    assert calls_per_file(lambda files: read_status(stores[files], datetime.now(UTC))) <= MOST_CALLS * listing
