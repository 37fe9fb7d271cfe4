"""Expressions without a kernel: Spark computes them between two levels, and each view equals its SELECT at every
epoch.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.release import needs_spark
from tests.support.runners import here
from tests.support.sample import sample
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.driver.runner import NeedsSparkError
from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.logical.quoting import string_text
from tussock.jobs.session import Session
from tussock.jobs.trouble.row_names import ViewRowError

pytestmark = pytest.mark.spark

VIEWS = {
    "sessions": "SELECT shop, session_window.start AS b, session_window.end AS e, count(*) AS n FROM pages "
    "GROUP BY shop, session_window(at, concat(n, ' minutes'))",
    "projected": "SELECT id, parse_url(url, 'HOST') AS host, get_json_object(doc, '$.a') AS a, "
    "n + 1 AS more FROM pages",
    "filtered": "SELECT id, n FROM pages WHERE n > 0 AND get_json_object(doc, '$.b') = 'x'",
    "quoted": "SELECT id, concat('`a0` \\'', mask(get_json_object(doc, '$.b')), '`a0`') AS b FROM pages",
    "grouped": "SELECT parse_url(url, 'HOST') AS host, count(*) AS pages, "
    "sum(n) AS n FROM pages GROUP BY parse_url(url, 'HOST')",
    "over_groups": "SELECT shop, mask(max(url)) AS masked, min(n) AS n FROM pages GROUP BY shop",
    "argument": "SELECT shop, max(from_json(doc, 'a int, c array<int>').c[0]) AS c, "
    "sum(n) FILTER (WHERE n > 1) AS n FROM pages GROUP BY 1",
    "guarded": "SELECT shop, sum(cast(get_json_object(doc, "
    "'$.a') AS int)) FILTER (WHERE n <> 3) AS total FROM pages GROUP BY shop",
    "lambdas": "SELECT id, aggregate(transform(split(url, '/'), x -> length(x) + n), 0, (s, "
    "x) -> s + x) AS total FROM pages",
    "decimal_lambdas": "SELECT id, aggregate(split(url, '/'), CAST(0 AS decimal(20, 2)), "
    "(s, x) -> CAST(s + length(x) * 1.15BD AS decimal(20, 2))) AS total FROM pages",
    "sorted_sets": "SELECT shop, sort_array(collect_set(struct(url, doc))) AS sets, count(DISTINCT n) AS n, "
    "count(DISTINCT url) AS urls FROM pages GROUP BY shop",
    "joined": "SELECT p.id, s.name FROM pages p JOIN shops s ON p.shop = s.id AND soundex(s.name) <> soundex(p.url)",
    "joined_on": "SELECT p.id, s.id AS other FROM pages p JOIN shops s ON parse_url(p.url, "
    "'HOST') = concat(s.name, '.org')",
    "left_judged": "SELECT p.id, s.name FROM pages p LEFT JOIN shops s ON p.shop = s.id AND "
    "soundex(s.name) <> soundex(p.url)",
    "anti_judged": "SELECT p.id FROM pages p LEFT ANTI JOIN shops s ON p.shop = s.id AND parse_url(p.url, "
    "'HOST') LIKE '%.org'",
    "full_judged": "SELECT p.id, s.id AS other FROM pages p FULL JOIN shops s "
    "ON p.shop = s.id AND parse_url(p.url, 'HOST') > initcap(s.name)",
    "semi_judged": "SELECT s.id FROM shops s WHERE EXISTS (SELECT 1 FROM pages p WHERE p.shop > s.id AND "
    "mask(p.url) <> mask(s.name))",
    # Join conditions over columns of both sides: Spark evaluates them for pairs of rows.
    "left_by_pairs": "SELECT p.id, s.id AS other, s.name FROM pages p LEFT JOIN shops s "
    "ON p.shop = s.id AND levenshtein(p.url, s.name) > 14",
    "right_by_pairs": "SELECT p.id, s.name FROM pages p RIGHT JOIN shops s ON levenshtein(p.url, "
    "s.name) > 14 AND p.n > 3",
    "full_by_pairs": "SELECT p.id, s.id AS other, s.name FROM pages p FULL JOIN shops s "
    "ON p.shop <= s.id AND levenshtein(p.url, s.name) > 15",
    "semi_by_pairs": "SELECT id FROM pages p WHERE EXISTS (SELECT 1 FROM shops s WHERE p.url RLIKE s.name)",
    "anti_by_pairs": "SELECT id, url FROM pages p WHERE NOT EXISTS (SELECT 1 FROM shops s WHERE p.url RLIKE s.name)",
    "exists_by_pairs": "SELECT id, n > 5 OR EXISTS (SELECT 1 FROM shops s WHERE p.url RLIKE "
    "s.name) AS found FROM pages p",
    "single_by_pairs": "SELECT id, (SELECT max(s.name) FROM shops s WHERE p.url RLIKE s.name) AS most FROM pages p",
    "one_by_pairs": "SELECT m, s.id FROM (SELECT max(url) AS m FROM pages) LEFT JOIN shops s ON levenshtein(m, "
    "s.name) > 14",
    "groups_by_pairs": "SELECT g.shop, n, s.id FROM (SELECT shop, max(url) AS u, "
    "count(*) AS n FROM pages GROUP BY shop) g "
    "LEFT JOIN shops s ON g.shop = s.id AND levenshtein(u, s.name) > 14",
    "null_groups_by_pairs": "SELECT g.n, s.id FROM (SELECT nullif(n, 0) AS n, coalesce(max(url), "
    "'http') AS u FROM pages GROUP BY 1) g "
    "LEFT JOIN shops s ON levenshtein(u, s.name) > 1",
    "over_a_view": "SELECT host, soundex(host) AS sound, "
    "pages FROM grouped WHERE luhn_check(cast(pages AS string)) IS NOT NULL",
    "kept": "SELECT id, to_json(named_struct('n', n, 'at', at)) AS doc, date_format(at, 'EEEE') AS day FROM pages",
    "fields": "SELECT id, x, y, z FROM pages LATERAL VIEW OUTER json_tuple(doc, 'a', 'b', 'c`d') AS x, y, "
    "z WHERE n IS NULL OR n <> 7",
    "fields_of_columns": "SELECT json_tuple(upper(doc), 'A', parse_url(url, 'HOST')) AS (x, y) FROM pages",
    "exploded": "SELECT id, e FROM pages LATERAL VIEW OUTER explode(transform(split(url, '/'), x -> mask(x))) AS e",
    "exploded_of_exploded": "SELECT id, k, mask(v) AS v FROM pages LATERAL VIEW explode(from_json(doc, "
    "'map<string,string>')) AS k, v",
    "stacked": "SELECT id, stack(2, 'host', parse_url(url, 'HOST'), 'doc', initcap(doc)) AS (k, v) FROM pages",
    "listed": "SELECT shop, posexplode(array(mask(url), soundex(url))) AS (p, e) FROM pages",
    "rolled_up": "SELECT shop, soundex(url) AS x, count(*) AS n FROM pages GROUP BY ROLLUP (shop, soundex(url))",
    "parts": "SELECT id, pos, key, to_json(value) AS v FROM pages, LATERAL variant_explode(try_parse_json(doc))",
    "parts_outer": "SELECT shop, pos, key FROM pages, LATERAL variant_explode_outer(try_parse_json(doc)) WHERE n > 0",
    "checked": "SELECT id, CASE WHEN n > 1000 THEN raise_error(concat('too many: ', n)) ELSE n END AS n FROM pages",
    "checked_first": "SELECT id FROM pages WHERE if(id < 0, raise_error('no id'), true)",
    "zone": "SELECT id, current_timezone() AS z, convert_timezone('Asia/Tokyo', "
    "cast(at AS timestamp_ntz)) AS t FROM pages",
    "encrypted": "SELECT id, hex(aes_encrypt(doc, '0123456789abcdef', 'ECB')) AS e, "
    "hex(aes_encrypt(url, '0123456789abcdef', 'GCM', 'DEFAULT', unhex('00112233445566778899aabb'), "
    "cast(n AS string))) AS f FROM pages",
    "collated": "SELECT id, url COLLATE UTF8_BINARY AS url, doc COLLATE UTF8_LCASE LIKE '%B%' AS b, "
    "CAST(initcap(url COLLATE UNICODE) AS string) AS u FROM pages "
    "WHERE url COLLATE UTF8_LCASE > 'HTTP' AND contains(url, '://S' COLLATE UNICODE_CI)",
    "collated_by_bytes": "SELECT url COLLATE UTF8_BINARY AS url, "
    "listagg(doc COLLATE UTF8_BINARY) WITHIN GROUP (ORDER BY id) AS docs FROM pages GROUP BY url COLLATE UTF8_BINARY",
    "ranked": "SELECT id, url FROM pages ORDER BY sentences(url)[0][0], id LIMIT 3",
}
COLUMNS = "id bigint, shop int, n int, url string, doc string, at timestamp"


#: Every second view, and the view that one of these reads. The deep run takes all of them.
SOME = [*sample(list(VIEWS), 2), "grouped"]


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.deep)])
def session(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Session]:
    with Session(
        str(tmp_path_factory.mktemp("by_spark") / "store"), spark, time_zone="America/New_York", runner=here(spark)
    ) as session:
        session.execute(
            f"CREATE TABLE pages ({COLUMNS}, PRIMARY KEY (id)); CREATE TABLE shops (id int, name string, "
            f"PRIMARY KEY (id))"
        )
        chosen = {name: sql for name, sql in VIEWS.items() if request.param == "all" or name in SOME}
        session.execute("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in chosen.items()))
        yield session


def require_truth(session: Session) -> None:
    """Every view of the session equals its SELECT, run by Spark over the tables."""
    (relations,) = session.execute("SHOW RELATIONS")
    assert relations.table is not None
    created = set(relations.table["name"].to_pylist())
    truth = session.spark.newSession()
    truth.conf.set("spark.sql.ansi.enabled", "true")
    truth.conf.set("spark.sql.session.timeZone", "America/New_York")
    for table in ("pages", "shops"):
        truth.createDataFrame(session.read(table)).createOrReplaceTempView(table)
    for name, sql in ((name, sql) for name, sql in VIEWS.items() if name in created):
        expected = truth.sql(sql)
        expected.createOrReplaceTempView(name)
        assert_same_answer(session.read(name), expected.toArrow(), name)


DOCS = (
    '{"a": 1, "a": 2, "b": null}',
    '{"a": {"b": [1, 2.50, {"c": "x"}]}, "b": "q\\"uo\\u00e9", "c`d": true}',
    '{"a": 1, "b": ',
    '[{"a": 1}]',
    "{'a': 'single', 'b': 1e400}",
    '"a"',
    "",
    '{"a": "x"} {"a": "y"}',
    '{"a": null, "a": "later", "b": "tab\t"}',
)


@pytest.mark.deep
def test_fields_of_documents_that_fit_no_schema_are_those_that_spark_finds(session: Session) -> None:
    rows = ", ".join(f"({500 + i}, NULL, NULL, 'http://A/x', {string_text(doc)}, NULL)" for i, doc in enumerate(DOCS))
    session.execute(f"INSERT INTO pages VALUES {rows}")
    session.flush()
    require_truth(session)
    session.execute("DELETE FROM pages WHERE id >= 500")
    session.flush()


def test_views_follow_inserts_updates_and_deletes(session: Session) -> None:
    session.execute(
        """INSERT INTO shops VALUES (1, 'north'), (2, 'south'), (3, NULL);
        INSERT INTO pages VALUES
            (1, 1, 1, 'http://north.org/a/b?q=1', '{"a": 5, "b": "x", "c": [7]}', TIMESTAMP '2021-11-07 01:30:00'),
            (2, 1, 2, 'http://south.org/', '{"a": 6, "b": "y"}', TIMESTAMP '2021-03-14 03:00:00'),
            (3, 2, 3, 'http://north.org/c', '{"a": "none", "b": "x"}', NULL),
            (4, NULL, 0, NULL, NULL, TIMESTAMP '1969-12-31 23:59:59.5')"""
    )
    session.flush()
    require_truth(session)
    session.execute("UPDATE pages SET n = 4, url = 'http://south.org/x' WHERE id = 1; DELETE FROM pages WHERE id = 2")
    session.execute(
        "INSERT INTO pages VALUES (5, 2, 5, 'http://south.org/', '{\"a\": 1, \"b\": \"`a0`\"}', TIMESTAMP '2024-02-29')"
    )
    session.flush()
    require_truth(session)
    session.execute('DELETE FROM shops WHERE id = 2; UPDATE pages SET doc = \'{"b": "x"}\' WHERE id = 5')
    session.flush()
    require_truth(session)


def test_explain_shows_the_expressions_that_spark_computes(session: Session) -> None:
    (answer,) = session.execute(f"EXPLAIN {VIEWS['projected']}")
    assert answer.table is not None
    text = "\n".join(answer.table.column(0).to_pylist())
    assert "Spark computes" in text
    assert "parse_url(url, 'HOST')" in text
    assert re.search(r"Project \[.*c\d \+ 1", text.split("Spark computes")[0]), "kernels run before Spark"


def test_operators_over_times_and_intervals_can_be_tried(session: Session) -> None:
    select = "SELECT id, try_subtract(at, make_dt_interval(n)) AS t, try_divide(make_dt_interval(n), 0) AS i FROM pages"
    session.execute(f"CREATE MATERIALIZED VIEW tried AS {select}")
    session.flush()
    assert session.read("tried").sort_by("id").to_pylist() == session.query(select).sort_by("id").to_pylist()


def test_a_row_on_which_spark_raises_is_named(session: Session) -> None:
    session.execute(
        "CREATE MATERIALIZED VIEW numbers AS SELECT id, to_number(parse_url(url, 'QUERY'), "
        "'999') AS number FROM pages WHERE id > 100"
    )
    session.flush()
    session.execute(
        "INSERT INTO pages VALUES (101, 1, 1, 'http://a.org/?77', NULL, NULL), (102, 1, 1, "
        "'http://a.org/?7x', NULL, NULL)"
    )
    with pytest.raises(ViewRowError) as error:
        session.flush()
    assert error.value.view == "numbers"
    assert "to_number(parse_url(url, 'QUERY'), '999')" in str(error.value)
    assert "7x" in error.value.reason
    assert "id=102" in error.value.row
    assert "\tat org" not in str(error.value)


def test_raise_error_has_the_users_message(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (a int, PRIMARY KEY (a)); INSERT INTO t VALUES (1), (101)")
        session.execute(
            "CREATE MATERIALIZED VIEW small AS SELECT if(a > 100, raise_error(concat('large: ', a)), a) AS a FROM t"
        )
        with pytest.raises(ViewRowError, match="large: 101"):
            session.flush()


def asserted(text: str) -> str:
    """An expression as dbt's macro assert_not_null for Spark writes it."""
    return f"coalesce({text}, nvl2({text}, assert_true({text} is not null), null))"


