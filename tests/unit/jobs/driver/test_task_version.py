"""The part of a version in an epoch's task: the SSTs of the tables that the epoch reads, and no others."""

from pathlib import Path

import pyarrow as pa

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.driver.runner import LevelsToRun, LocalRunner
from tussock.jobs.driver.sealed_tables import SealedTables
from tussock.statestore.decoding import decode_json
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import VersionPart


class Recording(LocalRunner):
    """Runs epochs and keeps the part of the version that each task had."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[VersionPart] = []

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        self.parts.append(decode_json(levels.task.version, VersionPart))
        return super().run(levels)


def tables_of(meta: MetaStore, *names: str) -> set[int]:
    """The state tables of relations."""
    return {t.table_id for r in meta.read_latest().catalog.live_relations() if r.name in names for t in r.state_tables}


def test_a_task_has_the_ssts_of_relations_that_the_epoch_changes(tmp_path: Path) -> None:
    meta, runner = new_store(tmp_path / "store", units=2), Recording()
    append(meta, table("t"), table("u"), view("v", counted(scan("t"), 1)), view("w", counted(scan("u"), 1)))
    append(meta, view("above", counted(scan("v", 2), 0)))
    insert(meta, "t", (0, 0, 0))
    epoch(meta, runner)
    insert(meta, "u", (1, 1, 1))
    epoch(meta, runner)
    of_u = set(runner.parts[-1].tables)
    assert of_u
    assert of_u <= tables_of(meta, "u", "w")
    assert not runner.parts[-1].catalog.relations

    insert(meta, "t", (2, 0, 2))
    epoch(meta, runner)
    of_t = set(runner.parts[-1].tables)
    assert of_t <= tables_of(meta, "t", "v", "above")
    assert of_t & tables_of(meta, "above"), "relations above read the changes too"
    assert all({s.table_id for s in sst.sections} & of_t for level in runner.parts[-1].levels for sst in level)

    append(meta, view("late", counted(scan("u"), 1)))
    epoch(meta, runner)
    assert set(runner.parts[-1].tables) & tables_of(meta, "u"), "a new view reads a table in full"
    assert not set(runner.parts[-1].tables) & tables_of(meta, "t", "v", "above")
    assert (rows(meta, "v"), rows(meta, "w"), rows(meta, "above"), rows(meta, "late")) == (
        [(0, 2)],
        [(1, 1)],
        [(0, 1)],
        [(1, 1)],
    )
