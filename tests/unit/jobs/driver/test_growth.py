"""Costs grow linearly: no line of the project runs four times as often for twice the input.

The test finds each loop over all items that runs once per item, however cheap it is now. `python -m benchmarks
growth` measures seconds.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import growth
from tests.support.growth import Use, too_often
from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Call, Column, Field, Filter, Literal, Plan, Project
from tussock.jobs.logical.statements import CreateSource, Delete, Insert, Transaction, Update
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import compact_round, run_here
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.meta.store import MetaStore

SIZE = 16


def is_equal(column: int, number: int) -> Call:
    return Call("EqualTo", "boolean", (Column(column, "int"), Literal(number, "int")))


def filtered(number: int) -> Plan:
    """SELECT g, count(*) FROM t WHERE g = number GROUP BY g."""
    return counted(Filter(scan("t"), is_equal(1, number)), 1)


class Stores:
    """Stores below one folder; each call creates a new one."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def new(self, *, empty: bool = False) -> MetaStore:
        """A new store, with a table `t` of one row, or none if `empty`."""
        self._count += 1
        meta = new_store(self.folder / "store")
        if not empty:
            append(meta, table("t"))
            insert(meta, "t", (-1, 0, 0))
            epoch(meta)
        return meta

    @property
    def folder(self) -> Path:
        """The newest store's folder."""
        return self._folder / str(self._count)


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@pytest.mark.deep
def test_views_side_by_side(stores: Stores) -> None:
    def of(n: int) -> Use:
        meta = stores.new()
        append(meta, *(view(f"v{i}", filtered(i)) for i in range(n)))
        epoch(meta)
        insert(meta, "t", (1, 1, 1))
        epoch(meta)

        def use() -> None:
            insert(meta, "t", (2, 1, 1))
            epoch(meta)
            append(meta, view("late", filtered(1)))  # the catalog changes: everything is scheduled again
            epoch(meta)

        return use

    assert too_often(of, SIZE) == []


@pytest.mark.deep
def test_views_over_views(stores: Stores) -> None:
    def plan(i: int) -> Plan:
        below = scan(f"v{i - 1}" if i else "t")
        return Project(below, (Column(0, "int"), Column(1, "int"), Column(2, "int")), below.fields)

    def of(n: int) -> Use:
        meta = stores.new()
        append(meta, *(view(f"v{i}", plan(i)) for i in range(n)))
        epoch(meta)

        def use() -> None:
            insert(meta, "t", (2, 1, 1))
            epoch(meta)

        return use

    assert too_often(of, 12) == []


@pytest.mark.deep
def test_levels_of_aggregations(stores: Stores) -> None:
    def of(n: int) -> Use:
        meta = stores.new()
        append(meta, *(view(f"v{i}", counted(scan(f"v{i - 1}" if i else "t", 1), 0)) for i in range(n)))
        epoch(meta)

        def use() -> None:
            insert(meta, "t", (2, 1, 1))
            epoch(meta)

        return use

    assert too_often(of, 8) == []


def test_files_of_a_source(stores: Stores) -> None:
    def of(n: int) -> Use:
        meta = stores.new(empty=True)
        files = stores.folder / "files"
        files.mkdir(parents=True)
        for i in range(n):
            pq.write_table(
                pa.table({"k": pa.array([i], pa.int32()), "g": pa.array([i % 3], pa.int32())}), files / f"{i}.parquet"
            )
        fields = Field("k", "int"), Field("g", "int")
        append(meta, CreateSource("s", "parquet", fields, {"path": str(files)}), view("v", counted(scan("s", 2), 1)))

        def use() -> None:
            epoch(meta)
            append(meta, view("late", counted(scan("s", 2), 0)))
            epoch(meta)

        return use

    assert too_often(of, SIZE) == []