def test_arguments_that_dbt_asserts_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    """The differences of dbt.datediff over days and minutes. The arguments alone need no Spark."""
    first, second = (asserted(f"to_unix_timestamp({asserted(f'to_timestamp({c})')})") for c in ("a", "b"))
    differences = f"datediff({asserted('date(b)')}, {asserted('date(a)')})", f"{second} - {first}"
    selects = {
        "days": f"SELECT id, {differences[0]} AS n, {asserted('c')} AS c FROM t",
        "minutes": f"SELECT id, ceil(({differences[1]}) / 60) AS n FROM t",
        "by_spark": f"SELECT id, soundex(cast({asserted('to_timestamp(a)')} AS string)) AS a FROM t",
    }
    with Session(str(tmp_path / "store"), spark, time_zone="UTC", runner=here(spark)) as session:
        session.execute(
            "CREATE TABLE t (id int, a timestamp, b timestamp, c int, PRIMARY KEY (id)); INSERT INTO t VALUES "
            "(1, TIMESTAMP '2026-01-01 10:00:00', TIMESTAMP '2026-01-03 09:00:30', 7), (2, NULL, NULL, NULL)"
        )
        for name, select in selects.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        session.flush()
        for name, select in selects.items():
            assert_same_answer(session.read(name), session.query(select), name)
        (plan,) = session.execute(f"EXPLAIN {selects['days']}")
    assert plan.table is not None
    assert "Spark computes" not in "\n".join(plan.table.column(0).to_pylist())


