"""CREATE VIEW names a query and is expanded in its readers. Also the columns, orders and limits of such views."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tussock.jobs.catalog.apply import RelationInUseError
from tussock.jobs.reading.reader import NoStoredRowsError
from tussock.jobs.session import Session
from tussock.statestore.errors import InputError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(str(tmp_path_factory.mktemp("plain") / "store"), spark, runner="local") as made:
        made.execute(
            """CREATE TABLE orders (id int, shop int, price int, PRIMARY KEY (id));
            CREATE VIEW dear (id, shop, price) AS SELECT * FROM orders WHERE price > 10 ORDER BY id;
            CREATE VIEW of_shop AS SELECT shop, count(*) AS n, collect_list(id) AS ids FROM dear GROUP BY shop;
            INSERT INTO orders VALUES (1, 7, 5), (2, 7, 20), (3, 8, 30), (4, 8, 40)"""
        )
        made.flush()
        yield made


def test_a_plain_view_is_expanded_in_queries_views_and_statements(session: Session) -> None:
    found = session.query(
        "SELECT o.shop, o.n, size(o.ids) AS k FROM of_shop o JOIN dear d ON d.shop = o.shop GROUP BY ALL"
    ).to_pylist()
    assert sorted(found, key=repr) == [{"shop": 7, "n": 1, "k": 1}, {"shop": 8, "n": 2, "k": 2}]
    session.execute(
        """CREATE MATERIALIZED VIEW kept (s, total) AS SELECT shop, sum(price) FROM dear GROUP BY shop;
        CREATE TABLE copy AS SELECT * FROM dear; INSERT INTO copy SELECT id + 10, shop, price FROM dear"""
    )
    session.execute("INSERT INTO orders VALUES (5, 9, 50)")
    session.execute("INSERT INTO copy SELECT id + 20, shop, price FROM dear WHERE id = 5")
    session.flush()
    assert sorted(session.read("kept").to_pylist(), key=repr) == [
        {"s": 7, "total": 20},
        {"s": 8, "total": 70},
        {"s": 9, "total": 50},
    ]
    assert sorted(session.read("copy")["id"].to_pylist()) == [2, 3, 4, 12, 13, 14, 25]
    session.execute("DELETE FROM copy WHERE shop IN (SELECT shop FROM of_shop WHERE n > 1)")
    session.flush()
    assert sorted(session.read("copy")["id"].to_pylist()) == [2, 12, 25]


def test_a_plain_view_stores_no_rows_and_is_shown(session: Session) -> None:
    with pytest.raises(NoStoredRowsError, match="a plain view: it names a query"):
        session.read("dear")
    (shown,) = session.execute("SHOW VIEWS")
    assert shown.table is not None
    assert ("dear", "plain view") in [(r["name"], r["kind"]) for r in shown.table.to_pylist()]
    for name in ("dear", "of_shop"):
        (created,) = session.execute(f"SHOW CREATE VIEW {name}")
        assert created.table is not None
        again = created.table["statement"][0].as_py().replace("CREATE VIEW", "CREATE VIEW IF NOT EXISTS")
        assert session.execute(again)[0].message.startswith("nothing to do")
    with pytest.raises(InputError, match="query \\(- store, \\+ statement\\)"):
        session.execute("CREATE VIEW IF NOT EXISTS dear AS SELECT * FROM orders WHERE price > 11")
    (described,) = session.execute("DESCRIBE of_shop")
    assert described.table is not None
    assert described.table["type"].to_pylist() == ["int", "bigint", "array<int>"]


def test_a_plain_view_that_something_uses_is_dropped_with_it_or_not_at_all(session: Session) -> None:
    session.execute(
        """CREATE VIEW a AS SELECT id FROM orders; CREATE VIEW b AS SELECT id FROM a;
        CREATE MATERIALIZED VIEW c AS SELECT id FROM b"""
    )
    with pytest.raises(RelationInUseError, match="DROP VIEW a CASCADE"):
        session.execute("DROP VIEW a")
    session.flush()
    session.execute("DROP VIEW a CASCADE")
    session.flush()
    (shown,) = session.execute("SHOW RELATIONS")
    assert shown.table is not None
    assert not {"a", "b", "c"} & set(shown.table["name"].to_pylist())


def test_a_refusal_within_a_plain_view_names_no_wrong_place(session: Session) -> None:
    session.execute("CREATE VIEW dice AS SELECT id, rand() AS r FROM orders")
    with pytest.raises(InputError, match="it gives another value on every run") as caught:
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT id, r FROM dice")
    assert "column" not in str(caught.value)
    session.execute("DROP VIEW dice")


def test_an_order_that_means_nothing_and_a_limit_by_the_key_are_taken_with_a_note(session: Session) -> None:
    (ordered,) = session.execute("CREATE MATERIALIZED VIEW ordered AS SELECT id, price FROM orders SORT BY price")
    assert "note: SORT BY, and an ORDER BY" in ordered.message
    (limited,) = session.execute("CREATE MATERIALIZED VIEW limited AS SELECT id FROM orders LIMIT 2 OFFSET 1")
    assert "note: LIMIT or OFFSET without ORDER BY" in limited.message
    (explained,) = session.execute("EXPLAIN SELECT id FROM orders ORDER BY id OFFSET 2")
    assert explained.table is not None
    lines = explained.table["plan"].to_pylist()
    assert not [line for line in lines if line.startswith("note")]
    assert "      an epoch costs changed rows + 2 rows in order" in lines
    session.flush()
    assert sorted(session.read("limited")["id"].to_pylist()) == [2, 3]
    assert sorted(session.read("ordered")["id"].to_pylist()) == sorted(session.read("orders")["id"].to_pylist())
