"""Inputs that stop a pipeline: the error names them, the old version stays, and the documented command skips only them.

The actors run without Spark here (local_engine), unless Spark reads the files.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.exactly_once.workload import read
from tussock.jobs import cli
from tussock.jobs.barriers.source_holds import HeldSourceWarning
from tussock.jobs.chunks.failure import ActorError
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.executors.table_replay import StatementRowError
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import LostCopyError
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.statestore.errors import InputError
from tussock.statestore.meta.names import SOURCES

TABLES = (
    "CREATE TABLE orders (id int, code string, a int, b int, PRIMARY KEY (id, code));"
    " CREATE TABLE u (x bigint, y string, PRIMARY KEY (x));"
    "CREATE MATERIALIZED VIEW every AS SELECT id, a FROM orders;"
    "INSERT INTO orders VALUES (1, 'x', 10, 2), (2, 'y', 3, 5); INSERT INTO u VALUES (1, '7')"
)


@pytest.fixture
def local() -> None:
    """Asked for by a test: its session runs epochs without Spark."""


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Session:
    runner: LocalRunner | Literal["spark"] = UnkindShuffle(7) if "local" in request.fixturenames else "spark"
    return Session(str(tmp_path / "store"), spark, units=2, runner=runner)


@pytest.fixture
def abandon(session: Session, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run `tussock barrier abandon …` and return its output."""

    def run(*options: str) -> str:
        assert cli.main(["barrier", "abandon", "--store", session.meta.objects.uri, *options]) == 0, (
            capsys.readouterr().err
        )
        return capsys.readouterr().out

    return run


def rows(session: Session, name: str) -> list[tuple[object, ...]]:
    return sorted(zip(*(c.to_pylist() for c in read(session.meta, name).columns), strict=True))


def stopped_by(session: Session, kind: type[InputError]) -> str:
    """Flush, expect an error and an unchanged version; return the message."""
    before = session.meta.read_latest()
    with pytest.raises(kind) as raised:
        session.flush()
    assert session.meta.read_latest() == before
    return str(raised.value)


def held_by(session: Session) -> str:
    """Flush, expect a held source and all else committed; return the reason."""
    with pytest.warns(HeldSourceWarning):
        ((hold,),) = session.flush().held.values()
    assert session.meta.open_barrier() is None
    return hold.reason


ROWS_THAT_RAISE = {
    "division": (
        "SELECT a / b AS q FROM orders",
        "INSERT INTO orders VALUES (3, 'z', 1, 0)",
        ViewRowError,
        (
            "view 'v': CAST(a AS double) / CAST(b AS double) raised: division by zero",
            "a=1, b=0, id=3, code='z'",
            "--drop v",
        ),
    ),
    "division under an aggregate": (
        "SELECT code, sum(a / b) AS q FROM orders GROUP BY code",
        "INSERT INTO orders VALUES (3, 'z', 1, 0)",
        ViewRowError,
        ("view 'v': CAST(a AS double) / CAST(b AS double) raised: division by zero", "code='z', a=1, b=0", "id=3"),
    ),
    "overflow": (
        "SELECT id, a + 2147483600 AS z FROM orders",
        "INSERT INTO orders VALUES (3, 'z', 100, 0)",
        ViewRowError,
        ("view 'v': a + 2147483600 raised: ", "a=100", "id=3, ", "code='z'"),
    ),
    "a sum's overflow": (
        "SELECT sum(x) AS s FROM u",
        "INSERT INTO u VALUES (9223372036854775807, 'z')",
        ActorError,
        ("view 'v'", "Sum over all rows does not fit bigint"),
    ),
    "a bad cast": (
        "SELECT x, cast(y AS int) AS z FROM u",
        "INSERT INTO u VALUES (3, 'abc')",
        ViewRowError,
        ("view 'v': CAST(y AS int) raised: ", "y='abc'", "x=3"),
    ),
    "a cast in a join key": (
        "SELECT o.a + u.x AS z FROM orders o JOIN u ON o.id = cast(u.y AS int)",
        "INSERT INTO u VALUES (3, 'abc')",
        ViewRowError,
        ("view 'v': CAST(y AS int) raised: ", "x=3, y='abc'"),
    ),
    "a join's condition": (
        "SELECT o.id, u.y FROM orders o JOIN u ON o.id = u.x AND o.a / (o.b - length(u.y)) > -100",
        "INSERT INTO orders VALUES (1, 'z', 5, 1)",
        ViewRowError,
        ("view 'v': ", "CAST(b - Length(y) AS double)", "raised: division by zero", "id=1", "code='z'", "y='7'"),
    ),
    "a filter": (
        "SELECT id FROM orders WHERE a / b > 1",
        "INSERT INTO orders VALUES (3, 'z', 1, 0)",
        ViewRowError,
        ("view 'v': ", "raised: division by zero", "id=3", "code='z'"),
    ),
    "a view over a view": (
        "SELECT n, 6 / (3 - n) AS q FROM per_code",
        "INSERT INTO orders VALUES (3, 'x', 1, 1), (4, 'x', 1, 1)",
        ViewRowError,
        ("view 'v': ", "raised: division by zero", "n=3", "code='x'"),
    ),
}


