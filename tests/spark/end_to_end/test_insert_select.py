"""Statements that compute rows read tables as the waiting statements leave them, and views of the committed epoch."""

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.catalog.statement_log import WaitingStatementsError
from tussock.jobs.reading.pending_rows import WaitingStatementFailsError
from tussock.jobs.reading.read import WaitingChangesWarning
from tussock.jobs.session import Session
from tussock.jobs.trouble.detour_errors import ReadEntryError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.statement_log import LogMovedError

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
    return Session(str(shutil.copytree(template, tmp_path / "store")), spark, create=False, runner="local", workers=1)


ROWS_OF_ORDERS = {
    "the table itself": ("INSERT INTO taken SELECT id, shop FROM orders", "taken", [(1, 7), (2, 9), (4, 9)]),
    "the table it inserts into": (
        "INSERT INTO orders SELECT id + 10, shop FROM orders WHERE id > 1",
        "orders",
        [(1, 7), (2, 9), (4, 9), (12, 9), (14, 9)],
    ),
    "a subquery": ("INSERT INTO taken SELECT id, (SELECT count(*) FROM orders) FROM shops", "taken", [(7, 3), (9, 3)]),
    "a plain view": ("INSERT INTO taken SELECT * FROM of_nine", "taken", [(2, 9), (4, 9)]),
    "an update": ("UPDATE orders SET id = id + (SELECT max(id) FROM orders)", "orders", [(5, 7), (6, 9), (8, 9)]),
    "a merge": (
        """MERGE INTO orders USING (SELECT id + 2 AS id FROM orders) n ON orders.id = n.id
           WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (n.id)""",
        "orders",
        [(1, 7), (2, 9), (3, None), (6, None)],
    ),
    "a new table": ("CREATE TABLE copy AS SELECT id, shop FROM orders WHERE shop = 9", "copy", [(2, 9), (4, 9)]),
}


@pytest.mark.parametrize(("sql", "table", "expected"), ROWS_OF_ORDERS.values(), ids=ROWS_OF_ORDERS)
def test_a_statement_sees_the_statements_before_it(
    sql: str, table: str, expected: list[tuple[int, int]], session: Session
) -> None:
    session.execute(
        """CREATE VIEW of_nine AS SELECT id, shop FROM orders WHERE shop = 9; INSERT INTO shops VALUES (9, 'nine');
        DELETE FROM orders WHERE id = 3; UPDATE orders SET shop = 9 WHERE id = 2; INSERT INTO orders VALUES (4, 9)"""
    )
    (answer,) = session.execute(sql)
    assert answer.message.startswith(f"log entry {session.meta.log_end() - 1}:")
    assert _rows(session.read(table, pending=True)) == expected
    session.flush()
    assert _rows(session.read(table)) == expected


