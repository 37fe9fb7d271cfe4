"""ALTER TABLE and COMMENT ON: names and comments of tables."""

from collections.abc import Iterator
from datetime import date

import pytest
from pyspark.sql import SparkSession

from tussock.jobs.catalog.alter_table import CannotAlterError
from tussock.jobs.session import Session
from tussock.statestore.errors import InputError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(str(tmp_path_factory.mktemp("alter") / "store"), spark, runner="local") as made:
        made.execute(
            """CREATE TABLE t (id int, a int NOT NULL COMMENT 'one', b string DEFAULT 'x', PRIMARY KEY (id));
            CREATE TABLE read (id int); CREATE VIEW reads AS SELECT id FROM read; INSERT INTO t VALUES (1, 2, 'y')"""
        )
        made.flush()
        yield made


def test_names_and_comments_change_and_rows_stay(session: Session) -> None:
    session.execute(
        """ALTER TABLE t RENAME COLUMN a TO `a b`; INSERT INTO t (id, `a b`) VALUES (2, 3); ALTER TABLE t RENAME TO u;
        COMMENT ON TABLE u IS 'it''s u'; COMMENT ON COLUMN u.b IS 'two';
        ALTER TABLE u ALTER COLUMN id COMMENT 'the key';
        COMMENT ON COLUMN u.`a b` IS NULL; UPDATE u SET `a b` = 7 WHERE id = 1"""
    )
    session.flush()
    assert sorted(map(repr, session.read("u").to_pylist())) == [
        "{'id': 1, 'a b': 7, 'b': 'y'}",
        "{'id': 2, 'a b': 3, 'b': 'x'}",
    ]
    (described,) = session.execute("DESCRIBE u")
    assert described.table is not None
    assert [tuple(r.values()) for r in described.table.to_pylist()] == [
        ("id", "int", "PRIMARY KEY", "", "the key"),
        ("a b", "int", "NOT NULL", "", ""),
        ("b", "string", "", "'x'", "two"),
    ]
    (shown,) = session.execute("SHOW CREATE TABLE u")
    assert shown.table is not None
    again = shown.table["statement"][0].as_py().replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
    assert session.execute(again)[0].message.startswith("nothing to do")
    with pytest.raises(InputError, match="there is no table 't'"):
        session.execute("INSERT INTO t VALUES (1, 2, 'y')")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("ALTER TABLE read RENAME TO other", "it is read by its current names by reads"),
        ("ALTER TABLE read RENAME COLUMN id TO x", "drop these readers first"),
        ("ALTER TABLE u RENAME TO read", "'read' exists already"),
        ("ALTER TABLE u RENAME COLUMN id TO B", "already has a column 'B'"),
        ("ALTER TABLE u RENAME COLUMN nope TO x", "has no column 'nope'"),
        ("ALTER TABLE u ADD COLUMN c int NOT NULL", "the table's rows would get NULL"),
        ("ALTER TABLE u ADD COLUMN B int", "already has a column 'B'"),
        ("ALTER TABLE u ADD COLUMNS (c int, C string)", "column 'C' is declared twice"),
        ("ALTER TABLE u ADD COLUMN c int FIRST", "FIRST and AFTER do not apply"),
        ("ALTER TABLE u ADD COLUMN b.c int", "fields cannot be added to an existing struct"),
        ("ALTER TABLE u ADD COLUMN c int DEFAULT 'x'", 'cannot be cast to "INT"'),
        ("ALTER TABLE u ADD COLUMN c double DEFAULT rand()", "differs from row to row"),
        ("ALTER TABLE reads ADD COLUMN c int", "only tables can be changed"),
        ("COMMENT ON COLUMN u IS 'x'", "expected table.column"),
        ("COMMENT ON TABLE reads IS 'x'", "only tables can be changed"),
    ],
)
def test_an_invalid_alteration_is_refused_and_leaves_no_trace(sql: str, says: str, session: Session) -> None:
    before = session.meta.log_end()
    with pytest.raises(InputError) as caught:
        session.execute(sql)
    assert says in str(caught.value)
    assert session.meta.log_end() == before


def rows_of(session: Session, relation: str) -> list[tuple[object, ...]]:
    return sorted((tuple(r.values()) for r in session.read(relation).to_pylist()), key=repr)