@pytest.mark.spark
@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("name", ROWS_THAT_RAISE)
@pytest.mark.sampled(2)
def test_a_row_that_raises_is_named_and_each_way_out_loses_nothing_else(
    name: str, session: Session, abandon: Callable[..., str]
) -> None:
    select, insert, kind, said = ROWS_THAT_RAISE[name]
    session.execute(
        f"{TABLES}; CREATE MATERIALIZED VIEW per_code AS SELECT code, count(*) AS n FROM orders GROUP BY code"
    )
    session.execute(f"CREATE MATERIALIZED VIEW v AS {select}")
    session.flush()
    version, v = session.meta.read_latest(), rows(session, "v")
    session.execute(insert)
    session.execute("INSERT INTO orders VALUES (100, 'other', 8, 9)")
    message = stopped_by(session, kind)
    for part in said:
        assert part in message
    assert stopped_by(session, kind) == message  # again, until a person decides
    if "division" in name:
        assert "skipped log entry" in abandon("--skip-entry", str(version.log_end))
        session.flush()
        assert len(rows(session, "v")) == len(v) + 1
        assert (3, 1) not in rows(session, "every")
    else:
        assert "dropped v" in abandon("--drop", "v")
        session.flush()
        assert "v" not in {r.name for r in session.meta.read_latest().catalog.live_relations()}
        assert len(rows(session, "orders")) == 3 + ("INTO orders" in insert) * insert.count("(")
    assert (100, 8) in rows(session, "every")
    assert session.meta.read_latest().log_end == version.log_end + 2


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_row_is_corrected_in_the_epoch_that_it_stopped(session: Session, abandon: Callable[..., str]) -> None:
    session.execute(f"{TABLES}; CREATE MATERIALIZED VIEW v AS SELECT id, a / b AS q FROM orders")
    session.flush()
    session.execute("INSERT INTO orders VALUES (3, 'z', 1, 0), (4, 'z', 8, 2)")
    stopped_by(session, ViewRowError)
    session.execute("UPDATE orders SET b = 4 WHERE id = 3")
    stopped_by(session, ViewRowError)  # the barrier has pinned the log's end before
    abandon("--take-log")
    session.flush()
    assert rows(session, "v") == [(1, 5.0), (2, 0.6), (3, 0.25), (4, 4.0)]


@pytest.mark.spark
@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("statement", ["UPDATE orders SET a = a / (b - 5)", "DELETE FROM orders WHERE a / (b - 5) > 0"])
def test_a_statement_that_raises_is_named_and_skipped(
    statement: str, session: Session, abandon: Callable[..., str]
) -> None:
    session.execute(f"{TABLES}; CREATE MATERIALIZED VIEW v AS SELECT id, a FROM orders")
    session.flush()
    session.execute(f"INSERT INTO orders VALUES (3, 'z', 1, 0); {statement}; UPDATE orders SET a = 77 WHERE id = 1")
    position = session.meta.log_end() - 2
    message = stopped_by(session, StatementRowError)
    assert f"table 'orders', {statement[:6]} at log entry {position}, row with key (2, 'y')" in message
    assert "CAST(b - 5 AS double)" in message
    abandon("--skip-entry", str(position))
    session.flush()
    assert rows(session, "v") == [(1, 77), (2, 3), (3, 1)]


# --- files ---------------------------------------------------------------------------------------------------------


