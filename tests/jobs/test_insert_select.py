"""INSERT … SELECT reads committed rows. It is refused only while the log has waiting statements on its relations."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tussock.jobs.driver.barrier import inject
from tussock.jobs.driver.detour import Detour
from tussock.jobs.driver.supersede import abandon
from tussock.jobs.plan.statement_log import WaitingStatementsError
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables, a view over one of them and a view over that, one epoch old."""
    store = tmp_path_factory.mktemp("template") / "store"
    with Session(str(store), spark) as session:
        session.execute(
            """CREATE TABLE orders (id int, shop int, PRIMARY KEY (id));
            CREATE TABLE shops (id int, name string, PRIMARY KEY (id));
            CREATE TABLE taken (id int, n bigint, PRIMARY KEY (id));
            CREATE MATERIALIZED VIEW by_shop AS SELECT shop, count(*) AS n FROM orders GROUP BY shop;
            CREATE MATERIALIZED VIEW busy AS SELECT shop, n FROM by_shop WHERE n > 1;
            INSERT INTO orders VALUES (1, 7), (2, 7), (3, 8);
            INSERT INTO shops VALUES (7, 'seven')"""
        )
        session.flush()
    return store


@pytest.fixture
def session(template: Path, tmp_path: Path, spark: SparkSession) -> Session:
    return Session(str(shutil.copytree(template, tmp_path / "store")), spark, create=False)


READS_ORDERS = {
    "the table itself": "INSERT INTO taken SELECT id, shop FROM orders",
    "the table it inserts into": "INSERT INTO orders SELECT id + 10, shop FROM orders",
    "a view over it": "INSERT INTO taken SELECT shop, n FROM by_shop",
    "a view over a view over it": "INSERT INTO taken SELECT shop, n FROM busy",
    "a subquery": "INSERT INTO taken SELECT id, (SELECT max(n) FROM by_shop) FROM shops",
    "a CTE": "INSERT INTO taken WITH a AS (SELECT shop, count(*) AS n FROM orders GROUP BY shop) SELECT * FROM a",
    "one side of a join": "INSERT INTO taken SELECT s.id, b.n FROM shops s JOIN by_shop b ON b.shop = s.id",
}


@pytest.mark.parametrize("sql", READS_ORDERS.values(), ids=READS_ORDERS)
def test_it_is_refused_while_a_statement_on_its_input_waits_and_accepted_after_an_epoch(
    sql: str, session: Session
) -> None:
    session.execute("INSERT INTO shops VALUES (9, 'nine'); DELETE FROM orders WHERE id = 3")
    before = session.meta.log_end()
    with pytest.raises(WaitingStatementsError) as caught:
        session.execute(sql)
    assert f"{before - 1} (delete orders)" in str(caught.value)
    assert ("insert shops" in str(caught.value)) == ("shops" in sql.split("SELECT", 1)[1])
    assert session.meta.log_end() == before
    assert "Session.flush" in str(caught.value)
    session.flush()
    (answer,) = session.execute(sql)
    assert answer.message.startswith(f"log entry {before}:")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO taken SELECT id, length(name) FROM shops",
        "INSERT INTO taken SELECT orders.id, 1 FROM shops AS orders",
        "INSERT INTO taken VALUES (1, 1)",
        "INSERT INTO taken SELECT 1, 2",
    ],
)
def test_statements_on_other_relations_do_not_hold_it_up(sql: str, session: Session) -> None:
    session.execute("UPDATE orders SET shop = 9 WHERE id = 1; INSERT INTO taken VALUES (100, 1)")
    assert session.execute(sql)[0].message.startswith("log entry")


def test_files_pinned_by_an_open_barrier_count_as_waiting(session: Session) -> None:
    session.execute("INSERT INTO orders VALUES (4, 7)")
    assert inject(session.meta) is not None
    with pytest.raises(WaitingStatementsError, match=r"\(insert orders, 1 rows\)"):
        session.execute("INSERT INTO taken SELECT shop, n FROM by_shop")


def test_an_entry_that_the_open_barrier_skips_will_never_change_a_row(session: Session) -> None:
    session.execute("INSERT INTO orders VALUES (4, 7)")
    assert inject(session.meta) is not None
    abandon(session.meta, Detour(skip_entries=(session.meta.log_end() - 1,)))
    assert session.execute("INSERT INTO taken SELECT shop, n FROM by_shop")[0].message.startswith("log entry")
    session.flush()
    session.flush()
    assert sorted(session.query("SELECT n FROM taken")["n"].to_pylist()) == [1, 2]


def test_a_relation_that_is_only_in_the_log_has_no_rows_yet(session: Session) -> None:
    session.execute("CREATE MATERIALIZED VIEW late AS SELECT id FROM shops")
    with pytest.raises(WaitingStatementsError, match=r"reads late as of epoch \d+.*\(create view late\)"):
        session.execute("INSERT INTO taken (id) SELECT id FROM late")


def test_a_statement_that_another_session_logs_while_the_select_runs_is_seen(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tussock.jobs.sql import dml

    def meanwhile(*arguments: object) -> object:
        with Session(session.meta.objects.uri, session.spark, create=False) as other:
            other.execute("DELETE FROM orders")
        return rows_to_insert(*arguments)  # type: ignore[arg-type]

    rows_to_insert = dml.rows_to_insert
    monkeypatch.setattr(dml, "rows_to_insert", meanwhile)
    with pytest.raises(WaitingStatementsError, match="delete orders"):
        session.execute("INSERT INTO taken SELECT id, shop FROM orders")