def test_update_and_delete_by_expressions_without_a_kernel_are_computed_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        session.execute(
            "CREATE TABLE t (a int, s string, PRIMARY KEY (a)); INSERT INTO t VALUES (1, 'x1y22'), (2, "
            "NULL), (3, 'abc')"
        )
        session.flush()
        session.execute(
            "UPDATE t SET s = array_join(transform(regexp_extract_all(s, '([0-9]+)', 1), x -> x || '!'), "
            "',') WHERE s RLIKE concat(a, 'y')"
        )
        session.flush()
        session.execute("DELETE FROM t WHERE format_string('%S', reverse(s)) = 'CBA'")
        session.flush()
        assert sorted(map(repr, session.read("t").to_pylist())) == ["{'a': 1, 's': '1!,22!'}", "{'a': 2, 's': None}"]


def test_nondeterministic_expressions_stay_refused(session: Session) -> None:
    drawn = (
        "aes_encrypt(url, doc)",
        "aes_encrypt(url, doc, 'CBC')",
        "aes_decrypt(aes_encrypt(url, doc, 'GCM', 'DEFAULT', ''), doc)",
    )
    of_a_row = (
        "aes_encrypt(url, doc, 'CBC', 'DEFAULT', cast(doc AS binary))"  # Spark draws a random IV if the row's is empty
    )
    for expression in (
        "rand()",
        "uuid()",
        "shuffle(array(id))",
        "java_method('java.util.UUID', 'randomUUID')",
        *drawn,
        of_a_row,
    ):
        with pytest.raises(UnsupportedQueryError, match="another value on every run"):
            session.execute(f"CREATE MATERIALIZED VIEW chance AS SELECT id, {expression} AS c FROM pages")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT id, doc COLLATE UTF8_LCASE AS doc FROM pages",
        "SELECT id, array(named_struct('u', url COLLATE UNICODE)) AS u FROM pages",
        "SELECT count(*) AS n FROM pages GROUP BY url COLLATE UTF8_LCASE",
        "SELECT count(DISTINCT url COLLATE UTF8_LCASE) AS n FROM pages",
        "SELECT max(url COLLATE UTF8_LCASE) = 'abc' AS most FROM pages",
        "SELECT count(u) AS n FROM (SELECT DISTINCT url COLLATE UTF8_LCASE AS u FROM pages)",
        "SELECT id, url FROM pages ORDER BY url COLLATE UNICODE LIMIT 2",
        "SELECT id, rank() OVER (PARTITION BY url COLLATE UTF8_LCASE ORDER BY id) AS r FROM pages",
        "SELECT id, rank() OVER (PARTITION BY id ORDER BY url COLLATE UTF8_LCASE) AS r FROM pages",
        "SELECT p.id FROM pages p JOIN shops s ON p.url = s.name COLLATE UTF8_LCASE",
        "SELECT id FROM pages WHERE url COLLATE UTF8_LCASE IN (SELECT name FROM shops)",
        "SELECT url COLLATE UTF8_LCASE AS u FROM pages EXCEPT SELECT name COLLATE UTF8_LCASE FROM shops",
        # Earlier releases of Spark fail inside themselves.
        pytest.param(
            "SELECT id, lag(url COLLATE UTF8_LCASE) OVER (PARTITION BY shop ORDER BY id) = 'a' AS r FROM pages",
            marks=needs_spark("4.2"),
        ),
        "SELECT id, e = 'a' AS r FROM pages LATERAL VIEW explode(array(url COLLATE UTF8_LCASE)) AS e",
        "SELECT count(*) AS n FROM pages GROUP BY ROLLUP (url COLLATE UTF8_LCASE)",
        "SELECT id, (SELECT max(name COLLATE UTF8_LCASE) FROM shops) = 'a' AS r FROM pages",
    ],
)
def test_values_stored_or_compared_by_another_collation_are_refused(session: Session, select: str) -> None:
    with pytest.raises(
        SqlError, match=r"a value of collation \w+ would be stored|type .*string collate \w+.* is not supported"
    ):
        session.execute(f"CREATE MATERIALIZED VIEW collated_otherwise AS {select}")


