"""Stores whose epochs run in this process, over statements that the tests build. No JVM."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import msgspec
import pyarrow as pa

from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import advance_store, next_epoch, run_epoch
from tussock.jobs.driver.runner import LevelRunner, LocalRunner
from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.logical.statements import Insert, Statement
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.sources.base import Restated
from tussock.jobs.trouble.restate import Restating
from tussock.statestore.errors import MustStopError, RetryableError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.table import recalled_table
from tussock.statestore.types import arrow_type

_ids = count()
_CLOCK_MS = 1_700_000_000_000
NOW = 1_800_000_000_000  # later


def new_store(folder: Path, units: int = 2) -> MetaStore:
    """An empty store and its one writer."""
    objects = open_object_store(str(folder))
    MetaStore.init(objects, units=units)
    return open_store(folder)


def open_store(folder: Path, writer: str = "test") -> MetaStore:
    """Open the store again, as another process would."""
    recalled_table._process_memory.cache_clear()
    return MetaStore(open_object_store(str(folder)), writer, lambda: _CLOCK_MS + next(_ids))


def append(meta: MetaStore, *statements: Statement) -> None:
    """Append bound statements to the log."""
    for statement in statements:
        meta.append_log(f"{meta.writer}/{next(_ids)}", msgspec.json.encode(statement))


def insert(meta: MetaStore, table: str, *rows: tuple[int | None, ...]) -> None:
    """Insert rows of (k int, g int, a int) into a table."""
    columns = {name: pa.array([row[i] for row in rows], pa.int32()) for i, name in enumerate(("k", "g", "a"))}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    append(meta, Insert(table, len(rows), meta.put_payload(sink.getvalue().to_pybytes())))


def epoch(meta: MetaStore, runner: LevelRunner | None = None) -> EpochSummary:
    """Run one epoch over all waiting input."""
    barrier = inject_barrier(meta)
    assert barrier is not None, "nothing waits"
    return run_epoch(runner or LocalRunner(), meta, barrier)


def run_twice_at_once(folder: Path) -> None:
    """Run all waiting epochs of a store by two drivers at once. Fails if neither comes to its end, or on other errors.

    Each is a thread of its own. The one that falls behind may stop.
    """

    def run(name: str) -> bool:
        try:
            advance_store(LocalRunner(), open_store(folder, name))
        except (MustStopError, RetryableError):
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert any(list(pool.map(run, ("one", "two"), timeout=60))), "both stopped"


def restate(meta: MetaStore, source: str, path: Path, *, gone: bool = False, runner: LevelRunner | None = None) -> None:
    """Take the present content of a file of a source, or withdraw the file."""
    if Restating(meta, source, Restated(str(path), gone=gone)).begin_restating() is not None:
        next_epoch(runner or LocalRunner(), meta)


def rows(meta: MetaStore, name: str) -> list[tuple[object, ...]]:
    """A relation's rows at the committed epoch, sorted."""
    version = meta.read_latest()
    (relation,) = [r for r in version.catalog.live_relations() if r.name == name]
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in relation.columns])
    found = pa.concat_tables([schema.empty_table(), *scan_relation(meta.objects, version, relation, version.epoch)])
    return sorted(zip(*(c.to_pylist() for c in found.columns), strict=True), key=repr)


def after(template: Path, to: Path, runner: LevelRunner) -> HummockVersion:
    """The version after the waiting epoch, in a copy of the store."""
    shutil.copytree(template, to)
    meta = MetaStore(open_object_store(str(to)), "the same", lambda: NOW)
    barrier = inject_barrier(meta)
    assert barrier is not None
    run_epoch(runner, meta, barrier)
    return meta.read_latest()
