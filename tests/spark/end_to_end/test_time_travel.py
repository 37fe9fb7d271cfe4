"""Relations at different epochs within one query, compared with Spark over separate copies of each epoch's rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tests.support.truth.compare import assert_same_answer
from tussock.jobs import cli
from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.reading.moment import BadMomentError
from tussock.jobs.reading.read import BackwardsError, NotThereYetError
from tussock.jobs.reading.reader import NoStoredRowsError
from tussock.jobs.session import Session
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.meta.epoch import epoch_ms
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError

pytestmark = pytest.mark.spark

ROWS = {  # orders after each epoch
    1: "(1, 7, 1.5), (2, 7, 2.0), (3, 8, 4.0), (4, CAST(NULL AS int), 8.0)",
    2: "(1, 7, 1.5), (2, 9, 2.5), (4, CAST(NULL AS int), 8.0), (5, 8, CAST(NULL AS double))",
    3: "(1, 7, 1.5), (2, 9, 2.5), (5, 8, CAST(NULL AS double)), (6, 7, 0.25)",
}
BY_SHOP = "SELECT shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY shop"
SHOPS = "SELECT shop FROM orders"  # its key is hidden
SMALL = "SELECT id, amount FROM orders WHERE amount < 3"


@dataclass(frozen=True)
class Story:
    store: str
    epochs: dict[int, int]  # number of the chapter -> epoch

    def named(self, text: str) -> str:
        """The text with @1, @2 and @3 as the chapters' epochs, and !1, !2 as moments just after them."""
        for chapter, epoch in self.epochs.items():
            moment = datetime.fromtimestamp(epoch_ms(epoch) / 1000, UTC) + timedelta(microseconds=900)
            text = text.replace(f"@{chapter}", str(epoch)).replace(f"!{chapter}", f"'{moment:%Y-%m-%d %H:%M:%S.%f}'")
        return text


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    store = str(tmp_path_factory.mktemp("travel") / "store")
    epochs = {}
    with Session(store, spark, runner=here(spark)) as session:
        session.execute(
            "CREATE TABLE orders (id int, shop int, amount double, PRIMARY KEY (id)); "
            "CREATE TABLE undo (id int, PRIMARY KEY (id))"
        )
        session.execute(f"CREATE MATERIALIZED VIEW by_shop AS {BY_SHOP}; CREATE VIEW small AS {SMALL}")
        session.execute(f"CREATE MATERIALIZED VIEW shops AS {SHOPS}")
        session.execute(f"INSERT INTO orders VALUES {ROWS[1]}; CREATE TABLE gone AS SELECT 1 AS one")
        session.execute("CREATE TABLE named AS SELECT 5 AS was")
        epochs[1] = session.flush().epoch
        session.execute("UPDATE orders SET shop = 9, amount = 2.5 WHERE id = 2; DELETE FROM orders WHERE id = 3")
        session.execute("INSERT INTO orders VALUES (5, 8, NULL)")
        epochs[2] = session.flush().epoch
        session.execute("DELETE FROM orders WHERE id = 4; INSERT INTO orders VALUES (6, 7, 0.25); DROP TABLE gone")
        session.execute(
            f"CREATE MATERIALIZED VIEW late AS {BY_SHOP}; "
            f"CREATE SOURCE files (a int) USING csv OPTIONS (path '{store}')"
        )
        session.execute("ALTER TABLE named RENAME COLUMN was TO became")
        epochs[3] = session.flush().epoch
    return Story(store, epochs)


@pytest.fixture(scope="module")
def session(story: Story, spark: SparkSession) -> Iterator[Session]:
    with Session(story.store, spark, create=False, runner=here(spark)) as session:
        yield session


@pytest.fixture(scope="module")
def judge(spark: SparkSession) -> SparkSession:
    """Spark, with the rows of each chapter as orders_1 … by_shop_3."""
    truth = spark.newSession()
    truth.conf.set("spark.sql.ansi.enabled", "true")
    for chapter, rows in ROWS.items():
        frame = truth.sql(
            f"SELECT CAST(id AS int) AS id, shop, CAST(amount AS double) AS amount FROM VALUES "
            f"{rows} AS t(id, shop, amount)"
        )
        frame.createOrReplaceTempView("orders")
        for name, sql in {"by_shop": BY_SHOP, "shops": SHOPS, "small": SMALL}.items():
            truth.sql(sql).createOrReplaceTempView(f"{name}_{chapter}")
        frame.createOrReplaceTempView(f"orders_{chapter}")
    return truth