def test_a_misspelt_collation_has_sparks_message(session: Session) -> None:
    with pytest.raises(
        SqlError, match=r"(?s)^\[COLLATION_INVALID_NAME\].*Suggested valid collation names: \[UTF8_LCASE\].*line 1"
    ) as raised:
        session.execute("CREATE MATERIALIZED VIEW misspelt AS SELECT id FROM pages WHERE url COLLATE UTF8_LCSE = 'a'")
    assert type(raised.value) is SqlError, "no failure of Spark's own"


@pytest.mark.parametrize(
    "empty", ["array()", "CAST(array() AS array<int>)", "CAST(array(array()) AS array<array<int>>)[0]"]
)
def test_an_empty_array_may_have_a_type(session: Session, empty: str) -> None:
    """Spark's text of such a constant has none."""
    session.execute(f"EXPLAIN SELECT id, sort_array(array_union(array(n), {empty})) AS x FROM pages")


@needs_spark("4.2")
def test_a_constant_without_a_sql_text_is_refused_by_its_type(session: Session) -> None:
    point = "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')"
    with pytest.raises(UnsupportedQueryError, match=r"a constant of type geometry\(0\)"):
        session.execute(f"CREATE MATERIALIZED VIEW points AS SELECT id, hex(st_asbinary({point}, url)) AS p FROM pages")


def test_a_session_without_spark_names_the_statement_that_needs_it(spark: SparkSession, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with Session(store, spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (a int, s string, PRIMARY KEY (a)); CREATE TABLE u (a int, PRIMARY KEY (a))")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT a, soundex(reverse(s)) AS r FROM t")
        session.execute("CREATE MATERIALIZED VIEW w AS SELECT a FROM u")
        session.flush()
    with Session(store, spark, runner="local") as local:
        local.execute("INSERT INTO u VALUES (1)")
        local.flush()
        local.execute("INSERT INTO t VALUES (1, 'abc')")
        with pytest.raises(NeedsSparkError, match="can compute some expressions of v"):
            local.flush()
