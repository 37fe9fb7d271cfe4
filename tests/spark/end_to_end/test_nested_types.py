"""Arrays, structs, maps and intervals in tables and views, compared with Spark over the same rows at each epoch."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

TABLE = """CREATE TABLE things (
    id int, xs array<int>, name struct<first:string,`Last name`:string>, marks array<struct<at:date,score:double>>,
    deep array<array<double>>, PRIMARY KEY (id))"""
CALLS = """CREATE TABLE calls (
    id int, g int, began timestamp, ended timestamp, took interval day to second, tags map<string,int>,
        PRIMARY KEY (id))"""
EPOCHS = (
    """INSERT INTO things VALUES
        (1, array(1, 2, NULL), named_struct('first', 'Ada', 'Last name', 'L'), array(named_struct('at',
            DATE '2024-01-01', 'score', 1.5D)),
            array(array(0.0D, -0.0D), NULL, array())),
        (2, array(), named_struct('first', NULL, 'Last name', 'x'), array(NULL), NULL),
        (3, NULL, NULL, NULL, array(array(double('NaN')))),
        (4, array(NULL), named_struct('first', 'Ada', 'Last name', 'L'), array(), array()),
        (5, array(1, 2, NULL), named_struct('first', '', 'Last name', NULL), NULL, array(array(-0.0D)));
    INSERT INTO calls VALUES
        (1, 1, TIMESTAMP '2024-01-01 00:00:00', TIMESTAMP '2024-01-02 03:04:05.678',
            INTERVAL '1 02:03:04.5' DAY TO SECOND,
            map('a', 1, 'b', NULL)),
        (2, 1, TIMESTAMP '2024-01-03 00:00:00', TIMESTAMP '2024-01-02 23:00:00', INTERVAL '-5' SECOND, map('b', 2)),
        (3, 2, NULL, TIMESTAMP '2024-01-02 23:00:00', NULL, NULL),
        (4, 2, TIMESTAMP '2024-01-01 12:00:00', NULL, INTERVAL '3' DAY, map())""",
    """INSERT INTO things VALUES (6, array(7), named_struct('first', 'Bo', 'Last name', 'L'), NULL, array(array(0.0D)));
    UPDATE things SET xs = array(id, 2), name = named_struct('first', 'Cy', 'Last name', name.`Last name`) WHERE id = 2;
    UPDATE things SET xs = NULL WHERE xs = array(7) OR id = 4;
    UPDATE things SET marks = array(named_struct('at', NULL, 'score', double('NaN'))) WHERE id = 3;
    INSERT INTO calls VALUES (5, 1, TIMESTAMP '2024-05-01 00:00:00', TIMESTAMP '2024-05-02 03:04:05.678',
        INTERVAL '3' DAY, map('c', 3)),
        (6, NULL, TIMESTAMP '2024-05-01 00:00:00', TIMESTAMP '2024-05-01 00:00:01',
            INTERVAL '0' SECOND, map('a', 7, 'c', 1)),
        (7, 3, NULL, NULL, NULL, map('b', NULL, 'a', 1)), (8, 3, NULL, NULL, NULL, map()),
        (9, 1, NULL, NULL, NULL, map('c', 1, 'a', 7));
    UPDATE calls SET tags = map('z', 9), took = INTERVAL '0 00:01:00' DAY TO SECOND WHERE id = 2""",
    """DELETE FROM things WHERE name.first = 'Ada' AND size(xs) = 3;
    UPDATE things SET deep = array(array(0.0D)) WHERE id = 5;
    INSERT INTO things VALUES (8, array(), named_struct('first', 'Ada', 'Last name', 'L'), NULL, array(NULL));
    DELETE FROM calls WHERE id IN (1, 4); UPDATE calls SET ended = began, took = INTERVAL '2 00:00:00' DAY TO SECOND
        WHERE id > 4""",
)
VIEWS = {
    "as_they_are": "SELECT * FROM things",
    "parts": "SELECT id, name.first, name.`Last name` AS l, try_element_at(xs, 1) AS x, get(marks, "
    "0).score AS s, size(xs) AS n "
    "FROM things",
    "chosen": "SELECT id, xs FROM things WHERE array_contains(xs, 2) OR name IS NULL",
    "made": "SELECT id, array(id, size(xs)) AS pair, named_struct('a b', xs, 'n', name) AS both, array(1, "
    "2) AS c FROM things",
    "equal": "SELECT id, deep FROM things WHERE deep = array(array(0.0D)) OR xs = array(1, 2, NULL)",
    "joined": "SELECT a.id, b.id AS other, b.xs, a.name FROM things a LEFT JOIN things b ON a.id = b.id + 1",
    "by_array": "SELECT xs, count(*) AS n, max(name) AS hi FROM things GROUP BY xs",
    "by_struct": "SELECT name, sum(id) AS s, min(xs) AS lo, max(xs) AS hi FROM things GROUP BY name",
    "by_floats": "SELECT deep, id % 2 AS odd, count(*) AS n FROM things GROUP BY deep, id % 2",
    "by_made": "SELECT array(id % 2, NULL) AS k, named_struct('x', size(xs)) AS s, "
    "count(xs) AS n FROM things GROUP BY 1, 2",
    "most": "SELECT min(xs) AS lo, max(name) AS hi, max(named_struct('n', size(xs), 'id', id)) AS top FROM things",
    "distinct_rows": "SELECT DISTINCT name, xs FROM things",
    "joined_on_arrays": "SELECT a.id, b.id AS other FROM things a JOIN things b ON a.xs = b.xs",
    "joined_on_floats": "SELECT a.id, b.id AS other, b.deep FROM things a FULL JOIN things b ON a.deep "
    "= b.deep AND a.id < b.id",
    "joined_on_structs": "SELECT a.id FROM things a WHERE a.name NOT IN (SELECT name FROM things WHERE id "
    "> 2 AND name IS NOT NULL)",
    "joined_on_both": "SELECT a.id, b.id AS other FROM things a LEFT JOIN things b ON a.name <=> "
    "b.name AND a.marks = b.marks",
    "first_arrays": "SELECT id, xs FROM things ORDER BY xs, id LIMIT 3",
    "last_structs": "SELECT id, name FROM things ORDER BY name DESC NULLS FIRST, deep DESC, id LIMIT 4",
    "calls_kept": "SELECT id, took, tags FROM calls",
    "lasted": "SELECT id, ended - began AS d, took + INTERVAL '1' HOUR AS more, "
    "CAST(ended AS date) - CAST(began AS date) AS days FROM calls",
    "lasted_texts": "SELECT id, CAST(CAST(ended AS date) - CAST(began AS date) AS string) AS days, "
    "CAST(took AS string) AS t FROM calls",
    "lasted_long": "SELECT id FROM calls WHERE ended - began > INTERVAL '1' DAY OR took < INTERVAL '0' SECOND",
    "lasted_in_all": "SELECT g, sum(ended - began) AS total, avg(took) AS mean, max(took) AS hi, min(took) AS lo, "
    "count(took) AS n "
    "FROM calls GROUP BY g",
    "by_took": "SELECT took, count(*) AS n, array(took) AS a FROM calls GROUP BY took",
    "same_took": "SELECT a.id, b.id AS other FROM calls a JOIN calls b ON a.took = b.took",
    "longest": "SELECT id, took FROM calls ORDER BY took DESC, id LIMIT 3",
    "tagged": "SELECT id, tags['a'] AS a, map_keys(tags) AS k, map_values(tags) AS v, size(tags) AS n, "
    "map_concat(tags, map('n', id)) AS m FROM calls",
    "tags_of": "SELECT g, max(map_entries(tags)) AS top, count(tags) AS n FROM calls WHERE id <> 6 GROUP BY g",
    "tag_rows": "SELECT tag, count(*) AS n, sum(v) AS v FROM calls LATERAL VIEW explode(tags) AS tag, v GROUP BY tag",
    # Not of maps with a NULL for a number: in a GROUP BY, Spark's generated code reads it as zero, and its
    # interpreted code does not.
    "by_tags": "SELECT tags, count(*) AS n, max(id) AS hi FROM calls WHERE id NOT IN (1, 7) GROUP BY tags",
    "by_known_tags": "SELECT map_filter(tags, (k, v) -> v IS NOT NULL) AS m, count(*) AS n FROM calls GROUP BY 1",
    "with_tags": "SELECT tags, map_keys(tags) AS k, count(*) AS n FROM calls WHERE id NOT IN (1, 7) GROUP BY tags "
    "HAVING tags['c'] > 0 OR map_contains_key(tags, 'z')",
    "by_made_tags": "SELECT map(id % 3, g, 7, 1) AS m, count(*) AS n FROM calls WHERE g > 0 GROUP BY 1",
    "by_maps_in_arrays": "SELECT array(tags, map('z', id % 2, 'a', 1)) AS k, count(*) AS n FROM calls "
    "WHERE id NOT IN (1, 7) GROUP BY 1",
    "by_maps_of_maps": "SELECT transform(array(g), x -> map('y', tags, 'x', map())) AS m, "
    "named_struct('t', map('b', tags, 'a', NULL), 'g', g) AS s, count(*) AS n FROM calls "
    "WHERE id NOT IN (1, 7) GROUP BY ROLLUP(m, s)",
    # The struct of the fields of a NULL is not NULL.
    "by_fields_of_null": "SELECT named_struct('g', s.g, 't', s.t) AS k, count(*) AS n FROM (SELECT "
    "max_by(named_struct('g', g, 't', tags), id) FILTER (WHERE g < 2) AS s FROM calls WHERE id NOT IN (1, 7) "
    "GROUP BY id) GROUP BY 1",
    # Spark normalises the values of maps in keys, and not the keys of maps.
    "by_zeros": "SELECT map_from_arrays(array(z), array(1)) AS zeros_apart, map('a', z) AS one_zero, count(*) AS n "
    "FROM (SELECT get(get(deep, 0), 0) AS z FROM things) WHERE z IS NOT NULL GROUP BY GROUPING SETS (1, 2)",
    # structs without fields
    "nothing": "SELECT id, struct() AS s, IF(id > 3, struct(), NULL) AS some, array(struct(), NULL) AS more "
    "FROM things",
    "by_nothing": "SELECT IF(size(xs) > 1, struct(), NULL) AS s, count(*) AS n, max(struct()) AS top FROM things "
    "GROUP BY IF(size(xs) > 1, struct(), NULL)",
    "joined_on_nothing": "SELECT a.id, b.id AS other FROM things a JOIN things b "
    "ON IF(a.id > 2, struct(), NULL) = IF(b.id < 3, struct(), NULL)",
    "both": "SELECT xs, id FROM things WHERE id < 3 UNION ALL SELECT xs, id FROM things WHERE id > 1",
}


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(str(tmp_path_factory.mktemp("nested") / "store"), spark, runner=here(spark)) as session:
        session.execute(f"{TABLE}; {CALLS}")
        for name, select in VIEWS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        yield session


def rows(table: pa.Table) -> list[str]:
    """The rows, comparable exactly: zeros keep their sign."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("epoch", range(len(EPOCHS)))
@pytest.mark.sampled(3)
def test_views_of_nested_values_equal_spark(epoch: int, session: Session) -> None:
    session.execute(EPOCHS[epoch])
    session.flush()
    differing = {
        name: select for name, select in VIEWS.items() if rows(session.read(name)) != rows(session.query(select))
    }
    for name in VIEWS:  # Spark accepts the Arrow tables unchanged, with NULLs and slices
        assert session.spark.createDataFrame(session.read(name)).count() == session.read(name).num_rows
    assert not differing, [
        (rows(session.read(name)), rows(session.query(select))) for name, select in differing.items()
    ]
