"""A session over an existing store inserts rows, runs epochs and reads. It never starts a JVM or imports Spark."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from datetime import time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from tests.support.jobs.driver.embedded import append, epoch, open_store
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.driver.runner import NeedsSparkError
from tussock.jobs.logical.key_columns import NullKeyError
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView, Statement
from tussock.jobs.reading.read import BackwardsError, NotThereYetError, PausedViewWarning, UnknownColumnError
from tussock.jobs.reading.reader import NoStoredRowsError
from tussock.jobs.session import Session
from tussock.jobs.sources import files
from tussock.jobs.sources.file_portions import fitting_files
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.statements.insert import UnfitRowsError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.catalog import INTERNAL
from tussock.statestore.meta.errors import EpochNotCommittedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

ROOT = Path(__file__).resolve().parents[3]
ORDERS = (Field("id", "bigint"), Field("Shop", "int"), Field("amount", "double"), Field("note", "string"))
COLUMNS = "(id bigint, Shop int, amount double, note string, PRIMARY KEY (id))"
BY_SHOP = "SELECT Shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY Shop"


def created() -> list[Statement]:
    """The table and the view as Spark binds them; a test with Spark verifies that."""
    table = Scan("orders", (1, 2), (ORDERS[1], ORDERS[2]))
    calls = AggCall("Count", "bigint", ()), AggCall("Sum", "double", (Column(1, "double"),), "ANSI")
    fields = Field("Shop", "int"), Field("n", "bigint"), Field("total", "double")
    by_shop = Aggregate(table, (Column(0, "int"),), calls, fields)
    return [CreateTable("orders", ORDERS, (0,)), CreateView("by_shop", BY_SHOP, by_shop)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with a table, a view over it, and no rows."""
    MetaStore.init(open_object_store(str(tmp_path / "store")), units=2)
    meta = open_store(tmp_path / "store", "maker")
    append(meta, *created())
    meta.publish(epoch(meta).epoch)
    return tmp_path / "store"


@pytest.fixture
def session(folder: Path) -> Session:
    return Session(str(folder), create=False)


@pytest.fixture
def local(folder: Path) -> Session:
    """A session that also runs the first epoch of a view in this process."""
    return Session(str(folder), create=False, runner="local")


def orders(*rows: tuple[object, ...]) -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(("id", "shop", "amount")[: len(rows[0])])})