QUERIES = [  # (a query here, Spark's query over the chapters' relations)
    ("SELECT * FROM by_shop VERSION AS OF @1", "SELECT * FROM by_shop_1"),
    (
        "SELECT * FROM by_shop FOR VERSION AS OF '@2' AS b (x, y, z) WHERE y > 0",
        "SELECT * FROM by_shop_2 AS b (x, y, z) WHERE y > 0",
    ),
    (
        "SELECT by_shop.n, `By_Shop`.total FROM BY_SHOP FOR SYSTEM_VERSION AS OF @1",
        "SELECT b.n, b.total FROM by_shop_1 b",
    ),
    ("SELECT * FROM by_shop TIMESTAMP AS OF !1", "SELECT * FROM by_shop_1"),
    ("SELECT * FROM orders FOR SYSTEM_TIME AS OF TIMESTAMP !2 + INTERVAL 0 HOUR o", "SELECT * FROM orders_2"),
    ("SELECT * FROM orders FOR TIMESTAMP AS OF now() LIMIT 99", "SELECT * FROM orders_3"),
    (  # one view at two epochs
        "SELECT a.shop, a.n AS x, b.n AS y FROM by_shop VERSION AS OF @1 a FULL JOIN by_shop VERSION AS "
        "OF @2 b ON a.shop <=> b.shop",
        "SELECT a.shop, a.n AS x, b.n AS y FROM by_shop_1 a FULL JOIN by_shop_2 b ON a.shop <=> b.shop",
    ),
    (  # a view at an earlier epoch and now, with the columns of each epoch
        "SELECT o.id, o.amount, orders.amount AS now FROM orders VERSION AS OF @2 AS o JOIN orders ON o.id = orders.id",
        "SELECT o.id, o.amount, orders.amount AS now FROM orders_2 AS o JOIN orders_3 AS orders ON o.id = orders.id",
    ),
    ("SELECT a.became FROM named VERSION AS OF @2 a, named b -- which had another name then", "SELECT 5 AS became"),
    (  # twice at the same epoch
        "SELECT count(*) AS n FROM orders VERSION AS OF @1 a, orders VERSION AS OF @1 b WHERE a.shop = b.shop",
        "SELECT count(*) AS n FROM orders_1 a, orders_1 b WHERE a.shop = b.shop",
    ),
    (  # subqueries of every kind
        "SELECT id, (SELECT max(amount) FROM orders VERSION AS OF @1) AS top FROM orders o WHERE shop "
        "IN (SELECT shop FROM by_shop "
        "VERSION AS OF @2 WHERE n = 1) AND NOT EXISTS (SELECT 1 FROM (SELECT * FROM orders VERSION AS "
        "OF @1) p WHERE p.id = o.id)",
        "SELECT id, (SELECT max(amount) FROM orders_1) AS top FROM orders_3 o WHERE shop IN (SELECT "
        "shop FROM by_shop_2 WHERE n = 1) "
        "AND NOT EXISTS (SELECT 1 FROM orders_1 p WHERE p.id = o.id)",
    ),
    (  # a WITH may have the name of the relation that it reads
        "WITH by_shop AS (SELECT * FROM by_shop VERSION AS OF @1), "
        "more AS (SELECT * FROM by_shop UNION ALL SELECT * FROM late) "
        "SELECT shop, sum(n) AS n FROM more GROUP BY shop",
        "SELECT shop, sum(n) AS n FROM (SELECT * FROM by_shop_1 UNION ALL SELECT * FROM by_shop_3) GROUP BY shop",
    ),
    (
        "SELECT * FROM small VERSION AS OF @1 UNION ALL SELECT * FROM orders_of_1",
        None,
    ),  # a temporary view of the other Spark session is unknown here
    ("SELECT * FROM small VERSION AS OF @1", "SELECT * FROM small_1"),
    (
        "SELECT s.id, o.amount FROM small VERSION AS OF @2 s JOIN orders o USING (id)",
        "SELECT s.id, o.amount FROM small_2 s JOIN orders_3 o USING (id)",
    ),
    ("SELECT * FROM gone VERSION AS OF @2 -- it was dropped since\n", "SELECT 1 AS one"),
    (
        "SELECT /* ä𝄞 */ '𝄞' AS clef, o.* FROM orders VERSION AS OF @1 TABLESAMPLE (99 ROWS) o",
        "SELECT '𝄞' AS clef, * FROM orders_1",
    ),
    (
        "SELECT * FROM by_shop VERSION AS OF @1 PIVOT (sum(n) FOR shop IN (7, 8))",
        "SELECT * FROM by_shop_1 PIVOT (sum(n) FOR shop IN (7, 8))",
    ),
    ("FROM orders VERSION AS OF @2 |> WHERE id > 1 |> SELECT id", "SELECT id FROM orders_2 WHERE id > 1"),
    (
        "SELECT id AS of, 1 AS version, 'VERSION AS OF 3' AS s FROM orders",
        "SELECT id AS of, 1 AS version, 'VERSION AS OF 3' AS s FROM orders_3",
    ),
]