def _rows(found: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_a_view_is_read_as_of_the_committed_epoch_and_a_note_names_what_will_change_it(session: Session) -> None:
    session.execute("INSERT INTO orders VALUES (4, 7)")
    last = session.meta.log_end() - 1
    (answer,) = session.execute("INSERT INTO taken SELECT shop, n FROM busy")
    assert f"note: view busy is read as of epoch {session.meta.read_latest().epoch}" in answer.message
    assert f"will change it: {last} (insert orders, 1 rows)" in answer.message
    assert _rows(session.read("taken", pending=True)) == [(7, 2)]
    (quiet,) = session.execute("INSERT INTO shops SELECT id + 100, name FROM shops")
    assert "note" not in quiet.message
    with pytest.warns(WaitingChangesWarning, match="view by_shop is read as of epoch"):
        found = session.query("SELECT b.n, o.id FROM by_shop b JOIN orders o USING (shop) WHERE shop = 7", pending=True)
    assert _rows(found) == [(2, 1), (2, 2), (2, 4)]
    assert _rows(session.query("SELECT id FROM orders")) == [(1,), (2,), (3,)], "the published rows"


def test_a_view_that_waits_has_no_rows_yet(session: Session) -> None:
    session.execute("CREATE MATERIALIZED VIEW late AS SELECT id FROM shops; CREATE VIEW named AS SELECT * FROM late")
    for name in ("late", "named"):
        with pytest.raises(WaitingStatementsError, match=r"as of epoch \d+.*\(create view late\)"):
            session.execute(f"INSERT INTO taken (id) SELECT id FROM {name}")


def test_a_table_is_read_in_the_form_that_waiting_statements_give_it(session: Session) -> None:
    session.execute(
        """INSERT INTO shops VALUES (8, 'eight'); ALTER TABLE shops ADD COLUMNS (city string DEFAULT 'Bern');
        UPDATE shops SET city = concat(name, city) WHERE id = 8; ALTER TABLE taken RENAME TO kept;
        INSERT INTO kept SELECT id, length(city) FROM shops; CREATE TABLE fresh (a bigint);
        INSERT INTO fresh VALUES (3); INSERT INTO fresh SELECT n + a FROM kept, fresh"""
    )
    for pending in (True, False):
        assert _rows(session.read("kept", pending=pending)) == [(7, 4), (8, 9)]
        assert _rows(session.read("fresh", pending=pending)) == [(3,), (7,), (12,)]
        session.flush()


def test_entries_of_an_open_barrier_count_and_skipped_ones_do_not(session: Session) -> None:
    session.execute("INSERT INTO orders VALUES (4, 7); INSERT INTO orders VALUES (5, 7)")
    assert inject_barrier(session.meta) is not None
    abandon_barrier(session.meta, Detour(skip_entries=(session.meta.log_end() - 1,)))
    session.execute("INSERT INTO taken SELECT id, 1 FROM orders WHERE id > 2")
    session.flush()
    session.flush()
    assert _rows(session.read("taken")) == [(3, 1), (4, 1)]


def test_an_entry_is_not_skipped_without_those_that_have_read_it(session: Session) -> None:
    session.execute(
        "INSERT INTO orders VALUES (4, 7); INSERT INTO taken SELECT id, 1 FROM orders; INSERT INTO shops VALUES (1, '')"
    )
    assert inject_barrier(session.meta) is not None
    first = session.meta.log_end() - 3
    with pytest.raises(ReadEntryError, match=f"--skip-entry {first} --skip-entry {first + 1}"):
        abandon_barrier(session.meta, Detour(skip_entries=(first,)))
    abandon_barrier(session.meta, Detour(skip_entries=(first, first + 1)))
    session.flush()
    assert _rows(session.read("taken")) == []
    assert _rows(session.read("shops")) == [(1, ""), (7, "seven")]


@pytest.mark.parametrize("times", [1, 100])
def test_a_statement_that_another_session_logs_while_the_select_runs_is_seen(
    times: int, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tussock.jobs.sql import dml

    calls = []

    def meanwhile(*arguments: object) -> object:
        calls.append(1)
        rows = rows_to_insert(*arguments)  # type: ignore[arg-type]
        if len(calls) <= times:
            with Session(session.meta.objects.uri, session.spark, create=False) as other:
                other.execute(f"DELETE FROM orders WHERE id = {len(calls)}")
                other.insert("shops", pa.table({"id": pa.array([len(calls)], pa.int32())}))
        return rows

    rows_to_insert = dml.rows_to_insert
    monkeypatch.setattr(dml, "rows_to_insert", meanwhile)
    monkeypatch.setattr("tussock.jobs.statements.statement_runner.ATTEMPTS", 3)
    if times > 1:
        with pytest.raises(LogMovedError):
            session.execute("INSERT INTO taken SELECT id, shop FROM orders")
        assert len(calls) == 3
        return
    session.execute("INSERT INTO taken SELECT id, shop FROM orders")
    session.flush()
    assert _rows(session.read("taken")) == [(2, 7), (3, 8)], "without the row that was deleted meanwhile"


def test_a_waiting_statement_that_raises_is_named(session: Session) -> None:
    session.execute("UPDATE orders SET shop = shop WHERE 1 / (id - 2) > 0")
    copy = "INSERT INTO taken SELECT id, shop FROM orders"
    says = r"UPDATE at log entry \d+.* key \(2\): .* with id = 2"
    with pytest.raises(WaitingStatementFailsError, match=says) as err:
        session.execute(copy)
    position = re.search(r"`tussock barrier abandon --skip-entry (\d+)`", str(err.value))
    assert position is not None
    abandon_barrier(session.meta, Detour(skip_entries=(int(position[1]),)))
    session.execute(copy)
    with pytest.raises(WaitingStatementFailsError, match="Correct that statement of the transaction"):
        session.execute("BEGIN; UPDATE orders SET shop = shop WHERE 1 / (id - 3) > 0")
    assert session.meta.log_end() == int(position[1]) + 2
