"""Arrays, structs and maps in tables and views: what Spark says of the same rows, epoch after epoch."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.session import Session

pytestmark = pytest.mark.spark

TABLE = """CREATE TABLE things (
    id int, xs array<int>, name struct<first:string,`Last name`:string>, marks array<struct<at:date,score:double>>,
    deep array<array<double>>, PRIMARY KEY (id))"""
EPOCHS = (
    """INSERT INTO things VALUES
        (1, array(1, 2, NULL), named_struct('first', 'Ada', 'Last name', 'L'), array(named_struct('at', DATE '2024-01-01', 'score', 1.5D)),
            array(array(0.0D, -0.0D), NULL, array())),
        (2, array(), named_struct('first', NULL, 'Last name', 'x'), array(NULL), NULL),
        (3, NULL, NULL, NULL, array(array(double('NaN')))),
        (4, array(NULL), named_struct('first', 'Ada', 'Last name', 'L'), array(), array()),
        (5, array(1, 2, NULL), named_struct('first', '', 'Last name', NULL), NULL, array(array(-0.0D)))""",
    """INSERT INTO things VALUES (6, array(7), named_struct('first', 'Bo', 'Last name', 'L'), NULL, array(array(0.0D)));
    UPDATE things SET xs = array(id, 2), name = named_struct('first', 'Cy', 'Last name', name.`Last name`) WHERE id = 2;
    UPDATE things SET xs = NULL WHERE xs = array(7) OR id = 4;
    UPDATE things SET marks = array(named_struct('at', NULL, 'score', double('NaN'))) WHERE id = 3""",
    """DELETE FROM things WHERE name.first = 'Ada' AND size(xs) = 3;
    UPDATE things SET deep = array(array(0.0D)) WHERE id = 5;
    INSERT INTO things VALUES (8, array(), named_struct('first', 'Ada', 'Last name', 'L'), NULL, array(NULL))""",
)
VIEWS = {
    "as_they_are": "SELECT * FROM things",
    "parts": "SELECT id, name.first, name.`Last name` AS l, try_element_at(xs, 1) AS x, get(marks, 0).score AS s, size(xs) AS n "
    "FROM things",
    "chosen": "SELECT id, xs FROM things WHERE array_contains(xs, 2) OR name IS NULL",
    "made": "SELECT id, array(id, size(xs)) AS pair, named_struct('a b', xs, 'n', name) AS both, array(1, 2) AS c FROM things",
    "equal": "SELECT id, deep FROM things WHERE deep = array(array(0.0D)) OR xs = array(1, 2, NULL)",
    "joined": "SELECT a.id, b.id AS other, b.xs, a.name FROM things a LEFT JOIN things b ON a.id = b.id + 1",
    "by_array": "SELECT xs, count(*) AS n, max(name) AS hi FROM things GROUP BY xs",
    "by_struct": "SELECT name, sum(id) AS s, min(xs) AS lo, max(xs) AS hi FROM things GROUP BY name",
    "by_floats": "SELECT deep, id % 2 AS odd, count(*) AS n FROM things GROUP BY deep, id % 2",
    "by_made": "SELECT array(id % 2, NULL) AS k, named_struct('x', size(xs)) AS s, count(xs) AS n FROM things GROUP BY 1, 2",
    "most": "SELECT min(xs) AS lo, max(name) AS hi, max(named_struct('n', size(xs), 'id', id)) AS top FROM things",
    "distinct_rows": "SELECT DISTINCT name, xs FROM things",
    "joined_on_arrays": "SELECT a.id, b.id AS other FROM things a JOIN things b ON a.xs = b.xs",
    "joined_on_floats": "SELECT a.id, b.id AS other, b.deep FROM things a FULL JOIN things b ON a.deep = b.deep AND a.id < b.id",
    "joined_on_structs": "SELECT a.id FROM things a WHERE a.name NOT IN (SELECT name FROM things WHERE id > 2 AND name IS NOT NULL)",
    "joined_on_both": "SELECT a.id, b.id AS other FROM things a LEFT JOIN things b ON a.name <=> b.name AND a.marks = b.marks",
    "first_arrays": "SELECT id, xs FROM things ORDER BY xs, id LIMIT 3",
    "last_structs": "SELECT id, name FROM things ORDER BY name DESC NULLS FIRST, deep DESC, id LIMIT 4",
    "both": "SELECT xs, id FROM things WHERE id < 3 UNION ALL SELECT xs, id FROM things WHERE id > 1",
}


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(str(tmp_path_factory.mktemp("nested") / "store"), spark) as session:
        session.execute(TABLE)
        for name, select in VIEWS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        yield session


def rows(table: pa.Table) -> list[str]:
    """The rows, to be compared as they are, to the sign of a zero."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("epoch", range(len(EPOCHS)))
def test_views_of_nested_values_are_what_spark_says(epoch: int, session: Session) -> None:
    session.execute(EPOCHS[epoch])
    session.flush()
    differing = {name: select for name, select in VIEWS.items() if rows(session.read(name)) != rows(session.query(select))}
    assert not differing, [(rows(session.read(name)), rows(session.query(select))) for name, select in differing.items()]
