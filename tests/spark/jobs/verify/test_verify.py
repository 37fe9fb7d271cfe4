"""`tussock verify`: correct views are equal, wrong rows are found exactly, and a repair corrects them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.printed_commands import commands_in
from tussock.jobs import cli
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.session import Session
from tussock.jobs.verify.record import Verdict, Verification, ViewCheck, read_last

pytestmark = pytest.mark.spark

ORDERS = "CREATE TABLE orders (id int, shop int, price double, at timestamp, PRIMARY KEY (id))"
VIEWS = {
    "dear": "SELECT id, shop, price FROM orders WHERE price > 1",
    "by_shop": "SELECT shop, count(*) AS n, sum(price) AS total FROM dear GROUP BY shop",
    "tied": "SELECT shop, id FROM orders ORDER BY shop LIMIT 3",
    "recent": "SELECT id FROM orders WHERE at > now() - INTERVAL 2 DAYS",
    "called": "SELECT id, twice(price) AS p FROM cheap",
    "measured": "SELECT o.id, f.name, c.weight FROM orders o LEFT JOIN files f ON o.id = f.id LEFT "
    "JOIN texts c ON c.id = o.id",
}


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    """A store in Berlin's time zone: two sources with rejects, a table, a plain view, a function, and views of each
    kind.
    """
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "shop.py").write_text(
        "import pyarrow.compute as pc\ndef twice(x):\n    return pc.add(x, x)\n"
    )
    pq.write_table(pa.table({"id": [1, 2, 2**40], "name": ["a", "b", "c"]}), tmp_path / "f.parquet")
    (tmp_path / "t.csv").write_text("1,2013-03-31 02:30:00,0.5\n2,2013-01-01 00:00:00,1.5\n3,never,7\n")
    options = f"path '{tmp_path}/%s', on_error 'quarantine'"
    with Session(str(tmp_path / "store"), spark, time_zone="Europe/Berlin") as session:
        session.execute(
            f"""CREATE SOURCE files (id int, name string) USING parquet OPTIONS ({options % "f.parquet"});
            CREATE SOURCE texts (id int, at timestamp, weight double) USING csv OPTIONS ({options % "t.csv"});
            {ORDERS};
            CREATE FUNCTION twice(x double) RETURNS double LANGUAGE PYTHON AS 'shop:twice';
            CREATE VIEW cheap AS SELECT id, price FROM orders WHERE price <= 5""",
            base=tmp_path,
        )
        session.execute("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in VIEWS.items()))
        session.execute(f"INSERT INTO orders VALUES {_rows(1, 40)}")
        yield session


def _rows(first: int, last: int) -> str:
    day = "TIMESTAMP '2013-03-30 12:00:00'"
    return ", ".join(
        f"({n}, {n % 4}, {n} * 0.1D * pow(-1, {n % 2}), {day} + INTERVAL {n} HOURS)" for n in range(first, last)
    )


def _flush(session: Session, day: int) -> None:
    session.flush(moment=datetime(2013, 4, day, tzinfo=UTC))


def _of(found: Verification) -> dict[str, ViewCheck]:
    return {check.view: check for check in found.views}


def misplaced(kernel: Kernel, rows: pa.Table, condition: Expr) -> pa.Table:
    """A filter that pairs a row with another row's answer."""
    first, *others = kernel.project_columns(rows, (condition,), ("boolean",))["c0"].to_pylist()
    return rows.filter(pa.array([not first, *others], pa.bool_()))


def run(store: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Verification]:
    """`tussock verify --json`: the exit code and the result."""
    code = cli.main(["verify", "--store", store, "--json", *arguments])
    return code, msgspec.json.decode(capsys.readouterr().out, type=Verification)


