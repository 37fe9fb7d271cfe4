"""`tussock undo`: the new epoch is published, and its errors print remedies that work."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append
from tussock.jobs.cli import main
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView
from tussock.jobs.session import Session
from tussock.jobs.sources.base import Restated

A = Field("a", "int")


def insert(session: Session, value: int) -> int:
    """Insert a row, run an epoch over all input, and return the epoch."""
    session.insert("t", pa.table({"a": pa.array([value], pa.int32())}))
    session.flush()
    return session.meta.read_latest().epoch


def test_an_undo_is_published_and_undone_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, files = str(tmp_path / "store"), tmp_path / "files"
    files.mkdir()
    counted = Aggregate(Scan("s", (0,), (A,)), (), (AggCall(AggFunction.COUNT, "bigint", ()),), (Field("n", "bigint"),))
    with Session(store, runner="local", workers=1) as session:
        source = CreateSource("s", "parquet", (A,), {"path": str(files), "retain": "files"})
        append(session.meta, CreateTable("t", (A,), (0,)), source, CreateView("counted", "…", counted))
        before = insert(session, 1)
        wrong = insert(session, 2)
        assert main(["undo", "--store", store, "--to", str(before)]) == 0
        assert f"goes back to epoch {before}" in capsys.readouterr().out
        assert session.read("t").to_pylist() == [{"a": 1}]
        assert main(["diff", store, "--from", str(before)]) == 0

        assert main(["undo", "--store", store, "--to", str(wrong)]) == 0
        assert sorted(session.read("t")["a"].to_pylist()) == [1, 2]

        pq.write_table(pa.table({"a": pa.array([7], pa.int32())}), files / "1.parquet")
        last = insert(session, 3)
        assert main(["undo", "--store", store, "--to", str(wrong)]) == 1
        assert "Add `--input again` to take it again" in capsys.readouterr().err
        assert session.meta.read_latest().epoch == last
        assert main(["undo", "--store", store, "--to", str(wrong), "--input", "again"]) == 0
        assert session.read("counted").to_pylist() == [{"n": 0}]
        session.flush()
        assert session.read("counted").to_pylist() == [{"n": 1}]

        again = session.meta.read_latest().epoch
        pq.write_table(pa.table({"a": pa.array([8, 9], pa.int32())}), files / "2.parquet")
        session.flush()
        assert session.read("counted").to_pylist() == [{"n": 3}]
        assert main(["undo", "--store", store, "--to", str(again), "--input", "taken"]) == 0
        insert(session, 4)
        assert session.read("counted").to_pylist() == [{"n": 1}]
        session.restate("s", Restated(str(files / "2.parquet")))
        session.flush()
        assert session.read("counted").to_pylist() == [{"n": 3}]


def test_a_waiting_statement_stops_an_undo_until_an_epoch_has_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "store")
    with Session(store, runner="local", workers=1) as session:
        append(session.meta, CreateTable("t", (A,), (0,)))
        before = insert(session, 1)
        session.insert("t", pa.table({"a": pa.array([2], pa.int32())}))
        assert main(["undo", "--store", store, "--to", str(before)]) == 1
        assert "it is the newest epoch" in capsys.readouterr().err
        session.flush()
        session.insert("t", pa.table({"a": pa.array([3], pa.int32())}))
        command = ["undo", "--store", store, "--to", str(before)]
        assert main(command) == 1
        assert f"Run `tussock epoch --store {store}`. Then undo again" in capsys.readouterr().err
        session.flush()
        assert main(command) == 0
        assert session.read("t").to_pylist() == [{"a": 1}]


def test_vacuum_keeps_the_bytes_of_files_that_an_undo_brings_back(tmp_path: Path) -> None:
    store, files = str(tmp_path / "store"), tmp_path / "files"
    files.mkdir()
    pq.write_table(pa.table({"a": pa.array([7, 8], pa.int32())}), files / "1.parquet")
    counted = Aggregate(Scan("s", (0,), (A,)), (), (AggCall(AggFunction.COUNT, "bigint", ()),), (Field("n", "bigint"),))
    with Session(store, runner="local", workers=1) as session:
        source = CreateSource("s", "parquet", (A,), {"path": str(files), "retain": "files"})
        append(session.meta, CreateTable("t", (A,), (0,)), source, CreateView("counted", "…", counted))
        before = insert(session, 1)
        (files / "1.parquet").unlink()
        session.restate("s", Restated(str(files / "1.parquet"), gone=True))
        session.flush()
        insert(session, 2)
        assert session.read("counted").to_pylist() == [{"n": 0}]
        assert main(["vacuum", "--store", store, "--keep", "7d"]) == 0
        assert main(["undo", "--store", store, "--to", str(before), "--input", "taken"]) == 0
        assert session.read("counted").to_pylist() == [{"n": 2}]
        session.restate("s", Restated(str(files / "1.parquet"), gone=True))
        session.flush()
        assert session.read("counted").to_pylist() == [{"n": 0}]