def write(path: Path, ids: list[int], b: int = 1) -> None:
    """A Parquet file that is new to every look at it, however soon after the last."""
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int32()), "b": pa.array([b] * len(ids), pa.int32())}), path)
    write.clock += 10**9  # type: ignore[attr-defined]
    os.utime(path, ns=(write.clock, write.clock))  # type: ignore[attr-defined]


write.clock = 1_700_000_000 * 10**9  # type: ignore[attr-defined]


@pytest.fixture
def files(session: Session, tmp_path: Path) -> Path:
    """A source of Parquet files, with `a` taken, and a view over it."""
    folder = tmp_path / "files"
    write(folder / "a.parquet", [1, 2])
    session.execute(
        f"CREATE SOURCE s (id int, b int) USING parquet OPTIONS (path '{folder}');"
        "CREATE MATERIALIZED VIEW seen AS SELECT id, 6 / b AS q FROM s;"
        " CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s"
    )
    session.flush()
    write(folder / "b.parquet", [3])
    write(folder / "c.parquet", [4, 5])
    write(folder / "d.parquet", [6])
    return folder


def seen(session: Session) -> list[object]:
    return [row[0] for row in rows(session, "seen")]


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_row_of_a_file_is_named_by_its_file_and_place(
    session: Session, files: Path, abandon: Callable[..., str]
) -> None:
    write(files / "c.parquet", [4, 5], b=0)
    message = stopped_by(session, ViewRowError)
    assert f"record 1 of {files / 'c.parquet'}" in message
    assert "id=4" in message
    abandon("--skip-file", str(files / "c.parquet"))
    session.flush()
    assert seen(session) == [1, 2, 3, 6]
    session.flush()  # it counts as taken
    assert seen(session) == [1, 2, 3, 6]
    assert rows(session, "n") == [(4,)]


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_truncated_file_is_named_and_taken_once_it_is_repaired(session: Session, files: Path) -> None:
    whole = (files / "c.parquet").read_bytes()
    (files / "c.parquet").write_bytes(whole[: len(whole) // 2])
    assert str(files / "c.parquet") in held_by(session)
    write(files / "c.parquet", [40, 50])
    session.flush()
    assert seen(session) == [1, 2, 3, 6, 40, 50]


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_file_with_another_schema_is_named_and_skipped(
    session: Session, files: Path, abandon: Callable[..., str]
) -> None:
    pq.write_table(pa.table({"id": ["x"], "b": [1]}), files / "c.parquet")
    message = held_by(session)
    assert str(files / "c.parquet") in message
    assert "'id'" in message
    abandon("--skip-file", str(files / "c.parquet"))
    session.flush()  # the barrier that counts it as taken, and nothing else
    session.flush()
    assert seen(session) == [1, 2, 3, 6]


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_file_that_changed_after_it_was_taken_holds_its_source_and_can_be_accepted(
    session: Session, files: Path, abandon: Callable[..., str]
) -> None:
    write(files / "a.parquet", [1, 2, 99])
    before = session.meta.read_latest()
    assert str(files / "a.parquet") in held_by(session)
    abandon("--skip-file", str(files / "a.parquet"))
    session.flush()
    session.flush()
    assert seen(session) == [1, 2, 3, 4, 5, 6]
    assert session.meta.read_latest().epoch > before.epoch


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_file_that_is_gone_with_its_copy_stops_a_new_view_that_reads_it_again(
    session: Session, files: Path, abandon: Callable[..., str]
) -> None:
    session.flush()
    (files / "b.parquet").unlink()
    session.meta.objects.delete(
        [copy.name for copy in session.meta.objects.list(SOURCES) if copy.name.endswith("b.parquet")]
    )
    session.execute("CREATE MATERIALIZED VIEW late AS SELECT id FROM s")
    message = stopped_by(session, LostCopyError)
    assert str(files / "b.parquet") in message
    abandon("--skip-file", str(files / "b.parquet"))
    session.flush()
    assert rows(session, "late") == [(1,), (2,), (4,), (5,), (6,)]
    assert seen(session) == [1, 2, 3, 4, 5, 6]


@pytest.mark.spark
def test_a_csv_record_that_does_not_parse_is_named_and_its_file_skipped(
    session: Session, tmp_path: Path, abandon: Callable[..., str]
) -> None:
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "good.csv").write_text("1,a\n2,b\n")
    (folder / "bad.csv").write_text("3,c\nfour,d\n")
    session.execute(f"CREATE SOURCE c (id int, w string) USING csv OPTIONS (path '{folder}')")
    session.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM c")
    message = held_by(session)
    assert f"file {folder / 'bad.csv'}, record 2: 'four,d'" in message
    abandon("--skip-file", str(folder / "bad.csv"))
    session.flush()
    session.flush()
    assert rows(session, "v") == [(1,), (2,)]


# --- several at once, one after the other --------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_second_abandon_keeps_the_decisions_of_the_first(
    session: Session, files: Path, abandon: Callable[..., str]
) -> None:
    write(files / "b.parquet", [3], b=0)
    session.execute("CREATE TABLE t (k int, v int, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1)")
    session.execute(
        "CREATE MATERIALIZED VIEW w AS SELECT k, 1 / v AS q FROM t; UPDATE t SET v = v / 0; INSERT INTO t VALUES (2, 0)"
    )
    stopped_by(session, InputError)
    update = session.meta.log_end() - 2
    abandon("--drop", "seen")
    abandon("--skip-entry", str(update))
    stopped_by(session, ViewRowError)
    abandon("--drop", "w")
    session.flush()
    assert {r.name for r in session.meta.read_latest().catalog.live_relations()} == {"s", "n", "t"}
    assert rows(session, "n") == [(6,)]
    assert rows(session, "t") == [(1, 1), (2, 0)]


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_skipping_the_creation_of_one_source_does_not_hand_its_files_to_the_next(
    session: Session, tmp_path: Path, abandon: Callable[..., str]
) -> None:
    for name, ids in (("one", [1, 2]), ("two", [7])):
        write(tmp_path / name / "x.parquet", ids)
        session.execute(f"CREATE SOURCE {name} (id int, b int) USING parquet OPTIONS (path '{tmp_path / name}')")
    session.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM two;"
        " CREATE MATERIALIZED VIEW bad AS SELECT 1 / (id - id) AS q FROM two"
    )
    stopped_by(session, ViewRowError)
    abandon("--skip-entry", "0", "--drop", "bad")
    session.flush()
    assert {r.name for r in session.meta.read_latest().catalog.live_relations()} == {"two", "v"}
    assert rows(session, "v") == [(7,)]


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_source_dropped_with_its_files_pinned_takes_nothing_else_along(
    session: Session, files: Path, abandon: Callable[..., str]
) -> None:
    session.execute("CREATE TABLE t (k int, PRIMARY KEY (k)); INSERT INTO t VALUES (5)")
    write(files / "c.parquet", [4], b=0)
    stopped_by(session, ViewRowError)
    abandon("--drop", "s")
    session.flush()
    assert {r.name for r in session.meta.read_latest().catalog.live_relations()} == {"t"}
    assert rows(session, "t") == [(5,)]


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_views_that_the_open_barrier_drops_can_be_created_again_at_once(
    session: Session, abandon: Callable[..., str]
) -> None:
    session.execute(f"{TABLES}; CREATE MATERIALIZED VIEW v AS SELECT id, a / b AS q FROM orders")
    session.flush()
    session.execute("INSERT INTO orders VALUES (3, 'z', 1, 0)")
    stopped_by(session, ViewRowError)
    abandon("--drop", "v")
    session.execute("CREATE MATERIALIZED VIEW v AS SELECT id, try_divide(a, b) AS q FROM orders")
    session.flush()
    session.flush()
    assert rows(session, "v")[2] == (3, None)


@pytest.mark.spark
@pytest.mark.usefixtures("local")
def test_a_name_that_is_not_in_the_barrier_is_refused_and_changes_nothing(
    session: Session, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(files / "c.parquet", [4], b=0)
    stopped_by(session, ViewRowError)
    held = session.meta.open_barrier()
    for options in (
        ["--skip-file", str(files / "z.parquet")],
        ["--repin-file", "z"],
        ["--skip-entry", "99"],
        ["--drop", "nobody"],
        [],
    ):
        assert cli.main(["barrier", "abandon", "--store", session.meta.objects.uri, *options]) == 1
        assert "error: " in capsys.readouterr().err
    assert session.meta.open_barrier() == held