def test_an_epoch_that_is_not_published_can_be_verified(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suite may hold the first epoch, and its rows are needed to see why."""
    store = str(tmp_path / "store")
    with Session(store, spark, runner="local", workers=1) as session:
        session.execute(f"{ORDERS}; CREATE MATERIALIZED VIEW dear AS SELECT id, shop FROM orders WHERE price > 1")
        session.execute(f"INSERT INTO orders VALUES {_rows(1, 40)}")
    assert cli.main(["epoch", "--hold", "--store", store]) == 0
    capsys.readouterr()
    assert cli.main(["verify", "--store", store]) == 1
    (command,) = commands_in(capsys.readouterr().err)
    code, verification = run(store, capsys, *command[1:])
    assert (code, [check.verdict for check in verification.views]) == (0, [Verdict.EQUAL])


def test_wrong_rows_are_found_exactly_and_repaired(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "store")
    with Session(store, spark, runner="local", workers=1) as session:
        session.execute(f"{ORDERS}; CREATE MATERIALIZED VIEW dear AS SELECT id, shop FROM orders WHERE price > 1")
        session.execute(f"INSERT INTO orders VALUES {_rows(1, 40)}")
        with monkeypatch.context() as fault:
            fault.setattr(Kernel, "filter_rows", misplaced)
            _flush(session, 1)
        right = {n for n in range(1, 40) if n * 0.1 * (-1) ** n > 1}
        wrong = set(session.read("dear")["id"].to_pylist())
        assert right != wrong, "the fault does nothing"
        code, found = run(store, capsys, "--repair")
        (dear,) = found.views
        assert (code, dear.verdict) == (4, Verdict.DIFFERENT)
        assert (dear.missing, dear.extra) == (len(right - wrong), len(wrong - right))
        shown = {(example.key["id"], bool(example.ours)) for example in dear.examples}
        assert shown
        assert shown <= {(str(i), i in wrong) for i in right ^ wrong}
        assert found.repair is not None
        assert found.repair.views == ("dear",)
        assert read_last(session.meta.objects) == found
        _flush(session, 2)
        assert set(session.read("dear")["id"].to_pylist()) == right
        code, mended = run(store, capsys)
        assert (code, mended.proven) == (0, True), mended


def test_a_difference_between_two_right_answers_names_the_function(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "store"), spark, runner="local", workers=1) as session:
        session.execute(
            "CREATE TABLE t (id int, g int, at int, q string, PRIMARY KEY (id)); CREATE MATERIALIZED VIEW last AS "
            # Spark sorts the rows of a group for the DISTINCT, so no order of its input shows the ties
            "SELECT g, max_by(q, at) AS q, count(DISTINCT q) AS n FROM t GROUP BY g"
        )
        session.execute("INSERT INTO t SELECT id, id % 20, 1, char(65 + id * 7 % 26) FROM range(200) AS r(id)")
        session.flush()
        (check,) = session.verify().views
    assert (check.verdict, check.open_columns, check.order_dependent) == (Verdict.DIFFERENT, (), ("max_by",))


@pytest.mark.deep
def test_views_of_each_kind_are_equal_until_rows_are_wrong(
    session: Session, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.execute("UPDATE orders SET price = price * 3 WHERE id > 20")
    _flush(session, 1)
    found = session.verify()
    assert {check.verdict for check in found.views} == {Verdict.EQUAL}, found
    assert found.proven
    assert _of(found)["tied"].open_columns in ((), ("id",))
    assert _of(found)["recent"].rows == len(session.read("recent"))
    share = _of(session.verify("dear", percent=50))["dear"]
    assert share.verdict is Verdict.EQUAL
    assert 0 < share.rows < len(session.read("dear"))
    with monkeypatch.context() as fault, Session(str(tmp_path / "store"), spark, runner="local") as here:
        fault.setattr(Kernel, "filter_rows", misplaced)
        here.execute(f"INSERT INTO orders VALUES {_rows(50, 60)}")
        _flush(here, 2)
    found = session.verify("by_shop", repair=True)
    assert _of(found)["dear"].verdict is Verdict.DIFFERENT
    assert _of(found)["by_shop"].below == ("dear",)
    assert found.repair is not None
    assert set(found.repair.views) == {"dear", "by_shop"}
    assert session.verify("by_shop", repair=True).repair is None, "the repair waits already"
    last = read_last(session.meta.objects)
    assert last is not None
    assert _of(last)["dear"].verdict is Verdict.DIFFERENT
    assert _of(last)["tied"].verdict is Verdict.EQUAL, "of a view that was not compared again the result before stays"
    _flush(session, 3)
    mended = session.verify("by_shop")
    assert _of(mended).keys() == {"dear", "by_shop"}
    assert mended.proven


def test_rows_that_are_lost_are_not_reported_as_equal(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), file)
    store = str(tmp_path / "store")
    with Session(store, spark, runner="local") as session:
        session.execute(f"CREATE SOURCE files USING parquet OPTIONS (path '{file}', retain 'none')")
        session.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM files; "
            "CREATE MATERIALIZED VIEW w AS SELECT max(id) AS m FROM v"
        )
        session.flush()
        pq.write_table(pa.table({"id": [1, 3]}), file)
        code, found = run(store, capsys)
        v, w = found.views
        assert (code, found.proven) == (5, False)
        assert v.verdict is Verdict.UNVERIFIABLE
        assert str(file) in v.reason
        assert (w.verdict, w.below) == (Verdict.EQUAL, ("v",))