def test_arrow_rows_are_inserted_and_views_read_in_a_process_that_cannot_start_a_jvm(folder: Path) -> None:
    script = """
        import json, sys
        import pyarrow as pa
        from tussock.jobs.session import Session

        with Session(sys.argv[1], create=False) as session:
            session.insert("orders", pa.table({"id": [1, 2, 3], "shop": [7, 7, 8], "amount": [9.5, 1.0, 2.0]}))
            session.flush()
            session.insert("orders", pa.table({"id": [3], "shop": [7], "amount": [4.0]}))
            session.flush()
            rows = session.read("by_shop").to_pylist()
        children = [open(f"/proc/self/task/{t}/children").read() for t in __import__("os").listdir("/proc/self/task")]
        print(json.dumps({"rows": rows, "spark": [m for m in sys.modules if m.split(".")[0] in ("pyspark", "py4j")],
            "children": children}))
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "SPARK", "PYSPARK"))}
    environment |= {"PYTHONPATH": str(ROOT), "PATH": "/nonexistent", "TUSSOCK_DISK_CACHE": "off"}
    command = [sys.executable, "-c", textwrap.dedent(script), str(folder)]
    found = json.loads(
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
    )
    assert found["rows"] == [{"Shop": 7, "n": 3, "total": 14.5}]
    assert found["spark"] == []
    assert "".join(found["children"]).split() == []


def test_an_insert_replaces_the_row_of_its_key_and_the_last_of_two_in_one_insert_counts(session: Session) -> None:
    session.insert("ORDERS", orders((1, 7, 1.0), (2, 7, 2.0), (1, 8, 3.0)))
    session.flush()
    session.insert("orders", orders((2, 9, 5.0)))
    session.flush()
    assert sorted(
        map(tuple, (row.values() for row in session.read("orders", ["id", "SHOP", "amount"]).to_pylist()))
    ) == [
        (1, 8, 3.0),
        (2, 9, 5.0),
    ]
    assert session.read("orders").column("note").null_count == 2


def test_an_insert_is_durable_when_it_returns(session: Session, folder: Path) -> None:
    assert "insert orders, 1 rows" in session.insert("orders", orders((1, 7, 1.0))).message
    other = Session(str(folder), create=False)
    other.flush()
    assert other.read("by_shop", ["total"]).to_pylist() == [{"total": 1.0}]


def test_a_flush_takes_every_file_that_waits_however_large(
    local: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_if_terabytes(found: Sequence[PinnedFile], most: int | None) -> object:
        return fitting_files(found, None if most is None else most >> 40)  # each byte of a file counts as 1 TiB

    monkeypatch.setattr(files, "fitting_files", as_if_terabytes)
    (tmp_path / "files").mkdir()
    for n in range(3):
        pq.write_table(pa.table({"a": pa.array([n], pa.int32())}), tmp_path / "files" / f"{n}.parquet")
    field = Field("a", "int")
    counted = Aggregate(Scan("s", (0,), (field,)), (), (AggCall("Count", "bigint", ()),), (Field("n", "bigint"),))
    append(
        local.meta,
        CreateSource("s", "parquet", (field,), {"path": str(tmp_path / "files")}),
        CreateView("v", "…", counted),
    )
    local.flush()
    assert local.read("v").to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    ("column", "values", "stored"),
    [
        ("shop", pa.array([7], pa.int64()), 7),
        ("shop", pa.array([7.0]), 7),
        ("amount", pa.array([3], pa.int64()), 3.0),
        ("amount", pa.array([None], pa.null()), None),
        ("amount", pa.array([float("nan")], pa.float32()), float("nan")),
        ("note", pa.array(["ä"], pa.large_string()), "ä"),
        ("note", pa.array(["x"]).dictionary_encode(), "x"),
    ],
)
def test_values_are_cast_if_each_stays_unchanged(
    session: Session, column: str, values: pa.Array, stored: object
) -> None:
    session.insert("orders", pa.table({"id": [1], column: values}))
    session.flush()
    (row,) = session.read("orders", [column]).to_pylist()
    assert repr(list(row.values())) == repr([stored])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            "shop",
            pa.array([2**31]),
            r"'Shop': found int64 with a value that does not fit .*2147483648.*, expected int32",
        ),
        ("shop", pa.array([7.5]), r"'Shop': found double with a value that does not fit"),
        ("shop", pa.array(["7"]), r"'Shop': found string, expected int32"),
        ("amount", pa.array([2**53 + 1]), r"'amount': found int64 with a value that does not fit"),
        ("amount", pa.array(["1"]), r"'amount': found string"),
        ("note", pa.array([1]), r"'note': found int64, expected string"),
        (
            "note",
            pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")),
            r"'note': .*UTF8",
        ),
        (
            "shops",
            pa.array([1]),
            r"'shops': found a column that the table does not have, expected one of id, Shop, amount, note",
        ),
        ("ID", pa.array([1]), r"found the column twice"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_inserted(
    session: Session, column: str, values: pa.Array, message: str
) -> None:
    end = session.meta.log_end()
    with pytest.raises(UnfitRowsError, match=message):
        session.insert("orders", pa.table([pa.array([1]), values], names=["id", column]))
    assert session.meta.log_end() == end


def test_parts_of_arrays_maps_and_structs_are_cast_as_columns_are(tmp_path: Path) -> None:
    MetaStore.init(open_object_store(str(tmp_path / "store")), units=2)
    meta = open_store(tmp_path / "store", "maker")
    append(
        meta, CreateTable("t", (Field("id", "int"), Field("xs", "array<struct<a:int,Of:map<string,double>>>")), (0,))
    )
    epoch(meta)
    session = Session(str(tmp_path / "store"), create=False)
    kind = pa.struct([pa.field("A", pa.int64()), pa.field("of", pa.map_(pa.large_string(), pa.float32()))])
    lists = (pa.list_(pa.field("element", kind, nullable=False)), pa.large_list(kind), pa.list_(kind, 2))
    rows = [{"A": 1, "of": [("k", 1.5)]}, {"A": None, "of": None}], None
    for n, found in enumerate(lists):
        session.insert("t", pa.table({"id": [2 * n, 2 * n + 1], "xs": pa.array(rows, found)}))
    session.flush()
    stored = [[{"a": 1, "Of": [("k", 1.5)]}, {"a": None, "Of": None}], None]
    assert [row["xs"] for row in sorted(session.read("t").to_pylist(), key=lambda row: row["id"])] == stored * 3
    with pytest.raises(UnfitRowsError, match="'xs': found int64 with a value that does not fit"):
        session.insert("t", pa.table({"id": [9], "xs": pa.array([[{"A": 2**40}]], lists[0])}))
    with pytest.raises(UnfitRowsError, match="expected list<item: struct<a: int32"):
        session.insert("t", pa.table({"id": [9], "xs": pa.array([[{"b": 1}]])}))


def test_times_durations_and_decimals_of_other_units_are_kept_or_refused(tmp_path: Path) -> None:
    MetaStore.init(open_object_store(str(tmp_path / "store")), units=2)
    meta = open_store(tmp_path / "store", "maker")
    kinds = {"id": "int", "m": "decimal(38,38)", "at": "time(6)", "span": "interval day to second"}
    append(meta, CreateTable("t", tuple(Field(name, kind) for name, kind in kinds.items()), (0,)))
    epoch(meta)
    session = Session(str(tmp_path / "store"), create=False)
    given = {"m": pa.array([Decimal("0.12")], pa.decimal128(4, 2)), "at": pa.array([time(8, 30)], pa.time32("s"))}
    session.insert("t", pa.table({"id": [1], **given, "span": pa.array([timedelta(1)], pa.duration("ns"))}))
    session.flush()
    assert session.read("t").to_pylist() == [{"id": 1, "m": Decimal("0.12"), "at": time(8, 30), "span": timedelta(1)}]
    unfit = [("m", pa.array([Decimal("11.12")], pa.decimal128(4, 2)))]  # Arrow's cast makes it -0.91…
    unfit += [("at", pa.array([1], pa.time64("ns"))), ("at", pa.array([86_400], pa.time32("s")))]
    unfit += [("span", pa.array([1], pa.duration("ns")))]
    for name, values in unfit:
        with pytest.raises(UnfitRowsError, match=f"'{name}': found .* with a value that does not fit"):
            session.insert("t", pa.table({"id": [9], name: values}))


def test_a_key_that_is_null_or_missing_is_refused(session: Session) -> None:
    with pytest.raises(NullKeyError, match="row 2 of 2 has NULL in column 'id'"):
        session.insert("orders", orders((1, 7, 1.0), (None, 7, 1.0)))
    with pytest.raises(NullKeyError, match="row 1 of 1"):
        session.insert("orders", pa.table({"shop": [1]}))
    with pytest.raises(UnknownRelationError, match="no table 'by_shop'; those that exist: orders"):
        session.insert("by_shop", orders((1, 7, 1.0)))


def test_a_read_of_an_unknown_name_lists_the_existing_ones(session: Session) -> None:
    with pytest.raises(UnknownRelationError, match="'by_day'; those that exist: by_shop, orders"):
        session.read("by_day")
    with pytest.raises(UnknownColumnError, match="no column 'day'; its columns are Shop, n, total"):
        session.read("by_shop", ["n", "day"])
    with pytest.raises(UnknownRelationError, match=r"by_shop, orders\. Did you mean 'by_shop'\?"):
        session.read("by_shops")
    with pytest.raises(EpochNotCommittedError, match="Wait for it"):
        session.read("by_shop", epoch=session.meta.read_latest().epoch + 1)
    with pytest.raises(EpochNotCommittedError, match="epoch 3 does not exist; the last committed one is"):
        session.read("by_shop", epoch=3)
    append(session.meta, CreateView("late", BY_SHOP, created()[1].plan))  # type: ignore[union-attr]
    with pytest.raises(NotThereYetError, match="'late' is in the log, but not yet in epoch"):
        session.read("late")


def test_an_earlier_epoch_can_be_read_and_an_empty_view_has_its_columns(session: Session) -> None:
    empty = session.read("by_shop")
    assert (empty.num_rows, empty.column_names) == (0, ["Shop", "n", "total"])
    assert empty.schema.types == [pa.int32(), pa.int64(), pa.float64()]
    session.insert("orders", orders((1, 7, 1.0)))
    first = session.flush().epoch
    session.insert("orders", orders((2, 7, 1.0)))
    session.flush()
    assert session.read("by_shop", ["n"], first).to_pylist() == [{"n": 1}]
    assert session.read("by_shop", ["n"]).to_pylist() == [{"n": 2}]


def changed(session: Session, relation: str, *asked: Any) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in session.changes(relation, *asked).to_pylist())


def test_changes_are_the_rows_to_delete_and_to_insert_net_between_two_epochs(session: Session) -> None:
    session.insert("orders", orders((1, 7, 1.0), (2, 7, 2.0), (3, 8, 4.0)))
    first = session.flush().epoch
    session.insert("orders", orders((1, 7, 1.5), (4, 9, 8.0)))
    session.flush()
    session.insert("orders", orders((4, 9, 16.0)))
    last = session.flush().epoch
    moved = [(7, 2, 3.0, "delete"), (7, 2, 3.5, "insert"), (9, 1, 16.0, "insert")]
    assert changed(session, "by_shop", first) == moved == changed(session, "by_shop", first, last)
    assert changed(session, "by_shop", first, None, ["shop", "n"]) == [(9, 1, "insert")]
    assert changed(session, "by_shop", last) == []
    empty = session.changes("by_shop", last)
    assert (empty.column_names, empty.schema.types[-1]) == (["Shop", "n", "total", "_change_type"], pa.string())


def test_changes_of_a_missing_view_or_backwards_are_refused(local: Session) -> None:
    local.insert("orders", orders((1, 7, 1.0)))
    first = local.flush().epoch
    append(local.meta, CreateView("late", BY_SHOP, created()[1].plan))  # type: ignore[union-attr]
    last = local.flush().epoch
    with pytest.raises(
        NotThereYetError, match=f"'late' does not exist in epoch {first}: it was created in epoch {last}"
    ):
        local.changes("late", first)
    with pytest.raises(BackwardsError, match="the first is later"):
        local.changes("by_shop", last, first)
    with pytest.raises(EpochNotCommittedError):
        local.changes("by_shop", first, last + 1)


def test_rows_arrive_batch_by_batch_while_the_block_runs(session: Session) -> None:
    session.insert("orders", orders(*((n, n % 3, 1.0) for n in range(10))))
    session.flush()
    with session.reader("orders", ["id"]) as batches:
        assert sorted(i for batch in batches for i in batch.column("id").to_pylist()) == list(range(10))


def test_a_paused_view_is_read_with_a_warning(session: Session) -> None:
    session.insert("orders", orders((1, 7, 1.0)))
    session.flush()
    session.insert("orders", orders((2, 7, 1.0)))
    assert inject_barrier(session.meta) is not None
    abandon_barrier(session.meta, Detour(pause=("by_shop",)))
    session.flush()
    with pytest.warns(PausedViewWarning, match="'by_shop' has been paused"):
        assert session.read("by_shop", ["n"]).to_pylist() == [{"n": 1}]


def test_a_source_has_no_rows_and_files_that_only_spark_reads_are_refused_by_the_local_runner(
    session: Session, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.csv").write_text("+1,2\n")
    fields = Field("a", "int"), Field("b", "int")
    calls, columns = (AggCall("Count", "bigint", ()),), (fields[0], Field("n", "bigint"))
    counted = Aggregate(Scan("s", (0,), fields[:1]), (Column(0, "int"),), calls, columns)
    append(
        session.meta,
        CreateSource("s", "csv", fields, {"path": str(tmp_path / "files")}),
        CreateView("v", "…", counted),
    )
    version = session.meta.read_latest()
    with pytest.raises(NeedsSparkError, match=r"only Spark can read files of s \(.*1.csv: column 'a'"):
        Session(str(folder), create=False, runner="local").flush()
    assert session.meta.read_latest() == version
    abandon_barrier(session.meta, Detour(skip_files=(str(tmp_path / "files" / "1.csv"),)))
    Session(str(folder), create=False, runner="local").flush()
    with pytest.raises(NoStoredRowsError, match="'s' is a source"):
        session.read("s")


def test_a_flush_publishes_the_epoch_of_another_run_that_took_its_rows(session: Session, folder: Path) -> None:
    session.insert("orders", pa.table({"id": [1], "Shop": [2], "amount": [3.0], "note": ["a"]}))
    epoch(open_store(folder, "another run"))
    assert session.read("by_shop").num_rows == 0, "the other run has committed, and not published yet"
    session.flush()
    assert session.read("by_shop").num_rows == 1


def test_a_flush_leaves_the_epoch_of_another_run_to_the_suites_that_judge_it(session: Session, folder: Path) -> None:
    _, by_shop = created()
    append(open_store(folder, "a suite"), replace(by_shop, name=f"{INTERNAL}numbers"))
    session.insert("orders", pa.table({"id": [1], "Shop": [2], "amount": [3.0], "note": ["a"]}))
    epoch(open_store(folder, "another run"))
    session.flush()
    assert session.read("by_shop").num_rows == 0


def test_a_flush_commits_all_statements_logged_before_it_also_if_another_run_left_a_barrier_open(
    folder: Path, session: Session
) -> None:
    session.insert("orders", orders((1, 7, 1.0)))
    with Session(str(folder), create=False) as other:
        inject_barrier(other.meta)  # the barrier ends the log before the next statement
    session.insert("orders", orders((2, 7, 2.0)))
    summary = session.flush()
    assert session.read("by_shop").to_pylist() == [{"Shop": 7, "n": 2, "total": 3.0}]
    assert (summary.epoch, summary.rows["orders"].rows_out) == (session.meta.read_latest().epoch, 1)
