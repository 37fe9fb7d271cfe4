"""A view that cannot process an epoch's rows is paused: it keeps its rows, other views continue, and readers see it.

The actors run without Spark here (local_engine).
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.exactly_once.workload import read
from tussock.jobs import cli
from tussock.jobs.catalog.create import PausedViewError
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.reading.read import PausedViewWarning
from tussock.jobs.session import Session
from tussock.jobs.statements.deployment import DeployOptions
from tussock.jobs.trouble.row_names import ViewRowError

pytestmark = pytest.mark.spark

TABLE = "CREATE TABLE orders (id int, a int, b int, PRIMARY KEY (id)); INSERT INTO orders VALUES (1, 10, 2), (2, 9, 3)"
VIEWS = {
    "ratio": "SELECT id, a div b AS q FROM orders",
    "ratios": "SELECT q, count(*) AS n FROM ratio GROUP BY q",
    "total": "SELECT count(*) AS n, sum(a) AS a FROM orders",
}


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    """A store one epoch old, with a view that raises on b = 0, one over it, and one that does not read it."""
    session = Session(str(tmp_path / "store"), spark, units=2, runner=UnkindShuffle(11))
    session.execute(TABLE)
    for name, select in VIEWS.items():
        session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    session.flush()
    return session


@pytest.fixture
def tussock(session: Session, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command on the store: exit code, output, errors."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([*words, "--store", session.meta.objects.uri])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


Tussock = Callable[..., tuple[int, str, str]]


def rows(session: Session, name: str) -> list[tuple[object, ...]]:
    return sorted(zip(*(c.to_pylist() for c in read(session.meta, name).columns), strict=True))


def stopped(session: Session, statement: str, *, can_be_paused: bool = True) -> None:
    """A row that `ratio` cannot process stops the epoch; the error advises a pause unless that is refused."""
    session.execute(statement)
    with pytest.raises(ViewRowError, match="view 'ratio'") as raised:
        session.flush()
    assert ("--pause ratio" in str(raised.value)) == can_be_paused


def test_a_paused_view_and_its_readers_keep_their_rows_while_the_others_continue(
    session: Session, tussock: Tussock
) -> None:
    still = {name: rows(session, name) for name in ("ratio", "ratios")}
    stopped(session, "INSERT INTO orders VALUES (3, 5, 0)")
    code, said, _ = tussock("barrier", "abandon", "--pause", "ratio")
    assert (code, "paused ratio" in said) == (0, True)
    barrier = session.meta.open_barrier()
    assert barrier is not None
    assert barrier.mutation.kind == "pause"
    assert len(barrier.mutation.relations) == 2
    summary = session.flush()
    assert set(summary.rows) == {"orders", "total"}, "no fragment of a paused view ran"
    session.execute("INSERT INTO orders VALUES (4, 100, 10); DELETE FROM orders WHERE id = 1")
    (later,) = advance_store(UnkindShuffle(11), session.meta)
    session.meta.publish(later.epoch)
    assert set(later.rows) == {"orders", "total"}
    assert {name: rows(session, name) for name in still} == still
    assert rows(session, "total") == [(3, 114)]
    told = f"paused since epoch {barrier.epoch}"
    assert [line.rpartition("  ")[2] for line in tussock("show", "views")[1].splitlines()[1:3]] == [told, told]
    assert told not in tussock("show", "tables")[1]
    assert told in tussock("explain", "ratios")[1]
    assert told not in tussock("explain", "total")[1]


def test_only_readers_of_a_paused_view_at_a_later_epoch_are_warned(session: Session, tussock: Tussock) -> None:
    before = session.meta.read_latest().epoch
    stopped(session, "INSERT INTO orders VALUES (3, 5, 0)")
    tussock("barrier", "abandon", "--pause", "ratio")
    since = session.flush().epoch
    code, said, noted = tussock("query", "SELECT q FROM ratio ORDER BY q")
    assert (code, said.split()) == (0, ["q", "3", "5"])
    assert noted == (
        "Spark starts for this SELECT. With --duckdb, DuckDB answers without Spark, in DuckDB's SQL.\n"
        f"note: view 'ratio' has been paused since epoch {since}: its rows are those of the previous epoch. "
        "To resume it, run `tussock apply PIPELINE --resume ratio`.\n"
    )
    with pytest.warns(PausedViewWarning, match="'ratios' has been paused"):
        session.query("SELECT * FROM ratios")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PausedViewWarning)
        session.query("SELECT * FROM total")
        session.query("SELECT * FROM ratio", before)


def test_a_paused_view_that_is_dropped_and_created_again_equals_spark(
    session: Session, tussock: Tussock, spark: SparkSession
) -> None:
    stopped(session, "INSERT INTO orders VALUES (3, 5, 0)")
    tussock("barrier", "abandon", "--pause", "ratio")
    session.flush()
    with pytest.raises(PausedViewError, match=r"Resume that view first: .tussock apply PIPELINE --resume ratio"):
        session.execute("CREATE MATERIALIZED VIEW late AS SELECT q FROM ratio")
    session.execute("DELETE FROM orders WHERE b = 0")
    session.flush()  # a new view begins with the rows of the epoch before
    session.execute("INSERT INTO orders VALUES (4, 100, 10); DROP MATERIALIZED VIEW ratio CASCADE")
    for name in ("ratio", "ratios"):
        session.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
    session.flush()
    session.execute("INSERT INTO orders VALUES (5, 21, 2)")
    session.flush()
    judge = spark.newSession()
    judge.sql(
        "SELECT * FROM VALUES (1, 10, 2), (2, 9, 3), (4, 100, 10), (5, 21, 2) AS orders(id, a, b)"
    ).createOrReplaceTempView("orders")
    for name, select in VIEWS.items():
        judge.sql(select).createOrReplaceTempView(name)
        assert rows(session, name) == sorted(map(tuple, judge.table(name).collect())), name
    assert "paused" not in tussock("show")[1]


def test_a_later_abandon_keeps_paused_views_and_a_drop_removes_them(session: Session, tussock: Tussock) -> None:
    session.execute("CREATE MATERIALIZED VIEW other AS SELECT id, 7 div (b - 1) AS q FROM orders")
    session.flush()
    still = rows(session, "ratio")
    stopped(session, "INSERT INTO orders VALUES (3, 5, 0), (4, 5, 1)")
    tussock("barrier", "abandon", "--pause", "ratio")
    with pytest.raises(ViewRowError, match="view 'other'"):
        session.flush()
    code, said, _ = tussock("barrier", "abandon", "--pause", "other", "--pause", "OTHER", "--drop", "ratios")
    assert (code, "dropped ratios, paused other, paused OTHER" in said) == (0, True)
    epoch = session.flush().epoch
    live = {r.name: r.paused for r in session.meta.read_latest().catalog.live_relations()}
    assert live == {"orders": None, "total": None, "ratio": epoch, "other": epoch}
    assert rows(session, "ratio") == still
    assert rows(session, "total") == [(4, 29)]


def test_views_that_cannot_be_paused_are_refused_and_the_barrier_stays(session: Session, tussock: Tussock) -> None:
    session.execute("CREATE MATERIALIZED VIEW late AS SELECT n FROM ratios")
    stopped(session, "INSERT INTO orders VALUES (3, 5, 0)", can_be_paused=False)  # `late`, which reads it, is new
    held = session.meta.open_barrier()
    for name, why in (
        ("orders", "no view 'orders'"),
        ("late", "new in this epoch"),
        ("ratio", "'late', which reads it, is new"),
    ):
        code, _, said = tussock("barrier", "abandon", "--pause", name)
        assert (code, why in said) == (1, True), said
    assert session.meta.open_barrier() == held
    assert tussock("barrier", "abandon", "--pause", "ratio", "--drop", "late")[0] == 0
    session.flush()
    code, _, said = tussock("barrier", "abandon", "--pause", "ratio")
    assert (code, "it is paused since epoch" in said) == (1, True), said


def test_a_flush_that_pauses_a_view_warns_and_apply_resumes_the_view(session: Session, spark: SparkSession) -> None:
    may_pause = Session(session.meta.objects.uri, spark, runner=UnkindShuffle(3), on_error="pause")
    session.execute("INSERT INTO orders VALUES (3, 5, 0)")
    still = {name: rows(session, name) for name in ("ratio", "ratios")}
    with pytest.warns(
        PausedViewWarning, match=r"view 'ratio' has been paused .* raised: .*The row: .*id=3.*--resume ratio"
    ):
        summary = may_pause.flush()
    assert list(summary.paused) == ["ratio"]
    assert {name: rows(session, name) for name in still} == still
    assert may_pause.read("total").to_pylist() == [{"n": 3, "a": 24}]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PausedViewWarning)
        session.execute("INSERT INTO orders VALUES (4, 100, 10)")
        may_pause.flush()
    script = (
        Path("views.sql"),
        ";\n".join([TABLE, *(f"CREATE MATERIALIZED VIEW {name} AS {select}" for name, select in VIEWS.items())]),
    )
    session.execute("UPDATE orders SET b = 1 WHERE b = 0")
    may_pause.apply([script], DeployOptions(resume=["ratio"]))
    may_pause.flush()
    judge = spark.newSession()
    values = "(1, 10, 2), (2, 9, 3), (3, 5, 1), (4, 100, 10)"
    judge.sql(f"SELECT * FROM VALUES {values} AS orders(id, a, b)").createOrReplaceTempView("orders")
    for name, select in VIEWS.items():
        judge.sql(select).createOrReplaceTempView(name)
        assert rows(session, name) == sorted(map(tuple, judge.table(name).collect())), name