@pytest.mark.parametrize(
    "kind", ["update", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("insert", "delete"))]
)
def test_statements_of_one_epoch(kind: str, stores: Stores) -> None:
    def of(n: int) -> Use:
        meta = stores.new()
        insert(meta, "t", *((i, i, i) for i in range(n)))
        epoch(meta)
        for i in range(n):
            if kind == "insert":
                insert(meta, "t", (n + i, 1, 1))
            elif kind == "update":
                append(meta, Update("t", ((1, Literal(-1, "int")),), is_equal(0, i)))
            else:
                append(meta, Delete("t", is_equal(0, i)))
        return lambda: epoch(meta)

    assert too_often(of, 10) == []


def test_statements_of_one_transaction(stores: Stores) -> None:
    def of(n: int) -> Use:
        meta = stores.new()
        rows = meta.put_payload(_stream(pa.table({name: pa.array([7], pa.int32()) for name in ("k", "g", "a")})))
        append(
            meta, Transaction(tuple(Insert("t", 1, rows) for _ in range(n)), tuple((i, f"name {i}") for i in range(n)))
        )
        return lambda: epoch(meta)

    assert too_often(of, SIZE) == []


@pytest.mark.parametrize("kind", ["in", "case"])
def test_parts_of_an_expression(kind: str, stores: Stores) -> None:
    def expression(n: int) -> Call:
        if kind == "in":
            return Call("In", "boolean", (Column(1, "int"), *(Literal(i, "int") for i in range(n))))
        return Call(
            "CaseWhen", "boolean", tuple(e for i in range(n) for e in (is_equal(1, i), Literal(True, "boolean")))
        )

    def of(n: int) -> Use:
        meta = stores.new()
        append(meta, view("v", Filter(scan("t"), expression(n))))
        insert(meta, "t", (2, 1, 1))
        return lambda: epoch(meta)

    assert too_often(of, SIZE) == []


@pytest.mark.deep
def test_epochs_of_a_log(stores: Stores) -> None:
    def of(n: int) -> Use:
        meta = stores.new()
        append(meta, view("v", counted(scan("t"), 1)))

        def use() -> None:
            for i in range(n):
                insert(meta, "t", (i, 1, 1))
                epoch(meta)
                compact_round(meta, CompactionOptions(), run_here(meta.objects))
            meta.publish(meta.read_latest().epoch)
            clean_store(meta, Retention())

        return use

    assert too_often(of, 10) == []


def test_ssts_of_a_version(stores: Stores) -> None:
    def of(n: int) -> Use:
        meta = stores.new()
        insert(meta, "t", *((i, i, i) for i in range(1500 * n)))
        epoch(meta, LocalRunner(FlushPolicy(target_bytes=2048)))
        assert sum(map(len, meta.read_latest().levels)) > n / 2

        def use() -> None:
            insert(meta, "t", (7, 7, 7))
            epoch(meta)
            compact_round(meta, CompactionOptions(), run_here(meta.objects), full=True)
            meta.publish(meta.read_latest().epoch)
            clean_store(meta, Retention())

        return use

    assert too_often(of, 10) == []


def test_an_epoch_queries_the_kernel_for_the_views_that_its_rows_reach(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[str] = []
    in_order = Kernel._in_order

    def counting(self: Kernel, columns: str, rows: pa.Table) -> pa.Table:
        queries.append(columns)
        return in_order(self, columns, rows)

    monkeypatch.setattr(Kernel, "_in_order", counting)

    def reached(n: int) -> tuple[int, int]:
        """The kernel's queries, and the relations in them."""
        meta = stores.new()
        append(meta, *(view(f"v{i}", filtered(i)) for i in range(n)))
        epoch(meta)
        insert(meta, "t", (1, 1, 1))
        queries.clear()
        done = epoch(meta)
        assert [rows(meta, f"v{i}") for i in range(2)] == [[(0, 1)], [(1, 1)]]
        return len(queries), len(done.rows)

    assert reached(10) == reached(40) == (1, 2)


def test_the_check_finds_a_square() -> None:
    def of(n: int) -> Use:
        return lambda: [sum(i for i in range(n)) for _ in range(n)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "OURS", (str(growth.ROOT),))
        (found,) = too_often(of, SIZE)
    assert "272, 1056, 4160 times" in found


def _stream(found: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    data: bytes = sink.getvalue().to_pybytes()
    return data
