"""An epoch that has failed stops: no unit computes a later level, seals or uploads for it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Call, Column, Field, Project, Scan
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.task.level import CellFunction
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.wire.cell import CELL_SCHEMA, Mail
from tussock.jobs.wire.epoch_task import EpochTask, FragmentReport
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.meta.store import MetaStore

LARGEST = 2**31 - 1


def sums() -> CreateView:
    """SELECT k, k + a AS s FROM t, which overflows."""
    added = Call("Add", "int", (Column(0, "int"), Column(2, "int")), "ANSI")
    plan = Project(scan("t"), (Column(0, "int"), added), (Field("k", "int"), Field("s", "int")))
    return view("sums", plan)


class Watched(LocalRunner):
    """Records the tasks' answers."""

    def __init__(self, policy: FlushPolicy) -> None:
        super().__init__(policy)
        self.failures: list[int] = []  # failures in each task's answer, by level and unit
        self.reported: set[int] = set()  # levels whose fragments ran

    def may_unite(self, task: EpochTask) -> bool:
        return False

    def run_unit(
        self, unit: int, function: CellFunction, arriving: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        found = pa.Table.from_batches(super().run_unit(unit, function, arriving), CELL_SCHEMA)
        kinds = found["fragment"].to_pylist()
        self.failures.append(kinds.count(Mail.FAILURE))
        reports = (chunk for kind, chunk in zip(kinds, found["chunk"].to_pylist(), strict=True) if kind == Mail.REPORT)
        self.reported |= {msgspec.json.decode(chunk, type=FragmentReport).level for chunk in reports}
        yield from found.to_batches()


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """A store of two epochs: a table, a view that may raise on level 0, an aggregate over it, and a view over that."""
    meta = new_store(tmp_path / "store", units=3)
    over = counted(Scan("sums", (0, 1), (Field("k", "int"), Field("s", "int"))), 1)
    again = counted(Scan("per_sum", (0, 1), (Field("s", "int"), Field("n", "bigint"))), 1)
    append(meta, table("t"), sums(), view("per_sum", over), view("again", again))
    epoch(meta)
    insert(meta, "t", (1, 1, 1), (2, 1, 2), (3, 2, 3))
    epoch(meta)
    return meta


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(FlushPolicy(), id="the driver flushes"),
        pytest.param(FlushPolicy(little_rows=-1), id="units flush"),
        pytest.param(FlushPolicy(driver_bytes=0), id="units upload at once"),
    ],
)
def test_one_bad_row_costs_neither_later_levels_nor_an_upload(meta: MetaStore, policy: FlushPolicy) -> None:
    before, uploaded = meta.read_latest(), {found.name for found in meta.objects.list("data/")}
    insert(meta, "t", *((k, k % 5, k) for k in range(10, 60)), (100, 1, LARGEST))
    watched = Watched(policy)
    with pytest.raises(ViewRowError, match=r"view 'sums': .*Overflow in addition"):
        epoch(meta, watched)
    barrier = meta.open_barrier()
    assert barrier is not None
    assert meta.read_latest() == before
    first, last = watched.failures[:3], watched.failures[-3:]
    assert len(watched.failures) >= 9, "three levels or more"
    assert sorted(first) == [0, 0, 3], "the unit that has the row announces it to all three"
    assert last == [1, 1, 1]
    assert watched.reported <= {0}
    made = {found.name for found in meta.objects.list("data/")} - uploaded
    if policy.driver_bytes:  # otherwise units upload sealed rows at once, on the first level too
        assert made == set()


def test_all_rows_are_in_the_views_once_the_bad_row_is_skipped(meta: MetaStore) -> None:
    insert(meta, "t", (4, 4, 4), (100, 1, LARGEST))
    with pytest.raises(ViewRowError):
        epoch(meta)
    held = meta.open_barrier()
    assert held is not None
    abandon_barrier(meta, Detour(skip_entries=(held.log_start,)))
    insert(meta, "t", (4, 4, 4))
    epoch(meta)
    epoch(meta)
    assert rows(meta, "sums") == [(1, 2), (2, 4), (3, 6), (4, 8)]
    assert rows(meta, "again") == [(1, 4)]
