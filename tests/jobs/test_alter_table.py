"""ALTER TABLE and COMMENT ON: names and comments of tables."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.plan.definition import CannotAlterError
from jobs.session import Session
from statestore.errors import InputError

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
        COMMENT ON TABLE u IS 'it''s u'; COMMENT ON COLUMN u.b IS 'two'; ALTER TABLE u ALTER COLUMN id COMMENT 'the key';
        COMMENT ON COLUMN u.`a b` IS NULL; UPDATE u SET `a b` = 7 WHERE id = 1"""
    )
    session.flush()
    assert sorted(map(repr, session.read("u").to_pylist())) == ["{'id': 1, 'a b': 7, 'b': 'y'}", "{'id': 2, 'a b': 3, 'b': 'x'}"]
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
        ("ALTER TABLE read RENAME TO other", "reads reads it by the names that it has"),
        ("ALTER TABLE read RENAME COLUMN id TO x", "drop what reads it first"),
        ("ALTER TABLE u RENAME TO read", "'read' exists already"),
        ("ALTER TABLE u RENAME COLUMN id TO B", "has a column 'B' already"),
        ("ALTER TABLE u RENAME COLUMN nope TO x", "has no column 'nope'"),
        ("ALTER TABLE u ADD COLUMN c int", "columns can't be added yet"),
        ("COMMENT ON COLUMN u IS 'x'", "expected table.column"),
        ("COMMENT ON TABLE reads IS 'x'", "only tables take changes"),
    ],
)
def test_what_cannot_be_altered_is_refused_and_leaves_no_trace(sql: str, says: str, session: Session) -> None:
    before = session.meta.log_end()
    with pytest.raises(InputError) as caught:
        session.execute(sql)
    assert says in str(caught.value)
    assert session.meta.log_end() == before


def test_of_two_sessions_statements_the_second_on_the_old_names_is_rejected(session: Session) -> None:
    session.execute("CREATE TABLE twice (a int)")
    from jobs.plan.definition import apply_statement
    from jobs.sql.logical import Field
    from jobs.sql.statements import AlterTable, CreateTable
    from statestore.meta.catalog import Catalog

    made = CreateTable("twice", (Field("a", "int"),), ())
    catalog = apply_statement(Catalog(), made, 1)
    once = AlterTable(made, CreateTable("twice", (Field("b", "int"),), ()))
    catalog = apply_statement(catalog, once, 1)
    with pytest.raises(CannotAlterError, match="altered since"):
        apply_statement(catalog, once, 1)