def test_columns_are_added_and_older_rows_hold_the_default_of_that_moment(session: Session) -> None:
    """Waiting statements keep their old columns; later statements see the new ones; views keep theirs.

    The expected rows follow the rules of databases and were computed by hand.
    """
    session.execute(
        """CREATE TABLE keyed (k int, a string, PRIMARY KEY (k)); CREATE TABLE plain (a int, b string);
        CREATE MATERIALIZED VIEW all_keyed AS SELECT * FROM keyed;
        CREATE MATERIALIZED VIEW all_plain AS SELECT * FROM plain;
        CREATE MATERIALIZED VIEW pairs AS SELECT p.b, keyed.a FROM plain p JOIN keyed ON p.a = keyed.k;
        CREATE VIEW named AS SELECT * FROM plain;
        INSERT INTO keyed VALUES (1, 'x'), (2, 'y'), (3, 'z'); INSERT INTO plain VALUES (1, 'p'), (1, 'p'), (2, 'q'),
            (3, 'r')"""
    )
    session.flush()
    session.execute(
        """INSERT INTO keyed VALUES (4, 'w'); INSERT INTO plain VALUES (4, 's'); UPDATE plain SET b = 'Q' WHERE a = 2;
        ALTER TABLE keyed ADD COLUMNS (n bigint NOT NULL DEFAULT 1 + 6 COMMENT 'how many',
            s struct<x:int> DEFAULT named_struct('x', 1));
        ALTER TABLE plain ADD COLUMN c double; ALTER TABLE plain ADD COLUMN d date DEFAULT '2024-02-03';
        INSERT INTO keyed VALUES (5, 'v', 8, NULL); INSERT INTO keyed (k, a) VALUES (2, 'Y');
        INSERT INTO plain VALUES (1, 'p', 0.5, NULL); INSERT INTO plain (a) VALUES (6); DELETE FROM plain WHERE a = 3;
        UPDATE plain SET c = 2.5 WHERE a = 4; UPDATE keyed SET n = n + 1 WHERE k >= 3"""
    )
    session.flush()
    one, day = {"x": 1}, date(2024, 2, 3)
    keyed = [(1, "x", 7, one), (2, "Y", 7, one), (3, "z", 8, one), (4, "w", 8, one), (5, "v", 9, None)]
    plain = [
        (1, "p", None, day),
        (1, "p", None, day),
        (1, "p", 0.5, None),
        (2, "Q", None, day),
        (4, "s", 2.5, day),
        (6, None, None, day),
    ]
    assert rows_of(session, "keyed") == sorted(keyed, key=repr)
    assert rows_of(session, "plain") == sorted(plain, key=repr)

    def require_views() -> None:
        assert rows_of(session, "all_keyed") == sorted((row[:2] for row in keyed), key=repr)
        assert rows_of(session, "all_plain") == sorted((row[:2] for row in plain), key=repr)
        names = dict(row[:2] for row in keyed)
        assert rows_of(session, "pairs") == sorted(((b, names[a]) for a, b, *_ in plain if a in names), key=repr)

    require_views()
    (named,) = session.execute("SELECT * FROM named ORDER BY a")
    assert named.table is not None
    assert named.table.column_names == ["a", "b"]
    session.execute(
        """CREATE MATERIALIZED VIEW late AS SELECT d, count(*) AS n, sum(c) AS s FROM plain GROUP BY d;
        DELETE FROM plain WHERE b = 'p' AND c IS NULL"""
    )
    session.flush()
    session.execute(
        """MERGE INTO plain USING (SELECT 2 AS a, 9.0D AS c UNION ALL SELECT 7, 1.0D) s ON plain.a = s.a
        WHEN MATCHED THEN UPDATE SET c = s.c WHEN NOT MATCHED THEN INSERT (a, c) VALUES (s.a, s.c);
        DELETE FROM keyed WHERE n > (SELECT min(n) + 1 FROM keyed)"""
    )
    session.flush()
    keyed = keyed[:4]
    plain = [(1, "p", 0.5, None), (2, "Q", 9.0, day), (4, "s", 2.5, day), (6, None, None, day), (7, None, 1.0, day)]
    assert rows_of(session, "keyed") == sorted(keyed, key=repr)
    assert rows_of(session, "plain") == sorted(plain, key=repr)
    assert rows_of(session, "late") == [(None, 1, 0.5), (day, 4, 12.5)]
    require_views()
    (described,) = session.execute("DESCRIBE keyed")
    assert described.table is not None
    assert tuple(described.table.to_pylist()[2].values()) == ("n", "bigint", "NOT NULL", "1 + 6", "how many")
    session.execute("TRUNCATE TABLE plain")
    session.flush()
    plain = []
    assert rows_of(session, "plain") == rows_of(session, "late") == []
    require_views()


def test_a_second_sessions_statement_on_the_old_names_is_rejected(session: Session) -> None:
    session.execute("CREATE TABLE twice (a int)")
    from tussock.jobs.catalog.apply import apply_statement
    from tussock.jobs.logical.nodes import Field
    from tussock.jobs.logical.statements import AlterTable, CreateTable
    from tussock.statestore.meta.catalog import Catalog

    made = CreateTable("twice", (Field("a", "int"),), ())
    catalog = apply_statement(Catalog(), made, 1)
    once = AlterTable(made, CreateTable("twice", (Field("b", "int"),), ()))
    catalog = apply_statement(catalog, once, 1)
    with pytest.raises(CannotAlterError, match="altered after"):
        apply_statement(catalog, once, 1)