def test_each_relation_of_a_query_is_read_at_its_epoch(session: Session, story: Story, judge: SparkSession) -> None:
    for ours, theirs in QUERIES:
        if theirs is None:
            with pytest.raises(SqlError, match="there is no relation"):
                session.query(story.named(ours))
            continue
        assert_same_answer(session.query(story.named(ours)), judge.sql(theirs).toArrow(), ours)


def test_scripts_and_the_command_line_answer_the_same(
    session: Session,
    story: Story,
    judge: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sql = story.named("SELECT a.n FROM by_shop VERSION AS OF @1 a JOIN by_shop b ON a.shop = b.shop")
    (answer,) = session.execute(sql)
    assert answer.table is not None
    expected = judge.sql("SELECT a.n FROM by_shop_1 a JOIN by_shop_3 b ON a.shop = b.shop").toArrow()
    assert_same_answer(answer.table, expected, sql)
    at_two = session.query(sql, story.epochs[2])
    assert_same_answer(
        at_two, judge.sql("SELECT a.n FROM by_shop_1 a JOIN by_shop_2 b ON a.shop = b.shop").toArrow(), sql
    )
    assert (
        cli.main(["query", "--store", story.store, story.named("SELECT max(id) AS top FROM orders VERSION AS OF @1")])
        == 0
    )
    assert capsys.readouterr().out.split() == ["top", "4"]


def test_statements_take_rows_of_an_earlier_epoch(session: Session, story: Story, judge: SparkSession) -> None:
    session.execute(story.named("INSERT INTO undo SELECT id FROM orders VERSION AS OF @1"))
    session.execute(story.named("CREATE TABLE kept AS SELECT * FROM by_shop VERSION AS OF @2"))
    session.flush()
    assert_same_answer(session.query("SELECT * FROM undo"), judge.sql("SELECT id FROM orders_1").toArrow(), "insert")
    assert_same_answer(
        session.query("SELECT * FROM kept"), judge.sql("SELECT * FROM by_shop_2").toArrow(), "create table as"
    )
    session.execute(story.named("DELETE FROM undo WHERE id NOT IN (SELECT id FROM orders VERSION AS OF @2)"))
    session.flush()
    left = judge.sql("SELECT id FROM orders_1 WHERE id IN (SELECT id FROM orders_2)").toArrow()
    assert_same_answer(session.query("SELECT * FROM undo"), left, "delete")
    session.execute(
        story.named(
            "MERGE INTO undo USING (SELECT * FROM orders VERSION AS OF @2) AS o ON o.id = undo.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (o.id)"
        )
    )
    session.flush()
    rest = judge.sql("SELECT id FROM orders_2 WHERE id NOT IN (SELECT id FROM orders_1)").toArrow()
    assert_same_answer(session.query("SELECT * FROM undo"), rest, "merge")


def test_changes_are_a_table_in_a_query(session: Session, story: Story, judge: SparkSession) -> None:
    """A net change equals EXCEPT ALL of the rows at both ends, in each direction."""
    both = (
        "SELECT *, '{}' AS _change_type, CAST({} AS bigint) AS _from_epoch, CAST({} AS bigint) AS _to_epoch FROM ({})"
    )
    for name in ("by_shop", "orders", "shops"):
        for first, last in ((1, 2), (1, 3), (2, 3), (2, 2)):
            since, until = story.epochs[first], story.epochs[last]
            gone = both.format(
                "delete", since, until, f"SELECT * FROM {name}_{first} EXCEPT ALL SELECT * FROM {name}_{last}"
            )
            come = both.format(
                "insert", since, until, f"SELECT * FROM {name}_{last} EXCEPT ALL SELECT * FROM {name}_{first}"
            )
            expected = judge.sql(f"{gone} UNION ALL {come}").toArrow()
            asked = f"SELECT * FROM table_changes('{name}', {since}, {until})"
            assert_same_answer(session.query(asked), expected, asked)
            changes = session.changes(name, since, until)
            assert_same_answer(
                session.query(asked).select(changes.column_names), changes, "as Session.changes has them"
            )
    # moments, an omitted epoch, and a join with another relation
    asked = story.named(
        "SELECT c.shop, c.n FROM table_changes('BY_SHOP', "
        "!1) AS c JOIN late USING (shop) WHERE c._change_type = 'insert'"
    )
    expected = judge.sql(
        "SELECT shop, n FROM (SELECT * FROM by_shop_3 EXCEPT ALL SELECT * FROM by_shop_1) WHERE shop IS NOT NULL"
    ).toArrow()
    assert_same_answer(session.query(asked, story.epochs[3]), expected, asked)
    assert (
        session.query(
            story.named("SELECT table_changes._to_epoch AS e FROM TABLE_CHANGES('orders', @1)"), story.epochs[2]
        )["e"][0].as_py()
        == story.epochs[2]
    )


REFUSED: list[tuple[str, type[Exception], str]] = [
    ("SELECT * FROM by_shop VERSION AS OF 12", EpochNotCommittedError,
     "epoch 12 does not exist; the last committed one is"),
    ("SELECT * FROM by_shop VERSION AS OF 99999999999999999999", EpochNotCommittedError,
     "is not committed; the last committed epoch is"),
    ("SELECT * FROM late VERSION AS OF @2", NotThereYetError,
     "'late' does not exist in epoch @2: it was created in epoch @3 .*; read that epoch"),
    ("SELECT * FROM by_shop VERSION AS OF 0", NotThereYetError,
     "does not exist before the store's first epoch: it was created in epoch @1"),
    ("SELECT * FROM by_shop TIMESTAMP AS OF '1999-01-01'", NotThereYetError,
     r"before the store's first epoch: it was created in epoch @1 \(2"),
    ("SELECT * FROM by_shop TIMESTAMP AS OF now() + INTERVAL 1 DAY", BadMomentError, "in the future; now is .*"),
    ("SELECT * FROM by_shop TIMESTAMP AS OF 'soon'", SqlError,
     "'soon' cannot be read .*CAST_INVALID_INPUT.*; expected a constant"),
    ("SELECT * FROM by_shop TIMESTAMP AS OF n", SqlError, "timestamp expression cannot refer to any columns"),
    ("SELECT * FROM by_shop TIMESTAMP AS OF NULL", SqlError, "NULL"),
    ("SELECT * FROM by_shop TIMESTAMP AS OF 12", SqlError, "expected a moment after TIMESTAMP AS OF, found 12"),
    ("SELECT * FROM by_shop VERSION AS OF 'old'", SqlError, "a version is an epoch number"),
    ("SELECT * FROM a.by_shop VERSION AS OF @1", UnknownRelationError, "there is no relation 'a.by_shop'"),
    ("SELECT *\nFROM m.a.by_shop VERSION AS OF @1", SqlError, r"m.a.by_shop has a catalog.*line 2, column 6"),
    ("SELECT * FROM by_shops VERSION AS OF @1", UnknownRelationError, "Did you mean 'by_shop'"),
    ("SELECT * FROM files VERSION AS OF @3", NoStoredRowsError, "'files' is a source"),
    ("WITH w AS (SELECT 1) SELECT * FROM w VERSION AS OF @1", SqlError, "w is defined by WITH"),
    ("SELECT a.nn\nFROM by_shop VERSION AS OF @1 a JOIN by_shop b ON a.nn = b.n", SqlError,
     r"a`?.`?nn.*(line 1|line 2)"),
    ("SELECT 1 FROM by_shop VERSION AS OF @1 a\nWHERE n / (n - n) = 1", SqlError, "DIVIDE_BY_ZERO.*line 2, column 7"),
    ("SELECT * FROM table_changes('late', @2)", NotThereYetError, "it was created in epoch @3"),
    ("SELECT * FROM table_changes('by_shop', @2, @1)", BackwardsError, "the first is later"),
    ("SELECT * FROM table_changes('by_shop', 5, @1)", EpochNotCommittedError, "epoch 5 does not exist"),
    ("SELECT * FROM table_changes('small', @1)", NoStoredRowsError, "'small' is a .*Query it with SQL"),
    ("SELECT * FROM table_changes(by_shop, @1)", SqlError, "expected table_changes\\('view', from\\)"),
    ("SELECT * FROM table_changes('by_shop')", SqlError, "expected table_changes"),
    ("SELECT * FROM table_changes('by_shop', 1.5)", SqlError, "1.5 is a decimal"),
    ("CREATE MATERIALIZED VIEW x AS\nSELECT * FROM by_shop VERSION AS OF @1", UnsupportedQueryError,
     "OF @1 is not supported in a mat"),
    ("EXPLAIN SELECT * FROM table_changes('by_shop', 1)", UnsupportedQueryError,
     "not supported in a materialized view"),
    ("CREATE VIEW x AS SELECT * FROM by_shop TIMESTAMP AS OF '2026-01-01'", UnsupportedQueryError,
     "in a view: a view follows"),
]  # fmt: skip


def test_an_invalid_read_of_an_epoch_is_refused_with_a_remedy(session: Session, story: Story) -> None:
    end = session.meta.log_end()
    for sql, error, says in REFUSED:
        with pytest.raises(error, match=story.named(says)) as raised:
            session.execute(story.named(sql))
        assert type(raised.value) is error, sql
    assert session.meta.log_end() == end


def test_an_epoch_that_retention_let_go_is_refused_and_the_oldest_is_named(
    story: Story, spark: SparkSession, tmp_path: Path
) -> None:
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (a int, PRIMARY KEY (a)); INSERT INTO t VALUES (1)")
        first = session.flush().epoch
        session.execute("INSERT INTO t VALUES (2)")
        second = session.flush().epoch
        session.meta.apply_retention(1)
        for sql in (f"SELECT * FROM t VERSION AS OF {first}", f"SELECT * FROM table_changes('t', {first})"):
            with pytest.raises(
                EpochExpiredError, match=f"epoch {first} is no longer kept; the oldest readable epoch is {second}"
            ):
                session.query(sql)
        moment = datetime.fromtimestamp(epoch_ms(first) / 1000, UTC)
        with pytest.raises(BadMomentError, match=r"no epoch that old is kept; expected .* or later"):
            session.query(f"SELECT * FROM t TIMESTAMP AS OF '{moment}'")


def test_a_pinned_epoch_is_readable_in_each_way_until_its_pin_is_removed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "store")
    with Session(store, spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (a int, b int, PRIMARY KEY (a)); INSERT INTO t VALUES (1, 10), (2, 20)")
        first = session.flush().epoch
        assert cli.main(["pin", "add", "--store", store, "--epoch", str(first)]) == 0
        holder = capsys.readouterr().out.rpartition("held by ")[2].strip()
        session.execute("UPDATE t SET b = 11 WHERE a = 1; DELETE FROM t WHERE a = 2; INSERT INTO t VALUES (3, 30)")
        session.flush()
        for a in range(4, 7):
            session.execute(f"INSERT INTO t VALUES ({a}, 0)")
            session.flush()
        compact_store(session.meta, full=True)
        session.execute("DROP TABLE t; CREATE TABLE t AS SELECT 7 AS other")
        session.flush()
        for _ in range(2):
            assert cli.main(["vacuum", "--store", store, "--keep", "0s", "--keep-epochs", "1"]) == 0
        assert first < session.meta.read_latest().min_readable_epoch
        then = [(1, 10), (2, 20)]

        def found(rows: pa.Table) -> list[tuple[int, int]]:
            return sorted(zip(rows["a"].to_pylist(), rows["b"].to_pylist(), strict=True))

        travels = f"SELECT o.* FROM t VERSION AS OF {first} o JOIN t n ON n.other = 7"
        assert found(session.read("t", epoch=first)) == then
        assert found(session.query("SELECT * FROM t", epoch=first)) == then
        assert found(session.query(travels)) == then
        assert found(session.table("t", first).toArrow()) == then
        session.execute(f"CREATE TABLE again (a int, b int); INSERT INTO again SELECT * FROM t VERSION AS OF {first}")
        session.flush()
        assert found(session.read("again")) == then
        capsys.readouterr()
        assert cli.main(["read", "t", "--store", store, "--epoch", str(first), "--csv"]) == 0
        assert sorted(capsys.readouterr().out.split()[1:]) == ["1,10", "2,20"]
        assert (
            cli.main(["pin", "add", "--store", store, "--epoch", str(first)]) == 0
        )  # a longer lease, of another holder
        later = capsys.readouterr().out.rpartition("held by ")[2].strip()
        assert cli.main(["pin", "remove", holder, "--store", store]) == 0
        assert found(session.read("t", epoch=first)) == then
        with pytest.raises(EpochExpiredError):  # its rows are kept, but not all changes since
            session.changes("t", first)

    with Session(store, spark, runner=here(spark)) as session:
        assert cli.main(["pin", "remove", later, "--store", store]) == 0
        for read in (
            lambda: session.read("t", epoch=first),
            lambda: session.query("SELECT * FROM t", epoch=first),
            lambda: session.query(travels),
            lambda: session.table("t", first),
        ):
            with pytest.raises(EpochExpiredError, match=f"epoch {first} is no longer kept"):
                read()
